//! The loss of a few samples: a pass for the maximum, one for the exponentials, one for the gradient.

use super::SoftmaxCrossEntropyDesc;
use super::row::{Row, logarithm};
use crate::simd::{Kernel, Simd};

/// The samples of a block.
pub(super) struct Samples<'a> {
    pub(super) desc: &'a SoftmaxCrossEntropyDesc,
    pub(super) sample_len: usize,
    pub(super) src: &'a [f32],
    pub(super) labels: &'a [u32],
    pub(super) losses: &'a mut [f32],
    pub(super) correct: &'a mut [f32],
    /// The scale, and the gradient of `src`.
    pub(super) gradient: Option<(f32, &'a mut [f32])>,
}

impl Kernel for Samples<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Samples { desc, sample_len, src, labels, losses, correct, mut gradient } = self;
        for (sample, src) in src.chunks_exact(sample_len).enumerate() {
            let row = Row { logits: src, classes: desc.classes };
            let label = labels[sample] as usize;
            let max = row.max(simd);
            // Nothing is less than a NaN, nor equal to it.
            let first = src[..label].iter().all(|&x| x < max);
            correct[sample] = f32::from(u8::from(first && src[label] == max));

            let diff_src = gradient
                .as_mut()
                .map(|(_, diff_src)| &mut diff_src[sample * sample_len..][..sample_len]);
            let sums = row.exponentials(simd, max, diff_src);
            let uniform = desc.label_smoothing / desc.classes as f32;
            let certain = 1.0 - desc.label_smoothing;
            // ln p[c] is (src[c] - max) - ln(sum): small terms first, which a large max would swallow.
            let mut loss = logarithm(simd, sums.exponentials) + certain * (max - src[label]);
            if uniform > 0.0 {
                loss += uniform * sums.distances;
            }
            losses[sample] = loss;

            if let Some((scale, diff_src)) = &mut gradient {
                let diff_src = &mut diff_src[sample * sample_len..][..sample_len];
                let inverse = 1.0 / sums.exponentials;
                row.subtract_uniform(simd, diff_src, *scale * inverse, *scale * uniform);
                diff_src[label] -= *scale * certain;
            }
        }
    }
}
