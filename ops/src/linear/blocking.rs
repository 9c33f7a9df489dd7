//! Block sizes of the matrix products, and what they are derived from.

use std::ops::Range;

/// Vectors side by side in a register tile, and so in a group of packed weights.
pub(super) const VECTORS: usize = 3;

/// Rows of a register tile: with its 6 x 3 or 4 x 3 sums, 3 vectors and a broadcast it fits the 32 vector registers of 16
/// lanes (AVX-512) or the 16 of 8 lanes (AVX2). Both keep more than the 8 to 10 sums in flight that two multiply-adds a
/// cycle of 4 to 5 cycles need, and load less than one operand a multiply-add.
///
/// 8 x 3 would fit the 32 registers too, but the compiler loads all broadcasts first, runs out of registers and moves
/// sums about: 61 % of peak, against 78 % (EPYC, Zen 5, 800 x 500 features, 64 samples).
pub(super) const fn tile_rows(lanes: usize) -> usize {
    if lanes >= 16 { 6 } else { 4 }
}

const _: () = assert!(tile_rows(16) * (VECTORS + 1) + VECTORS <= 32);
const _: () = assert!(tile_rows(8) * VECTORS + VECTORS < 16);

/// Elements of the right-hand panel that all rows of a block pass: 24 KiB, which leave the rest of a 32 KiB
/// first-level cache to the rows of the left-hand side.
const PANEL: usize = 6 << 10;

/// Terms of a sum that are added up before the next rows come (KC): the depth of a panel.
pub(super) const fn panel_depth(lanes: usize) -> usize {
    PANEL / (VECTORS * lanes)
}

const _: () = assert!(panel_depth(16).is_multiple_of(16) && panel_depth(8).is_multiple_of(8));

/// Cuts `0..len` into panels; one empty panel if there is nothing, so that sums of no terms are written too.
pub(super) fn panels(len: usize, lanes: usize) -> impl Iterator<Item = Range<usize>> {
    let depth = panel_depth(lanes);
    (0..len.div_ceil(depth).max(1)).map(move |i| i * depth..((i + 1) * depth).min(len))
}

/// Work of a block in flop: 40 to 80 µs at the 50 to 100 GFLOP/s of a core.
const BLOCK_FLOP: usize = 4 << 20;

/// Moving a weight between memory and core costs as much as this many samples' multiply-adds with it: 4 bytes at
/// 10 GB/s, against 2 flop at 80 GFLOP/s.
pub(super) const STREAM_SAMPLES: usize = 16;

/// A matrix of outputs to be cut into blocks. Columns are groups of vectors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Rows of a block are a multiple of this.
    pub(super) row_step: usize,
    /// Fewer rows than this would spend too much time on bringing the column's operand into cache.
    pub(super) min_rows: usize,
    /// Work of one row of one column.
    pub(super) cell_flop: usize,
    /// Work on a column that does not depend on its rows.
    pub(super) column_flop: usize,
}

impl Grid {
    /// The number of blocks.
    pub(super) fn blocks(&self) -> usize {
        let (rows, columns) = self.block_size();
        self.rows.div_ceil(rows) * self.columns.div_ceil(columns)
    }

    /// The rows and columns of a block. Blocks of the same columns are neighbors, so that workers that run side by
    /// side find them in a shared cache.
    pub(super) fn block(&self, block: usize) -> (Range<usize>, Range<usize>) {
        let (rows, columns) = self.block_size();
        let chunks = self.rows.div_ceil(rows);
        let (row, column) = (block % chunks * rows, block / chunks * columns);
        (row..(row + rows).min(self.rows), column..(column + columns).min(self.columns))
    }

    /// Rows and columns of a block: rows first, then as many columns as the work allows.
    fn block_size(&self) -> (usize, usize) {
        let wanted = BLOCK_FLOP.saturating_sub(self.column_flop) / self.cell_flop;
        let rows = even_share(self.rows, wanted.max(self.min_rows)).next_multiple_of(self.row_step);
        let column = self.column_flop + self.cell_flop * rows.min(self.rows).max(1);
        (rows, even_share(self.columns, (BLOCK_FLOP / column).max(1)))
    }
}

/// The size of the shares if `len` is cut into as few as possible of at most `limit`, all about equal; at least 1.
fn even_share(len: usize, limit: usize) -> usize {
    len.div_ceil(len.div_ceil(limit).max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_in_exactly_one_block() {
        for (rows, columns, cell_flop) in
            [(64, 11, 76_800), (1, 86, 9_000), (4096, 1, 100), (7, 3, 1 << 30)]
        {
            let grid = Grid {
                rows,
                columns,
                row_step: 8,
                min_rows: 32,
                cell_flop,
                column_flop: 16 * cell_flop,
            };
            let mut cells = vec![0; rows * columns];
            for block in 0..grid.blocks() {
                let (rows, columns) = grid.block(block);
                for row in rows {
                    columns.clone().for_each(|column| cells[row * grid.columns + column] += 1);
                }
            }
            assert!(cells.iter().all(|&n| n == 1), "{grid:?}");
        }
    }

    #[test]
    fn without_rows_there_are_no_blocks() {
        let grid = Grid {
            rows: 0,
            columns: 5,
            row_step: 8,
            min_rows: 32,
            cell_flop: 10,
            column_flop: 160,
        };
        assert_eq!(grid.blocks(), 0);
    }

    #[test]
    fn panels_cover_their_length_and_nothing_is_one_panel() {
        assert_eq!(panels(300, 16).collect::<Vec<_>>(), [0..128, 128..256, 256..300]);
        let nothing: Vec<_> = panels(0, 16).map(|panel| panel.len()).collect();
        assert_eq!(nothing, [0]);
    }
}
