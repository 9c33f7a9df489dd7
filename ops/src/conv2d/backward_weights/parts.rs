//! Samples, lines and columns of the output part by part, so that each part's vectors stay in the L1 cache.

use std::ops::Range;

use super::BackwardWeightsPlan;
use super::ahead::LinesAhead;
use super::kernel::{Chunk, Shape, add_products, add_vectors};
use super::share::Share;
use super::tap_tiles::TapTile;
use crate::conv2d::cut::part;
use crate::conv2d::geometry::Geometry;
use crate::conv2d::staging::Lines;

/// Some samples, rows and columns of the output.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) samples: Range<usize>,
    pub(super) rows: Range<usize>,
    pub(super) columns: Range<usize>,
}

/// The output cut into parts.
#[derive(Debug, Clone)]
pub(super) struct Parts<'a> {
    plan: &'a BackwardWeightsPlan,
    of: Range<usize>,
    sample_size: usize,
    samples: usize,
    rows: usize,
    pub(super) columns: usize,
}

impl<'a> Parts<'a> {
    /// The parts of some samples.
    pub(super) fn new(plan: &'a BackwardWeightsPlan, of: Range<usize>) -> Parts<'a> {
        let (g, mb) = (&plan.geometry, of.len());
        // Parts as even as can be.
        let sample_size = mb.div_ceil(mb.div_ceil(plan.chunk_samples).max(1)).max(1);
        Parts {
            plan,
            of,
            sample_size,
            samples: mb.div_ceil(sample_size),
            rows: g.oh.div_ceil(plan.chunk_rows),
            columns: g.ow.div_ceil(plan.chunk_columns),
        }
    }

    /// Parts of whole lines.
    pub(super) fn lines(&self) -> usize {
        self.samples * self.rows
    }

    pub(super) fn part(&self, lines: usize, columns: usize) -> Part {
        let g = &self.plan.geometry;
        let samples = part(lines / self.rows, self.sample_size, self.of.len());
        Part {
            samples: self.of.start + samples.start..self.of.start + samples.end,
            rows: part(lines % self.rows, self.plan.chunk_rows, g.oh),
            columns: part(columns, self.plan.chunk_columns, g.ow),
        }
    }

    /// The part after another.
    pub(super) fn after(&self, lines: usize, columns: usize) -> Option<Part> {
        let next = lines * self.columns + columns + 1;
        let (lines, columns) = (next / self.columns, next % self.columns);
        (lines < self.lines()).then(|| self.part(lines, columns))
    }
}

/// A part to be added to the sums of a share.
pub(super) struct Work<'a> {
    pub(super) share: &'a Share,
    pub(super) part: Part,
    /// The part that follows.
    pub(super) next: Option<Part>,
    pub(super) src: &'a [f32],
    pub(super) diff_dst: &'a [f32],
    /// The lines of `src` that belong to the part.
    pub(super) lines: Lines<'a>,
    /// The inner blocks of the share, the first of which the first line belongs to.
    pub(super) inner_blocks: Range<usize>,
    /// The kernel row that reads the first line.
    pub(super) first_kernel_row: usize,
}

/// Where an output block's vectors of a part begin in `diff_dst`.
pub(super) fn diff_start(g: &Geometry, part: &Part, out_block: usize) -> usize {
    let plane = part.samples.start * g.groups * g.out_blocks() + out_block;
    ((plane * g.oh + part.rows.start) * g.ow + part.columns.start) * g.lanes
}

impl BackwardWeightsPlan {
    /// Adds the products of a part to the sums of a share.
    pub(super) fn add_part(
        &self,
        work: &Work<'_>,
        mut bias_sums: Option<&mut [f32]>,
        sums: &mut [f32],
    ) {
        let (g, Work { share, part, lines, .. }) = (&self.geometry, work);
        let taps = self.tap_range(share);
        let pixel_step = g.sw * g.src_lanes();
        let block_len = g.oh * g.ow * g.lanes;
        let row_step = g.ow * g.lanes;
        let column = part.columns.start * pixel_step;
        let mut ahead = LinesAhead::new(self, work);
        let chunk = |out| {
            let first = diff_start(g, part, share.group * g.out_blocks() + out);
            Chunk {
                src: lines.src,
                src_base: lines.base + column,
                src_first: [work.inner_blocks.start, work.first_kernel_row],
                src_steps: [lines.block_step, lines.row_step],
                src_pixel_step: pixel_step,
                src_line_steps: [lines.sample_step, g.sh * lines.row_step],
                diff_dst: work.diff_dst,
                diff_starts: std::array::from_fn(|n| first + n * block_len),
                diff_line_steps: [g.groups * g.out_blocks() * block_len, row_step],
                samples: part.samples.len(),
                rows: part.rows.clone(),
                pixels: part.columns.len(),
            }
        };
        let (block_sums, tail_sums) = sums.split_at_mut(self.sums_lens(share)[1]);
        let tiles = &self.tap_tiles.tiles[share.tiles.clone()];
        for out in share.outs.clone().step_by(self.vectors) {
            let vectors = self.vectors.min(share.outs.end - out);
            let chunk = chunk(out);
            let at = out - share.outs.start;
            if let Some(sums) = &mut bias_sums {
                add_vectors(self.isa, vectors, &chunk, &mut sums[at * g.lanes..]);
            }
            let sums = &mut block_sums[at * taps.len() * g.lanes..];
            for same in tiles.chunk_by(|a, b| (a.pieces, a.taps) == (b.pieces, b.taps)) {
                let TapTile { pieces, taps: of_piece, first_tap, .. } = same[0];
                let shape = Shape { vectors, pieces, taps: of_piece };
                let sums = &mut sums[(first_tap - taps.start) * vectors * g.lanes..];
                let pieces = self.tap_tiles.pieces(same);
                add_products(self.isa, shape, &chunk, (same, pieces), &mut ahead, sums);
            }
        }
        if !share.tail.is_empty() {
            let chunk = chunk(share.outs.end);
            if let Some(sums) = &mut bias_sums {
                add_vectors(self.isa, 1, &chunk, &mut sums[share.outs.len() * g.lanes..]);
            }
            self.add_tail(share, &chunk, &mut ahead, tail_sums);
        }
    }
}
