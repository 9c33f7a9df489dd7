//! The passes over the logits of one sample, whole vectors at a time.

use crate::simd::{Simd, exp, ln};

/// The widest vector there is, in lanes.
const MAX_LANES: usize = 16;

/// The number of each lane.
const LANE_NUMBERS: [f32; MAX_LANES] =
    [0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.];

/// What a pass over a row adds up.
pub(super) struct Sums {
    /// Of e^(x - max).
    pub(super) exponentials: f32,
    /// Of max - x.
    pub(super) distances: f32,
}

/// The logits of one sample.
pub(super) struct Row<'a> {
    /// With padding.
    pub(super) logits: &'a [f32],
    pub(super) classes: usize,
}

impl Row<'_> {
    /// The largest logit; NaN if there is one.
    #[inline(always)]
    pub(super) fn max<S: Simd>(&self, simd: S) -> f32 {
        let mut max = simd.splat(f32::NEG_INFINITY);
        for (at, logits) in (0..).step_by(S::LANES).zip(self.logits.chunks_exact(S::LANES)) {
            max = simd.max(max, self.vector(simd, at, logits));
        }
        let mut lanes = [0.0; MAX_LANES];
        simd.store(&mut lanes, max);
        let mut max = f32::NEG_INFINITY;
        for &x in &lanes[..S::LANES] {
            max = if x > max || x.is_nan() { x } else { max };
        }
        max
    }

    /// Sums the exponentials.
    #[inline(always)]
    pub(super) fn sums<S: Simd>(&self, simd: S, max: f32) -> Sums {
        self.exponentials::<S, false>(simd, max, &mut [])
    }

    /// Sums the exponentials, and leaves them in `out`.
    #[inline(always)]
    pub(super) fn sums_to<S: Simd>(&self, simd: S, max: f32, out: &mut [f32]) -> Sums {
        self.exponentials::<S, true>(simd, max, out)
    }

    // Loops, not closures: what a closure does is a function of its own, which the compiler does not inline where there are
    // several kernels, and then each vector operation in it is a call (1000 classes of 64 samples: 1.18 ms, not 0.04).
    #[inline(always)]
    fn exponentials<S: Simd, const KEEP: bool>(&self, simd: S, max: f32, out: &mut [f32]) -> Sums {
        let max = simd.splat(max);
        let (mut exponentials, mut distances) = (simd.zero(), simd.zero());
        for (at, logits) in (0..).step_by(S::LANES).zip(self.logits.chunks_exact(S::LANES)) {
            let x = self.vector(simd, at, logits);
            let e = exp(simd, simd.sub(x, max));
            exponentials = simd.add(exponentials, e);
            let distance = simd.sub(max, x);
            // A padded lane is infinitely far away.
            let filled = self.classes - at;
            let distance =
                if filled < S::LANES { simd.keep_first(distance, filled) } else { distance };
            distances = simd.add(distances, distance);
            if KEEP {
                simd.store(&mut out[at..], e);
            }
        }
        Sums { exponentials: simd.reduce_add(exponentials), distances: simd.reduce_add(distances) }
    }

    /// Turns exponentials into `e * factor - uniform`.
    #[inline(always)]
    pub(super) fn subtract_uniform<S: Simd>(
        &self,
        simd: S,
        diff: &mut [f32],
        factor: f32,
        uniform: f32,
    ) {
        let (factor, negative) = (simd.splat(factor), simd.splat(-uniform));
        for (vector, diff) in diff.chunks_exact_mut(S::LANES).enumerate() {
            let value = simd.mul_add(simd.load(diff), factor, negative);
            let filled = self.classes - vector * S::LANES;
            let value = if filled < S::LANES { simd.keep_first(value, filled) } else { value };
            simd.store(diff, value);
        }
    }

    /// The logits from class `at` on, where padded lanes are minus infinity: nothing to a maximum or to a sum of
    /// exponentials.
    #[inline(always)]
    fn vector<S: Simd>(&self, simd: S, at: usize, logits: &[f32]) -> S::F32 {
        let x = simd.load(logits);
        let filled = self.classes - at;
        if filled >= S::LANES {
            return x;
        }
        let outside = simd.splat(f32::NEG_INFINITY);
        simd.select_gt(simd.splat(filled as f32), simd.load(&LANE_NUMBERS), x, outside)
    }
}

/// The same bits on every machine of an ISA, unlike the system's logarithm.
#[inline(always)]
pub(super) fn logarithm<S: Simd>(simd: S, x: f32) -> f32 {
    let mut lanes = [0.0; MAX_LANES];
    simd.store(&mut lanes, ln(simd, simd.splat(x)));
    lanes[0]
}

/// e^x with the bits that a lane of a vector gets.
#[inline(always)]
pub(super) fn one_exponential<S: Simd>(simd: S, x: f32) -> f32 {
    let mut lanes = [0.0; MAX_LANES];
    simd.store(&mut lanes, exp(simd, simd.splat(x)));
    lanes[0]
}
