//! Statistics and sums of one given range of samples: the same bits whoever computes them, in whatever minibatch.

use std::ops::Range;

use super::{BatchNorm, BatchNormBackwardStats, BatchNormStats};
use crate::TensorRegion;
use crate::extent::expect_len;

/// Some samples that count as one slice, where a minibatch is cut into the same slices for every number of ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchNormRange {
    /// The samples, as counted in the tensors at hand.
    pub samples: Range<usize>,
    /// The number of the slice among those at hand, in whose two rows the results go.
    pub slice: usize,
}

impl BatchNorm {
    /// The number of blocks of [`range_stats`](Self::range_stats) and [`range_sums`](Self::range_sums); each takes a few
    /// channel blocks.
    pub fn range_blocks(&self) -> usize {
        self.slicing.channel_parts()
    }

    /// As [`stats`](Self::stats), of a range of samples as a single slice.
    ///
    /// The results depend on these samples alone, not on those around them, on what other op wrote them in which blocks, or
    /// on the machine's caches. Zeros without samples. [`merge_stats`](Self::merge_stats) merges those of several ranges in
    /// their order.
    ///
    /// # Panics
    ///
    /// If a buffer is too short.
    pub fn range_stats(&self, block: usize, range: &BatchNormRange, io: BatchNormStats<'_>) {
        let BatchNormStats { mb, src, stats } = io;
        let op = "batch_norm range_stats";
        expect_len(op, "src", src.len(), self.layout.len(mb));
        expect_len(op, "the minibatch", mb, range.samples.end);
        self.region_stats(&self.range_region(block, range), |at| &src[at], stats);
    }

    /// As [`backward_stats`](Self::backward_stats), of a range of samples as a single slice, with bits that depend on these
    /// samples alone. Zeros without samples.
    ///
    /// # Panics
    ///
    /// If a buffer is too short.
    pub fn range_sums(&self, block: usize, range: &BatchNormRange, io: BatchNormBackwardStats<'_>) {
        expect_len("batch_norm range_sums", "the minibatch", io.mb, range.samples.end);
        self.region_sums(self.range_region(block, range), io);
    }

    fn range_region(&self, block: usize, range: &BatchNormRange) -> TensorRegion {
        TensorRegion {
            slice: range.slice,
            samples: range.samples.clone(),
            rows: 0..self.desc.maps.h,
            channel_blocks: self.slicing.channel_part(block),
        }
    }
}
