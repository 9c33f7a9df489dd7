//! Training's forward pass: normalizes with the statistics of all ranks, and keeps the running ones up to date.

use super::BatchNorm;
use super::affine::Affine;
use super::moments::Moments;
use super::plan::Share;
use crate::Tiles;
use crate::extent::expect_len;
use crate::simd::{Kernel, Simd};

/// The tensors of a block of [`BatchNorm::forward`].
#[derive(Debug)]
pub struct BatchNormForward<'a> {
    /// Samples of this rank.
    pub mb: usize,
    /// The input.
    pub src: &'a [f32],
    /// Scales.
    pub wei: &'a [f32],
    /// Shifts.
    pub bia: &'a [f32],
    /// What [`BatchNorm::stats`] gave for each slice of this rank, or what is merged of every rank, in rank order.
    pub stats: &'a [f32],
    /// Values a channel (samples · h · w) behind each slice's or rank's statistics; a rank may have none.
    pub counts: &'a [u64],
    /// The output.
    pub dst: Tiles<'a>,
    /// Two rows for the backward pass: means, then 1/sqrt(variance + eps).
    pub saved: Tiles<'a>,
    /// Two rows that live on from step to step: running means, then running (unbiased) variances.
    pub running: Tiles<'a>,
}

impl BatchNorm {
    /// The number of blocks of the forward pass. Without samples there is still one a channel block, as the running
    /// statistics must stay the same on every rank.
    pub fn forward_blocks(&self, mb: usize) -> usize {
        self.sample_blocks(mb).max(self.channel_blocks())
    }

    /// Computes one block of the output; the first blocks also write `saved` and `running`.
    ///
    /// The ranks' statistics are combined in rank order, so that all ranks agree to the bit. The running statistics
    /// follow PyTorch: `running += momentum * (new - running)`, with the variance over count - 1. A minibatch of one
    /// value a channel has variance 0 (PyTorch refuses it).
    ///
    /// # Panics
    ///
    /// If a buffer is too short.
    pub fn forward(&self, block: usize, io: BatchNormForward<'_>) {
        let op = "batch_norm forward";
        expect_len(op, "src", io.src.len(), self.layout.len(io.mb));
        expect_len(op, "dst", io.dst.len(), self.layout.len(io.mb));
        expect_len(op, "wei", io.wei.len(), self.channels());
        expect_len(op, "bia", io.bia.len(), self.channels());
        expect_len(op, "stats", io.stats.len(), io.counts.len() * self.stats_len());
        expect_len(op, "saved", io.saved.len(), self.stats_len());
        expect_len(op, "running", io.running.len(), self.stats_len());
        let share = self.share(block, io.mb);
        self.isa.dispatch(ForwardKernel { plan: self, share, io });
    }
}

struct ForwardKernel<'a> {
    plan: &'a BatchNorm,
    share: Share,
    io: BatchNormForward<'a>,
}

impl Kernel for ForwardKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let ForwardKernel { plan, share, mut io } = self;
        let channel_block = share.channel_block;
        let total = Moments::gathered(simd, plan, channel_block, io.stats, io.counts);
        // A padded lane must not see 1/sqrt(eps), which is infinite for eps = 0.
        let real = plan.real_lanes(channel_block);
        let variance = simd.add(total.variance(simd, 0), simd.splat(plan.desc.eps));
        let inverse_std = simd.div(simd.splat(1.0), simd.sqrt(variance));
        let inverse_std = simd.keep_first(inverse_std, real);
        if share.is_first {
            simd.store(io.saved.tile(plan.lanes(0, channel_block)), total.mean);
            simd.store(io.saved.tile(plan.lanes(1, channel_block)), inverse_std);
            if total.count > 0 {
                let momentum = plan.desc.momentum;
                let unbiased = total.variance(simd, 1);
                approach(simd, io.running.tile(plan.lanes(0, channel_block)), total.mean, momentum);
                approach(simd, io.running.tile(plan.lanes(1, channel_block)), unbiased, momentum);
            }
        }
        let lanes = plan.lanes(0, channel_block);
        let affine = Affine {
            mean: total.mean,
            scale: simd.mul(simd.load(&io.wei[lanes.clone()]), inverse_std),
            shift: simd.load(&io.bia[lanes]),
            activation: plan.activation(channel_block),
        };
        affine.apply(simd, plan, share, Some(io.src), &mut io.dst);
    }
}

/// `running = (1 - momentum) * running + momentum * new`.
#[inline(always)]
fn approach<S: Simd>(simd: S, running: &mut [f32], new: S::F32, momentum: f32) {
    let old = simd.mul(simd.load(running), simd.splat(1.0 - momentum));
    simd.store(running, simd.mul_add(new, simd.splat(momentum), old));
}
