//! The forward and the backward data pass: tiles to frequencies, a product a frequency, and back.
//!
//! ```text
//! for a batch of the block's tiles
//!   for some pairs of output vectors                        their sums of all frequencies stay in the L2 cache
//!     for a chunk of inner channels
//!       the tiles' inputs to frequencies                    which stay there too
//!       for a frequency, for a pair                         a product; the weights that follow are prefetched
//!     the sums to outputs, with bias and activation
//! ```
//!
//! Weights come from a cache that all cores share, once a batch, so a batch has as many tiles as fit. Sums are added up in
//! the order of the inner channels, whatever the chunks: a tile's bits depend on nothing else.

use std::marker::PhantomData;
use std::ops::Range;

use super::WinogradTile;
use super::input::{Frequencies, InputTransform, Source};
use super::output::OutputTransform;
use super::product::{MAX_CHUNK, Product, ROW, STEP, room, tile_rows};
use super::tiling::BlockTiles;
use super::transform::{F2, F4, Transform};
use super::weights::Order;
use crate::conv2d::cut::{BLOCK_CYCLES, Cut, Piece, Size, Work};
use crate::conv2d::epilogue::Epilogue;
use crate::conv2d::register_tile::NV;
use crate::{Isa, TensorRegion, Tiles};

/// Cycles to turn a vector of a tile to frequencies or back.
const TRANSFORM_CYCLES: f64 = 180.0;

/// Cycles a byte of weights that come from the shared cache, mostly hidden by prefetching.
const WEI_BYTE_CYCLES: f64 = 0.08;

/// The most tiles of a batch.
const MAX_BATCH: usize = 96;

/// Tiles of a batch for which the weights are read seldom enough.
const GOOD_BATCH: usize = 36;

/// Inner channels of a chunk where there are several: 64 and up to 256 output channels at a time were best on a cache of 2 MiB,
/// within 10 % of all other choices.
const CHUNK: usize = 64;

/// Output channels whose sums are in the cache at a time, where inner channels come in several chunks, at most.
const MAX_SUMS: usize = 256;

/// The sizes of a pass, whose source is the input or the gradient of the output.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) lanes: usize,
    /// Channels of the source.
    pub(super) inner: usize,
    /// Channels of the destination.
    pub(super) outer: usize,
    /// Height and width of the source.
    pub(super) src: [usize; 2],
    /// Height and width of the destination.
    pub(super) dst: [usize; 2],
    /// Rows and columns of zeros before the source's first; of the source itself where they are negative.
    pub(super) pad: [isize; 2],
}

/// What is in the L2 cache at a time.
#[derive(Debug, Clone, Copy)]
struct Batch {
    /// Tiles.
    tiles: usize,
    /// Pairs of output vectors.
    pairs: usize,
}

impl Batch {
    /// As many pairs as leave room for a good number of tiles; where there is one chunk of inner channels, whose frequencies serve
    /// all pairs, one pair.
    fn new(shape: &Shape, frequencies: usize, chunk: usize, l2_bytes: usize) -> Batch {
        let Shape { lanes, inner, outer, .. } = *shape;
        let rows = tile_rows(lanes);
        let tiles = |pairs: usize| {
            let tile_bytes = size_of::<f32>() * frequencies * (chunk + pairs * NV * lanes);
            (l2_bytes * 7 / 8 / tile_bytes / rows * rows).clamp(rows, MAX_BATCH)
        };
        let mut pairs = outer.div_ceil(NV * lanes).min(MAX_SUMS / (NV * lanes));
        if inner <= chunk {
            pairs = 1;
        }
        while pairs > 1 && tiles(pairs) < GOOD_BATCH {
            pairs = pairs.div_ceil(2);
        }
        Batch { tiles: tiles(pairs), pairs }
    }
}

/// How a pass is computed.
#[derive(Debug, Clone)]
pub(in crate::conv2d) struct PassPlan {
    isa: Isa,
    tile: WinogradTile,
    shape: Shape,
    order: Order,
    batch: Batch,
    cut: Cut,
}

/// The tensors of a block.
pub(super) struct PassIo<'a> {
    pub(super) mb: usize,
    pub(super) src: &'a [f32],
    pub(super) wei: &'a [f32],
    pub(super) bia: Option<&'a [f32]>,
    pub(super) epilogue: Epilogue<'a>,
    pub(super) dst: Tiles<'a>,
    pub(super) scratch: &'a mut [f32],
}

impl PassPlan {
    pub(super) fn new(shape: Shape, tile: WinogradTile, isa: Isa, l2_bytes: usize) -> PassPlan {
        let Shape { lanes, inner, outer, .. } = shape;
        let frequencies = tile.frequencies();
        let whole = inner.next_multiple_of(lanes);
        let chunk = if whole <= MAX_CHUNK { whole } else { CHUNK };
        let batch = Batch::new(&shape, frequencies, chunk, l2_bytes);
        let order = Order { lanes, inner, outer, chunk, frequencies };
        let [height, _] = shape.dst;
        let work = Work {
            rows: height.div_ceil(tile.outputs()),
            groups: 1,
            strips: order.pairs(),
            lines_together: 1,
            row_fmas: 0,
            src_row_bytes: 0,
            row_step: 1,
            kernel_rows: 1,
            wei_bytes: 0,
            l2_bytes,
        };
        let cycles = |size: Size| Some(cycles(&shape, tile, &order, batch, size));
        PassPlan { isa, tile, shape, order, batch, cut: Cut::by(work, cycles) }
    }

    pub(super) fn order(&self) -> Order {
        self.order
    }

    pub(in crate::conv2d) fn blocks(&self, mb: usize) -> usize {
        self.cut.blocks(mb)
    }

    /// Slices that the regions of the blocks make.
    pub(in crate::conv2d) fn slices(&self, mb: usize) -> usize {
        self.cut.slices(mb)
    }

    /// What a block writes.
    pub(in crate::conv2d) fn region(&self, block: usize, mb: usize) -> TensorRegion {
        let piece = self.cut.piece(block, mb);
        let outputs = self.tile.outputs();
        TensorRegion {
            slice: block % self.cut.slices(mb),
            samples: piece.samples,
            rows: piece.rows.start * outputs..(piece.rows.end * outputs).min(self.shape.dst[0]),
            channel_blocks: piece.strips.start * NV
                ..(piece.strips.end * NV).min(self.order.outer_blocks()),
        }
    }

    /// From frequency to frequency of the inputs; not a multiple of a page.
    fn values_step(&self) -> usize {
        room(self.batch.tiles) * ROW + 16
    }

    /// From frequency to frequency of a pair's sums.
    fn sums_step(&self) -> usize {
        room(self.batch.tiles) * NV * self.shape.lanes + 16
    }

    pub(in crate::conv2d) fn scratch_len(&self) -> usize {
        self.order.frequencies * (self.values_step() + self.batch.pairs * self.sums_step())
    }

    pub(super) fn run(&self, block: usize, io: PassIo<'_>) {
        let piece = self.cut.piece(block, io.mb);
        match self.tile {
            WinogradTile::Two => self.run_piece::<F2, 4, 2>(&piece, io),
            WinogradTile::Four => self.run_piece::<F4, 6, 4>(&piece, io),
        }
    }

    fn run_piece<W: Transform<N, M>, const N: usize, const M: usize>(
        &self,
        piece: &Piece,
        mut io: PassIo<'_>,
    ) {
        let Shape { src: [height, width], pad, .. } = self.shape;
        let source = Source { values: io.src, height, width, blocks: self.src_blocks(), pad };
        let tiles = BlockTiles {
            first_sample: piece.samples.start,
            samples: piece.samples.len(),
            first_row: piece.rows.start,
            rows: piece.rows.len(),
            columns: self.shape.dst[1].div_ceil(M),
        };
        let (values, sums) = io.scratch.split_at_mut(self.order.frequencies * self.values_step());
        let chunks = self.order.chunks();
        let size = batch_size(tiles.count(), self.batch.tiles, tile_rows(self.shape.lanes));
        for batch in (0..tiles.count()).step_by(size) {
            let batch = batch..(batch + size).min(tiles.count());
            for first in piece.strips.clone().step_by(self.batch.pairs) {
                let pairs = first..(first + self.batch.pairs).min(piece.strips.end);
                let after =
                    if pairs.end < piece.strips.end { pairs.end } else { piece.strips.start };
                for chunk in 0..chunks {
                    // Where there is one chunk, its frequencies are there for all pairs.
                    if chunks > 1 || first == piece.strips.start {
                        let channels = self.order.channels(chunk);
                        let lanes = self.shape.lanes;
                        self.isa.dispatch(InputTransform::<W, N, M> {
                            source,
                            tiles,
                            batch: batch.clone(),
                            blocks: channels.start / lanes..channels.end.div_ceil(lanes),
                            frequencies: Frequencies {
                                values: &mut *values,
                                f_step: self.values_step(),
                                row: ROW,
                            },
                            transform: PhantomData,
                        });
                    }
                    self.products(&pairs, after, chunk, batch.len(), [io.wei, values], sums);
                }
                for pair in pairs.clone() {
                    self.isa.dispatch(OutputTransform::<W, N, M> {
                        sums: &sums
                            [(pair - pairs.start) * self.order.frequencies * self.sums_step()..],
                        f_step: self.sums_step(),
                        blocks: self.order.pair_blocks(pair),
                        tiles,
                        batch: batch.clone(),
                        height: self.shape.dst[0],
                        width: self.shape.dst[1],
                        channels: self.shape.outer,
                        bia: io.bia,
                        epilogue: io.epilogue,
                        dst: io.dst.reborrow(),
                        transform: PhantomData,
                    });
                }
            }
        }
    }

    /// The products of all frequencies of a chunk with some pairs; the pairs `after` them are next.
    fn products(
        &self,
        pairs: &Range<usize>,
        after: usize,
        chunk: usize,
        tiles: usize,
        [wei, values]: [&[f32]; 2],
        sums: &mut [f32],
    ) {
        let order = &self.order;
        let depth = order.channels(chunk).len();
        for f in 0..order.frequencies {
            for pair in pairs.clone() {
                let next = if pair + 1 < pairs.end {
                    [pair + 1, chunk, f]
                } else if f + 1 < order.frequencies {
                    [pairs.start, chunk, f + 1]
                } else if chunk + 1 < order.chunks() {
                    [pairs.start, chunk + 1, 0]
                } else {
                    [after, 0, 0]
                };
                let at = ((pair - pairs.start) * order.frequencies + f) * self.sums_step();
                self.isa.dispatch(Product {
                    values: &values[f * self.values_step()..][..self.values_step()],
                    wei: &wei[order.range([pair, chunk, f])],
                    depth,
                    tiles,
                    vectors: order.pair_blocks(pair).len(),
                    is_first: chunk == 0,
                    sums: &mut sums[at..at + self.sums_step()],
                    next_wei: &wei[order.range(next)],
                });
            }
        }
    }

    fn src_blocks(&self) -> usize {
        self.shape.inner.div_ceil(self.shape.lanes)
    }
}

/// Tiles of each batch of a block, about even and, if that is not too many, whole register tiles.
fn batch_size(tiles: usize, most: usize, rows: usize) -> usize {
    let even = tiles.div_ceil(tiles.div_ceil(most).max(1));
    even.next_multiple_of(rows).min(most).max(1)
}

/// Estimated cycles of a block.
fn cycles(shape: &Shape, tile: WinogradTile, order: &Order, batch: Batch, size: Size) -> f64 {
    let columns = shape.dst[1].div_ceil(tile.outputs());
    let tiles = size.samples * size.rows * columns;
    let each = batch_size(tiles, batch.tiles, tile_rows(shape.lanes));
    let batches = tiles.div_ceil(each) as f64;
    let (whole, rest) = (tiles / each * each, (tiles % each).next_multiple_of(STEP));
    let outer_vectors = (size.strips * NV).min(order.outer_blocks());
    let frequencies = order.frequencies as f64;
    let products = ((whole + rest) * order.inner * outer_vectors) as f64 * frequencies / 2.0;
    let wei = (order.inner * outer_vectors * shape.lanes * size_of::<f32>()) as f64 * frequencies;
    let inner_vectors = order.inner.div_ceil(shape.lanes);
    let times = if order.chunks() > 1 { size.strips.div_ceil(batch.pairs) } else { 1 };
    let transforms = (tiles * (inner_vectors * times + outer_vectors)) as f64 * TRANSFORM_CYCLES;
    BLOCK_CYCLES + products + batches * wei * WEI_BYTE_CYCLES + transforms
}
