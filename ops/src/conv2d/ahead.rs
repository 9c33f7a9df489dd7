//! What a sweep fetches into the L2 cache while it computes: the weights that follow, and the outputs of a tile.

use std::ops::Range;

use super::gaps::Gaps;
use super::sweep::{Sweep, Target};
use crate::simd::Simd;

/// Weights of a layer that stay in the L2 cache by themselves.
const FEW_WEIGHTS: usize = 64 << 10;

/// Elements of a cache line.
const LINE: usize = 16;

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

/// Vectors that a tile will write, and the gaps among them. A 1x1 convolution has few products for each, and stores that
/// miss the cache would fill the store buffer.
pub(super) struct OutputsAhead {
    /// Where the first line of the first block begins.
    first: usize,
    /// From block to block, and from row to row of one.
    steps: [usize; 2],
    blocks: usize,
    /// Rows of a block.
    height: usize,
    /// Vectors of a row, and the elements from one to the next.
    width: usize,
    column_step: usize,
    /// The vector that is next: its row, counted through all blocks, how many are left there, and where it is.
    row: usize,
    left: usize,
    at: usize,
}

impl OutputsAhead {
    /// Those of so many blocks and columns, of one line.
    #[inline(always)]
    pub(super) fn new(
        target: &Target,
        gaps: Option<Gaps>,
        first: usize,
        [blocks, columns]: [usize; 2],
    ) -> OutputsAhead {
        let [height, width] = gaps.map_or([1; 2], |gaps| gaps.steps);
        OutputsAhead {
            first,
            steps: [target.block_step, target.row_step / height],
            blocks,
            height,
            width: columns * width,
            column_step: target.column_step / width,
            row: 0,
            left: columns * width,
            at: first,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.blocks * self.height * self.width
    }

    /// Fetches one.
    #[inline(always)]
    pub(super) fn advance<S: Simd>(&mut self, simd: S, dst: &[f32]) {
        simd.prefetch(dst, self.at);
        self.at += self.column_step;
        self.left -= 1;
        if self.left == 0 {
            self.row += 1;
            self.left = self.width;
            let [block_step, row_step] = self.steps;
            let (block, row) = (self.row / self.height, self.row % self.height);
            self.at = self.first + block * block_step + row * row_step;
        }
    }
}
