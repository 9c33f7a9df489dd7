//! Winograd's minimal filtering for 3x3 convolutions of stride 1: F(2x2, 3x3) and F(4x4, 3x3).
//!
//! A tile of M x M outputs is computed from (M + 2)^2 inputs by as many multiplications for each pair of channels, where the
//! direct method takes 9 M^2: 2.25 times as many for M = 2, 4 times for M = 4. Inputs and weights are mapped to *frequencies*,
//! which are multiplied one by one and summed over the input channels, one matrix product a frequency; the sums are mapped
//! back. Results differ from the direct method's by rounding: for M = 2 the error is smaller, for M = 4 up to about twice as
//! large. A NaN or an infinity reaches all outputs of its tile.
//!
//! | To learn about | read |
//! |---|---|
//! | the maps | `transform` |
//! | the order of the weights | `weights` |
//! | forward and backward data | `pass`, and in its order `input`, `product`, `output` |
//! | backward weights | `backward_weights`, and in its order `input`, `gradient`, `product` |

mod transform;
mod tiling;
mod input;
mod product;
mod output;
mod weights;
mod pass;
mod gradient;
mod backward_weights;
#[cfg(test)]
mod tests;

use self::backward_weights::BackwardWeightsPlan;
use self::pass::{PassIo, PassPlan, Shape};
pub(super) use self::weights::Turn;
use super::backward_data::Conv2dBackwardData;
use super::backward_weights::Conv2dBackwardWeights;
use super::desc::Conv2dDesc;
use super::epilogue::Epilogue;
use super::forward::Conv2dForward;
use super::geometry::Geometry;
use super::weights::PackedWeights;
use crate::blocking::Caches;
use crate::{ActivationKind, Isa, SampleSlices, Tiles};

/// Which of Winograd's methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WinogradTile {
    /// F(2x2, 3x3): 2.25 times fewer multiplications than the direct method, and more exact.
    Two,
    /// F(4x4, 3x3): 4 times fewer, up to about twice the direct method's rounding error.
    Four,
}

impl WinogradTile {
    /// Outputs of a tile along each axis.
    pub fn outputs(self) -> usize {
        match self {
            Self::Two => 2,
            Self::Four => 4,
        }
    }

    /// Multiplications of a tile for each pair of channels.
    pub fn frequencies(self) -> usize {
        (self.outputs() + 2).pow(2)
    }
}

/// The passes of a layer.
#[derive(Debug, Clone)]
pub(super) struct Winograd {
    isa: Isa,
    tile: WinogradTile,
    /// The packed weights.
    pub(super) weights: PackedWeights,
    /// The forward pass.
    pub(super) forward: PassPlan,
    /// The backward data pass.
    pub(super) backward_data: PassPlan,
    /// The backward weights pass.
    pub(super) backward_weights: BackwardWeightsPlan,
    src_activation: Option<ActivationKind>,
    dst_activation: Option<ActivationKind>,
}

impl Winograd {
    /// The passes of a valid descriptor's layer, or `None` where they cannot be computed so.
    pub(super) fn new(
        desc: &Conv2dDesc,
        tile: WinogradTile,
        isa: Isa,
        caches: Caches,
    ) -> Option<Winograd> {
        let lanes = isa.lanes();
        let geometry = Geometry::new(desc, lanes)?;
        let window = [desc.kh, desc.kw, desc.sh, desc.sw];
        if window != [3, 3, 1, 1] || desc.groups != 1 || geometry.plain {
            return None;
        }
        let (src, dst) = ([desc.ih, desc.iw], [desc.oh(), desc.ow()]);
        let pad = [desc.ph.cast_signed(), desc.pw.cast_signed()];
        let forward = Shape { lanes, inner: desc.ic, outer: desc.oc, src, dst, pad };
        let backward = Shape {
            lanes,
            inner: desc.oc,
            outer: desc.ic,
            src: dst,
            dst: src,
            pad: pad.map(|pad| 2 - pad),
        };
        let plan = |shape| PassPlan::new(shape, tile, isa, caches.l2_bytes);
        Some(Winograd {
            isa,
            tile,
            weights: PackedWeights::in_pairs(&geometry),
            forward: plan(forward),
            backward_data: plan(backward),
            backward_weights: BackwardWeightsPlan::new(desc, tile, isa, caches.l2_bytes),
            src_activation: desc.src_activation,
            dst_activation: desc.dst_activation,
        })
    }

    fn pass(&self, turn: Turn) -> &PassPlan {
        match turn {
            Turn::None => &self.forward,
            Turn::Around => &self.backward_data,
        }
    }

    /// Blocks of [`Self::transform_weights`].
    pub(super) fn weights_blocks(&self, turn: Turn) -> usize {
        let order = self.pass(turn).order();
        order.pairs() * order.chunks()
    }

    /// Elements of the weights as a pass reads them.
    pub(super) fn weights_len(&self, turn: Turn) -> usize {
        self.pass(turn).order().len()
    }

    /// Transforms one block of the packed weights for a pass.
    pub(super) fn transform_weights(&self, turn: Turn, block: usize, wei: &[f32], dst: Tiles<'_>) {
        let order = self.pass(turn).order();
        weights::transform(self.isa, self.tile, (order, turn), &self.weights, block, (wei, dst));
    }

    pub(super) fn run_forward(&self, block: usize, io: Conv2dForward<'_>) {
        let Conv2dForward { mb, src, wei, bia, dst, scratch } = io;
        let epilogue = self.dst_activation.map_or(Epilogue::None, Epilogue::Activate);
        self.forward.run(block, PassIo { mb, src, wei, bia, epilogue, dst, scratch });
    }

    pub(super) fn run_backward_data(&self, block: usize, io: Conv2dBackwardData<'_>) {
        let Conv2dBackwardData { mb, diff_dst, wei, src, diff_src, scratch } = io;
        let epilogue = match (self.src_activation, src) {
            (Some(kind), Some(src)) => Epilogue::Gradient(kind, src),
            _ => Epilogue::None,
        };
        let (src, dst, bia) = (diff_dst, diff_src, None);
        self.backward_data.run(block, PassIo { mb, src, wei, bia, epilogue, dst, scratch });
    }

    pub(super) fn run_backward_weights(
        &self,
        block: usize,
        slices: &SampleSlices,
        io: Conv2dBackwardWeights<'_>,
    ) {
        self.backward_weights.run(block, slices, &self.weights, io);
    }
}
