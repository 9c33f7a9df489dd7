//! What a sweep fetches into the L2 cache while it computes: the weights that follow, and the outputs of a tile.

use std::ops::Range;

use super::sweep::{Chunk, Sweep};
use crate::simd::Simd;

/// Weights of a layer that stay in the L2 cache by themselves.
const FEW_WEIGHTS: usize = 64 << 10;

/// Elements of a cache line.
const LINE: usize = 16;

/// What the tiles of a chunk of inner blocks fetch.
pub(super) struct Ahead {
    pub(super) weights: WeightsAhead,
    pub(super) outputs: OutputsAhead,
}

/// Weights that are read next, fetched a few lines at a time.
pub(super) struct WeightsAhead {
    at: usize,
    end: usize,
    lines_per_run: usize,
}

impl WeightsAhead {
    /// The weights that are read after a chunk of inner blocks, the last or not: those of the next chunk, or of the first of
    /// the next strip. A chunk has so many register tiles, and a step so many elements.
    #[inline(always)]
    pub(super) fn new(
        sweep: &Sweep<'_>,
        (blocks, is_last): (Range<usize>, bool),
        tiles: usize,
        width: usize,
    ) -> WeightsAhead {
        let taps = sweep.strip.taps;
        let (first, end) = (taps.row_start(blocks.start, 0), taps.row_start(blocks.end, 0));
        let at = if is_last { sweep.next_strip.start } else { sweep.strip.start + end * width };
        let is_near = sweep.wei.len() <= FEW_WEIGHTS;
        let len = if is_near { 0 } else { (end.min(taps.steps()) - first) * width };
        let runs = tiles * blocks.len() * taps.rows;
        WeightsAhead {
            at,
            end: (at + len).min(sweep.wei.len()),
            lines_per_run: len.div_ceil(LINE).div_ceil(runs.max(1)),
        }
    }

    /// Fetches the share of a run.
    #[inline(always)]
    pub(super) fn advance<S: Simd>(&mut self, simd: S, wei: &[f32]) {
        for _ in 0..self.lines_per_run {
            if self.at < self.end {
                simd.prefetch(wei, self.at);
                self.at += LINE;
            }
        }
    }
}

/// Vectors that a tile will write, and the gaps among them, a few a run. A 1x1 convolution has few products for each, and
/// stores that miss the cache would fill the store buffer; other layers fetch none.
pub(super) struct OutputsAhead {
    /// Vectors of a run.
    per_run: usize,
    /// Where the first line of the first block begins.
    first: usize,
    /// From block to block, and from row to row of one.
    steps: [usize; 2],
    /// Rows of a block.
    height: usize,
    /// Vectors of a row, and the elements from one to the next.
    width: usize,
    column_step: usize,
    /// The vector that is next: its block and row, how many are left there, and where it is.
    block: usize,
    row: usize,
    left: usize,
    at: usize,
}

impl OutputsAhead {
    /// For tiles of so many rows, blocks and columns.
    #[inline(always)]
    pub(super) fn new(
        sweep: &Sweep<'_>,
        chunk: &Chunk<'_>,
        [rows, blocks, columns]: [usize; 3],
    ) -> OutputsAhead {
        let (target, taps) = (&sweep.target, &sweep.strip.taps);
        let [height, width] = sweep.gaps.map_or([1; 2], |gaps| gaps.steps);
        let vectors = blocks * height * columns * width;
        let is_pointwise = rows == 1 && chunk.is_first && taps.rows * taps.columns == 1;
        OutputsAhead {
            per_run: if is_pointwise { vectors.div_ceil(chunk.blocks.len().max(1)) } else { 0 },
            first: 0,
            steps: [target.block_step, target.row_step / height],
            height,
            width: columns * width,
            column_step: target.column_step / width,
            block: 0,
            row: 0,
            left: 0,
            at: 0,
        }
    }

    /// Begins with the tile whose first vector is here.
    #[inline(always)]
    pub(super) fn begin(&mut self, first: usize) {
        (self.first, self.at, self.left) = (first, first, self.width);
        (self.block, self.row) = (0, 0);
    }

    /// Fetches the share of a run; past the last vector what would follow.
    #[inline(always)]
    pub(super) fn advance<S: Simd>(&mut self, simd: S, dst: &[f32]) {
        for _ in 0..self.per_run {
            simd.prefetch(dst, self.at);
            self.at += self.column_step;
            self.left -= 1;
            if self.left == 0 {
                self.left = self.width;
                self.row += 1;
                if self.row == self.height {
                    (self.block, self.row) = (self.block + 1, 0);
                }
                let [block_step, row_step] = self.steps;
                self.at = self.first + self.block * block_step + self.row * row_step;
            }
        }
    }
}
