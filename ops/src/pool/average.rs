//! Average pooling: the mean of each window, and its gradient spread evenly back over it.

use super::plan::{Geometry, Planes};
use crate::ActivationKind;
use crate::simd::{Kernel, Simd};

pub(super) struct Forward<'a>(pub(super) Planes<'a>);

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Planes { geometry: Geometry { rows, cols, iw, ow, inverse, .. }, src, dst } = self.0;
        let lanes = S::LANES;
        let src_len = rows.outputs.len() * iw * lanes;
        let dst_len = rows.inputs.len() * ow * lanes;
        for (src, dst) in src.chunks_exact(src_len).zip(dst.chunks_exact_mut(dst_len)) {
            let mut outputs = dst.chunks_exact_mut(lanes).zip(inverse);
            for y in &rows.inputs {
                for (x, (dst, inverse)) in cols.inputs.iter().zip(&mut outputs) {
                    // Row sums first: on a whole map, the rounding grows with h + w instead of h·w.
                    let mut sum = simd.zero();
                    for y in y.clone() {
                        let row = &src[(y * iw + x.start) * lanes..(y * iw + x.end) * lanes];
                        let mut row_sum = simd.zero();
                        for pixel in row.chunks_exact(lanes) {
                            row_sum = simd.add(row_sum, simd.load(pixel));
                        }
                        sum = simd.add(sum, row_sum);
                    }
                    simd.store(dst, simd.mul(sum, simd.splat(*inverse)));
                }
            }
        }
    }
}

pub(super) struct Backward<'a> {
    pub(super) activation: Option<ActivationKind>,
    /// The planes of the source, where there is an activation.
    pub(super) input: &'a [f32],
    pub(super) diff: Planes<'a>,
}

impl Kernel for Backward<'_> {
    type Output = ();

    /// Gathers: each input sums the outputs whose windows hold it, so that it is written once.
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Planes { geometry, src: diff_dst, dst: diff_src } = self.diff;
        let Geometry { rows, cols, ow, inverse, .. } = geometry;
        let lanes = S::LANES;
        let diff_dst_len = rows.inputs.len() * ow * lanes;
        let row_len = cols.outputs.len() * lanes;
        let diff_src_len = rows.outputs.len() * row_len;
        for ((plane, diff_dst), diff_src) in (0..)
            .zip(diff_dst.chunks_exact(diff_dst_len))
            .zip(diff_src.chunks_exact_mut(diff_src_len))
        {
            for ((row, y), diff_src) in
                (0..).zip(&rows.outputs).zip(diff_src.chunks_exact_mut(row_len))
            {
                for (x, diff_src) in cols.outputs.iter().zip(diff_src.chunks_exact_mut(lanes)) {
                    let mut sum = simd.zero();
                    for y in y.clone() {
                        let (first, end) = (y * ow + x.start, y * ow + x.end);
                        let pixels = diff_dst[first * lanes..end * lanes].chunks_exact(lanes);
                        for (pixel, inverse) in pixels.zip(&inverse[first..end]) {
                            sum = simd.mul_add(simd.load(pixel), simd.splat(*inverse), sum);
                        }
                    }
                    simd.store(diff_src, sum);
                }
                if let Some(kind) = self.activation {
                    let start = plane * diff_src_len + row * row_len;
                    kind.differentiate(simd, &self.input[start..start + row_len], diff_src);
                }
            }
        }
    }
}
