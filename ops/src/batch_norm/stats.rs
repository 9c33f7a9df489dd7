//! A rank's own statistics, slice by slice: mean and sum of squared deviations of every channel.

use std::ops::Range;

use super::BatchNorm;
use super::moments::Moments;
use super::sums::{Terms, add, sums};
use crate::extent::expect_len;
use crate::simd::{Kernel, Simd};
use crate::{TensorRegion, Tiles};

/// The tensors of a block of [`BatchNorm::stats`].
#[derive(Debug)]
pub struct BatchNormStats<'a> {
    /// Samples.
    pub mb: usize,
    /// The input.
    pub src: &'a [f32],
    /// For each [slice](TensorRegion) two rows of [`channels`](BatchNorm::channels): the means, then the sums of squared
    /// deviations from them.
    pub stats: Tiles<'a>,
}

/// The tensors of [`BatchNorm::merge_stats`].
#[derive(Debug)]
pub struct BatchNormMerge<'a> {
    /// What the slices gave, in their order.
    pub slices: &'a [f32],
    /// Values a channel behind each slice.
    pub counts: &'a [u64],
    /// Two rows, as if there were one slice. Zero if there is none.
    pub merged: Tiles<'a>,
}

impl BatchNorm {
    /// The number of blocks of the statistics; 0 without samples.
    pub fn stats_blocks(&self, mb: usize) -> usize {
        self.slicing.blocks(mb)
    }

    /// Slices of the statistics, and of the sums of the backward pass.
    pub fn stats_slices(&self, mb: usize) -> usize {
        self.slicing.slices(mb)
    }

    /// What a block of the statistics reads. The first blocks, as many as there are slices, have the slices in order.
    pub fn stats_region(&self, block: usize, mb: usize) -> TensorRegion {
        self.slicing.region(block, mb)
    }

    /// Computes the statistics of one slice for a few channel blocks.
    ///
    /// A few samples at a time, small enough to stay in cache, are visited twice: for their mean, then for the
    /// deviations from it, whose sum (zero, but for rounding) corrects both results. Their statistics are merged in
    /// the order of the samples. Thus a mean far from zero costs no accuracy and memory is read once.
    ///
    /// # Panics
    ///
    /// If a buffer is too short.
    pub fn stats(&self, block: usize, io: BatchNormStats<'_>) {
        let BatchNormStats { mb, src, stats } = io;
        expect_len("batch_norm stats", "src", src.len(), self.layout.len(mb));
        self.region_stats(&self.stats_region(block, mb), |at| &src[at], stats);
    }

    /// The same for a region that another op's block has just written, while it is in cache.
    ///
    /// # Panics
    ///
    /// If a buffer is too short.
    pub fn stats_of(&self, region: &TensorRegion, dst: &Tiles<'_>, stats: Tiles<'_>) {
        self.region_stats(region, |at| dst.read(at), stats);
    }

    pub(super) fn region_stats<'s>(
        &self,
        region: &TensorRegion,
        read: impl Fn(Range<usize>) -> &'s [f32],
        mut stats: Tiles<'_>,
    ) {
        let needed = (region.slice + 1) * self.stats_len();
        expect_len("batch_norm stats", "stats", stats.len(), needed);
        let start = region.slice * self.stats_len();
        for channel_block in region.channel_blocks.clone() {
            let [mean, m2] = [0, 1].map(|row| {
                let lanes = self.lanes(row, channel_block);
                start + lanes.start..start + lanes.end
            });
            let (plan, read) = (self, &read);
            let kernel = StatsKernel { plan, region, channel_block, read };
            self.isa.dispatch(StoreStats { kernel, stats: stats.reborrow(), mean, m2 });
        }
    }

    /// Merges the slices' statistics in their order, for a caller that passes them on to other ranks.
    ///
    /// # Panics
    ///
    /// If a buffer is too short.
    pub fn merge_stats(&self, io: BatchNormMerge<'_>) {
        let op = "batch_norm merge_stats";
        expect_len(op, "slices", io.slices.len(), io.counts.len() * self.stats_len());
        expect_len(op, "merged", io.merged.len(), self.stats_len());
        self.isa.dispatch(MergeKernel { plan: self, io });
    }
}

struct StoreStats<'a, R> {
    kernel: StatsKernel<'a, R>,
    stats: Tiles<'a>,
    mean: Range<usize>,
    m2: Range<usize>,
}

impl<'s, R: Fn(Range<usize>) -> &'s [f32]> Kernel for StoreStats<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let total = self.kernel.run(simd);
        simd.store(self.stats.tile(self.mean), total.mean);
        simd.store(self.stats.tile(self.m2), total.m2);
    }
}

/// One channel block of a region, of which `read` gives the elements.
struct StatsKernel<'a, R> {
    plan: &'a BatchNorm,
    region: &'a TensorRegion,
    channel_block: usize,
    read: &'a R,
}

impl<'s, R: Fn(Range<usize>) -> &'s [f32]> StatsKernel<'_, R> {
    #[inline(always)]
    fn run<S: Simd>(&self, simd: S) -> Moments<S::F32> {
        let mut total = Moments::empty(simd);
        let Range { start, end } = self.region.samples;
        for first in (start..end).step_by(self.plan.group) {
            let group = first..(first + self.plan.group).min(end);
            total = total.merge(simd, self.moments(simd, group));
        }
        total
    }

    /// The moments of a few samples, at least one.
    #[inline(always)]
    fn moments<S: Simd>(&self, simd: S, samples: Range<usize>) -> Moments<S::F32> {
        let rows = &self.region.rows;
        let part = |sample| (self.read)(self.plan.rows(sample, self.channel_block, rows));
        let count = samples.len() * rows.len() * self.plan.desc.maps.w;
        let n = simd.splat(count as f32);
        let mut sum = [simd.zero()];
        for sample in samples.clone() {
            let part = part(sample);
            sum = add(simd, sum, sums(simd, Values, part, part));
        }
        let guess = simd.div(sum[0], n);
        let mut deviations = [simd.zero(); 2];
        for sample in samples {
            let (terms, part) = (Deviations { from: guess }, part(sample));
            deviations = add(simd, deviations, sums(simd, terms, part, part));
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

struct MergeKernel<'a> {
    plan: &'a BatchNorm,
    io: BatchNormMerge<'a>,
}

impl Kernel for MergeKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let MergeKernel { plan, io: BatchNormMerge { slices, counts, mut merged } } = self;
        for channel_block in 0..plan.channel_blocks() {
            let total = Moments::gathered(simd, plan, channel_block, slices, counts);
            simd.store(merged.tile(plan.lanes(0, channel_block)), total.mean);
            simd.store(merged.tile(plan.lanes(1, channel_block)), total.m2);
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
