//! Lines of a source tensor as the kernels read them: with padding in place.
//!
//! Without padding the tensor itself is such lines. Otherwise a block first copies the rows it needs into scratch, adding
//! the padding, so that kernels need to know nothing of it; they leave out what can be left out at no cost. The copy moves
//! an element once for all the operations that use it.

use std::ops::Range;

/// How the lines of a tensor are laid out for a kernel.
#[derive(Debug, Clone)]
pub(super) struct Staging {
    /// Channels innermost: the lanes of a vector, or 1 for a plain tensor.
    pub(super) lanes: usize,
    /// Channel blocks of the tensor.
    pub(super) blocks: usize,
    /// Height of the tensor.
    pub(super) height: usize,
    /// Width of the tensor.
    pub(super) width: usize,
    /// Rows of zeros before the first.
    pub(super) top: usize,
    /// Columns of zeros before the first.
    pub(super) left: usize,
    /// Columns of a staged row.
    pub(super) columns: usize,
    /// Whether the tensor is read as it is: rows of a region are then those that are not padding.
    pub(super) direct: bool,
}

/// Samples, channel blocks and staged rows, to be read by a block.
#[derive(Debug, Clone)]
pub(super) struct Region {
    pub(super) samples: Range<usize>,
    pub(super) blocks: Range<usize>,
    /// Counted from the first row of padding.
    pub(super) rows: Range<usize>,
}

/// Where lines begin: (sample, block, row) of a region lies at `base + sample * .. + block * .. + row * ..`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lines<'a> {
    pub(super) src: &'a [f32],
    pub(super) base: usize,
    pub(super) sample_step: usize,
    pub(super) block_step: usize,
    pub(super) row_step: usize,
}

impl Lines<'_> {
    /// The first element of a line; all counted from the region's first.
    #[inline(always)]
    pub(super) fn start(&self, sample: usize, block: usize, row: usize) -> usize {
        self.base + sample * self.sample_step + block * self.block_step + row * self.row_step
    }
}

impl Staging {
    /// Elements of a staged row.
    pub(super) fn row_len(&self) -> usize {
        self.lanes * if self.direct { self.width } else { self.columns }
    }

    /// Elements of scratch that a region takes.
    pub(super) fn scratch_len(&self, samples: usize, blocks: usize, rows: usize) -> usize {
        if self.direct { 0 } else { samples * blocks * rows * self.row_len() }
    }

    /// Elements of a sample of the tensor.
    pub(super) fn sample_len(&self) -> usize {
        self.blocks * self.plane_len()
    }

    /// The rows of a region that are not padding, counted from its first.
    pub(super) fn data_rows(&self, region: &Region) -> Range<usize> {
        let Range { start, end } = region.rows;
        let first = self.top.clamp(start, end);
        first - start..(self.top + self.height).clamp(first, end) - start
    }

    /// The columns of a staged row that are not padding.
    pub(super) fn data_columns(&self) -> Range<usize> {
        self.left..self.left + self.width
    }

    fn plane_len(&self) -> usize {
        self.height * self.width * self.lanes
    }

    /// Provides the lines of a region, copying them to `scratch` where need be.
    pub(super) fn stage<'a>(
        &self,
        src: &'a [f32],
        region: &Region,
        scratch: &'a mut [f32],
    ) -> Lines<'a> {
        let Region { samples, blocks, rows } = region.clone();
        let row_step = self.row_len();
        if self.direct {
            let base = samples.start * self.sample_len()
                + blocks.start * self.plane_len()
                + rows.start.saturating_sub(self.top) * row_step;
            let (sample_step, block_step) = (self.sample_len(), self.plane_len());
            return Lines { src, base, sample_step, block_step, row_step };
        }
        let block_step = rows.len() * row_step;
        let sample_step = blocks.len() * block_step;
        let scratch = &mut scratch[..samples.len() * sample_step];
        let mut staged = scratch.chunks_exact_mut(row_step);
        for sample in samples {
            for block in blocks.clone() {
                let plane = sample * self.sample_len() + block * self.plane_len();
                for (row, copy) in rows.clone().zip(&mut staged) {
                    let y = row.wrapping_sub(self.top);
                    if y < self.height {
                        let start = plane + y * self.width * self.lanes;
                        self.copy_row(&src[start..start + self.width * self.lanes], copy);
                    } else {
                        copy.fill(0.0);
                    }
                }
            }
        }
        Lines { src: scratch, base: 0, sample_step, block_step, row_step }
    }

    /// Copies one row between its padding.
    #[inline]
    fn copy_row(&self, row: &[f32], copy: &mut [f32]) {
        let (padding, rest) = copy.split_at_mut(self.left.min(self.columns) * self.lanes);
        padding.fill(0.0);
        let len = rest.len().min(row.len());
        let (inside, padding) = rest.split_at_mut(len);
        inside.copy_from_slice(&row[..len]);
        padding.fill(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_lie_between_their_padding() {
        let staging = Staging {
            lanes: 1,
            blocks: 1,
            height: 2,
            width: 4,
            top: 1,
            left: 1,
            columns: 6,
            direct: false,
        };
        let src = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let mut scratch = [9.0; 18];
        let region = Region { samples: 0..1, blocks: 0..1, rows: 0..3 };
        let lines = staging.stage(&src, &region, &mut scratch);
        assert_eq!(lines.src[..6], [0.0; 6], "the row above");
        assert_eq!(lines.src[6..12], [0.0, 1.0, 2.0, 3.0, 4.0, 0.0]);
        assert_eq!(lines.src[lines.start(0, 0, 2)..], [0.0, 5.0, 6.0, 7.0, 8.0, 0.0]);
    }
}
