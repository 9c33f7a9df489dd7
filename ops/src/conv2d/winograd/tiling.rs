//! Where tiles lie in the maps.

/// The tile at a place of the grid of tiles that covers each sample's map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) sample: usize,
    pub(super) row: usize,
    pub(super) column: usize,
}

/// The tiles of a block: some rows of tiles of some samples, counted row by row, sample by sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockTiles {
    pub(super) first_sample: usize,
    pub(super) samples: usize,
    pub(super) first_row: usize,
    /// Rows of tiles of a sample.
    pub(super) rows: usize,
    /// Tiles of a row.
    pub(super) columns: usize,
}

impl BlockTiles {
    pub(super) fn count(&self) -> usize {
        self.samples * self.rows * self.columns
    }

    #[inline(always)]
    pub(super) fn place(&self, tile: usize) -> Place {
        let (line, column) = (tile / self.columns, tile % self.columns);
        let (sample, row) = (line / self.rows, line % self.rows);
        Place { sample: self.first_sample + sample, row: self.first_row + row, column }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_counted_row_by_row_and_sample_by_sample() {
        let tiles = BlockTiles { first_sample: 3, samples: 2, first_row: 1, rows: 2, columns: 4 };
        assert_eq!(tiles.count(), 16);
        assert_eq!(tiles.place(0), Place { sample: 3, row: 1, column: 0 });
        assert_eq!(tiles.place(7), Place { sample: 3, row: 2, column: 3 });
        assert_eq!(tiles.place(8), Place { sample: 4, row: 1, column: 0 });
    }
}
