//! Max pooling: the largest value of each window, and the way back to it.
//!
//! Windows of 2x2 and 3x3 that lie inside the map are computed with loops of constant length; those that are cut off by
//! the border, and all others, by loops over ranges. Where windows tile the map, the way back takes each row of them
//! once, in the memory of the input: each value gives way to its gradient, times the slope of an activation if there is one.

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
    /// `None`: the gradient's memory holds it, and windows tile the map.
    pub(super) input: Option<&'a [f32]>,
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
        let Self { activation, input, diff: Planes { geometry, src: diff_dst, dst: diff_src } } =
            self;
        let input_len = geometry.rows.outputs.len() * geometry.iw * S::LANES;
        let output_len = geometry.rows.inputs.len() * geometry.ow * S::LANES;
        let diffs = diff_dst.chunks_exact(output_len).zip(diff_src.chunks_exact_mut(input_len));
        for (plane, (diff_dst, diff_src)) in diffs.enumerate() {
            let input = input.map(|input| &input[plane * input_len..(plane + 1) * input_len]);
            match input {
                Some(input) if !geometry.tiled => {
                    let plane = Plane { geometry, activation, input, diff_src };
                    plane.scatter::<S, K>(simd, diff_dst);
                }
                input => {
                    let plane = TiledPlane { geometry, activation, input, plane: diff_src };
                    plane.spread::<S, K>(simd, diff_dst);
                }
            }
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

/// One plane that whole windows tile: what they leave over is on the right and below.
struct TiledPlane<'a> {
    geometry: &'a Geometry,
    activation: Option<ActivationKind>,
    /// `None`: `plane` holds it.
    input: Option<&'a [f32]>,
    plane: &'a mut [f32],
}

impl TiledPlane<'_> {
    /// Replaces each input by its gradient, times the slope at the input. A row of windows is copied first where the input lies
    /// elsewhere, and then in the cache.
    #[inline(always)]
    fn spread<S: Simd, const K: usize>(self, simd: S, diff_dst: &[f32]) {
        let TiledPlane { geometry: Geometry { kernel, iw, ow, .. }, activation, .. } = self;
        let window = if K > 0 { (K, K) } else { *kernel };
        let (row_len, lines_len) = (iw * S::LANES, window.0 * iw * S::LANES);
        let mut done = 0;
        for diff_dst in diff_dst.chunks_exact(ow * S::LANES) {
            let lines = &mut self.plane[done..done + lines_len];
            if let Some(input) = self.input {
                lines.copy_from_slice(&input[done..done + lines_len]);
            }
            let are_numbers = !has_nan(simd, lines);
            let mut row = TiledRow { lines, row_len, window, activation };
            if are_numbers {
                row.spread(simd, diff_dst, largest_number, first_largest);
            } else {
                row.spread(simd, diff_dst, S::max, first_largest_or_nan);
            }
            done += lines_len;
        }
        if let Some(input) = self.input {
            self.plane[done..].copy_from_slice(&input[done..]);
        }
        no_gradient(simd, activation, &mut self.plane[done..]);
    }
}

/// The lines under one row of windows.
struct TiledRow<'a> {
    lines: &'a mut [f32],
    row_len: usize,
    /// Rows and columns of a window.
    window: (usize, usize),
    activation: Option<ActivationKind>,
}

impl TiledRow<'_> {
    /// `larger` finds the largest of a window; `share` says what a value gets of the gradient that is left, and what then is left.
    #[inline(always)]
    fn spread<S: Simd>(
        &mut self,
        simd: S,
        diff_dst: &[f32],
        larger: impl Fn(S, S::F32, S::F32) -> S::F32,
        share: impl Fn(S, [S::F32; 3]) -> [S::F32; 2],
    ) {
        let (lanes, (rows, columns)) = (S::LANES, self.window);
        for (window, diff) in diff_dst.chunks_exact(lanes).enumerate() {
            let at = |row: usize| row * self.row_len + window * columns * lanes;
            let mut max = simd.splat(f32::NEG_INFINITY);
            for row in 0..rows {
                let pixels = &self.lines[at(row)..at(row) + columns * lanes];
                for column in 0..columns {
                    max = larger(simd, simd.load(&pixels[column * lanes..]), max);
                }
            }
            let mut left = simd.load(diff);
            for row in 0..rows {
                let pixels = &mut self.lines[at(row)..at(row) + columns * lanes];
                for column in 0..columns {
                    let pixel = &mut pixels[column * lanes..(column + 1) * lanes];
                    let value = simd.load(pixel);
                    let [here, rest] = share(simd, [max, value, left]);
                    left = rest;
                    simd.store(pixel, slope(simd, self.activation, value, here));
                }
            }
        }
        let covered = diff_dst.len() * columns;
        for line in self.lines.chunks_exact_mut(self.row_len) {
            no_gradient(simd, self.activation, &mut line[covered..]);
        }
    }
}

/// The larger of two numbers.
#[inline(always)]
fn largest_number<S: Simd>(simd: S, a: S::F32, b: S::F32) -> S::F32 {
    // Of numbers, this is the one instruction.
    simd.select_gt(a, b, a, b)
}

/// Of a maximum, a value that is no larger, and the gradient that is left, all numbers: what the value gets, and what is left then.
#[inline(always)]
fn first_largest<S: Simd>(simd: S, [max, value, left]: [S::F32; 3]) -> [S::F32; 2] {
    // No value exceeds the maximum, so where it is not below it, this is the maximum.
    [simd.select_gt(max, value, simd.zero(), left), simd.select_gt(max, value, left, simd.zero())]
}

/// As for numbers; where the maximum is NaN, it is the first NaN.
#[inline(always)]
fn first_largest_or_nan<S: Simd>(simd: S, [max, value, left]: [S::F32; 3]) -> [S::F32; 2] {
    let zero = simd.zero();
    let [here, rest] = first_largest(simd, [max, value, left]);
    let here_if_nan = simd.select_unordered(value, left, zero);
    let rest_if_nan = simd.select_unordered(value, zero, left);
    [simd.select_unordered(max, here_if_nan, here), simd.select_unordered(max, rest_if_nan, rest)]
}

/// Replaces inputs that no window holds by their gradient: zero, times the slope.
#[inline(always)]
fn no_gradient<S: Simd>(simd: S, activation: Option<ActivationKind>, values: &mut [f32]) {
    for value in values.chunks_exact_mut(S::LANES) {
        let diff = slope(simd, activation, simd.load(value), simd.zero());
        simd.store(value, diff);
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
            max = largest_number(simd, value, max);
        }
    }
    let mut left = diff;
    for row in 0..K {
        let diffs = &mut diff_src[window.whole_columns::<K>(row, iw, lanes)];
        for column in 0..K {
            let [here, rest] = first_largest(simd, [max, values[row][column], left]);
            left = rest;
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
    let max = window.max::<S, 0>(simd, input, iw);
    // The gradient of the lanes whose maximum has not been met yet.
    let mut left = diff;
    for y in window.y.clone() {
        let columns = window.columns(y, iw, S::LANES);
        let pixels = input[columns.clone()].chunks_exact(S::LANES);
        for (pixel, diff) in pixels.zip(diff_src[columns].chunks_exact_mut(S::LANES)) {
            let [here, rest] = first_largest_or_nan(simd, [max, simd.load(pixel), left]);
            left = rest;
            simd.store(diff, simd.add(simd.load(diff), here));
        }
    }
}
