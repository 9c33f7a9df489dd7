//! The two loops of a bias layer.

use std::ops::Range;

use crate::simd::{Kernel, Simd};
use crate::slices::{MAX_LEVELS, merges_after};
use crate::{ActivationKind, SampleSlices};

/// One sample of one channel block.
pub(super) struct AddBias<'a> {
    /// The input, or `None` where `dst` holds it.
    pub(super) src: Option<&'a [f32]>,
    /// Starts with the bias of the channel block.
    pub(super) bia: &'a [f32],
    /// What becomes of the result, in how many lanes.
    pub(super) activation: Option<(ActivationKind, usize)>,
    pub(super) dst: &'a mut [f32],
}

impl Kernel for AddBias<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let bia = simd.load(self.bia);
        let value = |x| {
            let y = simd.add(x, bia);
            match self.activation {
                Some((kind, real)) => simd.keep_first(kind.apply(simd, y), real),
                None => y,
            }
        };
        let dst = self.dst.chunks_exact_mut(S::LANES);
        match self.src {
            Some(src) => {
                for (dst, src) in dst.zip(src.chunks_exact(S::LANES)) {
                    simd.store(dst, value(simd.load(src)));
                }
            }
            None => {
                for dst in dst {
                    simd.store(dst, value(simd.load(dst)));
                }
            }
        }
    }
}

/// How many sums run side by side over a plane: as many as additions are in flight at once.
const CHAINS: usize = 4;

/// One channel block of all samples.
pub(super) struct SumPixels<'a> {
    /// Samples whose sums are added in a tree.
    pub(super) slices: &'a SampleSlices,
    pub(super) diff_dst: &'a [f32],
    pub(super) sample_len: usize,
    /// Where the channel block lies in a sample.
    pub(super) plane: Range<usize>,
    pub(super) diff_bia: &'a mut [f32],
}

impl Kernel for SumPixels<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (mut stack, mut depth) = ([simd.zero(); MAX_LEVELS], 0);
        for (index, samples) in self.slices.iter().enumerate() {
            let mut sum = simd.zero();
            for sample in samples {
                let sample = &self.diff_dst[sample * self.sample_len..];
                sum = simd.add(sum, sum_plane(simd, &sample[self.plane.clone()]));
            }
            for _ in 0..merges_after(index) {
                depth -= 1;
                sum = simd.add(stack[depth], sum);
            }
            stack[depth] = sum;
            depth += 1;
        }
        simd.store(self.diff_bia, stack[0]);
    }
}

#[inline(always)]
fn sum_plane<S: Simd>(simd: S, plane: &[f32]) -> S::F32 {
    let mut chains = [simd.zero(); CHAINS];
    let mut rounds = plane.chunks_exact(CHAINS * S::LANES);
    for round in &mut rounds {
        for (chain, pixel) in chains.iter_mut().zip(round.chunks_exact(S::LANES)) {
            *chain = simd.add(*chain, simd.load(pixel));
        }
    }
    for (chain, pixel) in chains.iter_mut().zip(rounds.remainder().chunks_exact(S::LANES)) {
        *chain = simd.add(*chain, simd.load(pixel));
    }
    let [a, b, c, d] = chains;
    simd.add(simd.add(a, b), simd.add(c, d))
}
