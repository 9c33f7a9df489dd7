//! Dropout as plain loops over a plain NCHW tensor.

use super::{DropoutDesc, DropoutKey};

/// Masks `src` (samples, c, h, w), which may as well be the gradient of the output.
pub fn forward(desc: &DropoutDesc, key: DropoutKey, samples: &[u64], src: &[f32]) -> Vec<f32> {
    let pixels = desc.maps.h * desc.maps.w;
    let sample_len = desc.maps.c * pixels;
    let mask = |i: usize| {
        let index = desc.first_channel * pixels + i % sample_len;
        let random = key.sample(samples[i / sample_len]).random(index as u32);
        f64::from(random) / 2.0_f64.powi(32) >= f64::from(desc.p)
    };
    let scale = 1.0 / (1.0 - f64::from(desc.p));
    let factor = |i: usize| if mask(i) { scale } else { 0.0 };
    (0..src.len()).map(|i| (f64::from(src[i]) * factor(i)) as f32).collect()
}
