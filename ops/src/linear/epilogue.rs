//! The activation's gradient, while the gradients that it multiplies are still in cache.

use std::ops::Range;

use crate::simd::{Kernel, Simd};
use crate::{ActivationKind, Tiles};

/// Multiplies `features` of gradients by the slope of the activation that `src` is the value of.
pub(super) struct Differentiate<'a, 't> {
    pub(super) kind: ActivationKind,
    pub(super) src: &'a [f32],
    pub(super) diff_src: &'a mut Tiles<'t>,
    pub(super) stride: usize,
    pub(super) samples: &'a Range<usize>,
    pub(super) features: &'a Range<usize>,
}

impl Kernel for Differentiate<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for sample in self.samples.clone() {
            let at = sample * self.stride;
            let at = at + self.features.start..at + self.features.end;
            let values = self.src[at.clone()].chunks_exact(S::LANES);
            for (diff, value) in self.diff_src.tile(at).chunks_exact_mut(S::LANES).zip(values) {
                let product = self.kind.gradient(simd, simd.load(value), simd.load(diff));
                simd.store(diff, product);
            }
        }
    }
}
