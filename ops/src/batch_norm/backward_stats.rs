//! A rank's own part of the sums that the gradient needs, slice by slice; they are the gradients of the parameters.

use std::ops::Range;

use super::BatchNorm;
use super::sums::{Terms, add, sums};
use crate::extent::expect_len;
use crate::simd::{Kernel, Simd};
use crate::slices::{MAX_LEVELS, merges_after};
use crate::{MAX_SLICES, TensorRegion, Tiles};

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
    /// For each [slice](TensorRegion) two rows, its parts of the gradients of the parameters: `diff_bia`, the sums of
    /// `diff_dst`, then `diff_wei`, the sums of `diff_dst` times the normalized input.
    pub sums: Tiles<'a>,
}

impl BatchNorm {
    /// The number of blocks of the sums; 0 without samples.
    pub fn backward_stats_blocks(&self, mb: usize) -> usize {
        self.slicing.blocks(mb)
    }

    /// Computes the sums of one slice for a few channel blocks.
    ///
    /// # Panics
    ///
    /// If a buffer is too short.
    pub fn backward_stats(&self, block: usize, io: BatchNormBackwardStats<'_>) {
        let slices = self.stats_slices(io.mb) * self.stats_len();
        expect_len("batch_norm backward_stats", "sums", io.sums.len(), slices);
        self.region_sums(self.slicing.region(block, io.mb), io);
    }

    pub(super) fn region_sums(&self, region: TensorRegion, io: BatchNormBackwardStats<'_>) {
        let op = "batch_norm backward_stats";
        expect_len(op, "src", io.src.len(), self.layout.len(io.mb));
        expect_len(op, "diff_dst", io.diff_dst.len(), self.layout.len(io.mb));
        expect_len(op, "saved", io.saved.len(), self.stats_len());
        expect_len(op, "sums", io.sums.len(), (region.slice + 1) * self.stats_len());
        self.isa.dispatch(SumsKernel { plan: self, region, io });
    }

    /// Adds up the slices' sums in their order, for a caller that passes them on to other ranks. Zero without slices.
    ///
    /// # Panics
    ///
    /// If `merged` holds less than two rows.
    pub fn merge_sums(&self, slices: &[f32], mut merged: Tiles<'_>) {
        self.add_up(slices, 0..self.stats_len(), merged.tile(0..self.stats_len()));
    }

    /// Adds up the slices' sums in their order: the gradients of the parameters over this rank's samples. Zero without
    /// slices.
    ///
    /// # Panics
    ///
    /// If a gradient holds less than [`channels`](Self::channels) elements.
    pub fn parameter_gradients(
        &self,
        slices: &[f32],
        mut diff_wei: Tiles<'_>,
        mut diff_bia: Tiles<'_>,
    ) {
        let channels = self.channels();
        self.add_up(slices, 0..channels, diff_bia.tile(0..channels));
        self.add_up(slices, channels..2 * channels, diff_wei.tile(0..channels));
    }

    /// The gradients of the parameters where the sums over slices are to be added in a balanced tree: those of so many slices,
    /// a power of two.
    ///
    /// # Panics
    ///
    /// If `slices` are not [`MAX_SLICES`](crate::MAX_SLICES) or fewer, a power of two, of two rows each, or a gradient holds
    /// less than [`channels`](Self::channels) elements.
    pub fn sliced_parameter_gradients(
        &self,
        slices: &[f32],
        mut diff_wei: Tiles<'_>,
        mut diff_bia: Tiles<'_>,
    ) {
        let (count, channels) = (slices.len() / self.stats_len(), self.channels());
        assert!(
            count.is_power_of_two() && count <= MAX_SLICES,
            "batch_norm: {count} slices make no balanced tree"
        );
        let rows = [(0, diff_bia.tile(0..channels)), (channels, diff_wei.tile(0..channels))];
        for (row, gradient) in rows {
            for (channel, gradient) in gradient.iter_mut().enumerate() {
                let (mut stack, mut depth) = ([0.0; MAX_LEVELS], 0);
                for index in 0..count {
                    let mut sum = slices[index * self.stats_len() + row + channel];
                    for _ in 0..merges_after(index) {
                        depth -= 1;
                        sum += stack[depth];
                    }
                    stack[depth] = sum;
                    depth += 1;
                }
                *gradient = stack[0];
            }
        }
    }

    fn add_up(&self, slices: &[f32], part: Range<usize>, sums: &mut [f32]) {
        sums.fill(0.0);
        for slice in slices.chunks_exact(self.stats_len()) {
            for (sum, term) in sums.iter_mut().zip(&slice[part.clone()]) {
                *sum += term;
            }
        }
    }
}

struct SumsKernel<'a> {
    plan: &'a BatchNorm,
    region: TensorRegion,
    io: BatchNormBackwardStats<'a>,
}

impl Kernel for SumsKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let SumsKernel { plan, region, mut io } = self;
        let start = region.slice * plan.stats_len();
        for channel_block in region.channel_blocks {
            let [first, second] = [plan.lanes(0, channel_block), plan.lanes(1, channel_block)];
            let terms = GradientTerms {
                mean: simd.load(&io.saved[first.clone()]),
                inverse_std: simd.load(&io.saved[second.clone()]),
            };
            let mut total = [simd.zero(); 2];
            for sample in region.samples.clone() {
                let at = plan.rows(sample, channel_block, &region.rows);
                let (src, diff) = (&io.src[at.clone()], &io.diff_dst[at]);
                total = add(simd, total, sums(simd, terms, src, diff));
            }
            simd.store(io.sums.tile(start + first.start..start + first.end), total[0]);
            simd.store(io.sums.tile(start + second.start..start + second.end), total[1]);
        }
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
