//! The taps of a layer cut into tiles: which scalars a kernel call multiplies.
//!
//! A *piece* is a stretch of taps whose scalars lie side by side in a staged line: kernel columns by channels. A long one
//! is cut into several as even as can be; short ones of the same length share a tile.

use super::kernel::{MAX_TAPS, Shape};
use crate::conv2d::geometry::Geometry;
use crate::conv2d::taps::Taps;

/// A stretch of taps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// The block of inner channels.
    pub(super) block: usize,
    /// The kernel row.
    pub(super) row: usize,
    /// From the start of the line at the output pixel.
    pub(super) offset: usize,
}

/// Pieces that a kernel call multiplies together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TapTile {
    pub(super) pieces: usize,
    /// Taps of a piece.
    pub(super) taps: usize,
    /// The first and the end of the output rows on which the tile meets more than padding.
    pub(super) rows: (usize, usize),
    first_piece: usize,
    /// Taps of the tiles before.
    pub(super) first_tap: usize,
}

impl TapTile {
    pub(super) fn end_tap(&self) -> usize {
        self.first_tap + self.pieces * self.taps
    }
}

/// All taps of a layer, inner block by inner block.
#[derive(Debug, Clone)]
pub(super) struct TapTiles {
    pub(super) tiles: Vec<TapTile>,
    pieces: Vec<Piece>,
    /// The step of each tap in the packed weights.
    pub(super) steps: Vec<usize>,
}

impl TapTiles {
    /// Tiles to be multiplied with `vectors` output vectors.
    pub(super) fn new(g: &Geometry, taps: &Taps, vectors: usize, registers: usize) -> TapTiles {
        let mut all = TapTiles { tiles: Vec::new(), pieces: Vec::new(), steps: Vec::new() };
        let most = Shape::most_taps(vectors, registers);
        let mut stretches = Vec::new();
        let mut step = 0;
        for block in 0..taps.blocks() {
            let (runs, len) = taps.runs(block);
            for row in 0..g.kh {
                for run in 0..runs {
                    let piece = Piece { block, row, offset: run * taps.lanes };
                    stretches.push((piece, len, step));
                    step += len;
                }
            }
        }
        let mut lengths = Vec::new();
        let mut cut = |(piece, step): (Piece, usize), [start, end]: [usize; 2]| {
            all.pieces.push(Piece { offset: piece.offset + start, ..piece });
            all.steps.extend(step + start..step + end);
            lengths.push(end - start);
        };
        for same in stretches.chunk_by(|a, b| a.1 == b.1) {
            let len = same[0].1;
            // The pixels of a 1x1 convolution come from afar, so that a short piece would wait for them: two halves.
            let pointwise = g.kh * g.kw == 1;
            let uneven = long_and_short(len, most).filter(|_| !pointwise);
            let Some((long, together)) = uneven else {
                let count = len.div_ceil(most.min(MAX_TAPS));
                for &(piece, _, step) in same {
                    for at in 0..count {
                        // The longer ones first, so that tiles of one shape are neighbors.
                        let ends = [at, at + 1].map(|at| at * (len / count) + at.min(len % count));
                        cut((piece, step), ends);
                    }
                }
                continue;
            };
            for same in same.chunks(together) {
                same.iter().for_each(|&(piece, _, step)| cut((piece, step), [0, long]));
                same.iter().for_each(|&(piece, _, step)| cut((piece, step), [long, len]));
            }
        }
        let (mut piece, mut tap) = (0, 0);
        for same in lengths.chunk_by(|a, b| a == b) {
            let most = Shape::most_pieces(vectors, same[0], same.len(), registers);
            let count = same.len().div_ceil(most);
            for at in 0..count {
                let [start, end] =
                    [at, at + 1].map(|at| at * (same.len() / count) + at.min(same.len() % count));
                let (pieces, taps) = (end - start, same[0]);
                let kernel_rows = all.pieces[piece..piece + pieces].iter().map(|piece| piece.row);
                let firsts = kernel_rows.clone().map(|row| rows_met(g, row).0);
                let ends = kernel_rows.map(|row| rows_met(g, row).1);
                let rows = (firsts.min().unwrap_or(0), ends.max().unwrap_or(0));
                let (first_piece, first_tap) = (piece, tap);
                all.tiles.push(TapTile { pieces, taps, rows, first_piece, first_tap });
                piece += pieces;
                tap += pieces * taps;
            }
        }
        all
    }

    /// The pieces of neighboring tiles.
    pub(super) fn pieces(&self, tiles: &[TapTile]) -> &[Piece] {
        let (first, last) = (&tiles[0], &tiles[tiles.len() - 1]);
        &self.pieces[first.first_piece..last.first_piece + last.pieces]
    }
}

/// The first and the end of the output rows on which a kernel row meets more than padding.
pub(super) fn rows_met(g: &Geometry, row: usize) -> (usize, usize) {
    let first = g.ph.saturating_sub(row).div_ceil(g.sh);
    (first, (g.ih + g.ph).saturating_sub(row).div_ceil(g.sh))
}

/// How a stretch that exceeds a tile a little is cut: a long piece that nearly fills a tile, and a short one of which
/// several (the second number) fill another. Two halves would each leave registers unused.
fn long_and_short(len: usize, most: usize) -> Option<(usize, usize)> {
    if len <= most || 5 * len > 9 * most {
        return None;
    }
    let cuts = (2..=len / 2).map(|short| (len - short, most / short));
    let full = |(long, together): &(usize, usize)| {
        let taps = together * (len - long);
        *together <= 6
            && *long <= most.min(MAX_TAPS)
            && 6 * long >= 5 * most
            && 6 * taps >= 5 * most
    };
    cuts.filter(full).min_by_key(|(long, together)| (*together, *long))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layout;
    use crate::conv2d::Conv2dDesc;

    fn tiles(ic: usize, [kh, kw]: [usize; 2], stride: usize, vectors: usize) -> TapTiles {
        let src_layout = if ic < 8 { Layout::Plain } else { Layout::Blocked(16) };
        let (ih, iw, oc, groups) = (20, 20, 32, 1);
        let (sh, sw, ph, pw) = (stride, stride, 0, 0);
        let desc = Conv2dDesc {
            ic,
            oc,
            ih,
            iw,
            kh,
            kw,
            sh,
            sw,
            ph,
            pw,
            groups,
            bias: true,
            src_layout,
            src_activation: None,
            dst_activation: None,
        };
        let g = Geometry::new(&desc, 16).expect("one group");
        TapTiles::new(&g, &g.taps(), vectors, 32)
    }

    #[test]
    fn every_tap_is_in_one_tile() {
        for ic in [1, 3, 7, 16, 20, 33] {
            for kernel in [[1, 1], [3, 3], [5, 5], [1, 7], [7, 1], [11, 11]] {
                for (stride, vectors) in [(1, 1), (2, 2), (4, 2)] {
                    let all = tiles(ic, kernel, stride, vectors);
                    let count = ic * kernel[0] * kernel[1];
                    let mut steps = all.steps.clone();
                    steps.sort_unstable();
                    assert_eq!(steps, (0..count).collect::<Vec<_>>());
                    let mut next = 0;
                    for tile in &all.tiles {
                        assert_eq!(tile.first_tap, next);
                        assert!(tile.pieces * tile.taps <= Shape::most_taps(vectors, 32));
                        next = tile.end_tap();
                    }
                    assert_eq!(next, count);
                }
            }
        }
    }

    #[test]
    fn tiles_divide_common_layers() {
        let shapes = |all: TapTiles| -> Vec<_> {
            all.tiles.iter().map(|tile| (tile.pieces, tile.taps)).collect()
        };
        assert_eq!(shapes(tiles(16, [3, 3], 1, 2)), [(1, 12); 12]);
        assert_eq!(shapes(tiles(48, [3, 1], 1, 2))[..4], [(1, 12), (1, 12), (1, 12), (3, 4)]);
        assert_eq!(shapes(tiles(48, [1, 1], 1, 2)), [(1, 8); 6]);
        assert_eq!(shapes(tiles(3, [3, 3], 1, 1)), [(9, 3)]);
        assert_eq!(shapes(tiles(3, [3, 3], 1, 2)), [(3, 3); 3]);
        assert_eq!(shapes(tiles(1, [11, 11], 4, 2)), [(1, 11); 11]);
        assert_eq!(shapes(tiles(1, [7, 7], 2, 2)), [(2, 7), (2, 7), (2, 7), (1, 7)]);
    }
}
