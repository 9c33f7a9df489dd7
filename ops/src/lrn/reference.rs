//! Local response normalization as plain loops over plain NCHW tensors, in f64.

use std::ops::Range;

use super::LrnDesc;

/// Normalizes `src` (mb, c, h, w).
pub fn forward(desc: &LrnDesc, src: &[f32]) -> Vec<f32> {
    let beta = f64::from(desc.beta);
    (0..src.len()).map(|i| (f64::from(src[i]) * divisor(desc, src, i).powf(-beta)) as f32).collect()
}

/// The gradient of `src` for `diff_dst` (mb, c, h, w).
pub fn backward(desc: &LrnDesc, src: &[f32], diff_dst: &[f32]) -> Vec<f32> {
    let beta = f64::from(desc.beta);
    let weight = 2.0 * f64::from(desc.alpha) * beta / desc.size as f64;
    let mut diff_src = vec![0.0_f64; src.len()];
    for i in 0..src.len() {
        let s = divisor(desc, src, i);
        diff_src[i] += f64::from(diff_dst[i]) * s.powf(-beta);
        let product = f64::from(diff_dst[i]) * f64::from(src[i]) * s.powf(-beta - 1.0);
        for j in window(desc, i) {
            diff_src[j] -= weight * f64::from(src[j]) * product;
        }
    }
    diff_src.iter().map(|&d| d as f32).collect()
}

/// `k + alpha / size *` the sum of squares in the window of element `i`.
fn divisor(desc: &LrnDesc, src: &[f32], i: usize) -> f64 {
    let squares: f64 = window(desc, i).map(|j| f64::from(src[j]).powi(2)).sum();
    f64::from(desc.k) + f64::from(desc.alpha) / desc.size as f64 * squares
}

/// The elements at the same pixel in the channels around element `i`.
fn window(desc: &LrnDesc, i: usize) -> impl Iterator<Item = usize> {
    let pixels = desc.maps.h * desc.maps.w;
    let channel = i / pixels % desc.maps.c;
    let first_channel = i - channel * pixels;
    let Range { start, end } =
        channel.saturating_sub(desc.size / 2)..(channel + (desc.size - 1) / 2 + 1).min(desc.maps.c);
    (start..end).map(move |c| first_channel + c * pixels)
}
