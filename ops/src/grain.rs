//! How many like pieces of memory-bound work one block of a task takes.

use std::ops::Range;

/// Bytes that a block of memory-bound work should move: 25 to 100 µs at the 5 to 20 GB/s that one core reaches.
/// Smaller blocks would spend their time being claimed, larger ones would leave workers idle at the end of a task.
const BLOCK_BYTES: usize = 512 << 10;

/// Cuts a row of equal pieces (planes, samples, vectors) into blocks of a size that depends on the plan alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grain {
    per_block: usize,
}

impl Grain {
    /// Blocks of as many pieces as move [`BLOCK_BYTES`] together, at least one.
    pub(crate) fn new(bytes_per_piece: usize) -> Grain {
        Grain { per_block: (BLOCK_BYTES / bytes_per_piece.max(1)).max(1) }
    }

    /// The number of blocks that `pieces` make.
    pub(crate) fn blocks(self, pieces: usize) -> usize {
        pieces.div_ceil(self.per_block)
    }

    /// The pieces of one block out of `pieces`; the last block may hold fewer.
    pub(crate) fn pieces(self, block: usize, pieces: usize) -> Range<usize> {
        let start = block * self.per_block;
        start.min(pieces)..(start + self.per_block).min(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_in_exactly_one_block() {
        for bytes in [0, 1, 1000, 100_000, 10_000_000] {
            let grain = Grain::new(bytes);
            for pieces in [0, 1, 7, 600] {
                let all: Vec<_> =
                    (0..grain.blocks(pieces)).flat_map(|b| grain.pieces(b, pieces)).collect();
                assert_eq!(all, (0..pieces).collect::<Vec<_>>(), "{bytes} bytes a piece");
            }
        }
    }
}
