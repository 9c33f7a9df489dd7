//! From the order of the kernel calls to that of the packed weights.

use super::BackwardWeightsPlan;
use super::share::Share;
use crate::Tiles;
use crate::conv2d::weights::position;
use crate::simd::{Kernel, Simd};

impl BackwardWeightsPlan {
    /// Copies the sums of a share to the gradient of the packed weights.
    pub(super) fn store(&self, share: &Share, sums: &[f32], mut diff_wei: Tiles<'_>) {
        let g = &self.geometry;
        let out_blocks = g.out_blocks();
        let group_start = share.group * out_blocks * g.lanes * self.taps.steps();
        let taps = self.tap_range(share);
        let steps = &self.tap_tiles.steps[taps.clone()];
        for out in share.outs.clone() {
            let within = out - share.outs.start;
            let first = within / self.vectors * self.vectors;
            let vectors = self.vectors.min(share.outs.len() - first);
            let sums = &sums[(first * taps.len() + within - first) * g.lanes..];
            let at =
                |step| group_start + position(&self.taps, g.lanes, out_blocks, out * g.lanes, step);
            self.isa.dispatch(Scatter {
                sums,
                vectors,
                steps,
                start: at(0),
                step_len: at(1) - at(0),
                real_lanes: g.group_oc - out * g.lanes,
                diff_wei: diff_wei.reborrow(),
            });
        }
    }
}

/// The sums of one output vector.
struct Scatter<'a> {
    sums: &'a [f32],
    /// From sum to sum, in vectors.
    vectors: usize,
    steps: &'a [usize],
    /// Where step 0 lies.
    start: usize,
    step_len: usize,
    real_lanes: usize,
    diff_wei: Tiles<'a>,
}

impl Kernel for Scatter<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let sums = self.sums.chunks(self.vectors * S::LANES);
        for (sum, step) in sums.zip(self.steps) {
            // Zeros of diff_dst do not make a padded lane zero where the source is infinite.
            let sum = simd.keep_first(simd.load(sum), self.real_lanes);
            let start = self.start + step * self.step_len;
            simd.store(self.diff_wei.tile(start..start + S::LANES), sum);
        }
    }
}
