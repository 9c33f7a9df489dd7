//! Evaluation: normalizes with the running statistics.

use super::BatchNorm;
use super::affine::Affine;
use super::plan::Share;
use crate::Tiles;
use crate::extent::expect_len;
use crate::simd::{Kernel, Simd};

/// The tensors of a block of [`BatchNorm::eval`].
#[derive(Debug)]
pub struct BatchNormEval<'a> {
    /// Samples.
    pub mb: usize,
    /// The input, or `None` where `dst` holds it already.
    pub src: Option<&'a [f32]>,
    /// Scales.
    pub wei: &'a [f32],
    /// Shifts.
    pub bia: &'a [f32],
    /// Two rows: running means, then running variances.
    pub running: &'a [f32],
    /// The output.
    pub dst: Tiles<'a>,
}

impl BatchNorm {
    /// The number of blocks of [`eval`](BatchNorm::eval).
    pub fn eval_blocks(&self, mb: usize) -> usize {
        self.sample_blocks(mb)
    }

    /// Computes one block of the output from the running statistics.
    ///
    /// # Panics
    ///
    /// If a buffer is too short.
    pub fn eval(&self, block: usize, io: BatchNormEval<'_>) {
        let op = "batch_norm eval";
        if let Some(src) = io.src {
            expect_len(op, "src", src.len(), self.layout.len(io.mb));
        }
        expect_len(op, "dst", io.dst.len(), self.layout.len(io.mb));
        expect_len(op, "wei", io.wei.len(), self.channels());
        expect_len(op, "bia", io.bia.len(), self.channels());
        expect_len(op, "running", io.running.len(), self.stats_len());
        let share = self.share(block, io.mb);
        self.isa.dispatch(EvalKernel { plan: self, share, io });
    }
}

struct EvalKernel<'a> {
    plan: &'a BatchNorm,
    share: Share,
    io: BatchNormEval<'a>,
}

impl Kernel for EvalKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let EvalKernel { plan, share, mut io } = self;
        let lanes = plan.lanes(0, share.channel_block);
        let variance = simd.load(&io.running[plan.lanes(1, share.channel_block)]);
        let std = simd.sqrt(simd.add(variance, simd.splat(plan.desc.eps)));
        let scale = simd.div(simd.load(&io.wei[lanes.clone()]), std);
        let affine = Affine {
            mean: simd.load(&io.running[lanes.clone()]),
            // A padded lane's variance is 0, which with eps = 0 would give 0/0.
            scale: simd.keep_first(scale, plan.real_lanes(share.channel_block)),
            shift: simd.load(&io.bia[lanes]),
            activation: plan.activation(share.channel_block),
        };
        affine.apply(simd, plan, share, io.src, &mut io.dst);
    }
}
