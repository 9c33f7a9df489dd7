//! Backward weights pass: the gradients of the weights and the bias.
//!
//! ```text
//! diff_wei[oc,ic,kh,kw] = sum_{n,oh,ow} src[n,ic,oh*sh+kh-ph,ow*sw+kw-pw] * diff_dst[n,oc,oh,ow]
//! diff_bia[oc]          = sum_{n,oh,ow} diff_dst[n,oc,oh,ow]
//!
//! for a chunk of lines                          of diff_dst, and what of src they touch
//!   for N output vectors of the block           their lines stay in the L1 cache
//!     for a tile of taps                        N x taps sums in registers
//!       for a line of the chunk, for a pixel    N loads, a broadcast a tap, and the FMAs
//! copy the sums of all chunks to diff_wei
//! ```
//!
//! A block owns some output vectors and some tiles of taps. It sees all samples, so that the order of every sum is fixed
//! by the plan and the number of samples. Its sums lie in scratch in the order in which the kernel adds to them; only the
//! copy at the end knows the order of the packed weights. Where the samples are cut into slices, a block computes these one
//! after another and adds them in scratch.
//!
//! | To learn about | read |
//! |---|---|
//! | which taps are multiplied together | `tap_tiles` |
//! | the pixel loop | `kernel` |
//! | chunks of lines, and what is fetched ahead of them | `parts`, `ahead` |
//! | the blocks | `share` |
//! | the last output channels, where they are few | `tail`, `tail_kernel` |
//! | the copy at the end | `store` |

mod ahead;
mod kernel;
mod parts;
mod share;
mod store;
mod tail;
mod tail_kernel;
mod tap_tiles;

use std::ops::Range;

use self::kernel::MAX_VECTORS;
use self::parts::{Parts, Work};
use self::share::{Cut, Pixels, Share};
use self::tail::Tail;
use self::tap_tiles::TapTiles;
use super::geometry::Geometry;
use super::staging::{Region, Staging};
use super::strips::Strip;
use super::taps::Taps;
use crate::sgd::GradientSink;
use crate::slices::{SumStack, levels};
use crate::{Isa, SampleSlices};

/// The tensors of a backward weights block.
#[derive(Debug)]
pub struct Conv2dBackwardWeights<'a> {
    /// Samples.
    pub mb: usize,
    /// The input of the forward pass.
    pub src: &'a [f32],
    /// The gradient of the output.
    pub diff_dst: &'a [f32],
    /// For the gradient of the weights, packed as they are.
    pub diff_wei: GradientSink<'a>,
    /// For the gradient of the bias, if the layer has one.
    pub diff_bia: Option<GradientSink<'a>>,
    /// At least [`backward_weights_scratch_len`](super::Conv2d::backward_weights_scratch_len) elements of any value.
    pub scratch: &'a mut [f32],
}

/// Bytes of lines in a chunk, of as many channels as a tile reads: most of an L1 cache of 48 KiB with 16 lanes, of
/// 32 KiB with 8.
const fn chunk_bytes(lanes: usize) -> usize {
    if lanes >= 16 { 40 << 10 } else { 28 << 10 }
}

/// Workers for which the vectors of a tile are chosen, whatever their number, because sums of the bias depend on these; blocks
/// are cut for as many if nothing else is said.
const TYPICAL_WORKERS: usize = 4;

/// How the pass is computed.
#[derive(Debug, Clone)]
pub(super) struct BackwardWeightsPlan {
    isa: Isa,
    geometry: Geometry,
    staging: Staging,
    taps: Taps,
    /// Of the packed weights of a group.
    strips: Vec<Strip>,
    tap_tiles: TapTiles,
    tail: Tail,
    /// Output vectors of a tile.
    vectors: usize,
    cut: Cut,
    chunk_samples: usize,
    chunk_rows: usize,
    chunk_columns: usize,
    pixels: Pixels,
}

impl BackwardWeightsPlan {
    pub(super) fn new(geometry: &Geometry, isa: Isa) -> BackwardWeightsPlan {
        let widths = 1..=Tail::blocks_beside(geometry).clamp(1, MAX_VECTORS);
        let plans = widths.map(|vectors| BackwardWeightsPlan::with_vectors(geometry, isa, vectors));
        let best = plans.min_by(|a, b| a.cut.cost.total_cmp(&b.cut.cost));
        best.expect("a layer has output channels")
    }

    /// Cuts the pass for a number of workers; tiles, chunks and so all bits stay the same.
    pub(super) fn cut_for(&mut self, workers: usize) {
        let (taps, tail) = (&self.tap_tiles, &self.tail);
        self.cut = Cut::new(&self.geometry, (taps, tail), [self.vectors, workers], self.pixels);
    }

    fn with_vectors(geometry: &Geometry, isa: Isa, vectors: usize) -> BackwardWeightsPlan {
        let g = geometry;
        let taps = g.taps();
        let staging = g.padded_src();
        let tap_tiles = TapTiles::new(g, &taps, vectors, isa.registers());
        let tail = Tail::new(g, &tap_tiles);

        // Columns and rows between those that a kernel reads stay where they are, if they fill cache lines.
        let element = size_of::<f32>();
        let columns = if g.plain { g.sw } else { g.sw.min(g.kw) };
        let line_bytes = element * columns * g.src_lanes();
        // Pixels that lie apart share few sets of the L1 cache: as if what lies between were in it too. A 1x1 convolution, whose
        // tiles have few taps and so few products to each of their sums, has larger chunks nevertheless.
        let pointwise = g.kh * g.kw == 1;
        let cached_columns = if pointwise { 1 } else { g.sw };
        let cached_bytes = element * cached_columns * g.src_lanes();
        let pixel_bytes = element * vectors * g.lanes + cached_bytes * g.sh.min(g.kh);
        let chunk_bytes = chunk_bytes(g.lanes) * if pointwise { 11 } else { 10 } / 10;
        let pixels = (chunk_bytes / pixel_bytes).max(1);
        let chunk_columns = g.ow.div_ceil(g.ow.div_ceil(pixels));
        let chunk_rows = (pixels / g.ow).clamp(1, g.oh);
        let chunk_rows = g.oh.div_ceil(g.oh.div_ceil(chunk_rows));
        let chunk_samples = (pixels / (g.ow * g.oh)).max(1);

        let staged_rows = ((chunk_rows - 1) * g.sh + g.kh) as f64 / chunk_rows as f64;
        let staged_bytes = if staging.direct { 0.0 } else { staged_rows * line_bytes as f64 };
        let chunk = chunk_columns * chunk_rows * chunk_samples;
        let src_bytes = line_bytes * g.sh.min(g.kh);
        let pixels = Pixels { chunk, src_bytes, staged_bytes };
        let cut = Cut::new(g, (&tap_tiles, &tail), [vectors, TYPICAL_WORKERS], pixels);
        BackwardWeightsPlan {
            isa,
            geometry: *g,
            staging,
            taps,
            strips: g.strips(),
            tap_tiles,
            tail,
            vectors,
            cut,
            chunk_samples,
            chunk_rows,
            chunk_columns,
            pixels,
        }
    }

    pub(super) fn blocks(&self) -> usize {
        self.cut.blocks(&self.geometry, &self.tap_tiles)
    }

    fn share(&self, block: usize) -> Share {
        self.cut.share((&self.tap_tiles, &self.tail), block)
    }

    /// Inner blocks that the taps of a share belong to.
    fn inner_blocks(&self, share: &Share) -> Range<usize> {
        let pieces = self.tap_tiles.pieces(&self.tap_tiles.tiles[share.tiles.clone()]);
        let blocks = || pieces.iter().map(|piece| piece.block);
        blocks().min().unwrap_or(0)..blocks().max().map_or(0, |last| last + 1)
    }

    /// Kernel rows that a share reads: all if it has several inner blocks.
    fn kernel_rows(&self, share: &Share) -> Range<usize> {
        if self.inner_blocks(share).len() > 1 {
            return 0..self.geometry.kh;
        }
        let pieces = self.tap_tiles.pieces(&self.tap_tiles.tiles[share.tiles.clone()]);
        let rows = || pieces.iter().map(|piece| piece.row);
        let (first, last) = (rows().min(), rows().max());
        first.unwrap_or(0)..last.map_or(0, |row| row + 1)
    }

    /// Taps of a share, counted through all tiles.
    fn tap_range(&self, share: &Share) -> Range<usize> {
        let tiles = &self.tap_tiles.tiles[share.tiles.clone()];
        tiles[0].first_tap..tiles[tiles.len() - 1].end_tap()
    }

    /// Elements of scratch for the sums of a share: of its bias, of its output blocks, and of its tail.
    fn sums_lens(&self, share: &Share) -> [usize; 3] {
        let has_tail = usize::from(!share.tail.is_empty());
        let of_blocks = self.tap_range(share).len() * share.outs.len();
        [share.outs.len() + has_tail, of_blocks, self.tail.sums(&share.tail)]
            .map(|vectors| vectors * self.geometry.lanes)
    }

    /// Elements of scratch for a number of slices.
    pub(super) fn scratch_len(&self, slices: usize) -> usize {
        let g = &self.geometry;
        let tile_parts = self.tap_tiles.tiles.len().div_ceil(self.cut.tiles);
        let blocks = self.blocks() / g.groups;
        let with_tail = if self.tail.channels > 0 { blocks - tile_parts..blocks } else { 0..0 };
        let len = |block| {
            let share = self.share(block);
            let rows = (self.chunk_rows - 1) * g.sh + self.kernel_rows(&share).len();
            let blocks = self.inner_blocks(&share).len();
            let staged = self.staging.scratch_len(self.chunk_samples, blocks, rows);
            levels(slices) * self.sums_lens(&share).iter().sum::<usize>() + staged
        };
        // Blocks before the last have as many output blocks as the first.
        (0..tile_parts).chain(with_tail).map(len).max().unwrap_or(0)
    }

    /// Computes a block over all slices of the samples.
    pub(super) fn run(&self, block: usize, slices: &SampleSlices, io: Conv2dBackwardWeights<'_>) {
        let Conv2dBackwardWeights { src, diff_dst, mut diff_wei, diff_bia, scratch, .. } = io;
        let share = &self.share(block);
        let g = &self.geometry;
        let [bias_len, blocks_len, tail_len] = self.sums_lens(share);
        let len = bias_len + blocks_len + tail_len;
        let (sums, staged) = scratch.split_at_mut(slices.levels() * len);
        let mut stack = SumStack::new(self.isa, sums, len);
        let mut diff_bia = diff_bia.filter(|_| share.tiles.start == 0);
        let owns_bias = diff_bia.is_some();
        for (index, samples) in slices.iter().enumerate() {
            let sums = stack.next();
            sums.fill(0.0);
            let (bias_sums, sums) = sums.split_at_mut(bias_len);
            let bias_sums = owns_bias.then_some(bias_sums);
            self.add_samples(share, samples, [src, diff_dst], staged, bias_sums, sums);
            stack.push(index);
        }
        let (bias_sums, sums) = stack.total().split_at(bias_len);
        let (block_sums, tail_sums) = sums.split_at(blocks_len);
        self.store(share, block_sums, diff_wei.reborrow());
        if !share.tail.is_empty() {
            self.store_tail(share, tail_sums, diff_wei);
        }
        if let Some(diff_bia) = &mut diff_bia {
            let start = (share.group * g.out_blocks() + share.outs.start) * g.lanes;
            diff_bia.put(self.isa, start..start + bias_len, bias_sums);
        }
    }

    /// Adds the products of some samples to the sums of a share, those of its tail last, and to those of its bias.
    fn add_samples(
        &self,
        share: &Share,
        samples: Range<usize>,
        [src, diff_dst]: [&[f32]; 2],
        staged: &mut [f32],
        mut bias_sums: Option<&mut [f32]>,
        sums: &mut [f32],
    ) {
        let g = &self.geometry;
        let inner_blocks = self.inner_blocks(share);
        let first_region_block = share.group * self.taps.blocks() + inner_blocks.start;
        let kernel_rows = self.kernel_rows(share);
        let parts = Parts::new(self, samples);
        for lines in 0..parts.lines() {
            let first = parts.part(lines, 0);
            let region = Region {
                samples: first.samples,
                blocks: first_region_block..first_region_block + inner_blocks.len(),
                rows: first.rows.start * g.sh + kernel_rows.start
                    ..(first.rows.end - 1) * g.sh + kernel_rows.end,
            };
            let lines_of_src = self.staging.stage(src, &region, &mut *staged);
            for columns in 0..parts.columns {
                let work = Work {
                    share,
                    part: parts.part(lines, columns),
                    next: parts.after(lines, columns),
                    src,
                    diff_dst,
                    lines: lines_of_src,
                    inner_blocks: inner_blocks.clone(),
                    first_kernel_row: kernel_rows.start,
                };
                self.add_part(&work, bias_sums.as_deref_mut(), sums);
            }
        }
    }
}
