//! The gradients of the three functions, found from their values.

use crate::simd::{Kernel, Simd};

/// Consecutive elements of a block.
pub(super) struct Gradients<'a> {
    pub(super) dst: &'a [f32],
    /// The gradient of `dst`, or `None` where `diff_src` holds it.
    pub(super) diff_dst: Option<&'a [f32]>,
    pub(super) diff_src: &'a mut [f32],
}

impl Gradients<'_> {
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

pub(super) struct Relu<'a>(pub(super) Gradients<'a>);

impl Kernel for Relu<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let zero = simd.zero();
        self.0.map(simd, |dst, diff| {
            // A NaN of the forward pass compares false, and must not turn into a zero.
            simd.select_unordered(dst, dst, simd.select_gt(dst, zero, diff, zero))
        });
    }
}

pub(super) struct Sigmoid<'a>(pub(super) Gradients<'a>);

impl Kernel for Sigmoid<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let one = simd.splat(1.0);
        self.0.map(simd, |dst, diff| simd.mul(diff, simd.mul(dst, simd.sub(one, dst))));
    }
}

pub(super) struct Tanh<'a>(pub(super) Gradients<'a>);

impl Kernel for Tanh<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let one = simd.splat(1.0);
        self.0.map(simd, |dst, diff| simd.mul(diff, simd.sub(one, simd.mul(dst, dst))));
    }
}
