//! The three functions, a vector at a time.

use super::desc::ActivationKind;
use crate::simd::{Kernel, Simd};

/// Consecutive elements of a block.
pub(super) struct Values<'a> {
    /// The input, or `None` where `dst` holds it.
    pub(super) src: Option<&'a [f32]>,
    pub(super) dst: &'a mut [f32],
}

impl Values<'_> {
    #[inline(always)]
    fn map<S: Simd>(self, simd: S, f: impl Fn(S::F32) -> S::F32) {
        let dst = self.dst.chunks_exact_mut(S::LANES);
        match self.src {
            Some(src) => {
                for (dst, src) in dst.zip(src.chunks_exact(S::LANES)) {
                    simd.store(dst, f(simd.load(src)));
                }
            }
            None => {
                for dst in dst {
                    simd.store(dst, f(simd.load(dst)));
                }
            }
        }
    }
}

pub(super) struct Relu<'a>(pub(super) Values<'a>);

impl Kernel for Relu<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        self.0.map(simd, |x| ActivationKind::Relu.apply(simd, x));
    }
}

pub(super) struct Sigmoid<'a>(pub(super) Values<'a>);

impl Kernel for Sigmoid<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        self.0.map(simd, |x| ActivationKind::Sigmoid.apply(simd, x));
    }
}

pub(super) struct Tanh<'a>(pub(super) Values<'a>);

impl Kernel for Tanh<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        self.0.map(simd, |x| ActivationKind::Tanh.apply(simd, x));
    }
}
