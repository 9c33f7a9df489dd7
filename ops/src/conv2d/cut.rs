//! How the output of a pass is cut into blocks: the cut of the least estimated time.
//!
//! A block computes some rows of some samples for some strips of output blocks. It reads the lines of the source that its rows
//! need, and the weights of its strips, so few large blocks move few bytes, while many small ones end together. The search
//! weighs both, over all cuts whose working set fits the cache.

use std::ops::Range;

/// Cycles to hand out and begin a block, and to end it.
pub(super) const BLOCK_CYCLES: f64 = 3000.0;

/// Cycles a byte of the source: copied from a cache shared by all cores.
const SRC_BYTE_CYCLES: f64 = 0.2;

/// Cycles a byte of weights from the shared cache, mostly hidden by prefetching, and from L2.
const WEI_BYTE_CYCLES: [f64; 2] = [0.08, 0.01];

/// Cycles that workers wait at the end of a pass, in cycles of a block.
const TAIL_BLOCKS: f64 = 1.5;

/// Minibatches up to this size have a cut of their own; larger ones are cut like this one.
const CUTS: usize = 32;

/// What a pass computes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    /// Output rows of a sample.
    pub(super) rows: usize,
    pub(super) groups: usize,
    /// Strips of output blocks of a group.
    pub(super) strips: usize,
    /// Samples whose lines take as long as a multiple of so many.
    pub(super) lines_together: usize,
    /// Multiplications of vectors for one row and one strip.
    pub(super) row_fmas: usize,
    /// Bytes of a row of the source, all inner channels of a group.
    pub(super) src_row_bytes: usize,
    /// Rows of the source from output row to output row.
    pub(super) row_step: usize,
    /// Rows of the source that an output row reads.
    pub(super) kernel_rows: usize,
    /// Bytes of a strip's weights.
    pub(super) wei_bytes: usize,
    /// The L2 cache of a core: half is for what a block holds, half for what is prefetched.
    pub(super) l2_bytes: usize,
}

/// Samples, rows and strips of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) samples: usize,
    pub(super) rows: usize,
    pub(super) strips: usize,
}

/// One block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) samples: Range<usize>,
    pub(super) rows: Range<usize>,
    pub(super) group: usize,
    /// Strips of output blocks within the group.
    pub(super) strips: Range<usize>,
}

/// Samples, rows, groups and strips of output blocks, cut into blocks of about equal work.
#[derive(Debug, Clone)]
pub(super) struct Cut {
    work: Work,
    /// For 1, 2, .. samples.
    sizes: Vec<Size>,
}

impl Work {
    /// Rows of the source that so many output rows read: not those between, where a kernel leaves some out.
    pub(super) fn src_rows(&self, rows: usize) -> usize {
        (rows - 1) * self.row_step.min(self.kernel_rows) + self.kernel_rows
    }

    fn src_bytes(&self, size: Size) -> usize {
        size.samples * self.src_rows(size.rows) * self.src_row_bytes
    }

    fn blocks(&self, mb: usize, size: Size) -> usize {
        self.groups
            * self.strips.div_ceil(size.strips)
            * mb.div_ceil(size.samples)
            * self.rows.div_ceil(size.rows)
    }

    /// Estimated cycles of a block.
    fn cycles(&self, size: Size) -> f64 {
        let all_wei = self.strips * self.groups * self.wei_bytes;
        let wei_byte = WEI_BYTE_CYCLES[usize::from(all_wei <= self.l2_bytes / 2)];
        // Two multiplications of vectors a cycle.
        let samples = size.samples.next_multiple_of(self.lines_together);
        let fmas = (samples * size.rows * size.strips * self.row_fmas) as f64 / 2.0;
        let moved = self.src_bytes(size) as f64 * SRC_BYTE_CYCLES
            + (size.strips * self.wei_bytes) as f64 * wei_byte;
        BLOCK_CYCLES + fmas + moved
    }

    /// Estimated cycles of a block of lines that are staged; `None` if they do not fit the cache.
    fn staged_cycles(&self, size: Size) -> Option<f64> {
        // One row of one sample is taken whatever its bytes.
        let fits = self.src_bytes(size) <= self.l2_bytes / 2 || size.samples * size.rows == 1;
        fits.then(|| self.cycles(size))
    }

    /// The size for `mb` samples whose blocks take the fewest cycles together.
    fn search(&self, mb: usize, cycles: impl Fn(Size) -> Option<f64>) -> Size {
        let mut best: Option<(f64, Size)> = None;
        for rows in sizes(self.rows) {
            let most_samples = if rows == self.rows { mb } else { 1 };
            for samples in sizes(most_samples) {
                for strips in sizes(self.strips) {
                    let size = Size { samples, rows, strips };
                    let Some(block) = cycles(size) else { continue };
                    let cycles = block * (self.blocks(mb, size) as f64 + TAIL_BLOCKS);
                    if best.is_none_or(|(least, _)| cycles < least) {
                        best = Some((cycles, size));
                    }
                }
            }
        }
        best.expect("the smallest block is always taken").1
    }
}

/// The sizes that cut `0..len` into 1, 2, .. parts as evenly as can be.
fn sizes(len: usize) -> impl Iterator<Item = usize> {
    let mut last = 0;
    (1..=len).map(move |parts| len.div_ceil(parts)).filter(move |size| {
        let is_new = *size != last;
        last = *size;
        is_new
    })
}

impl Cut {
    pub(super) fn new(work: Work) -> Cut {
        Cut::by(work, |size| work.staged_cycles(size))
    }

    /// The cut by an estimate of a block's cycles; sizes for which there is none are not taken, but one row of one sample and
    /// one pair must have one.
    pub(super) fn by(work: Work, cycles: impl Fn(Size) -> Option<f64>) -> Cut {
        Cut { work, sizes: (1..=CUTS).map(|mb| work.search(mb, &cycles)).collect() }
    }

    fn size(&self, mb: usize) -> Size {
        self.sizes[mb.clamp(1, CUTS) - 1]
    }

    /// Blocks of `mb` samples.
    pub(super) fn blocks(&self, mb: usize) -> usize {
        self.work.blocks(mb, self.size(mb))
    }

    /// Parts of the samples times parts of the rows: how many blocks write the same channels.
    pub(super) fn slices(&self, mb: usize) -> usize {
        let size = self.size(mb);
        mb.div_ceil(size.samples) * self.work.rows.div_ceil(size.rows)
    }

    /// The most samples and rows that blocks have, as strips of both.
    pub(super) fn extents(&self) -> impl Iterator<Item = [usize; 2]> {
        self.sizes.iter().map(|size| [size.samples, size.rows])
    }

    /// The lines of a block of a large minibatch.
    pub(super) fn typical_lines(&self) -> usize {
        let size = self.size(CUTS);
        size.samples * size.rows
    }

    /// Inner blocks whose weights for a strip take no more than a third of the L2 cache.
    pub(super) fn chunk(&self, inner_blocks: usize) -> usize {
        let chunks =
            self.work.wei_bytes.div_ceil(self.work.l2_bytes / 3).clamp(1, inner_blocks.max(1));
        inner_blocks.div_ceil(chunks).max(1)
    }

    /// A block; neighbors share their weights.
    pub(super) fn piece(&self, block: usize, mb: usize) -> Piece {
        let size = self.size(mb);
        let row_parts = self.work.rows.div_ceil(size.rows);
        let strip_parts = self.work.strips.div_ceil(size.strips);
        let sample_parts = mb.div_ceil(size.samples);
        let (rest, row_part) = (block / row_parts, block % row_parts);
        let (rest, sample_part) = (rest / sample_parts, rest % sample_parts);
        let (group, strip_part) = (rest / strip_parts, rest % strip_parts);
        Piece {
            samples: part(sample_part, size.samples, mb),
            rows: part(row_part, size.rows, self.work.rows),
            group,
            strips: part(strip_part, size.strips, self.work.strips),
        }
    }
}

/// Part `index` of `0..len` in parts of `size`.
pub(super) fn part(index: usize, size: usize, len: usize) -> Range<usize> {
    index * size..(index * size + size).min(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 3x3, 256 to 256 channels, maps of 56x56, 16 lanes.
    const LARGE: Work = Work {
        rows: 56,
        groups: 1,
        strips: 8,
        lines_together: 1,
        row_fmas: 56 * 256 * 9 * 2,
        src_row_bytes: 58 * 256 * 4,
        row_step: 1,
        kernel_rows: 3,
        wei_bytes: 256 * 9 * 128,
        l2_bytes: 1 << 20,
    };

    /// 5x5, 20 to 50 channels, maps of 8x8.
    const SMALL: Work = Work {
        rows: 8,
        groups: 1,
        strips: 2,
        lines_together: 1,
        row_fmas: 8 * 500 * 2,
        src_row_bytes: 12 * 32 * 4,
        row_step: 1,
        kernel_rows: 5,
        wei_bytes: 500 * 128,
        l2_bytes: 1 << 20,
    };

    #[test]
    fn pieces_partition_the_output() {
        let grouped = Work { rows: 7, groups: 2, strips: 3, ..LARGE };
        let one = Work { rows: 1, strips: 1, row_fmas: 10, ..SMALL };
        for work in [LARGE, SMALL, grouped, one] {
            let cut = Cut::new(work);
            for mb in [0, 1, 5, 64] {
                let Work { rows, groups, strips, .. } = work;
                let mut seen = vec![0; mb * rows * groups * strips];
                for block in 0..cut.blocks(mb) {
                    let piece = cut.piece(block, mb);
                    let extent = [piece.samples.len(), piece.rows.len()];
                    assert!(cut.extents().any(|e| e[0] >= extent[0] && e[1] >= extent[1]));
                    for n in piece.samples {
                        for row in piece.rows.clone() {
                            for strip in piece.strips.clone() {
                                seen[((n * rows + row) * groups + piece.group) * strips + strip] +=
                                    1;
                            }
                        }
                    }
                }
                assert!(seen.iter().all(|count| *count == 1), "{cut:?}");
            }
        }
    }

    #[test]
    fn large_layers_read_their_lines_once_for_all_strips() {
        let piece = Cut::new(LARGE).piece(0, 8);
        assert_eq!(piece.strips, 0..8);
        assert!(LARGE.src_rows(piece.rows.len()) * LARGE.src_row_bytes <= LARGE.l2_bytes / 2);
        assert!(piece.rows.len() >= 3, "{piece:?}");
    }

    #[test]
    fn rows_that_no_kernel_reads_do_not_count() {
        assert_eq!(LARGE.src_rows(4), 6);
        assert_eq!(Work { row_step: 2, ..LARGE }.src_rows(4), 9);
        assert_eq!(Work { row_step: 2, kernel_rows: 1, ..LARGE }.src_rows(4), 4);
    }

    #[test]
    fn there_are_blocks_for_several_workers() {
        for mb in [1, 8, 64] {
            assert!(Cut::new(LARGE).blocks(mb) >= 16);
        }
        assert!(Cut::new(SMALL).blocks(64) >= 16);
    }

    #[test]
    fn large_weights_are_cut_into_chunks_of_inner_blocks() {
        assert_eq!(Cut::new(LARGE).chunk(16), 16);
        let larger = Cut::new(Work { wei_bytes: 1024 * 9 * 128, ..LARGE });
        assert_eq!(larger.chunk(64), 16);
    }
}
