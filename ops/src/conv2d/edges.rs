//! Columns of padding: with which pixels of a register tile the taps of a kernel row are multiplied.
//!
//! At the left end of a line the first taps meet padding, at its right end the last. Products with zeros are left out: each
//! such tap has a loop of its own, over the columns that it meets. The number of columns that are left out is known when
//! the loop is compiled, because sums stay in registers only where each column is.
//!
//! ```text
//! line of 5 pixels, 3x3 kernel, padding 1       . . . . .         sums of a tile
//!   tap 0: all but the first                  0 x x x x
//!   tap 1: all                                  x x x x x
//!   tap 2: all but the last                       x x x x 0
//! ```
//!
//! The last tile of a line may go beyond its end. Those columns are left out of all taps and not written.

use std::ops::Range;

use super::register_tile::{NV, RegisterTile};
use super::sweep::Sweep;

/// The most columns that a register tile leaves out on either side; columns of padding beyond are multiplied. Each takes
/// two more loops to compile, so there are only tiles of 32 registers that leave out columns: those of short lines what
/// 3x3 kernels need, and that of long lines what 5x5 kernels need.
pub(super) const fn most_left_out(rows: usize, cols: usize) -> usize {
    match (rows, cols) {
        (1, 14) => 4,
        (2, 7) | (1, 12) | (1, 13) => 1,
        _ => 0,
    }
}

impl Sweep<'_> {
    /// Whether some tile of a sweep of step 1 leaves out columns. A kernel of its own does, because finding the edges of each
    /// tile costs a 1x1 convolution 5 % of its time.
    pub(super) fn has_edges(&self, tile: RegisterTile) -> bool {
        let data = &self.data_columns;
        let end = self.first_column + self.columns + self.strip.taps.columns - 1;
        let has_padding = self.first_column < data.start || end > data.end;
        let beyond = self.columns.next_multiple_of(tile.cols) - self.columns;
        let most = most_left_out(tile.rows, tile.cols);
        self.strip.blocks == NV && most > 0 && (has_padding || (1..=most).contains(&beyond))
    }
}

/// The columns of a register tile that taps leave out.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Edges {
    /// Columns that the first tap leaves out at the left; each following tap leaves out one less.
    pub(super) left: usize,
    /// Columns that the last tap leaves out at the right; each preceding tap leaves out one less, down to `beyond`.
    pub(super) right: usize,
    /// Columns beyond the end of the line.
    pub(super) beyond: usize,
}

impl Edges {
    /// The edges of a tile whose first tap reads staged columns `first..first + cols`, of which only those in `data` are not
    /// padding. `beyond` of its columns lie beyond the end of the line, no more than `most`.
    #[inline(always)]
    pub(super) fn new(
        [first, cols, beyond]: [usize; 3],
        taps: usize,
        data: &Range<usize>,
        most: usize,
    ) -> Edges {
        let left = data.start.saturating_sub(first).min(most);
        let right = (first + cols + taps - 1).saturating_sub(data.end).min(most).max(beyond);
        // A tap that meets padding on both sides would need a loop for both.
        if left + right - beyond > taps || (left > 0 && beyond > 0) {
            return Edges { left: 0, right: beyond, beyond };
        }
        Edges { left, right, beyond }
    }

    /// How many of the taps leave out so many columns at the left, and none at the right.
    #[inline(always)]
    pub(super) fn taps_left(self, left_out: usize) -> usize {
        usize::from(left_out <= self.left)
    }

    /// How many of the taps leave out so many columns at the right, and none at the left.
    #[inline(always)]
    pub(super) fn taps_right(self, left_out: usize, taps: usize) -> usize {
        if left_out == self.beyond {
            taps - self.left - (self.right - self.beyond)
        } else {
            usize::from((self.beyond..=self.right).contains(&left_out))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each tap of a tile leaves out, in the order of the loops.
    fn left_out(edges: Edges, taps: usize, most: usize) -> Vec<[usize; 2]> {
        let left = (1..=most).rev().map(|n| ([n, 0], edges.taps_left(n)));
        let right = (0..=most).map(|n| ([0, n], edges.taps_right(n, taps)));
        left.chain(right).flat_map(|(columns, count)| vec![columns; count]).collect()
    }

    #[test]
    fn taps_leave_out_padding_and_nothing_else() {
        for (width, pad, taps) in
            [(14, 1, 3), (28, 2, 5), (24, 4, 5), (27, 2, 5), (3, 2, 3), (9, 0, 1)]
        {
            let columns = width + 2 * pad - (taps - 1);
            for (cols, most) in [(14, 4), (14, 1), (7, 4), (5, 0), (3, 4)] {
                for from in (0..columns).step_by(cols) {
                    let beyond = (from + cols).saturating_sub(columns);
                    if beyond > most || cols < taps {
                        continue;
                    }
                    let edges = Edges::new([from, cols, beyond], taps, &(pad..pad + width), most);
                    let all = left_out(edges, taps, most);
                    assert_eq!(all.len(), taps, "{edges:?}");
                    for (tap, [left, right]) in all.into_iter().enumerate() {
                        let is_padding = |c: usize| {
                            from + c >= columns || !(pad..pad + width).contains(&(from + c + tap))
                        };
                        assert!((0..left).all(is_padding), "{edges:?} tap {tap}");
                        assert!((cols - right..cols).all(is_padding), "{edges:?} tap {tap}");
                        assert!(right >= beyond);
                        if most == 4 && columns > cols {
                            assert!(!(left..cols - right).any(is_padding), "{edges:?} tap {tap}");
                        }
                    }
                }
            }
        }
    }
}
