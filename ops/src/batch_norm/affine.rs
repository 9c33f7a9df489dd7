//! The normalization itself, once mean and variance are known.

use super::BatchNorm;
use super::plan::Share;
use crate::simd::Simd;
use crate::{ActivationKind, Tiles};

/// `(x - mean) * scale + shift` of one channel block. The mean is taken off first: folded into the shift, it would
/// cancel badly where it is large against the deviation.
pub(super) struct Affine<V> {
    pub(super) mean: V,
    pub(super) scale: V,
    pub(super) shift: V,
    /// What becomes of the result, in how many lanes: of zero it need not be zero.
    pub(super) activation: Option<(ActivationKind, usize)>,
}

impl<V: Copy> Affine<V> {
    /// Writes the share's planes of `dst`; `src` is `None` where `dst` already holds the input.
    #[inline(always)]
    pub(super) fn apply<S: Simd<F32 = V>>(
        &self,
        simd: S,
        plan: &BatchNorm,
        share: Share,
        src: Option<&[f32]>,
        dst: &mut Tiles<'_>,
    ) {
        for sample in share.samples {
            let plane = plan.plane(sample, share.channel_block);
            let dst = dst.tile(plane.clone()).chunks_exact_mut(S::LANES);
            match src {
                Some(src) => {
                    for (dst, src) in dst.zip(src[plane].chunks_exact(S::LANES)) {
                        simd.store(dst, self.at(simd, simd.load(src)));
                    }
                }
                None => {
                    for dst in dst {
                        simd.store(dst, self.at(simd, simd.load(dst)));
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn at<S: Simd<F32 = V>>(&self, simd: S, x: V) -> V {
        let y = simd.mul_add(simd.sub(x, self.mean), self.scale, self.shift);
        match self.activation {
            Some((kind, real)) => simd.keep_first(kind.apply(simd, y), real),
            None => y,
        }
    }
}
