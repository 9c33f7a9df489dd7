//! Pooling as plain loops over plain NCHW tensors, in f64.

use super::{PoolDesc, PoolKind};

/// Pools `src` (mb, c, ih, iw) to (mb, c, oh, ow).
///
/// # Panics
///
/// If the descriptor is refused by [`PoolDesc::dst`].
pub fn forward(desc: &PoolDesc, mb: usize, src: &[f32]) -> Vec<f32> {
    let mut dst = Vec::new();
    for_each_window(desc, mb, |window| {
        dst.push(match desc.kind {
            PoolKind::Max => src[first_max(src, &window.pixels)],
            PoolKind::Average { .. } => {
                let sum: f64 = window.pixels.iter().map(|&p| f64::from(src[p])).sum();
                (sum / window.divisor as f64) as f32
            }
        });
    });
    dst
}

/// The gradient of `src` for `diff_dst` (mb, c, oh, ow).
///
/// # Panics
///
/// As [`forward`].
pub fn backward(desc: &PoolDesc, mb: usize, src: &[f32], diff_dst: &[f32]) -> Vec<f32> {
    let mut diff_src = vec![0.0_f64; mb * desc.c * desc.ih * desc.iw];
    let mut diffs = diff_dst.iter().map(|&d| f64::from(d));
    for_each_window(desc, mb, |window| {
        let diff = diffs.next().expect("diff_dst has one element a window");
        match desc.kind {
            PoolKind::Max => diff_src[first_max(src, &window.pixels)] += diff,
            PoolKind::Average { .. } => {
                window.pixels.iter().for_each(|&p| diff_src[p] += diff / window.divisor as f64);
            }
        }
    });
    diff_src.iter().map(|&d| d as f32).collect()
}

/// The real pixels under one window, as indices of `src` in row-major order, and the divisor of an average.
struct Window {
    pixels: Vec<usize>,
    divisor: usize,
}

fn for_each_window(desc: &PoolDesc, mb: usize, mut visit: impl FnMut(&Window)) {
    let dst = desc.dst().expect("the caller promises a valid descriptor");
    for map in 0..mb * desc.c {
        for oy in 0..dst.h {
            for ox in 0..dst.w {
                let mut window = Window { pixels: Vec::new(), divisor: 0 };
                for ky in oy * desc.sh..oy * desc.sh + desc.kh {
                    for kx in ox * desc.sw..ox * desc.sw + desc.kw {
                        // Positions in the padded input.
                        let padded = ky < desc.ih + 2 * desc.ph && kx < desc.iw + 2 * desc.pw;
                        let real = (desc.ph..desc.ph + desc.ih).contains(&ky)
                            && (desc.pw..desc.pw + desc.iw).contains(&kx);
                        if real {
                            let (y, x) = (ky - desc.ph, kx - desc.pw);
                            window.pixels.push((map * desc.ih + y) * desc.iw + x);
                        }
                        let counts_padding = desc.kind == PoolKind::Average { include_pad: true };
                        window.divisor += usize::from(real || (padded && counts_padding));
                    }
                }
                visit(&window);
            }
        }
    }
}

/// The first of the largest values; a NaN counts as larger than any number.
fn first_max(src: &[f32], pixels: &[usize]) -> usize {
    let mut best = pixels[0];
    for &p in pixels {
        if src[p] > src[best] || (src[p].is_nan() && !src[best].is_nan()) {
            best = p;
        }
    }
    best
}
