//! What is fetched into the L2 cache while a part is computed with: the next part.

use super::BackwardWeightsPlan;
use super::kernel::Chunk;
use super::parts::{Work, diff_start};

/// Vectors to be brought into the L2 cache while others are computed with: as many as the part has pixels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ahead<'a> {
    pub(super) tensor: &'a [f32],
    pub(super) start: usize,
    /// From sample to sample.
    pub(super) sample_step: usize,
    /// From line to line.
    pub(super) line_step: usize,
    /// From pixel to pixel.
    pub(super) pixel_step: usize,
}

/// What the kernel calls of a part fetch of the next part: first the vectors of each output block, then, as long as there
/// are calls, the source: of a 1x1 convolution the pixels that it reads, of another one all rows, in stretches of as many
/// vectors as the part has pixels.
#[derive(Debug)]
pub(super) struct LinesAhead<'a> {
    vectors: Ahead<'a>,
    vectors_step: usize,
    vectors_left: usize,
    stretch: Ahead<'a>,
    stretch_step: usize,
    /// Stretches of an inner block.
    stretches: usize,
    stretches_left: usize,
    /// From the end of an inner block's stretches to the next block.
    block_step: usize,
    blocks_left: usize,
}

impl<'a> LinesAhead<'a> {
    pub(super) fn new(plan: &BackwardWeightsPlan, work: &Work<'a>) -> LinesAhead<'a> {
        let (g, share) = (&plan.geometry, work.share);
        let block_len = g.oh * g.ow * g.lanes;
        let pixels = work.part.columns.len();
        let side_by_side = |tensor| Ahead {
            tensor,
            start: 0,
            sample_step: 0,
            line_step: pixels * g.lanes,
            pixel_step: g.lanes,
        };
        let mut lines = LinesAhead {
            vectors: side_by_side(work.diff_dst),
            vectors_step: block_len,
            vectors_left: 0,
            stretch: side_by_side(work.src),
            stretch_step: 0,
            stretches: 0,
            stretches_left: 0,
            block_step: 0,
            blocks_left: 0,
        };
        let Some(next) = &work.next else { return lines };
        lines.vectors.start = diff_start(g, next, share.group * g.out_blocks() + share.outs.start);
        lines.vectors.sample_step = g.groups * g.out_blocks() * block_len;
        lines.vectors_left = share.outs.len() + usize::from(!share.tail.is_empty());
        if g.plain {
            return lines;
        }
        let inner_blocks = g.group_ic.div_ceil(g.lanes);
        let plane = g.ih * g.iw * g.lanes;
        let sample_step = g.groups * inner_blocks * plane;
        let first_plane = next.samples.start * sample_step
            + (share.group * inner_blocks + work.inner_blocks.start) * plane;
        lines.stretch.sample_step = sample_step;
        lines.blocks_left = work.inner_blocks.len();
        if g.kh * g.kw == 1 && g.ph + g.pw == 0 {
            let first = (next.rows.start * g.sh * g.iw + next.columns.start * g.sw) * g.lanes;
            lines.stretch.start = first_plane + first;
            lines.stretch.line_step = g.sh * g.iw * g.lanes;
            lines.stretch.pixel_step = g.sw * g.lanes;
            (lines.stretches, lines.stretches_left) = (1, 1);
            lines.block_step = plane;
            return lines;
        }
        // The rows that the next part is the first to read.
        let first_row = (next.rows.start * g.sh + g.kh).saturating_sub(g.ph + g.sh);
        let rows = (next.rows.len() * g.sh).min(g.ih.saturating_sub(first_row));
        lines.stretch_step = work.part.rows.len() * work.part.columns.len() * g.lanes;
        lines.stretches = (rows * g.iw * g.lanes).div_ceil(lines.stretch_step);
        lines.stretches_left = lines.stretches;
        lines.block_step = plane.wrapping_sub(lines.stretches * lines.stretch_step);
        if rows == 0 {
            lines.blocks_left = 0;
        }
        lines.stretch.start = first_plane + first_row * g.iw * g.lanes;
        lines
    }

    #[inline(always)]
    pub(super) fn next(&mut self, chunk: &Chunk<'a>) -> Ahead<'a> {
        if self.vectors_left > 0 {
            self.vectors_left -= 1;
            let now = self.vectors;
            self.vectors.start += self.vectors_step;
            return now;
        }
        if self.blocks_left == 0 {
            // What is in use anyway.
            let (start, sample_step) = (chunk.diff_starts[0], chunk.diff_line_steps[0]);
            return Ahead { tensor: chunk.diff_dst, start, sample_step, ..self.vectors };
        }
        let now = self.stretch;
        self.stretch.start = self.stretch.start.wrapping_add(self.stretch_step);
        self.stretches_left -= 1;
        if self.stretches_left == 0 {
            self.stretch.start = self.stretch.start.wrapping_add(self.block_step);
            self.stretches_left = self.stretches;
            self.blocks_left -= 1;
        }
        now
    }
}
