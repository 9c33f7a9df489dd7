//! A bias layer bound to an ISA: what one block of each pass does.

use super::kernels::{AddBias, SumPixels};
use crate::extent::{expect_len, expect_maps};
use crate::grain::Grain;
use crate::{ActivationKind, Isa, Layout, Maps, SampleSlices, ShapeError, TensorLayout, Tiles};

/// A bias layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BiasDesc {
    /// The shape of a sample.
    pub maps: Maps,
    /// The activation function that the forward pass applies to what it writes.
    pub dst_activation: Option<ActivationKind>,
}

/// Adds a value per channel.
///
/// ```text
/// dst[n,c,y,x]      = src[n,c,y,x] + bia[c]
/// diff_src[n,c,y,x] = diff_dst[n,c,y,x]
/// diff_bia[c]       = sum over n, y, x of diff_dst[n,c,y,x]
/// ```
///
/// # Shapes
///
/// All tensors (mb, c, h, w), blocked; `bia`, `diff_bia`: (c), filled up with zeros to whole vectors.
///
/// # Cost
///
/// Memory bound: each tensor crosses the bus once. No scratch.
#[derive(Debug, Clone)]
pub struct Bias {
    desc: BiasDesc,
    isa: Isa,
    layout: TensorLayout,
    /// Blocks that move the planes of an input and of an output.
    planes: Grain,
}

/// The tensors of a forward block.
#[derive(Debug)]
pub struct BiasForward<'a> {
    /// Samples.
    pub mb: usize,
    /// The input, or `None` where `dst` holds it already.
    pub src: Option<&'a [f32]>,
    /// The bias, packed.
    pub bia: &'a [f32],
    /// The output.
    pub dst: Tiles<'a>,
}

/// The tensors of a block of the input's gradient.
#[derive(Debug)]
pub struct BiasBackwardData<'a> {
    /// Samples.
    pub mb: usize,
    /// The gradient of the output, or `None` where `diff_src` is the same buffer and nothing is left to do.
    pub diff_dst: Option<&'a [f32]>,
    /// The gradient of the input.
    pub diff_src: Tiles<'a>,
}

/// The tensors of a block of the bias's gradient.
#[derive(Debug)]
pub struct BiasBackwardWeights<'a> {
    /// Samples.
    pub mb: usize,
    /// The gradient of the output.
    pub diff_dst: &'a [f32],
    /// The gradient of the bias, packed.
    pub diff_bia: Tiles<'a>,
}

impl Bias {
    /// Plans the layer.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] if a size is zero.
    pub fn new(desc: BiasDesc, isa: Isa) -> Result<Bias, ShapeError> {
        expect_maps("bias", desc.maps)?;
        let layout = TensorLayout { maps: desc.maps, layout: Layout::Blocked(isa.lanes()) };
        let plane_bytes = size_of::<f32>() * layout.sample_len() / layout.channel_blocks();
        Ok(Bias { desc, isa, layout, planes: Grain::new(2 * plane_bytes) })
    }

    /// What the layer was planned for.
    pub fn desc(&self) -> &BiasDesc {
        &self.desc
    }

    /// Elements of the packed bias.
    pub fn bia_len(&self) -> usize {
        self.layout.channel_blocks() * self.isa.lanes()
    }

    /// Packs a plain bias, one value a channel, and zeroes the padding.
    ///
    /// # Panics
    ///
    /// If a slice is shorter than c or [`Self::bia_len`].
    pub fn pack_bias(&self, plain: &[f32], packed: &mut [f32]) {
        let c = self.desc.maps.c;
        packed[..c].copy_from_slice(&plain[..c]);
        packed[c..self.bia_len()].fill(0.0);
    }

    /// The inverse of [`Self::pack_bias`].
    ///
    /// # Panics
    ///
    /// As [`Self::pack_bias`].
    pub fn unpack_bias(&self, packed: &[f32], plain: &mut [f32]) {
        let c = self.desc.maps.c;
        plain[..c].copy_from_slice(&packed[..c]);
    }

    /// The number of blocks of the forward pass.
    pub fn forward_blocks(&self, mb: usize) -> usize {
        self.planes.blocks(mb * self.layout.channel_blocks())
    }

    /// Computes one block of the output.
    ///
    /// # Panics
    ///
    /// If a buffer is shorter than `mb` samples, or the bias than [`Self::bia_len`].
    pub fn forward(&self, block: usize, io: BiasForward<'_>) {
        let BiasForward { mb, src, bia, mut dst } = io;
        expect_len("bias forward", "bia", bia.len(), self.bia_len());
        expect_len("bias forward", "dst", dst.len(), self.layout.len(mb));
        if let Some(src) = src {
            expect_len("bias forward", "src", src.len(), self.layout.len(mb));
        }
        let channel_blocks = self.layout.channel_blocks();
        for plane in self.planes.pieces(block, mb * channel_blocks) {
            let at = plane * self.plane_len()..(plane + 1) * self.plane_len();
            self.isa.dispatch(AddBias {
                src: src.map(|src| &src[at.clone()]),
                bia: &bia[plane % channel_blocks * self.isa.lanes()..],
                activation: self.activation(plane % channel_blocks),
                dst: dst.tile(at),
            });
        }
    }

    /// The number of blocks of the input's gradient.
    pub fn backward_data_blocks(&self, mb: usize) -> usize {
        self.forward_blocks(mb)
    }

    /// Computes one block of the gradient of the input: a copy, for a caller that cannot let the two share a buffer.
    ///
    /// # Panics
    ///
    /// If a buffer is shorter than `mb` samples.
    pub fn backward_data(&self, block: usize, io: BiasBackwardData<'_>) {
        let BiasBackwardData { mb, diff_dst, mut diff_src } = io;
        expect_len("bias backward data", "diff_src", diff_src.len(), self.layout.len(mb));
        let Some(diff_dst) = diff_dst else { return };
        expect_len("bias backward data", "diff_dst", diff_dst.len(), self.layout.len(mb));
        let planes = self.planes.pieces(block, mb * self.layout.channel_blocks());
        let at = planes.start * self.plane_len()..planes.end * self.plane_len();
        diff_src.tile(at.clone()).copy_from_slice(&diff_dst[at]);
    }

    /// The number of blocks of the bias's gradient: one a channel block, whatever `mb`.
    pub fn backward_weights_blocks(&self, _mb: usize) -> usize {
        self.layout.channel_blocks()
    }

    /// Computes one block of the gradient of the bias: a channel block, summed in the order of samples. Without
    /// samples it is zero.
    ///
    /// # Panics
    ///
    /// If a buffer is shorter than `mb` samples, or the gradient than [`Self::bia_len`].
    pub fn backward_weights(&self, block: usize, io: BiasBackwardWeights<'_>) {
        self.sliced_backward_weights(block, &SampleSlices::whole(io.mb), io);
    }

    /// [`Bias::backward_weights`] whose sums over slices of the samples are added in a balanced tree.
    ///
    /// # Panics
    ///
    /// As [`Bias::backward_weights`], and if the slices have not `mb` samples.
    pub fn sliced_backward_weights(
        &self,
        block: usize,
        slices: &SampleSlices,
        io: BiasBackwardWeights<'_>,
    ) {
        let BiasBackwardWeights { mb, diff_dst, mut diff_bia } = io;
        assert_eq!(slices.mb(), mb, "bias backward weights: samples of all slices");
        expect_len("bias backward weights", "diff_dst", diff_dst.len(), self.layout.len(mb));
        expect_len("bias backward weights", "diff_bia", diff_bia.len(), self.bia_len());
        let lanes = self.isa.lanes();
        self.isa.dispatch(SumPixels {
            slices,
            diff_dst,
            sample_len: self.layout.sample_len(),
            plane: block * self.plane_len()..(block + 1) * self.plane_len(),
            diff_bia: diff_bia.tile(block * lanes..(block + 1) * lanes),
        });
    }

    /// What is applied to a channel block's results, and to how many lanes of them; the rest is padding.
    fn activation(&self, channel_block: usize) -> Option<(ActivationKind, usize)> {
        let lanes = self.isa.lanes();
        let real = (self.desc.maps.c - channel_block * lanes).min(lanes);
        self.desc.dst_activation.map(|kind| (kind, real))
    }

    /// Elements of one sample of one channel block.
    fn plane_len(&self) -> usize {
        self.layout.sample_len() / self.layout.channel_blocks()
    }
}
