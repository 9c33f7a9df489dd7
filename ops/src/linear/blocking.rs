//! Block sizes of the matrix products, and what they are derived from.

use std::ops::Range;

use super::packing::GROUP;

/// Vectors side by side in a register tile.
pub(super) const VECTORS: usize = 2;

/// Rows of a register tile: with its 12 x 2 or 6 x 2 sums, 2 vectors and a broadcast it fits the 32 vector registers of 16
/// lanes (AVX-512) or the 16 of 8 lanes (AVX2). Both keep more sums in flight than two multiply-adds a cycle of 4 to 5
/// cycles need, and load about half an operand a multiply-add.
///
/// Measured from the first-level cache: 12 x 2 at 90 to 98 % of peak, 8 x 3 at 78 % (the compiler moves sums through
/// memory at the ends of a tile), and with AVX2 6 x 2 at 97 %, 4 x 3 at 55 % (no register is left for the broadcast).
pub(crate) const fn tile_rows(lanes: usize) -> usize {
    if lanes >= 16 { 12 } else { 6 }
}

const _: () = assert!(tile_rows(16) * VECTORS + VECTORS < 32);
const _: () = assert!(tile_rows(8) * VECTORS + VECTORS < 16);

/// Cuts `0..len` into panels of about the same depth, at most `limit`, whole numbers of groups; one empty panel if there is
/// nothing, so that sums of no terms are written too.
pub(super) fn panels(len: usize, limit: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    let depth = len.div_ceil(len.div_ceil(limit).max(1)).next_multiple_of(GROUP).max(GROUP);
    (0..len.div_ceil(depth).max(1)).map(move |i| i * depth..((i + 1) * depth).min(len))
}

/// Blocks for each worker that a pass is cut into: 8 if each is then as large as is good, else 2 if each is then as large as
/// is bearable. Each block copies what it reads, so that more cost more: on one worker a layer of 2048 x 1024 features and
/// 128 samples takes 10 % longer in 8 blocks than in 2.
const WANTED_BLOCKS: [usize; 2] = [8, 2];

/// Fewer blocks a worker than this are cut further until all workers have as many.
const EVEN_BELOW: usize = 4;

/// How far a side of the output may be cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Side {
    /// Its length.
    pub(super) len: usize,
    /// Pieces are a multiple of this long.
    pub(super) step: usize,
    /// Shorter pieces would make too little use of what is packed for the other side.
    pub(super) min: usize,
    /// Shorter ones make less use of it than is to be had.
    pub(super) good: usize,
    /// Longer ones would not fit the cache, or scratch.
    pub(super) max: usize,
}

/// A matrix of outputs to be cut into blocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    rows: Side,
    columns: Side,
    block_rows: usize,
    block_columns: usize,
}

impl Grid {
    /// Cuts the longer side of a block as long as there are too few blocks for so many workers: first to what is good, then
    /// to what is bearable. Each block packs its rows and its columns, so that a square one packs least for its work.
    pub(super) fn new(rows: Side, columns: Side, workers: usize) -> Grid {
        let mut across = columns.len.div_ceil(columns.max).max(1);
        let mut down = rows.len.div_ceil(rows.max).max(1);
        let (good, bearable) = ([rows.good, columns.good], [rows.min, columns.min]);
        let mut cut_while = |[height, width]: [usize; 2], too_few: &dyn Fn(usize) -> bool| {
            while too_few(across * down) {
                let cut_rows = rows.len / (down + 1) >= height;
                let cut_columns = columns.len / (across + 1) >= width;
                if cut_columns && (columns.len / across >= rows.len / down || !cut_rows) {
                    across += 1;
                } else if cut_rows {
                    down += 1;
                } else {
                    break;
                }
            }
        };
        let [wanted, bare] = WANTED_BLOCKS.map(|blocks| blocks * workers);
        cut_while(good, &|blocks| blocks < wanted);
        cut_while(bearable, &|blocks| {
            blocks < bare || blocks < EVEN_BELOW * workers && !blocks.is_multiple_of(workers)
        });
        Grid { rows, columns, block_rows: rows.piece(down), block_columns: columns.piece(across) }
    }

    /// The number of blocks.
    pub(super) fn blocks(&self) -> usize {
        self.rows.len.div_ceil(self.block_rows) * self.columns.len.div_ceil(self.block_columns)
    }

    /// The rows and columns of a block. Blocks of the same columns are neighbors, so that workers that run side by
    /// side find them in a shared cache.
    pub(super) fn block(&self, block: usize) -> (Range<usize>, Range<usize>) {
        let down = self.rows.len.div_ceil(self.block_rows);
        let (row, column) = (block % down * self.block_rows, block / down * self.block_columns);
        (
            row..(row + self.block_rows).min(self.rows.len),
            column..(column + self.block_columns).min(self.columns.len),
        )
    }
}

impl Side {
    /// The length of `count` pieces.
    fn piece(&self, count: usize) -> usize {
        self.len.div_ceil(count).next_multiple_of(self.step).max(self.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(len: usize, step: usize, min: usize, max: usize) -> Side {
        Side { len, step, min, good: 2 * min, max }
    }

    #[test]
    fn every_cell_is_in_exactly_one_block() {
        for (rows, columns) in [(64, 500), (1, 4096), (4096, 10), (7, 30), (1000, 1000)] {
            let grid = Grid::new(side(rows, 12, 24, 256), side(columns, 32, 128, 1024), 2);
            let mut cells = vec![0; rows * columns];
            for block in 0..grid.blocks() {
                let (rows, across) = grid.block(block);
                assert!(rows.len() <= 264 && across.len() <= 1024, "{grid:?}");
                for row in rows {
                    across.clone().for_each(|column| cells[row * columns + column] += 1);
                }
            }
            assert!(cells.iter().all(|&n| n == 1), "{grid:?}");
        }
    }

    #[test]
    fn without_rows_there_are_no_blocks() {
        assert_eq!(Grid::new(side(0, 8, 32, 256), side(5, 1, 1, 4), 2).blocks(), 0);
    }

    #[test]
    fn small_outputs_have_blocks_that_are_not_too_small_and_large_ones_enough() {
        let blocks = |rows, columns, workers| {
            let (rows, columns) = (side(rows, 4, 32, 256), side(columns, 32, 128, 1024));
            Grid::new(rows, columns, workers).blocks()
        };
        assert_eq!([blocks(8, 128, 2), blocks(64, 512, 2), blocks(256, 4096, 2)], [1, 4, 16]);
        assert_eq!([1, 2, 4, 16].map(|workers| blocks(256, 4096, workers)), [8, 16, 32, 64]);
    }

    #[test]
    fn few_blocks_are_shared_evenly() {
        // 2048 features in pieces of 384 at least would be 5.
        let side = |len, good| Side { len, step: 16, min: good / 2, good, max: 512 };
        let blocks = |workers| Grid::new(side(256, 256), side(2048, 384), workers).blocks();
        assert_eq!([1, 2, 3].map(blocks), [5, 6, 6]);
    }

    #[test]
    fn panels_cover_their_length_and_nothing_is_one_panel() {
        assert_eq!(panels(512, 256).collect::<Vec<_>>(), [0..256, 256..512]);
        assert_eq!(panels(300, 192).collect::<Vec<_>>(), [0..160, 160..300]);
        assert_eq!(panels(800, 256).collect::<Vec<_>>(), [0..224, 224..448, 448..672, 672..800]);
        let nothing: Vec<_> = panels(0, 192).map(|panel| panel.len()).collect();
        assert_eq!(nothing, [0]);
    }
}
