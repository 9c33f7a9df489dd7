//! The gradient of the input, with the sums of all ranks.

use super::BatchNorm;
use super::plan::Share;
use crate::extent::expect_len;
use crate::simd::{Kernel, Simd};
use crate::{ActivationKind, Tiles};

/// The tensors of a block of [`BatchNorm::backward`].
#[derive(Debug)]
pub struct BatchNormBackward<'a> {
    /// Samples of this rank.
    pub mb: usize,
    /// The input of the forward pass.
    pub src: &'a [f32],
    /// Scales.
    pub wei: &'a [f32],
    /// What the forward pass saved.
    pub saved: &'a [f32],
    /// What [`BatchNorm::backward_stats`] gave for each slice of this rank, or what is merged of every rank, in rank
    /// order. Empty if the statistics did not depend on the samples (evaluation).
    pub sums: &'a [f32],
    /// Values a channel (samples · h · w), in parts whose sum counts, as in the forward pass.
    pub counts: &'a [u64],
    /// The gradient of the output, or `None` where `diff_src` holds it already.
    pub diff_dst: Option<&'a [f32]>,
    /// The gradient of the input.
    pub diff_src: Tiles<'a>,
}

impl BatchNorm {
    /// The number of blocks of the input's gradient.
    pub fn backward_blocks(&self, mb: usize) -> usize {
        self.sample_blocks(mb)
    }

    /// Computes one block of the gradient of the input:
    ///
    /// ```text
    /// x = (src - mean) / std
    /// diff_src = wei / std * (diff_dst - diff_bia / count - x * diff_wei / count)
    /// ```
    ///
    /// with `diff_bia`, `diff_wei` and `count` over all ranks, times the slope of an activation that `src` is the value
    /// of ([`src_activation`](super::BatchNormDesc::src_activation)).
    ///
    /// # Panics
    ///
    /// If a buffer is too short.
    pub fn backward(&self, block: usize, io: BatchNormBackward<'_>) {
        let op = "batch_norm backward";
        expect_len(op, "src", io.src.len(), self.layout.len(io.mb));
        expect_len(op, "wei", io.wei.len(), self.channels());
        expect_len(op, "saved", io.saved.len(), self.stats_len());
        if let Some(diff_dst) = io.diff_dst {
            expect_len(op, "diff_dst", diff_dst.len(), self.layout.len(io.mb));
        }
        expect_len(op, "diff_src", io.diff_src.len(), self.layout.len(io.mb));
        let share = self.share(block, io.mb);
        self.isa.dispatch(BackwardKernel { plan: self, share, io });
    }
}

struct BackwardKernel<'a> {
    plan: &'a BatchNorm,
    share: Share,
    io: BatchNormBackward<'a>,
}

impl Kernel for BackwardKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let BackwardKernel { plan, share, mut io } = self;
        let gradient = Gradient::new(simd, plan, share.channel_block, &io);
        for sample in share.samples {
            let plane = plan.plane(sample, share.channel_block);
            let src = io.src[plane.clone()].chunks_exact(S::LANES);
            let diff_src = io.diff_src.tile(plane.clone()).chunks_exact_mut(S::LANES);
            match io.diff_dst {
                Some(diff_dst) => {
                    let diff_dst = diff_dst[plane].chunks_exact(S::LANES);
                    for ((diff_src, src), diff_dst) in diff_src.zip(src).zip(diff_dst) {
                        let diff = gradient.at(simd, simd.load(src), simd.load(diff_dst));
                        simd.store(diff_src, diff);
                    }
                }
                None => {
                    for (diff, src) in diff_src.zip(src) {
                        simd.store(diff, gradient.at(simd, simd.load(src), simd.load(diff)));
                    }
                }
            }
        }
    }
}

/// The constants of the formula above for one channel block.
struct Gradient<V> {
    mean: V,
    inverse_std: V,
    scale: V,
    mean_diff: V,
    mean_product: V,
    activation: Option<ActivationKind>,
}

impl<V: Copy> Gradient<V> {
    #[inline(always)]
    fn new<S: Simd<F32 = V>>(
        simd: S,
        plan: &BatchNorm,
        channel_block: usize,
        io: &BatchNormBackward<'_>,
    ) -> Gradient<V> {
        let (first, second) = (plan.lanes(0, channel_block), plan.lanes(1, channel_block));
        let (mut diff, mut product) = (simd.zero(), simd.zero());
        for sums in io.sums.chunks_exact(plan.stats_len()) {
            diff = simd.add(diff, simd.load(&sums[first.clone()]));
            product = simd.add(product, simd.load(&sums[second.clone()]));
        }
        let count = simd.splat(io.counts.iter().sum::<u64>().max(1) as f32);
        let inverse_std = simd.load(&io.saved[second]);
        Gradient {
            mean: simd.load(&io.saved[first.clone()]),
            inverse_std,
            scale: simd.mul(simd.load(&io.wei[first]), inverse_std),
            mean_diff: simd.div(diff, count),
            mean_product: simd.div(product, count),
            activation: plan.desc.src_activation,
        }
    }

    #[inline(always)]
    fn at<S: Simd<F32 = V>>(&self, simd: S, src: V, diff: V) -> V {
        let normalized = simd.mul(simd.sub(src, self.mean), self.inverse_std);
        let through_variance = simd.mul(normalized, self.mean_product);
        let centered = simd.sub(simd.sub(diff, self.mean_diff), through_variance);
        let diff_src = simd.mul(self.scale, centered);
        match self.activation {
            Some(kind) => kind.gradient(simd, src, diff_src),
            None => diff_src,
        }
    }
}
