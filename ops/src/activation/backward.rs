//! The gradients of the three functions, found from their values.

use super::desc::ActivationKind;
use crate::Isa;
use crate::simd::{Kernel, Simd};

/// Consecutive elements of a block.
pub(super) struct Gradients<'a> {
    pub(super) dst: &'a [f32],
    /// The gradient of `dst`, or `None` where `diff_src` holds it.
    pub(super) diff_dst: Option<&'a [f32]>,
    pub(super) diff_src: &'a mut [f32],
}

impl Gradients<'_> {
    /// Computes the gradients of one of the functions.
    pub(super) fn dispatch(self, kind: ActivationKind, isa: Isa) {
        match kind {
            ActivationKind::Relu => isa.dispatch(Relu(self)),
            ActivationKind::Sigmoid => isa.dispatch(Sigmoid(self)),
            ActivationKind::Tanh => isa.dispatch(Tanh(self)),
        }
    }

    /// Stores `f(dst, diff_dst)`.
    #[inline(always)]
    fn map<S: Simd>(self, simd: S, f: impl Fn(S::F32, S::F32) -> S::F32) {
        let values = self.dst.chunks_exact(S::LANES);
        let outputs = self.diff_src.chunks_exact_mut(S::LANES).zip(values);
        match self.diff_dst {
            Some(diff_dst) => {
                for ((out, dst), diff) in outputs.zip(diff_dst.chunks_exact(S::LANES)) {
                    simd.store(out, f(simd.load(dst), simd.load(diff)));
                }
            }
            None => {
                for (out, dst) in outputs {
                    simd.store(out, f(simd.load(dst), simd.load(out)));
                }
            }
        }
    }
}

struct Relu<'a>(Gradients<'a>);

impl Kernel for Relu<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        self.0.map(simd, |dst, diff| ActivationKind::Relu.gradient(simd, dst, diff));
    }
}

struct Sigmoid<'a>(Gradients<'a>);

impl Kernel for Sigmoid<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        self.0.map(simd, |dst, diff| ActivationKind::Sigmoid.gradient(simd, dst, diff));
    }
}

struct Tanh<'a>(Gradients<'a>);

impl Kernel for Tanh<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        self.0.map(simd, |dst, diff| ActivationKind::Tanh.gradient(simd, dst, diff));
    }
}
