//! A bias as plain loops over plain NCHW tensors, in f64.

use crate::Maps;

/// Adds `bia` (c) to `src` (mb, c, h, w).
pub fn forward(maps: Maps, src: &[f32], bia: &[f32]) -> Vec<f32> {
    let channel = |i: usize| i / (maps.h * maps.w) % maps.c;
    let sums = src.iter().enumerate().map(|(i, &x)| f64::from(x) + f64::from(bia[channel(i)]));
    sums.map(|sum| sum as f32).collect()
}

/// The gradient of `bia` for `diff_dst` (mb, c, h, w).
pub fn backward_weights(maps: Maps, diff_dst: &[f32]) -> Vec<f32> {
    let mut diff_bia = vec![0.0_f64; maps.c];
    for (i, &diff) in diff_dst.iter().enumerate() {
        diff_bia[i / (maps.h * maps.w) % maps.c] += f64::from(diff);
    }
    diff_bia.iter().map(|&sum| sum as f32).collect()
}
