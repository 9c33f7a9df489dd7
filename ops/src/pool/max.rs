//! Max pooling: the largest value of each window, and the way back to it.
//!
//! Windows of 2x2 and 3x3 that lie inside the map are computed with loops of constant length; those that are cut off by
//! the border, and all others, by loops over ranges. Where such windows tile the map, the way back takes each row of them
//! once: gradients are not added to zeros, and the slope of an activation is in the same pass.

use std::ops::Range;

use super::plan::{Geometry, Planes};
use crate::ActivationKind;
use crate::simd::{Kernel, Simd};

/// One window of a plane: rows `y`, columns `x`.
struct Window<'a> {
    y: &'a Range<usize>,
    x: &'a Range<usize>,
}

impl Window<'_> {
    /// Whether nothing is cut off from a window of `K` x `K`.
    #[inline(always)]
    fn is_whole<const K: usize>(&self) -> bool {
        K > 0 && self.y.len() == K && self.x.len() == K
    }

    /// The window's part of row `y`.
    #[inline(always)]
    fn columns(&self, y: usize, iw: usize, lanes: usize) -> Range<usize> {
        (y * iw + self.x.start) * lanes..(y * iw + self.x.end) * lanes
    }

    /// The part of the `row`th row of a whole window.
    #[inline(always)]
    fn whole_columns<const K: usize>(&self, row: usize, iw: usize, lanes: usize) -> Range<usize> {
        let start = ((self.y.start + row) * iw + self.x.start) * lanes;
        start..start + K * lanes
    }

    /// The largest value in the window, lane by lane; NaN if there is one.
    #[inline(always)]
    fn max<S: Simd, const K: usize>(&self, simd: S, plane: &[f32], iw: usize) -> S::F32 {
        let mut max = simd.splat(f32::NEG_INFINITY);
        if self.is_whole::<K>() {
            for row in 0..K {
                let row = &plane[self.whole_columns::<K>(row, iw, S::LANES)];
                for column in 0..K {
                    max = simd.max(max, simd.load(&row[column * S::LANES..]));
                }
            }
        } else {
            for y in self.y.clone() {
                for pixel in plane[self.columns(y, iw, S::LANES)].chunks_exact(S::LANES) {
                    max = simd.max(max, simd.load(pixel));
                }
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
        match self.0.geometry.kernel {
            (2, 2) => self.planes::<S, 2>(simd),
            (3, 3) => self.planes::<S, 3>(simd),
            _ => self.planes::<S, 0>(simd),
        }
    }
}

impl Forward<'_> {
    #[inline(always)]
    fn planes<S: Simd, const K: usize>(self, simd: S) {
        let Planes { geometry: Geometry { rows, cols, iw, ow, .. }, src, dst } = self.0;
        let lanes = S::LANES;
        let src_len = rows.outputs.len() * iw * lanes;
        let dst_len = rows.inputs.len() * ow * lanes;
        for (src, dst) in src.chunks_exact(src_len).zip(dst.chunks_exact_mut(dst_len)) {
            for (y, dst) in rows.inputs.iter().zip(dst.chunks_exact_mut(ow * lanes)) {
                for (x, dst) in cols.inputs.iter().zip(dst.chunks_exact_mut(lanes)) {
                    simd.store(dst, Window { y, x }.max::<S, K>(simd, src, *iw));
                }
            }
        }
    }
}

pub(super) struct Backward<'a> {
    pub(super) activation: Option<ActivationKind>,
    pub(super) input: &'a [f32],
    pub(super) diff: Planes<'a>,
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        match self.diff.geometry.kernel {
            (2, 2) => self.planes::<S, 2>(simd),
            (3, 3) => self.planes::<S, 3>(simd),
            _ => self.planes::<S, 0>(simd),
        }
    }
}

impl Backward<'_> {
    #[inline(always)]
    fn planes<S: Simd, const K: usize>(self, simd: S) {
        let Planes { geometry, src: diff_dst, dst: diff_src } = self.diff;
        let input_len = geometry.rows.outputs.len() * geometry.iw * S::LANES;
        let output_len = geometry.rows.inputs.len() * geometry.ow * S::LANES;
        for ((input, diff_dst), diff_src) in self
            .input
            .chunks_exact(input_len)
            .zip(diff_dst.chunks_exact(output_len))
            .zip(diff_src.chunks_exact_mut(input_len))
        {
            let plane = Plane { geometry, activation: self.activation, input, diff_src };
            plane.scatter::<S, K>(simd, diff_dst);
        }
    }
}

/// One plane of the gradient of the input.
struct Plane<'a> {
    geometry: &'a Geometry,
    activation: Option<ActivationKind>,
    input: &'a [f32],
    diff_src: &'a mut [f32],
}

impl Plane<'_> {
    /// Adds each output's gradient to the input that was its window's maximum.
    #[inline(always)]
    fn scatter<S: Simd, const K: usize>(self, simd: S, diff_dst: &[f32]) {
        let Plane { geometry, activation, input, diff_src } = self;
        let Geometry { rows, cols, iw, ow, .. } = geometry;
        let lanes = S::LANES;
        let row_len = iw * lanes;
        // Rows are zeroed just before the first window that reaches them, while their lines are about to be used anyway,
        // and multiplied by the slope just after the last one.
        let (mut zeroed, mut complete) = (0, 0);
        // No row from here on, of those that were zeroed, holds a NaN.
        let mut numbers_from = 0;
        for (oy, (y, diff_dst)) in
            rows.inputs.iter().zip(diff_dst.chunks_exact(ow * lanes)).enumerate()
        {
            let at = y.start * row_len..y.end * row_len;
            let tiled = TiledRow { iw: *iw, input: &input[at.clone()], diff: &mut diff_src[at] };
            if K > 0
                && geometry.tiled
                && y.len() == K
                && tiled.spread::<S, K>(simd, activation, diff_dst)
            {
                (zeroed, complete) = (y.end, y.end);
            } else {
                for row in zeroed..y.end {
                    let at = row * row_len..(row + 1) * row_len;
                    diff_src[at.clone()].fill(0.0);
                    if K > 0 && has_nan(simd, &input[at]) {
                        numbers_from = row + 1;
                    }
                }
                zeroed = zeroed.max(y.end);
                let are_numbers = numbers_from <= y.start;
                for (x, diff) in cols.inputs.iter().zip(diff_dst.chunks_exact(lanes)) {
                    let (window, diff) = (Window { y, x }, simd.load(diff));
                    if are_numbers && window.is_whole::<K>() {
                        scatter_numbers::<S, K>(simd, &window, *iw, input, diff, diff_src);
                    } else {
                        scatter_window(simd, &window, *iw, input, diff, diff_src);
                    }
                }
            }
            let done = rows.outputs[complete..].iter().take_while(|outputs| outputs.end <= oy + 1);
            let rows = complete..complete + done.count();
            if zeroed < rows.end {
                diff_src[zeroed * row_len..rows.end * row_len].fill(0.0);
                zeroed = rows.end;
                // Nobody looked for NaN here, but no window reaches these rows either.
            }
            complete = rows.end;
            if let Some(kind) = activation {
                let at = rows.start * row_len..rows.end * row_len;
                kind.differentiate(simd, &input[at.clone()], &mut diff_src[at]);
            }
        }
    }
}

/// The lines under one row of windows that tile them, but for what is left on the right.
struct TiledRow<'a> {
    /// Pixels of a line.
    iw: usize,
    input: &'a [f32],
    diff: &'a mut [f32],
}

impl TiledRow<'_> {
    /// Writes the gradients of a row of windows, each times the slope at its input. `false`, and nothing of use, if an input
    /// is NaN or infinite.
    #[inline(always)]
    fn spread<S: Simd, const K: usize>(
        self,
        simd: S,
        activation: Option<ActivationKind>,
        diff_dst: &[f32],
    ) -> bool {
        let TiledRow { iw, input, diff: diff_src } = self;
        let (lanes, zero) = (S::LANES, simd.zero());
        let mut not_numbers = [zero; K];
        for (window, diff) in diff_dst.chunks_exact(lanes).enumerate() {
            let first = window * K * lanes;
            let mut values = [[zero; K]; K];
            let mut max = simd.splat(f32::NEG_INFINITY);
            for row in 0..K {
                let pixels = &input[row * iw * lanes + first..][..K * lanes];
                for column in 0..K {
                    let value = simd.load(&pixels[column * lanes..]);
                    values[row][column] = value;
                    max = simd.select_gt(value, max, value, max);
                    not_numbers[column] = simd.mul_add(value, zero, not_numbers[column]);
                }
            }
            let mut left = simd.load(diff);
            for row in 0..K {
                let diffs = &mut diff_src[row * iw * lanes + first..][..K * lanes];
                for column in 0..K {
                    let value = values[row][column];
                    let here = simd.select_gt(max, value, zero, left);
                    left = simd.select_gt(max, value, left, zero);
                    simd.store(&mut diffs[column * lanes..], slope(simd, activation, value, here));
                }
            }
        }
        let covered = diff_dst.len() * K;
        for (input, diff_src) in
            input.chunks_exact(iw * lanes).zip(diff_src.chunks_exact_mut(iw * lanes))
        {
            let outside = input[covered..]
                .chunks_exact(lanes)
                .zip(diff_src[covered..].chunks_exact_mut(lanes));
            for (value, diff) in outside {
                simd.store(diff, slope(simd, activation, simd.load(value), zero));
            }
        }
        let sum = not_numbers.into_iter().fold(zero, |sum, each| simd.add(sum, each));
        !simd.reduce_add(sum).is_nan()
    }
}

/// A gradient times the slope of the activation at `value`, if there is one.
#[inline(always)]
fn slope<S: Simd>(
    simd: S,
    activation: Option<ActivationKind>,
    value: S::F32,
    diff: S::F32,
) -> S::F32 {
    match activation {
        None => diff,
        Some(kind) => kind.gradient(simd, value, diff),
    }
}

/// Whether a row holds a NaN; an infinity may pass for one.
#[inline(always)]
fn has_nan<S: Simd>(simd: S, row: &[f32]) -> bool {
    let mut sums = [simd.zero(); 2];
    for (i, pixel) in row.chunks_exact(S::LANES).enumerate() {
        sums[i % 2] = simd.mul_add(simd.load(pixel), simd.zero(), sums[i % 2]);
    }
    simd.reduce_add(simd.add(sums[0], sums[1])).is_nan()
}

/// A whole window without NaN.
#[inline(always)]
fn scatter_numbers<S: Simd, const K: usize>(
    simd: S,
    window: &Window<'_>,
    iw: usize,
    input: &[f32],
    diff: S::F32,
    diff_src: &mut [f32],
) {
    let lanes = S::LANES;
    let mut values = [[simd.zero(); K]; K];
    let mut max = simd.splat(f32::NEG_INFINITY);
    for row in 0..K {
        let pixels = &input[window.whole_columns::<K>(row, iw, lanes)];
        for column in 0..K {
            let value = simd.load(&pixels[column * lanes..]);
            values[row][column] = value;
            // Of numbers, this is the one instruction.
            max = simd.select_gt(value, max, value, max);
        }
    }
    let (zero, mut left) = (simd.zero(), diff);
    for row in 0..K {
        let diffs = &mut diff_src[window.whole_columns::<K>(row, iw, lanes)];
        for column in 0..K {
            let value = values[row][column];
            // No value exceeds the maximum, so where it is not below it, this is the maximum.
            let here = simd.select_gt(max, value, zero, left);
            left = simd.select_gt(max, value, left, zero);
            let diff = &mut diffs[column * lanes..(column + 1) * lanes];
            simd.store(diff, simd.add(simd.load(diff), here));
        }
    }
}

/// Any window.
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
    let max = window.max::<S, 0>(simd, input, iw);
    // The gradient of the lanes whose maximum has not been met yet.
    let mut left = diff;
    for y in window.y.clone() {
        let columns = window.columns(y, iw, S::LANES);
        let pixels = input[columns.clone()].chunks_exact(S::LANES);
        for (pixel, diff) in pixels.zip(diff_src[columns].chunks_exact_mut(S::LANES)) {
            let value = simd.load(pixel);
            // As for numbers; where the maximum is NaN, it is the first NaN.
            let if_nan = simd.select_unordered(value, left, zero);
            let here = simd.select_unordered(max, if_nan, simd.select_gt(max, value, zero, left));
            simd.store(diff, simd.add(simd.load(diff), here));
            let if_nan = simd.select_unordered(value, zero, left);
            left = simd.select_unordered(max, if_nan, simd.select_gt(max, value, left, zero));
        }
    }
}
