//! Lines of a source tensor as the kernels read them: with padding in place and one step from output pixel to pixel.
//!
//! Without padding and horizontal stride the tensor itself is such lines. Otherwise a block first copies the rows it needs
//! into scratch, adding the padding and putting columns that are `sw` apart side by side:
//!
//! ```text
//! row of the copy:  columns 0, sw, 2 sw, ..  | columns 1, sw + 1, ..  | ..      (sw phases)
//! ```
//!
//! so that kernels know neither padding nor stride. The copy moves an element once for the 2 kh kw V operations or more
//! that use it.

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
    /// Columns of a staged row that lie side by side in a phase.
    pub(super) columns: usize,
    /// Phases that a kernel reads: `stride`, or fewer if the kernel is narrower.
    pub(super) phases: usize,
    /// Columns of the tensor from one column of a phase to the next.
    pub(super) stride: usize,
    /// Whether the tensor can be read as it is.
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
        if self.direct { self.width * self.lanes } else { self.phases * self.phase_len() }
    }

    /// Elements from one phase of a row to the next.
    pub(super) fn phase_len(&self) -> usize {
        self.columns * self.lanes
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
                + rows.start * row_step;
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

    /// Copies one row into its phases.
    fn copy_row(&self, row: &[f32], copy: &mut [f32]) {
        let lanes = self.lanes;
        for (phase, copy) in copy.chunks_exact_mut(self.phase_len()).enumerate() {
            // Column q holds x = q * stride + phase - left; the first that is not padding has x >= 0.
            let before = self.left.saturating_sub(phase).div_ceil(self.stride).min(self.columns);
            let (padding, inside) = copy.split_at_mut(before * lanes);
            padding.fill(0.0);
            let first = (before * self.stride + phase).saturating_sub(self.left);
            let first = first.min(self.width);
            let left = (self.width - first).div_ceil(self.stride);
            let filled = left.min(self.columns - before);
            let (inside, padding) = inside.split_at_mut(filled * lanes);
            padding.fill(0.0);
            if self.stride == 1 {
                inside.copy_from_slice(&row[first * lanes..(first + filled) * lanes]);
                continue;
            }
            let row = &row[first * lanes..];
            match lanes {
                1 => copy_columns::<1>(row, self.stride, inside),
                8 => copy_columns::<8>(row, self.stride, inside),
                16 => copy_columns::<16>(row, self.stride, inside),
                _ => unreachable!("a vector has 8 or 16 lanes"),
            }
        }
    }
}

/// Copies every `stride`-th column of `L` elements.
fn copy_columns<const L: usize>(row: &[f32], stride: usize, copy: &mut [f32]) {
    for (column, copy) in row.chunks(stride * L).zip(copy.chunks_exact_mut(L)) {
        copy.copy_from_slice(&column[..L]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_and_phases_are_laid_out_for_the_kernel() {
        let staging = Staging {
            lanes: 1,
            blocks: 1,
            height: 2,
            width: 4,
            top: 1,
            left: 1,
            columns: 3,
            phases: 2,
            stride: 2,
            direct: false,
        };
        let src = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let mut scratch = [9.0; 18];
        let region = Region { samples: 0..1, blocks: 0..1, rows: 0..3 };
        let lines = staging.stage(&src, &region, &mut scratch);
        assert_eq!(lines.src[..6], [0.0; 6], "the row above");
        assert_eq!(lines.src[6..12], [0.0, 2.0, 4.0, 1.0, 3.0, 0.0]);
        assert_eq!(lines.src[lines.start(0, 0, 2)..], [0.0, 6.0, 8.0, 5.0, 7.0, 0.0]);
    }
}
