//! Max pooling: the largest value of each window, and the way back to it.

use std::ops::Range;

use super::plan::{Geometry, Planes};
use crate::simd::{Kernel, Simd};

/// One window of a plane: rows `y`, columns `x`.
struct Window<'a> {
    y: &'a Range<usize>,
    x: &'a Range<usize>,
}

impl Window<'_> {
    /// The window's part of row `y`.
    #[inline(always)]
    fn columns(&self, y: usize, iw: usize, lanes: usize) -> Range<usize> {
        (y * iw + self.x.start) * lanes..(y * iw + self.x.end) * lanes
    }

    /// The largest value in the window, lane by lane; NaN if there is one.
    #[inline(always)]
    fn max<S: Simd>(&self, simd: S, plane: &[f32], iw: usize) -> S::F32 {
        let mut max = simd.splat(f32::NEG_INFINITY);
        for y in self.y.clone() {
            for pixel in plane[self.columns(y, iw, S::LANES)].chunks_exact(S::LANES) {
                max = simd.max(max, simd.load(pixel));
            }
        }
        max
    }
}

pub(super) struct Forward<'a>(pub(super) Planes<'a>);

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Planes { geometry: Geometry { rows, cols, iw, ow, .. }, src, dst } = self.0;
        let lanes = S::LANES;
        let src_len = rows.outputs.len() * iw * lanes;
        let dst_len = rows.inputs.len() * ow * lanes;
        for (src, dst) in src.chunks_exact(src_len).zip(dst.chunks_exact_mut(dst_len)) {
            for (y, dst) in rows.inputs.iter().zip(dst.chunks_exact_mut(ow * lanes)) {
                for (x, dst) in cols.inputs.iter().zip(dst.chunks_exact_mut(lanes)) {
                    simd.store(dst, Window { y, x }.max(simd, src, *iw));
                }
            }
        }
    }
}

pub(super) struct Backward<'a> {
    pub(super) input: &'a [f32],
    pub(super) diff: Planes<'a>,
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Planes { geometry, src: diff_dst, dst: diff_src } = self.diff;
        let input_len = geometry.rows.outputs.len() * geometry.iw * S::LANES;
        let output_len = geometry.rows.inputs.len() * geometry.ow * S::LANES;
        for ((input, diff_dst), diff_src) in self
            .input
            .chunks_exact(input_len)
            .zip(diff_dst.chunks_exact(output_len))
            .zip(diff_src.chunks_exact_mut(input_len))
        {
            scatter_plane(simd, geometry, input, diff_dst, diff_src);
        }
    }
}

/// Adds each output's gradient to the input that was its window's maximum.
#[inline(always)]
fn scatter_plane<S: Simd>(
    simd: S,
    geometry: &Geometry,
    input: &[f32],
    diff_dst: &[f32],
    diff_src: &mut [f32],
) {
    let Geometry { rows, cols, iw, ow, .. } = geometry;
    let lanes = S::LANES;
    // Rows are zeroed just before the first window that reaches them, while their lines are about to be used anyway.
    let mut zeroed = 0;
    for (y, diff_dst) in rows.inputs.iter().zip(diff_dst.chunks_exact(ow * lanes)) {
        if zeroed < y.end {
            diff_src[zeroed * iw * lanes..y.end * iw * lanes].fill(0.0);
            zeroed = y.end;
        }
        for (x, diff) in cols.inputs.iter().zip(diff_dst.chunks_exact(lanes)) {
            scatter_window(simd, &Window { y, x }, *iw, input, simd.load(diff), diff_src);
        }
    }
    diff_src[zeroed * iw * lanes..].fill(0.0);
}

#[inline(always)]
fn scatter_window<S: Simd>(
    simd: S,
    window: &Window<'_>,
    iw: usize,
    input: &[f32],
    diff: S::F32,
    diff_src: &mut [f32],
) {
    let zero = simd.zero();
    let max = window.max(simd, input, iw);
    // The gradient of the lanes whose maximum has not been met yet.
    let mut left = diff;
    for y in window.y.clone() {
        let columns = window.columns(y, iw, S::LANES);
        let pixels = input[columns.clone()].chunks_exact(S::LANES);
        for (pixel, diff) in pixels.zip(diff_src[columns].chunks_exact_mut(S::LANES)) {
            let value = simd.load(pixel);
            // No value exceeds the maximum, so where it is not below it, this is the maximum; where the maximum is
            // NaN, the first NaN is.
            let if_nan = simd.select_unordered(value, left, zero);
            let here = simd.select_unordered(max, if_nan, simd.select_gt(max, value, zero, left));
            simd.store(diff, simd.add(simd.load(diff), here));
            let if_nan = simd.select_unordered(value, zero, left);
            left = simd.select_unordered(max, if_nan, simd.select_gt(max, value, left, zero));
        }
    }
}
