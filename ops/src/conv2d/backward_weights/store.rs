//! From the order of the kernel calls to that of the packed weights.

use super::BackwardWeightsPlan;
use super::share::Share;
use crate::conv2d::strips::{len, strip_of};
use crate::sgd::{GradientSink, Rule};
use crate::simd::{Kernel, Simd};

impl BackwardWeightsPlan {
    /// Puts the sums of a share where the gradient of the packed weights goes.
    pub(super) fn store(&self, share: &Share, sums: &[f32], mut diff_wei: GradientSink<'_>) {
        let g = &self.geometry;
        let group_start = share.group * len(&self.strips, g.lanes);
        let taps = self.tap_range(share);
        let steps = &self.tap_tiles.steps[taps.clone()];
        for out in share.outs.clone() {
            let within = out - share.outs.start;
            let first = within / self.vectors * self.vectors;
            let vectors = self.vectors.min(share.outs.len() - first);
            let sums = &sums[(first * taps.len() + within - first) * g.lanes..];
            let strip = strip_of(&self.strips, out * g.lanes, g.lanes);
            let start = group_start + strip.start + (out - strip.first) * g.lanes;
            self.isa.dispatch(Scatter {
                sums,
                vectors,
                steps,
                start,
                step_len: strip.blocks * g.lanes,
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
    diff_wei: GradientSink<'a>,
}

impl Kernel for Scatter<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Scatter { sums, vectors, steps, start, step_len, real_lanes, diff_wei } = self;
        let sums = sums.chunks(vectors * S::LANES);
        let places = steps.iter().map(|step| start + step * step_len);
        // Zeros of diff_dst do not make a padded lane zero where the source is infinite.
        match diff_wei {
            GradientSink::Store(mut diff_wei) => {
                for (sum, at) in sums.zip(places) {
                    let sum = simd.keep_first(simd.load(sum), real_lanes);
                    simd.store(diff_wei.tile(at..at + S::LANES), sum);
                }
            }
            GradientSink::Step(mut step) => {
                let rule = Rule::new(simd, step.hyper, 1.0);
                for (sum, at) in sums.zip(places) {
                    let sum = simd.keep_first(simd.load(sum), real_lanes);
                    step.vector(simd, &rule, at, sum);
                }
            }
        }
    }
}
