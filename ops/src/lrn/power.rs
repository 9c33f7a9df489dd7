//! `s^-beta`, with square roots where they suffice.

use crate::simd::{Simd, exp, ln};

/// How a fixed power is computed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum InversePower {
    /// `s^-1/2`
    Half,
    /// `s^-3/4`, the power of AlexNet
    ThreeQuarters,
    /// `s^-1`
    One,
    /// `s^-beta` by logarithm and exponential
    Any(f32),
}

impl InversePower {
    /// The way for this `beta`.
    pub(super) fn new(beta: f32) -> InversePower {
        match beta {
            0.5 => InversePower::Half,
            0.75 => InversePower::ThreeQuarters,
            1.0 => InversePower::One,
            _ => InversePower::Any(beta),
        }
    }

    #[inline(always)]
    pub(super) fn of<S: Simd>(self, simd: S, s: S::F32) -> S::F32 {
        let root = match self {
            InversePower::Half => simd.sqrt(s),
            InversePower::ThreeQuarters => {
                let root = simd.sqrt(s);
                simd.mul(root, simd.sqrt(root))
            }
            InversePower::One => s,
            InversePower::Any(beta) => {
                return exp(simd, simd.mul(simd.splat(-beta), ln(simd, s)));
            }
        };
        simd.div(simd.splat(1.0), root)
    }
}
