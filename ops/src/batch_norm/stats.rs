//! A rank's own statistics: mean and sum of squared deviations of every channel.

use std::ops::Range;

use super::BatchNorm;
use super::moments::Moments;
use super::sums::{Terms, add, sums};
use crate::Tiles;
use crate::extent::expect_len;
use crate::simd::{Kernel, Simd};

/// The tensors of a block of [`BatchNorm::stats`].
#[derive(Debug)]
pub struct BatchNormStats<'a> {
    /// Samples.
    pub mb: usize,
    /// The input.
    pub src: &'a [f32],
    /// Two rows of [`channels`](BatchNorm::channels): the means, then the sums of squared deviations from them. Zero if
    /// `mb` is 0.
    pub stats: Tiles<'a>,
}

impl BatchNorm {
    /// The number of blocks of the statistics: one a channel block, samples or not.
    pub fn stats_blocks(&self, _mb: usize) -> usize {
        self.channel_blocks()
    }

    /// Computes the statistics of one channel block of this rank's samples.
    ///
    /// A few samples at a time, small enough to stay in cache, are visited twice: for their mean, then for the
    /// deviations from it, whose sum (zero, but for rounding) corrects both results. Their statistics are merged in
    /// the order of the samples. Thus a mean far from zero costs no accuracy and memory is read once.
    ///
    /// # Panics
    ///
    /// If a buffer is too short.
    pub fn stats(&self, block: usize, io: BatchNormStats<'_>) {
        expect_len("batch_norm stats", "src", io.src.len(), self.layout.len(io.mb));
        expect_len("batch_norm stats", "stats", io.stats.len(), self.stats_len());
        self.isa.dispatch(StatsKernel { plan: self, channel_block: block, io });
    }
}

struct StatsKernel<'a> {
    plan: &'a BatchNorm,
    channel_block: usize,
    io: BatchNormStats<'a>,
}

impl Kernel for StatsKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let mut total = Moments::empty(simd);
        for first in (0..self.io.mb).step_by(self.plan.group) {
            let group = first..(first + self.plan.group).min(self.io.mb);
            total = total.merge(simd, self.moments(simd, group));
        }
        let (means, m2s) =
            (self.plan.lanes(0, self.channel_block), self.plan.lanes(1, self.channel_block));
        simd.store(self.io.stats.tile(means), total.mean);
        simd.store(self.io.stats.tile(m2s), total.m2);
    }
}

impl StatsKernel<'_> {
    /// The moments of a few samples, at least one.
    #[inline(always)]
    fn moments<S: Simd>(&self, simd: S, samples: Range<usize>) -> Moments<S::F32> {
        let plane = |sample| &self.io.src[self.plan.plane(sample, self.channel_block)];
        let count = samples.len() * self.plan.plane_len / S::LANES;
        let n = simd.splat(count as f32);
        let mut sum = [simd.zero()];
        for sample in samples.clone() {
            sum = add(simd, sum, sums(simd, Values, plane(sample), plane(sample)));
        }
        let guess = simd.div(sum[0], n);
        let mut deviations = [simd.zero(); 2];
        for sample in samples {
            let terms = Deviations { from: guess };
            deviations = add(simd, deviations, sums(simd, terms, plane(sample), plane(sample)));
        }
        let [sum, squares] = deviations;
        let error = simd.div(sum, n);
        Moments {
            count: count as u64,
            mean: simd.add(guess, error),
            m2: simd.max(simd.sub(squares, simd.mul(sum, error)), simd.zero()),
        }
    }
}

/// The values themselves.
#[derive(Clone, Copy)]
struct Values;

impl<V: Copy> Terms<V, 1> for Values {
    #[inline(always)]
    fn terms<S: Simd<F32 = V>>(self, _simd: S, a: V, _b: V) -> [V; 1] {
        [a]
    }
}

/// Deviations from a value, and their squares.
#[derive(Clone, Copy)]
struct Deviations<V> {
    from: V,
}

impl<V: Copy> Terms<V, 2> for Deviations<V> {
    #[inline(always)]
    fn terms<S: Simd<F32 = V>>(self, simd: S, a: V, _b: V) -> [V; 2] {
        let deviation = simd.sub(a, self.from);
        [deviation, simd.mul(deviation, deviation)]
    }
}
