//! The last output channels, where they are few: vectors over input channels.
//!
//! Most lanes of a last block of few channels would multiply zeros. But the input channels of a pixel lie side by side too,
//! so for such a *tail* the operands change roles: a tap is a vector, a channel of the tail is a scalar.
//!
//! ```text
//! sums[tap, o] += src[pixel + tap, 16 input channels] * diff_dst[pixel, o]
//! ```
//!
//! Every sum has its terms in the order of the other channels. The block of the last whole output blocks computes the tail
//! too, while the same lines are in the cache. It pays while the tail's vectors are half as many as those of a block at most:
//! for 64 input channels the pass is 1.2 to 1.6 times as fast with 17 output channels and about as fast with 24 (AVX-512).

use std::ops::Range;

use super::BackwardWeightsPlan;
use super::share::Share;
use super::tail_kernel::{TailShape, add_tail_products};
use super::tap_tiles::{TapTiles, rows_met};
use super::{ahead::LinesAhead, kernel::Chunk};
use crate::conv2d::cut::part;
use crate::conv2d::geometry::Geometry;
use crate::conv2d::strips::{len, strip_of};
use crate::sgd::GradientSink;

/// Lanes of a vector: the most.
const MAX_LANES: usize = 16;

/// The channels of an inner block at a position of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TapVector {
    /// The block of inner channels.
    pub(super) block: usize,
    /// The kernel row.
    pub(super) row: usize,
    /// The kernel column.
    pub(super) column: usize,
    /// The first and the end of the output rows on which it meets more than padding.
    pub(super) rows: (usize, usize),
    /// The tile of taps to which the first of the channels belongs.
    tile: usize,
}

/// Output channels of a last block that has few, and their taps.
#[derive(Debug, Clone)]
pub(super) struct Tail {
    /// Output channels.
    pub(super) channels: usize,
    /// In the order of the tiles to which they belong.
    taps: Vec<TapVector>,
}

impl Tail {
    /// The channels of the tail; 0 if there is none.
    pub(super) fn channels(g: &Geometry) -> usize {
        let channels = g.group_oc % g.lanes;
        // Vectors to be multiplied for a tap of all inner channels: these, or the inner channels.
        let vectors = channels * g.group_ic.div_ceil(g.lanes);
        if g.plain || 2 * vectors > g.group_ic { 0 } else { channels }
    }

    /// Output blocks of a group beside the tail.
    pub(super) fn blocks_beside(g: &Geometry) -> usize {
        g.out_blocks() - usize::from(Tail::channels(g) > 0)
    }

    pub(super) fn new(g: &Geometry, tiles: &TapTiles) -> Tail {
        let order = g.taps();
        let mut tile_of = vec![0; tiles.steps.len()];
        for (index, tile) in tiles.tiles.iter().enumerate() {
            for step in &tiles.steps[tile.first_tap..tile.end_tap()] {
                tile_of[*step] = index;
            }
        }
        let mut taps = Vec::new();
        let channels = Tail::channels(g);
        let blocks = if channels == 0 { 0 } else { order.blocks() };
        for at in 0..blocks * g.kh * g.kw {
            let (block, row, column) = (at / g.kw / g.kh, at / g.kw % g.kh, at % g.kw);
            let tile = tile_of[order.step(block * g.lanes, row, column)];
            taps.push(TapVector { block, row, column, rows: rows_met(g, row), tile });
        }
        taps.sort_by_key(|tap| tap.tile);
        Tail { channels, taps }
    }

    /// The taps that belong to neighboring tiles.
    pub(super) fn taps_of(&self, tiles: Range<usize>) -> Range<usize> {
        let before = |tile| self.taps.partition_point(|tap| tap.tile < tile);
        before(tiles.start)..before(tiles.end)
    }

    /// Vectors of the sums of some taps.
    pub(super) fn sums(&self, taps: &Range<usize>) -> usize {
        self.channels * taps.len()
    }
}

impl BackwardWeightsPlan {
    /// Adds the products of a part, whose vectors are those of the last block, to the sums of a share's tail, which lie tap
    /// by tap, channel by channel.
    pub(super) fn add_tail<'a>(
        &self,
        share: &Share,
        chunk: &Chunk<'a>,
        ahead: &mut LinesAhead<'a>,
        sums: &mut [f32],
    ) {
        let channels = self.tail.channels;
        let taps = &self.tail.taps[share.tail.clone()];
        for channel_part in 0..TailShape::channel_parts(channels) {
            let of_part = even_part(channel_part, TailShape::channel_parts(channels), channels);
            let most = TailShape::most_taps(of_part.len(), self.isa.registers());
            let tap_parts = taps.len().div_ceil(most);
            for tap_part in 0..tap_parts {
                let of_tile = even_part(tap_part, tap_parts, taps.len());
                let first = (of_tile.start * channels + of_part.start) * self.geometry.lanes;
                let shape = TailShape { taps: of_tile.len(), channels: of_part.len() };
                let step = channels * self.geometry.lanes;
                let operands = (&taps[of_tile], of_part.start);
                let sums = (&mut sums[first..], step);
                add_tail_products(self.isa, shape, chunk, operands, ahead.next(chunk), sums);
            }
        }
    }

    /// Puts the sums of a share's tail where the gradient of the packed weights goes.
    pub(super) fn store_tail(&self, share: &Share, sums: &[f32], mut diff_wei: GradientSink<'_>) {
        let (g, channels) = (&self.geometry, self.tail.channels);
        let order = g.taps();
        let out = (g.out_blocks() - 1) * g.lanes;
        let strip = strip_of(&self.strips, out, g.lanes);
        let start =
            share.group * len(&self.strips, g.lanes) + strip.start + out - strip.first * g.lanes;
        // The lanes behind the tail are padding, and stay zero.
        let mut vector = [0.0; MAX_LANES];
        let taps = &self.tail.taps[share.tail.clone()];
        for (tap, sums) in taps.iter().zip(sums.chunks_exact(channels * g.lanes)) {
            for (lane, channel) in part(tap.block, g.lanes, g.group_ic).enumerate() {
                for (to, sums) in vector.iter_mut().zip(sums.chunks_exact(g.lanes)) {
                    *to = sums[lane];
                }
                let step = order.step(channel, tap.row, tap.column);
                let at = start + step * strip.blocks * g.lanes;
                diff_wei.put(self.isa, at..at + g.lanes, &vector[..g.lanes]);
            }
        }
    }
}

/// One of `count` parts of `len`, the longer ones first.
fn even_part(index: usize, count: usize, len: usize) -> Range<usize> {
    let [start, end] = [index, index + 1].map(|at| at * (len / count) + at.min(len % count));
    start..end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layout;
    use crate::conv2d::Conv2dDesc;

    fn geometry([ic, oc]: [usize; 2], src_layout: Layout) -> Geometry {
        let desc = Conv2dDesc {
            ic,
            oc,
            ih: 12,
            iw: 12,
            kh: 5,
            kw: 3,
            sh: 1,
            sw: 1,
            ph: 0,
            pw: 0,
            groups: 1,
            bias: true,
            src_layout,
            src_activation: None,
            dst_activation: None,
        };
        Geometry::new(&desc, 16).expect("one group")
    }

    #[test]
    fn a_tail_has_few_channels_for_its_input_channels() {
        let channels = |channels| Tail::channels(&geometry(channels, Layout::Blocked(16)));
        assert_eq!(channels([64, 17]), 1);
        assert_eq!(channels([64, 24]), 8);
        assert_eq!(channels([64, 28]), 0, "most lanes are real");
        assert_eq!(channels([64, 32]), 0);
        assert_eq!(channels([20, 50]), 2);
        assert_eq!(channels([17, 50]), 2);
        assert_eq!(channels([17, 24]), 0, "two vectors for 17 input channels");
        assert_eq!(channels([64, 3]), 3, "all of it");
        assert_eq!(Tail::channels(&geometry([20, 50], Layout::Plain)), 0);
    }

    #[test]
    fn taps_belong_to_tiles_that_read_the_same_lines() {
        for ic in [5, 16, 20, 50] {
            let g = geometry([ic, 50], Layout::Blocked(16));
            let tiles = TapTiles::new(&g, &g.taps(), 2, 32);
            let tail = Tail::new(&g, &tiles);
            let mut seen = Vec::new();
            for tile in 0..tiles.tiles.len() {
                let lines = tiles.pieces(&tiles.tiles[tile..tile + 1]);
                for tap in &tail.taps[tail.taps_of(tile..tile + 1)] {
                    let line = (tap.block, tap.row);
                    assert!(lines.iter().any(|piece| (piece.block, piece.row) == line));
                    seen.push((tap.block, tap.row, tap.column));
                }
            }
            seen.sort_unstable();
            let blocks = ic.div_ceil(16);
            let all = (0..blocks * 15).map(|at| (at / 15, at / 3 % 5, at % 3));
            let expected: Vec<_> = if tail.channels == 0 { Vec::new() } else { all.collect() };
            assert_eq!(seen, expected, "{ic} channels");
        }
    }

    #[test]
    fn parts_are_even() {
        let parts = |count, len| (0..count).map(|at| even_part(at, count, len)).collect::<Vec<_>>();
        assert_eq!(parts(3, 25), [0..9, 9..17, 17..25]);
        assert_eq!(parts(2, 8), [0..4, 4..8]);
        assert_eq!(even_part(0, 1, 2), 0..2);
    }
}
