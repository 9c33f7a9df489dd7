//! Concatenation as plain loops over plain NCHW tensors.

use super::ConcatDesc;

/// Joins `srcs`, each (mb, its channels, h, w).
pub fn forward(desc: &ConcatDesc, mb: usize, srcs: &[&[f32]]) -> Vec<f32> {
    let mut dst = Vec::new();
    for sample in 0..mb {
        for (src, channels) in srcs.iter().zip(&desc.channels) {
            let len = channels * desc.h * desc.w;
            dst.extend_from_slice(&src[sample * len..][..len]);
        }
    }
    dst
}

/// The part of `diff_dst` that belongs to one input.
pub fn backward(desc: &ConcatDesc, mb: usize, input: usize, diff_dst: &[f32]) -> Vec<f32> {
    let pixels = desc.h * desc.w;
    let total = desc.channels.iter().sum::<usize>() * pixels;
    let before = desc.channels[..input].iter().sum::<usize>() * pixels;
    let len = desc.channels[input] * pixels;
    let samples = (0..mb).map(|sample| &diff_dst[sample * total + before..][..len]);
    samples.flatten().copied().collect()
}
