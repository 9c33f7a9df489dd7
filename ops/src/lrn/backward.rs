//! Backward pass: a channel's gradient also comes through the divisors of its neighbors.

use super::Lrn;
use super::lines::{Lines, set_squares};
use crate::Tiles;
use crate::extent::expect_len;
use crate::simd::{Kernel, Simd};

/// The tensors of a backward block.
#[derive(Debug)]
pub struct LrnBackward<'a> {
    /// Samples.
    pub mb: usize,
    /// The input of the forward pass.
    pub src: &'a [f32],
    /// The gradient of the output.
    pub diff_dst: &'a [f32],
    /// The gradient of the input, which is overwritten.
    pub diff_src: Tiles<'a>,
    /// At least [`Lrn::backward_scratch_len`] elements of any value.
    pub scratch: &'a mut [f32],
}

impl Lrn {
    /// Elements of scratch that a worker needs in the backward pass.
    pub fn backward_scratch_len(&self) -> usize {
        2 * self.run * self.line_len()
    }

    /// The number of blocks of the backward pass.
    pub fn backward_blocks(&self, mb: usize) -> usize {
        self.pixel_blocks(mb)
    }

    /// Computes one block of the gradient of the input:
    ///
    /// ```text
    /// t[j]        = diff_dst[j] * src[j] * s[j]^(-beta - 1)
    /// diff_src[c] = diff_dst[c] * s[c]^-beta - 2 alpha beta / size * src[c] * sum of t[j] over the j whose window holds c
    /// ```
    ///
    /// and times the slope of an activation that `src` is the value of ([`src_activation`](super::LrnDesc::src_activation)).
    ///
    /// The divisors `s` are computed again from `src`; to store them would be a tensor more.
    ///
    /// # Panics
    ///
    /// If a buffer is too short.
    pub fn backward(&self, block: usize, io: LrnBackward<'_>) {
        expect_len("lrn backward", "src", io.src.len(), self.layout.len(io.mb));
        expect_len("lrn backward", "diff_dst", io.diff_dst.len(), self.layout.len(io.mb));
        expect_len("lrn backward", "diff_src", io.diff_src.len(), self.layout.len(io.mb));
        expect_len("lrn backward", "scratch", io.scratch.len(), self.backward_scratch_len());
        self.isa.dispatch(BackwardKernel { plan: self, block, io });
    }
}

struct BackwardKernel<'a> {
    plan: &'a Lrn,
    block: usize,
    io: LrnBackward<'a>,
}

impl Kernel for BackwardKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let BackwardKernel { plan, block, io } = self;
        let LrnBackward { mb, src, diff_dst, mut diff_src, scratch } = io;
        let (first, second) = scratch.split_at_mut(plan.run * plan.line_len());
        let (mut squares, mut products) = (Lines::new(plan, first), Lines::new(plan, second));
        for run in plan.runs(block, mb) {
            for cb in 0..plan.layout.channel_blocks() {
                set_squares(simd, &mut squares, cb, &src[plan.elements(run, cb)]);
            }
            for cb in 0..plan.layout.channel_blocks() {
                let at = plan.elements(run, cb);
                let diff_dst = &diff_dst[at.clone()];
                let part = Part { plan, cb, src: &src[at.clone()], diff_src: diff_src.tile(at) };
                part.own(simd, diff_dst, &squares, &mut products);
            }
            for cb in 0..plan.layout.channel_blocks() {
                let at = plan.elements(run, cb);
                let part = Part { plan, cb, src: &src[at.clone()], diff_src: diff_src.tile(at) };
                part.add_neighbors(simd, &products);
            }
        }
    }
}

/// One channel block of a run of pixels.
struct Part<'a> {
    plan: &'a Lrn,
    cb: usize,
    src: &'a [f32],
    diff_src: &'a mut [f32],
}

impl Part<'_> {
    /// Writes the first term of the gradient, and the lines of `t`.
    #[inline(always)]
    fn own<S: Simd>(
        self,
        simd: S,
        diff_dst: &[f32],
        squares: &Lines<'_>,
        products: &mut Lines<'_>,
    ) {
        let real = self.plan.real_lanes(self.cb);
        let src = self.src.chunks_exact(S::LANES).zip(diff_dst.chunks_exact(S::LANES));
        let diff_src = self.diff_src.chunks_exact_mut(S::LANES);
        for (pixel, ((src, diff_dst), diff_src)) in src.zip(diff_src).enumerate() {
            let s = self.plan.divisor(simd, squares, pixel, self.cb);
            let diff = simd.mul(simd.load(diff_dst), self.plan.power.of(simd, s));
            // With k = 0, a padded lane's divisor may be zero.
            simd.store(diff_src, simd.keep_first(diff, real));
            let product = simd.div(simd.mul(diff, simd.load(src)), s);
            products.set(simd, pixel, self.cb, simd.keep_first(product, real));
        }
    }

    /// Adds the second term, which comes through the neighbors.
    #[inline(always)]
    fn add_neighbors<S: Simd>(self, simd: S, products: &Lines<'_>) {
        let desc = self.plan.desc;
        let weight = simd.splat(-2.0 * desc.alpha * desc.beta / desc.size as f32);
        // The channels whose windows hold this one: the window seen from its other end.
        let reach = (self.plan.after(), self.plan.before());
        let src = self.src.chunks_exact(S::LANES);
        for (pixel, (src, diff)) in src.zip(self.diff_src.chunks_exact_mut(S::LANES)).enumerate() {
            let sum = products.window_sum(simd, pixel, self.cb, reach);
            let through = simd.mul(simd.mul(simd.load(src), weight), sum);
            let sum = simd.add(simd.load(diff), through);
            let slope = desc.src_activation;
            simd.store(diff, slope.map_or(sum, |kind| kind.gradient(simd, simd.load(src), sum)));
        }
    }
}
