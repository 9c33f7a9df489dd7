//! The backward weights pass: inputs and gradients of outputs to frequencies, a product a frequency, and back to 3x3 weights.
//!
//! ```text
//! for a batch of tiles, of all samples
//!   the inputs of the block's input channels to frequencies, and the gradients of its output channels
//!   for a frequency, for a pair of output vectors         a product over the tiles of the batch
//! the sums to gradients of the weights
//! ```
//!
//! A block owns some input and some output channels, and sees all tiles in their order. The gradients of slices of the samples are
//! added as gradients of weights: the tree goes on over ranks, which exchange these.

use std::marker::PhantomData;
use std::ops::Range;

use super::WinogradTile;
use super::gradient::{GradientTransform, Store, WeightsGradient};
use super::input::{Frequencies, InputTransform, Source};
use super::product::{ROW, SumsPlace, TileProduct};
use super::tiling::BlockTiles;
use super::transform::{F2, F4, Transform};
use super::weights::TAPS;
use crate::conv2d::backward_weights::Conv2dBackwardWeights;
use crate::conv2d::cut::part;
use crate::conv2d::desc::Conv2dDesc;
use crate::conv2d::register_tile::NV;
use crate::conv2d::weights::PackedWeights;
use crate::sgd::GradientSink;
use crate::slices::{SumStack, levels};
use crate::{Isa, SampleSlices};

/// Numbers of workers for which a cut should be good.
const WORKERS: [usize; 2] = [2, 8];

/// Cycles to turn a vector of a tile to frequencies.
const TRANSFORM_CYCLES: usize = 150;

/// Channels of a block at most, in and out.
const MAX_CHANNELS: [usize; 2] = [128, 64];

/// The most tiles of a batch.
const MAX_BATCH: usize = 64;

/// How the pass is computed.
#[derive(Debug, Clone)]
pub(in crate::conv2d) struct BackwardWeightsPlan {
    isa: Isa,
    tile: WinogradTile,
    desc: Conv2dDesc,
    lanes: usize,
    /// Channel blocks of a block, in and out.
    blocks: [usize; 2],
    /// Tiles of a batch.
    batch: usize,
}

/// The channel blocks of a block.
#[derive(Debug, Clone)]
struct Share {
    ins: Range<usize>,
    outs: Range<usize>,
}

impl BackwardWeightsPlan {
    pub(super) fn new(
        desc: &Conv2dDesc,
        tile: WinogradTile,
        isa: Isa,
        l2_bytes: usize,
    ) -> BackwardWeightsPlan {
        let lanes = isa.lanes();
        let all = [desc.ic, desc.oc].map(|channels| channels.div_ceil(lanes));
        let most = MAX_CHANNELS.map(|channels| channels / lanes);
        let frequency_bytes = size_of::<f32>() * tile.frequencies();
        // Half of the cache for the sums, a quarter for a batch.
        let fits = |[ins, outs]: [usize; 2]| {
            frequency_bytes * ins * outs * lanes * lanes <= l2_bytes / 2 || [ins, outs] == [1, 1]
        };
        let choices = (1..=most[0].min(all[0]))
            .flat_map(|ins| (1..=most[1].min(all[1])).map(move |outs| [ins, outs]));
        let cost = |blocks: &[usize; 2]| cost(all, *blocks, tile.frequencies() * lanes);
        let blocks =
            choices.filter(|blocks| fits(*blocks)).min_by(|a, b| cost(a).total_cmp(&cost(b)));
        let blocks = blocks.expect("one channel block of each always fits");
        let tile_bytes = frequency_bytes * (blocks[0] + blocks[1]) * lanes;
        let batch = (l2_bytes / 4 / tile_bytes).clamp(8, MAX_BATCH);
        BackwardWeightsPlan { isa, tile, desc: *desc, lanes, blocks, batch }
    }

    /// Channel blocks of the layer, in and out.
    fn all_blocks(&self) -> [usize; 2] {
        [self.desc.ic, self.desc.oc].map(|channels| channels.div_ceil(self.lanes))
    }

    pub(in crate::conv2d) fn blocks(&self) -> usize {
        let [ins, outs] = self.all_blocks();
        ins.div_ceil(self.blocks[0]) * outs.div_ceil(self.blocks[1])
    }

    /// The channels of a block; neighbors share those of the output.
    fn share(&self, block: usize) -> Share {
        let [ins, outs] = self.all_blocks();
        let in_parts = ins.div_ceil(self.blocks[0]);
        Share {
            ins: part(block % in_parts, self.blocks[0], ins),
            outs: part(block / in_parts, self.blocks[1], outs),
        }
    }

    /// Elements of the sums of all frequencies of the largest share.
    fn sums_len(&self) -> usize {
        self.tile.frequencies() * self.f_sums()
    }

    /// From frequency to frequency among the sums.
    fn f_sums(&self) -> usize {
        self.blocks[0] * self.lanes * self.blocks[1] * self.lanes + 16
    }

    /// From frequency to frequency among the frequencies of a batch.
    fn f_step(&self) -> usize {
        self.batch * ROW + 16
    }

    /// Elements of the gradients of a share, those of the bias first.
    fn gradients_len(&self, share: &Share) -> usize {
        let outs = share.outs.len() * self.lanes;
        outs + TAPS * share.ins.len() * self.lanes * outs
    }

    /// Elements of scratch for a number of slices.
    pub(in crate::conv2d) fn scratch_len(&self, slices: usize) -> usize {
        let gradients = self.gradients_len(&self.share(0));
        self.sums_len() + 2 * self.tile.frequencies() * self.f_step() + levels(slices) * gradients
    }

    /// Computes a block over all slices of the samples.
    pub(in crate::conv2d) fn run(
        &self,
        block: usize,
        slices: &SampleSlices,
        packed: &PackedWeights,
        io: Conv2dBackwardWeights<'_>,
    ) {
        match self.tile {
            WinogradTile::Two => self.run_tiles::<F2, 4, 2>(block, slices, packed, io),
            WinogradTile::Four => self.run_tiles::<F4, 6, 4>(block, slices, packed, io),
        }
    }

    fn run_tiles<W: Transform<N, M>, const N: usize, const M: usize>(
        &self,
        block: usize,
        slices: &SampleSlices,
        packed: &PackedWeights,
        io: Conv2dBackwardWeights<'_>,
    ) {
        let Conv2dBackwardWeights { src, diff_dst, diff_wei, diff_bia, scratch, .. } = io;
        let share = &self.share(block);
        let (sums, scratch) = scratch.split_at_mut(self.sums_len());
        let (batch, gradients) = scratch.split_at_mut(2 * self.tile.frequencies() * self.f_step());
        let len = self.gradients_len(share);
        let mut stack = SumStack::new(self.isa, gradients, len);
        let mut diff_bia = diff_bia.filter(|_| share.ins.start == 0);
        let bias_len = share.outs.len() * self.lanes;
        for (index, samples) in slices.iter().enumerate() {
            let (bias_sums, gradients) = stack.next().split_at_mut(bias_len);
            bias_sums.fill(0.0);
            let bias = diff_bia.is_some().then_some(bias_sums);
            self.add_samples::<W, N, M>(share, samples, [src, diff_dst], batch, bias, sums);
            self.isa.dispatch(WeightsGradient::<W, N, M> {
                sums,
                f_step: self.f_sums(),
                ins: share.ins.len(),
                outs: share.outs.len(),
                gradients,
                transform: PhantomData,
            });
            stack.push(index);
        }
        let (bias_sums, gradients) = stack.total().split_at(bias_len);
        self.store(share, gradients, packed, diff_wei);
        if let Some(diff_bia) = &mut diff_bia {
            let start = share.outs.start * self.lanes;
            diff_bia.put(self.isa, start..start + bias_len, bias_sums);
        }
    }

    /// Puts the gradients of a share where those of the packed weights go.
    fn store(
        &self,
        share: &Share,
        gradients: &[f32],
        packed: &PackedWeights,
        mut diff_wei: GradientSink<'_>,
    ) {
        let lanes = self.lanes;
        let first_channel = share.ins.start * lanes;
        let channels = share.ins.len() * lanes;
        for (at, out) in share.outs.clone().enumerate() {
            let gradients = &gradients[at * channels * TAPS * lanes..];
            for channel in first_channel..(first_channel + channels).min(self.desc.ic) {
                self.isa.dispatch(Store {
                    gradients: &gradients[(channel - first_channel) * TAPS * lanes..],
                    places: std::array::from_fn(|tap| packed.at(out * lanes, channel, tap)),
                    real: self.desc.oc - out * lanes,
                    diff_wei: diff_wei.reborrow(),
                });
            }
        }
    }

    /// The sums of all frequencies over some samples; adds their gradients to the bias's.
    fn add_samples<W: Transform<N, M>, const N: usize, const M: usize>(
        &self,
        share: &Share,
        samples: Range<usize>,
        [src, diff_dst]: [&[f32]; 2],
        batch: &mut [f32],
        mut bias: Option<&mut [f32]>,
        sums: &mut [f32],
    ) {
        let Conv2dDesc { ih, iw, ph, pw, .. } = self.desc;
        let (oh, ow) = (self.desc.oh(), self.desc.ow());
        let [in_blocks, out_blocks] = self.all_blocks();
        let pad = [ph.cast_signed(), pw.cast_signed()];
        let src = Source { values: src, height: ih, width: iw, blocks: in_blocks, pad };
        let diff_dst =
            Source { values: diff_dst, height: oh, width: ow, blocks: out_blocks, pad: [0, 0] };
        let tiles = BlockTiles {
            first_sample: samples.start,
            samples: samples.len(),
            first_row: 0,
            rows: oh.div_ceil(M),
            columns: ow.div_ceil(M),
        };
        let (values, gradients) = batch.split_at_mut(self.tile.frequencies() * self.f_step());
        if tiles.count() == 0 {
            sums.fill(0.0);
        }
        let size = tiles.count().div_ceil(tiles.count().div_ceil(self.batch).max(1)).max(1);
        for first in (0..tiles.count()).step_by(size) {
            let batch = first..(first + size).min(tiles.count());
            self.isa.dispatch(InputTransform::<W, N, M> {
                source: src,
                tiles,
                batch: batch.clone(),
                blocks: share.ins.clone(),
                frequencies: Frequencies { values: &mut *values, f_step: self.f_step(), row: ROW },
                transform: PhantomData,
            });
            self.isa.dispatch(GradientTransform::<W, N, M> {
                source: diff_dst,
                tiles,
                batch: batch.clone(),
                blocks: share.outs.clone(),
                frequencies: Frequencies {
                    values: &mut *gradients,
                    f_step: self.f_step(),
                    row: ROW,
                },
                bias: bias.as_deref_mut(),
                transform: PhantomData,
            });
            for f in 0..self.tile.frequencies() {
                let sums = &mut sums[f * self.f_sums()..][..self.f_sums()];
                let values = &values[f * self.f_step()..][..self.f_step()];
                let gradients = &gradients[f * self.f_step()..][..self.f_step()];
                self.isa.dispatch(TileProduct {
                    values,
                    gradients,
                    tiles: batch.len(),
                    place: SumsPlace { ins: share.ins.len(), outs: share.outs.len() },
                    is_first: first == 0,
                    sums,
                });
            }
        }
    }
}

/// The time of a pass with several numbers of workers, multiplied, to compare cuts by: cycles of one tile.
fn cost(all: [usize; 2], [ins, outs]: [usize; 2], vector_products: usize) -> f64 {
    let blocks = all[0].div_ceil(ins) * all[1].div_ceil(outs);
    // An odd last vector has a register tile of its own that is half as fast.
    let outs_of_pairs = outs.next_multiple_of(NV);
    let block = ins * outs_of_pairs * vector_products / 2 + (ins + outs) * TRANSFORM_CYCLES;
    WORKERS.into_iter().map(|workers| (blocks.div_ceil(workers) * block) as f64).product()
}
