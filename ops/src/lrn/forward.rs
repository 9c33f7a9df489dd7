//! Forward pass: each input over a power of its neighborhood's squares.

use super::Lrn;
use super::lines::{Lines, set_squares};
use crate::Tiles;
use crate::extent::expect_len;
use crate::simd::{Kernel, Simd};

/// The tensors of a forward block.
#[derive(Debug)]
pub struct LrnForward<'a> {
    /// Samples.
    pub mb: usize,
    /// The input.
    pub src: &'a [f32],
    /// The output.
    pub dst: Tiles<'a>,
    /// At least [`Lrn::forward_scratch_len`] elements of any value.
    pub scratch: &'a mut [f32],
}

impl Lrn {
    /// Elements of scratch that a worker needs in the forward pass.
    pub fn forward_scratch_len(&self) -> usize {
        self.run * self.line_len()
    }

    /// The number of blocks of the forward pass.
    pub fn forward_blocks(&self, mb: usize) -> usize {
        self.pixel_blocks(mb)
    }

    /// Computes one block of the output.
    ///
    /// # Panics
    ///
    /// If a buffer is too short.
    pub fn forward(&self, block: usize, io: LrnForward<'_>) {
        expect_len("lrn forward", "src", io.src.len(), self.layout.len(io.mb));
        expect_len("lrn forward", "dst", io.dst.len(), self.layout.len(io.mb));
        expect_len("lrn forward", "scratch", io.scratch.len(), self.forward_scratch_len());
        self.isa.dispatch(ForwardKernel { plan: self, block, io });
    }

    /// `s`, whose power divides the input, of one pixel and channel block.
    #[inline(always)]
    pub(super) fn divisor<S: Simd>(
        &self,
        simd: S,
        squares: &Lines<'_>,
        pixel: usize,
        channel_block: usize,
    ) -> S::F32 {
        let reach = (self.before(), self.after());
        let sum = squares.window_sum(simd, pixel, channel_block, reach);
        let weight = simd.splat(self.desc.alpha / self.desc.size as f32);
        simd.mul_add(sum, weight, simd.splat(self.desc.k))
    }
}

struct ForwardKernel<'a> {
    plan: &'a Lrn,
    block: usize,
    io: LrnForward<'a>,
}

impl Kernel for ForwardKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let ForwardKernel { plan, block, io: LrnForward { mb, src, mut dst, scratch } } = self;
        let mut squares = Lines::new(plan, scratch);
        for run in plan.runs(block, mb) {
            for cb in 0..plan.layout.channel_blocks() {
                set_squares(simd, &mut squares, cb, &src[plan.elements(run, cb)]);
            }
            for cb in 0..plan.layout.channel_blocks() {
                let real = plan.real_lanes(cb);
                let at = plan.elements(run, cb);
                let src = src[at.clone()].chunks_exact(S::LANES);
                let dst = dst.tile(at).chunks_exact_mut(S::LANES);
                for (pixel, (src, dst)) in src.zip(dst).enumerate() {
                    let factor = plan.power.of(simd, plan.divisor(simd, &squares, pixel, cb));
                    let y = simd.mul(simd.load(src), factor);
                    // With k = 0, a padded lane's factor is infinite.
                    simd.store(dst, simd.keep_first(y, real));
                }
            }
        }
    }
}
