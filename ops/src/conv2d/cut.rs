//! How the output of a pass is cut into blocks.

use std::ops::Range;

/// Multiplications of vectors that a block should do: some 20 to 50 µs at two a cycle.
const BLOCK_VECTOR_FMAS: usize = 250_000;

/// Bytes of staged lines that a block should read: they are to stay in the L2 cache beside the weights.
const STAGED_BYTES: usize = 256 << 10;

/// Rows below which a block is not cut while there are pairs to cut: each block loads its weights anew.
const MIN_ROWS: usize = 4;

/// Samples, rows, groups and pairs of output blocks, cut into blocks of about equal work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    rows: usize,
    groups: usize,
    pairs: usize,
    samples_per_block: usize,
    rows_per_block: usize,
    pairs_per_block: usize,
}

/// What one line of output costs.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineCost {
    /// Multiplications of vectors for one pair of output blocks.
    pub(super) vector_fmas: usize,
    /// Bytes of staged lines, all inner channels.
    pub(super) staged_bytes: usize,
}

/// One block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) samples: Range<usize>,
    pub(super) rows: Range<usize>,
    pub(super) group: usize,
    /// Pairs of output blocks within the group.
    pub(super) pairs: Range<usize>,
}

impl Cut {
    /// Cuts `rows` rows a sample of `groups` times `pairs` pairs of output blocks.
    pub(super) fn new([rows, groups, pairs]: [usize; 3], cost: LineCost) -> Cut {
        let line = (cost.vector_fmas * pairs).max(1);
        let staged = cost.staged_bytes.max(1);
        let fitting_lines = (STAGED_BYTES / staged).max(1);
        let wanted_lines = (BLOCK_VECTOR_FMAS / line).max(1).min(fitting_lines);
        let rows_per_block = if wanted_lines >= rows {
            rows
        } else {
            let most = wanted_lines.max(MIN_ROWS).min(rows);
            rows.div_ceil(rows.div_ceil(most))
        };
        let samples_per_block = (wanted_lines / rows).max(1);
        let pair_parts = (line * rows_per_block * samples_per_block / BLOCK_VECTOR_FMAS).max(1);
        let pairs_per_block = pairs.div_ceil(pair_parts.min(pairs));
        Cut { rows, groups, pairs, samples_per_block, rows_per_block, pairs_per_block }
    }

    /// Blocks of `mb` samples.
    pub(super) fn blocks(&self, mb: usize) -> usize {
        self.groups * self.pair_parts() * mb.div_ceil(self.samples_per_block) * self.row_parts()
    }

    /// The most lines that a block has.
    pub(super) fn max_lines(&self) -> usize {
        self.samples_per_block * self.rows_per_block
    }

    /// Samples and rows of the largest block.
    pub(super) fn extent(&self) -> [usize; 2] {
        [self.samples_per_block, self.rows_per_block]
    }

    /// A block; neighbors share their weights.
    pub(super) fn piece(&self, block: usize, mb: usize) -> Piece {
        let (rest, row_part) = (block / self.row_parts(), block % self.row_parts());
        let sample_parts = mb.div_ceil(self.samples_per_block);
        let (rest, sample_part) = (rest / sample_parts, rest % sample_parts);
        let (group, pair_part) = (rest / self.pair_parts(), rest % self.pair_parts());
        Piece {
            samples: part(sample_part, self.samples_per_block, mb),
            rows: part(row_part, self.rows_per_block, self.rows),
            group,
            pairs: part(pair_part, self.pairs_per_block, self.pairs),
        }
    }

    fn row_parts(&self) -> usize {
        self.rows.div_ceil(self.rows_per_block)
    }

    fn pair_parts(&self) -> usize {
        self.pairs.div_ceil(self.pairs_per_block)
    }
}

/// Part `index` of `0..len` in parts of `size`.
pub(super) fn part(index: usize, size: usize, len: usize) -> Range<usize> {
    index * size..(index * size + size).min(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_partition_the_output() {
        for ([rows, groups, pairs], vector_fmas) in
            [([24, 1, 1], 600), ([56, 1, 8], 130_000), ([7, 2, 3], 90_000), ([1, 1, 1], 10)]
        {
            let cut = Cut::new([rows, groups, pairs], LineCost { vector_fmas, staged_bytes: 4000 });
            for mb in [0, 1, 5, 64] {
                let mut seen = vec![0; mb * rows * groups * pairs];
                for block in 0..cut.blocks(mb) {
                    let piece = cut.piece(block, mb);
                    assert!(piece.samples.len() * piece.rows.len() <= cut.max_lines());
                    for n in piece.samples {
                        for row in piece.rows.clone() {
                            for pair in piece.pairs.clone() {
                                seen[((n * rows + row) * groups + piece.group) * pairs + pair] += 1;
                            }
                        }
                    }
                }
                assert!(seen.iter().all(|count| *count == 1), "{cut:?}");
            }
        }
    }

    #[test]
    fn small_samples_share_a_block_and_large_ones_are_cut() {
        let small = Cut::new([8, 1, 2], LineCost { vector_fmas: 100, staged_bytes: 100 });
        assert_eq!(small.extent(), [156, 8]);
        let large = Cut::new([56, 1, 8], LineCost { vector_fmas: 260_000, staged_bytes: 60_000 });
        assert_eq!((large.extent(), large.pairs_per_block), ([1, 4], 1));
    }
}
