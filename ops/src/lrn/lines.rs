//! Scratch lines: for each pixel of a run, one value a channel, in channel order between margins of zeros.

use super::Lrn;
use crate::simd::Simd;

/// The lines of a run, over a part of a worker's scratch.
pub(super) struct Lines<'a> {
    values: &'a mut [f32],
    margin: usize,
    line_len: usize,
}

impl<'a> Lines<'a> {
    /// Lines of the plan's size, whose margins are zero and whose channels are still to be set.
    pub(super) fn new(plan: &Lrn, scratch: &'a mut [f32]) -> Lines<'a> {
        let (margin, line_len) = (plan.margin(), plan.line_len());
        let values = &mut scratch[..plan.run * line_len];
        for line in values.chunks_exact_mut(line_len) {
            line[..margin].fill(0.0);
            line[line_len - margin..].fill(0.0);
        }
        Lines { values, margin, line_len }
    }

    /// Sets one pixel's values of a channel block.
    #[inline(always)]
    pub(super) fn set<S: Simd>(&mut self, simd: S, pixel: usize, channel_block: usize, v: S::F32) {
        let at = pixel * self.line_len + self.margin + channel_block * S::LANES;
        simd.store(&mut self.values[at..], v);
    }

    /// For each channel of a block, the sum over its neighbors from `before` channels before it to `after` after it.
    #[inline(always)]
    pub(super) fn window_sum<S: Simd>(
        &self,
        simd: S,
        pixel: usize,
        channel_block: usize,
        (before, after): (usize, usize),
    ) -> S::F32 {
        let at = pixel * self.line_len + self.margin + channel_block * S::LANES - before;
        let window = &self.values[at..at + before + after + S::LANES];
        let mut sum = simd.zero();
        for shifted in window.windows(S::LANES) {
            sum = simd.add(sum, simd.load(shifted));
        }
        sum
    }
}

/// Sets the lines of a channel block to the squares of a run's inputs.
#[inline(always)]
pub(super) fn set_squares<S: Simd>(
    simd: S,
    lines: &mut Lines<'_>,
    channel_block: usize,
    src: &[f32],
) {
    for (pixel, src) in src.chunks_exact(S::LANES).enumerate() {
        let x = simd.load(src);
        lines.set(simd, pixel, channel_block, simd.mul(x, x));
    }
}
