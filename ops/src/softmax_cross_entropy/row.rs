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
        self.for_each_vector(simd, |_, _, x| max = simd.max(max, x));
        let mut lanes = [0.0; MAX_LANES];
        simd.store(&mut lanes, max);
        lanes[..S::LANES]
            .iter()
            .fold(f32::NEG_INFINITY, |max, &x| if x > max || x.is_nan() { x } else { max })
    }

    /// Sums the exponentials, and leaves them in `out` if there is one.
    #[inline(always)]
    pub(super) fn exponentials<S: Simd>(
        &self,
        simd: S,
        max: f32,
        mut out: Option<&mut [f32]>,
    ) -> Sums {
        let max = simd.splat(max);
        let (mut exponentials, mut distances) = (simd.zero(), simd.zero());
        self.for_each_vector(simd, |at, filled, x| {
            let e = exp(simd, simd.sub(x, max));
            exponentials = simd.add(exponentials, e);
            let distance = simd.sub(max, x);
            // A padded lane is infinitely far away.
            let distance =
                if filled < S::LANES { simd.keep_first(distance, filled) } else { distance };
            distances = simd.add(distances, distance);
            if let Some(out) = &mut out {
                simd.store(&mut out[at..], e);
            }
        });
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

    /// Calls `f` with each vector's place, number of classes (possibly more than lanes) and logits, where padded
    /// lanes are minus infinity: nothing to a maximum or to a sum of exponentials.
    #[inline(always)]
    fn for_each_vector<S: Simd>(&self, simd: S, mut f: impl FnMut(usize, usize, S::F32)) {
        for (vector, logits) in self.logits.chunks_exact(S::LANES).enumerate() {
            let at = vector * S::LANES;
            let filled = self.classes - at;
            let mut x = simd.load(logits);
            if filled < S::LANES {
                let outside = simd.splat(f32::NEG_INFINITY);
                let lanes = simd.load(&LANE_NUMBERS);
                x = simd.select_gt(simd.splat(filled as f32), lanes, x, outside);
            }
            f(at, filled, x);
        }
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
