//! How the passes that reduce over samples are cut: into slices, and slices into blocks of a few channel blocks.

use std::ops::Range;

use crate::TensorRegion;
use crate::grain::Grain;

/// Bytes of a slice of a channel block. The statistics visit it twice, so it must stay in the second-level cache (512 KiB at
/// least on any CPU with AVX2 that is likely to train) beside everything else.
const SLICE_BYTES: usize = 128 << 10;

/// Some whole samples, or some rows of one sample, are a slice.
#[derive(Debug, Clone)]
pub(super) struct Slicing {
    channel_blocks: usize,
    height: usize,
    /// Samples of a slice.
    samples: usize,
    /// Rows of a slice.
    rows: usize,
    /// Channel blocks of a block.
    grain: Grain,
}

impl Slicing {
    pub(super) fn new(channel_blocks: usize, height: usize, row_bytes: usize) -> Slicing {
        let (mut samples, mut rows) = (1, height);
        let plane_bytes = height * row_bytes;
        if plane_bytes > SLICE_BYTES {
            rows = height.div_ceil(plane_bytes.div_ceil(SLICE_BYTES));
        } else {
            samples = SLICE_BYTES / plane_bytes;
        }
        let grain = Grain::new(2 * samples * rows * row_bytes);
        Slicing { channel_blocks, height, samples, rows, grain }
    }

    fn row_parts(&self) -> usize {
        self.height.div_ceil(self.rows)
    }

    pub(super) fn slices(&self, mb: usize) -> usize {
        mb.div_ceil(self.samples) * self.row_parts()
    }

    pub(super) fn blocks(&self, mb: usize) -> usize {
        self.slices(mb) * self.channel_parts()
    }

    /// Parts of the channel blocks.
    pub(super) fn channel_parts(&self) -> usize {
        self.grain.blocks(self.channel_blocks)
    }

    /// The channel blocks of a part.
    pub(super) fn channel_part(&self, part: usize) -> Range<usize> {
        self.grain.pieces(part, self.channel_blocks)
    }

    /// What a block works on: slices vary fastest.
    pub(super) fn region(&self, block: usize, mb: usize) -> TensorRegion {
        let slices = self.slices(mb);
        let (chunk, slice) = (block / slices, block % slices);
        let (sample, row) =
            (slice / self.row_parts() * self.samples, slice % self.row_parts() * self.rows);
        TensorRegion {
            slice,
            samples: sample..(sample + self.samples).min(mb),
            rows: row..(row + self.rows).min(self.height),
            channel_blocks: self.channel_part(chunk),
        }
    }
}
