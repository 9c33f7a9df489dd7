//! A rank's own part of the sums that the gradient needs, which are the gradients of the parameters.

use super::BatchNorm;
use super::sums::{Terms, add, sums};
use crate::Tiles;
use crate::extent::expect_len;
use crate::simd::{Kernel, Simd};

/// The tensors of a block of [`BatchNorm::backward_stats`].
#[derive(Debug)]
pub struct BatchNormBackwardStats<'a> {
    /// Samples of this rank.
    pub mb: usize,
    /// The input of the forward pass.
    pub src: &'a [f32],
    /// The gradient of the output.
    pub diff_dst: &'a [f32],
    /// What the forward pass saved.
    pub saved: &'a [f32],
    /// Two rows, this rank's parts of the gradients of the parameters: `diff_bia`, the sums of `diff_dst`, then
    /// `diff_wei`, the sums of `diff_dst` times the normalized input. Zero if `mb` is 0.
    pub sums: Tiles<'a>,
}

impl BatchNorm {
    /// The number of blocks of the sums: one a channel block, samples or not.
    pub fn backward_stats_blocks(&self, _mb: usize) -> usize {
        self.channel_blocks()
    }

    /// Computes the sums of one channel block over this rank's samples.
    ///
    /// # Panics
    ///
    /// If a buffer is too short.
    pub fn backward_stats(&self, block: usize, io: BatchNormBackwardStats<'_>) {
        let op = "batch_norm backward_stats";
        expect_len(op, "src", io.src.len(), self.layout.len(io.mb));
        expect_len(op, "diff_dst", io.diff_dst.len(), self.layout.len(io.mb));
        expect_len(op, "saved", io.saved.len(), self.stats_len());
        expect_len(op, "sums", io.sums.len(), self.stats_len());
        self.isa.dispatch(SumsKernel { plan: self, channel_block: block, io });
    }
}

struct SumsKernel<'a> {
    plan: &'a BatchNorm,
    channel_block: usize,
    io: BatchNormBackwardStats<'a>,
}

impl Kernel for SumsKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let SumsKernel { plan, channel_block, mut io } = self;
        let terms = GradientTerms {
            mean: simd.load(&io.saved[plan.lanes(0, channel_block)]),
            inverse_std: simd.load(&io.saved[plan.lanes(1, channel_block)]),
        };
        let mut total = [simd.zero(); 2];
        // Sums of sums, so that rounding does not grow with the number of samples.
        for first in (0..io.mb).step_by(plan.group) {
            let mut group = [simd.zero(); 2];
            for sample in first..(first + plan.group).min(io.mb) {
                let plane = plan.plane(sample, channel_block);
                let (src, diff) = (&io.src[plane.clone()], &io.diff_dst[plane]);
                group = add(simd, group, sums(simd, terms, src, diff));
            }
            total = add(simd, total, group);
        }
        simd.store(io.sums.tile(plan.lanes(0, channel_block)), total[0]);
        simd.store(io.sums.tile(plan.lanes(1, channel_block)), total[1]);
    }
}

/// A gradient, and its product with the normalized input.
#[derive(Clone, Copy)]
struct GradientTerms<V> {
    mean: V,
    inverse_std: V,
}

impl<V: Copy> Terms<V, 2> for GradientTerms<V> {
    #[inline(always)]
    fn terms<S: Simd<F32 = V>>(self, simd: S, src: V, diff: V) -> [V; 2] {
        let normalized = simd.mul(simd.sub(src, self.mean), self.inverse_std);
        [diff, simd.mul(diff, normalized)]
    }
}
