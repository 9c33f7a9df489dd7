//! How the gradients are cut into blocks: output vectors by tiles of taps.
//!
//! A block sees all samples, so every block reads its channels of `src` and `diff_dst` whole. Blocks as square as possible
//! read least; many blocks keep many workers busy. What a choice costs is estimated here and the cheapest one taken.

use std::ops::Range;

use super::kernel::Shape;
use super::tail::Tail;
use super::tap_tiles::TapTiles;
use crate::conv2d::cut::part;
use crate::conv2d::geometry::Geometry;

/// Samples of the minibatch that a cut is made for.
const SAMPLES: usize = 8;

/// Bytes a cycle that a core gets from beyond its L2 cache, while it computes.
const MEMORY_BYTES: f64 = 5.0;

/// Bytes a cycle by which a core is held up nevertheless.
const LATE_BYTES: f64 = 30.0;

/// Bytes a cycle that are staged.
const STAGED_BYTES: f64 = 8.0;

/// Cycles from claiming a block to its first product, and after its last.
const BLOCK_CYCLES: f64 = 4000.0;

/// Cycles of a kernel call beside those of its pixels.
const CALL_CYCLES: f64 = 90.0;

/// Cycles in which a pixel's products are added to a vector of the tail's sums.
const TAIL_CYCLES: f64 = 0.7;

/// Part of a block's time that workers wait at the end of a pass.
const TAIL_BLOCKS: f64 = 0.25;

/// Bytes of sums that a block may keep: with the lines of a chunk they stay in the L2 cache.
const SUM_BYTES: usize = 160 << 10;

/// Bytes of lines of a chunk, all channels of a block.
const LINE_BYTES: usize = 400 << 10;

/// What a block computes.
#[derive(Debug, Clone)]
pub(super) struct Share {
    pub(super) group: usize,
    /// Output blocks of the group.
    pub(super) outs: Range<usize>,
    /// Tiles of taps.
    pub(super) tiles: Range<usize>,
    /// Taps of the tail, which is beside the output blocks.
    pub(super) tail: Range<usize>,
}

/// The cut of a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cut {
    /// Output blocks of a block.
    pub(super) outs: usize,
    /// Tiles of taps of a block.
    pub(super) tiles: usize,
    /// Output blocks of a group beside the tail.
    whole: usize,
    /// An estimate, to compare cuts by.
    pub(super) cost: f64,
}

/// What a layer's pixels cost, whatever the cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pixels {
    /// Of a chunk.
    pub(super) chunk: usize,
    /// Bytes of `src` to a pixel, of one inner block.
    pub(super) src_bytes: usize,
    /// Bytes that are staged for a pixel, of one inner block; 0 where the source is read as it is.
    pub(super) staged_bytes: f64,
}

impl Cut {
    /// The best cut for a number of workers, into blocks whose output vectors are multiplied `vectors` at a time.
    pub(super) fn new(
        g: &Geometry,
        (taps, tail): (&TapTiles, &Tail),
        [vectors, workers]: [usize; 2],
        pixels: Pixels,
    ) -> Cut {
        let whole = Tail::blocks_beside(g);
        let units = whole.div_ceil(vectors).max(1);
        let out_parts = even_parts(units).map(|units| units * vectors);
        let cuts = out_parts.flat_map(|outs| {
            even_parts(taps.tiles.len()).filter_map(move |tiles| {
                let cost = cost(g, (taps, tail), [outs, tiles, vectors], workers, pixels)?;
                Some(Cut { outs, tiles, whole, cost })
            })
        });
        cuts.min_by(|a, b| a.cost.total_cmp(&b.cost)).unwrap_or(Cut {
            outs: vectors,
            tiles: 1,
            whole,
            cost: f64::INFINITY,
        })
    }

    fn parts(&self, taps: &TapTiles) -> [usize; 2] {
        // A layer of few output channels is all tail.
        [self.whole.div_ceil(self.outs).max(1), taps.tiles.len().div_ceil(self.tiles)]
    }

    pub(super) fn blocks(&self, g: &Geometry, taps: &TapTiles) -> usize {
        let [out_parts, tile_parts] = self.parts(taps);
        g.groups * out_parts * tile_parts
    }

    /// What a block computes; neighbors share their lines of `diff_dst`. The last of a group's output blocks come with the
    /// tail.
    pub(super) fn share(&self, (taps, tail): (&TapTiles, &Tail), block: usize) -> Share {
        let [out_parts, tile_parts] = self.parts(taps);
        let (rest, tile_part) = (block / tile_parts, block % tile_parts);
        let (group, out_part) = (rest / out_parts, rest % out_parts);
        let tiles = part(tile_part, self.tiles, taps.tiles.len());
        let tail = if out_part + 1 == out_parts { tail.taps_of(tiles.clone()) } else { 0..0 };
        Share { group, outs: part(out_part, self.outs, self.whole), tiles, tail }
    }
}

/// The sizes of parts into which `len` can be cut, each for as few parts as it takes.
fn even_parts(len: usize) -> impl Iterator<Item = usize> {
    let mut last = 0;
    (1..=len).map(move |parts| len.div_ceil(parts)).filter(move |size| {
        let new = *size != last;
        last = *size;
        new
    })
}

/// The time of a pass; `None` if a block needs too much memory.
fn cost(
    g: &Geometry,
    (taps, tail): (&TapTiles, &Tail),
    [outs, tiles, vectors]: [usize; 3],
    workers: usize,
    pixels: Pixels,
) -> Option<f64> {
    let whole = Tail::blocks_beside(g);
    let out_parts = whole.div_ceil(outs).max(1);
    let tile_parts = taps.tiles.len().div_ceil(tiles);
    let all = taps.steps.len();
    let share_taps = (all * tiles).div_ceil(taps.tiles.len());
    let block_taps = all.div_ceil(g.group_ic.div_ceil(g.src_lanes()));
    let inner_blocks = share_taps.div_ceil(block_taps);
    let vector_bytes = size_of::<f32>() * g.lanes;
    // The blocks that have taps of the tail may have fewer output blocks.
    let last_outs = whole - (out_parts - 1) * outs;
    let tail_sums = |part| tail.sums(&tail.taps_of(part * tiles..(part + 1) * tiles));
    let tail_sums = (0..tile_parts).map(tail_sums).max().unwrap_or(0);
    let sums = (share_taps * outs.min(whole)).max(share_taps * last_outs + tail_sums);
    let read_bytes = outs * vector_bytes + inner_blocks * pixels.src_bytes;
    let smallest = outs == vectors && tiles == 1;
    let fits = sums * vector_bytes <= SUM_BYTES && read_bytes * pixels.chunk <= LINE_BYTES;
    if !smallest && !fits {
        return None;
    }
    let tile_cycles = taps.tiles.iter().map(|tile| {
        Shape { vectors, pieces: tile.pieces, taps: tile.taps }.cycles()
            + CALL_CYCLES / pixels.chunk as f64
    });
    let share_cycles = tile_cycles.sum::<f64>() * tiles as f64 / taps.tiles.len() as f64;
    // A vector that is left over takes half as long as a pair.
    let of_outs = |outs: usize| share_cycles * outs as f64 / vectors as f64;
    let multiply =
        of_outs(outs.min(whole)).max(of_outs(last_outs) + TAIL_CYCLES * tail_sums as f64);
    let read = read_bytes as f64;
    let stage = inner_blocks as f64 * pixels.staged_bytes / STAGED_BYTES;
    let all_pixels = (SAMPLES * g.oh * g.ow) as f64;
    let block = all_pixels * (multiply.max(read / MEMORY_BYTES) + read / LATE_BYTES + stage)
        + sums as f64 * 3.0
        + BLOCK_CYCLES;
    let blocks = g.groups * out_parts * tile_parts;
    Some((blocks.div_ceil(workers) as f64 + TAIL_BLOCKS) * block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layout;
    use crate::conv2d::Conv2dDesc;

    fn geometry([ic, oc]: [usize; 2], size: usize, kernel: usize) -> Geometry {
        let (ih, iw, kh, kw, ph, pw) = (size, size, kernel, kernel, kernel / 2, kernel / 2);
        let src_layout = if ic < 16 { Layout::Plain } else { Layout::Blocked(16) };
        let desc = Conv2dDesc {
            ic,
            oc,
            ih,
            iw,
            kh,
            kw,
            sh: 1,
            sw: 1,
            ph,
            pw,
            groups: 1,
            bias: true,
            src_layout,
            src_activation: None,
            dst_activation: None,
        };
        Geometry::new(&desc, 16).expect("one group")
    }

    fn cut(g: &Geometry, workers: usize) -> (TapTiles, Tail, Cut) {
        let taps = TapTiles::new(g, &g.taps(), 2, 32);
        let src_bytes = size_of::<f32>() * g.src_lanes();
        let pixels = Pixels { chunk: 200, src_bytes, staged_bytes: 1.2 * src_bytes as f64 };
        let tail = Tail::new(g, &taps);
        let cut = Cut::new(g, (&taps, &tail), [2, workers], pixels);
        (taps, tail, cut)
    }

    #[test]
    fn shares_partition_the_gradients() {
        for (channels, size, kernel) in [
            ([3, 64], 224, 3),
            ([64, 80], 14, 1),
            ([100, 17], 7, 5),
            ([20, 50], 12, 5),
            ([64, 3], 28, 3),
            ([512, 512], 14, 3),
        ] {
            let g = geometry(channels, size, kernel);
            for workers in [1, 2, 5, 16] {
                let (taps, tail, cut) = cut(&g, workers);
                let whole = Tail::blocks_beside(&g);
                let mut seen = vec![0; whole * taps.tiles.len()];
                let tail_taps = tail.taps_of(0..taps.tiles.len());
                let mut seen_by_tail = vec![0; tail_taps.len()];
                for block in 0..cut.blocks(&g, &taps) {
                    let share = cut.share((&taps, &tail), block);
                    for out in share.outs {
                        for tile in share.tiles.clone() {
                            seen[out * taps.tiles.len() + tile] += 1;
                        }
                    }
                    share.tail.for_each(|tap| seen_by_tail[tap] += 1);
                }
                assert!(seen.iter().chain(&seen_by_tail).all(|count| *count == 1), "{cut:?}");
                assert_eq!(tail_taps.is_empty(), whole == g.out_blocks());
            }
        }
    }

    #[test]
    fn all_workers_have_blocks_unless_these_would_only_read() {
        let blocks = |channels, size, kernel, workers| {
            let g = geometry(channels, size, kernel);
            let (taps, _, cut) = cut(&g, workers);
            cut.blocks(&g, &taps)
        };
        for workers in [2, 4, 16] {
            assert!(blocks([128, 128], 28, 3, workers) >= workers);
            assert!(blocks([512, 512], 7, 3, workers) >= 2 * workers);
        }
        assert_eq!(blocks([3, 64], 224, 3, 2), 2, "all taps of a first layer of few");
    }

    #[test]
    fn few_workers_have_large_blocks() {
        let g = geometry([64, 256], 56, 1);
        let blocks = |workers| {
            let (taps, _, cut) = cut(&g, workers);
            cut.blocks(&g, &taps)
        };
        assert_eq!([1, 2, 8].map(blocks), [2, 4, 8]);
    }
}
