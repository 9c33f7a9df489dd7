//! An activation bound to an ISA: what one block of either pass does.

use std::ops::Range;

use super::{ActivationDesc, ActivationKind, backward, forward};
use crate::extent::expect_len;
use crate::grain::Grain;
use crate::{Isa, Layout, ShapeError, TensorLayout, Tiles};

/// An activation layer, forward and backward.
///
/// ```text
/// dst[n,c,y,x]      = f(src[n,c,y,x])
/// diff_src[n,c,y,x] = diff_dst[n,c,y,x] * f'(src[n,c,y,x])
/// ```
///
/// The backward pass finds f' from `dst`, so `src` need not outlive the forward pass and both passes can work in place.
/// The gradient of ReLU at zero is zero. A NaN in `src` is a NaN in `dst` and in `diff_src`.
///
/// # Shapes
///
/// All tensors (mb, c, h, w), blocked.
///
/// # Cost
///
/// Memory bound for ReLU; some 20 operations an element for the others. Each tensor crosses the bus once. No scratch.
///
/// # Source
///
/// PyTorch's `relu`, `sigmoid` and `tanh`.
#[derive(Debug, Clone)]
pub struct Activation {
    desc: ActivationDesc,
    isa: Isa,
    layout: TensorLayout,
    grain: Grain,
}

/// The tensors of a forward block.
#[derive(Debug)]
pub struct ActivationForward<'a> {
    /// Samples.
    pub mb: usize,
    /// The input, or `None` where `dst` holds it already.
    pub src: Option<&'a [f32]>,
    /// The output.
    pub dst: Tiles<'a>,
}

/// The tensors of a backward block.
#[derive(Debug)]
pub struct ActivationBackward<'a> {
    /// Samples.
    pub mb: usize,
    /// The output of the forward pass.
    pub dst: &'a [f32],
    /// The gradient of the output, or `None` where `diff_src` holds it already.
    pub diff_dst: Option<&'a [f32]>,
    /// The gradient of the input.
    pub diff_src: Tiles<'a>,
}

impl Activation {
    /// Plans the layer.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] if a size is zero.
    pub fn new(desc: ActivationDesc, isa: Isa) -> Result<Activation, ShapeError> {
        desc.validate()?;
        let layout = TensorLayout { maps: desc.maps, layout: Layout::Blocked(isa.lanes()) };
        let plane_bytes = size_of::<f32>() * layout.sample_len() / layout.channel_blocks();
        Ok(Activation { desc, isa, layout, grain: Grain::new(2 * plane_bytes) })
    }

    /// What the layer was planned for.
    pub fn desc(&self) -> &ActivationDesc {
        &self.desc
    }

    /// The number of blocks of the forward pass.
    pub fn forward_blocks(&self, mb: usize) -> usize {
        self.grain.blocks(mb * self.layout.channel_blocks())
    }

    /// Computes one block of the output.
    ///
    /// # Panics
    ///
    /// If a buffer is shorter than `mb` samples.
    pub fn forward(&self, block: usize, io: ActivationForward<'_>) {
        let ActivationForward { mb, src, mut dst } = io;
        expect_len("activation forward", "dst", dst.len(), self.layout.len(mb));
        if let Some(src) = src {
            expect_len("activation forward", "src", src.len(), self.layout.len(mb));
        }
        let planes = self.grain.pieces(block, mb * self.layout.channel_blocks());
        let at = self.elements(&planes);
        let values = forward::Values { src: src.map(|src| &src[at.clone()]), dst: dst.tile(at) };
        match self.desc.kind {
            ActivationKind::Relu => self.isa.dispatch(forward::Relu(values)),
            ActivationKind::Sigmoid => self.isa.dispatch(forward::Sigmoid(values)),
            ActivationKind::Tanh => self.isa.dispatch(forward::Tanh(values)),
        }
        if self.desc.kind == ActivationKind::Sigmoid {
            self.clear_padding(&planes, &mut dst);
        }
    }

    /// The number of blocks of the backward pass.
    pub fn backward_blocks(&self, mb: usize) -> usize {
        self.forward_blocks(mb)
    }

    /// Computes one block of the gradient of the input.
    ///
    /// # Panics
    ///
    /// If a buffer is shorter than `mb` samples.
    pub fn backward(&self, block: usize, io: ActivationBackward<'_>) {
        let ActivationBackward { mb, dst, diff_dst, mut diff_src } = io;
        let len = self.layout.len(mb);
        expect_len("activation backward", "dst", dst.len(), len);
        expect_len("activation backward", "diff_src", diff_src.len(), len);
        if let Some(diff_dst) = diff_dst {
            expect_len("activation backward", "diff_dst", diff_dst.len(), len);
        }
        let at = self.elements(&self.grain.pieces(block, mb * self.layout.channel_blocks()));
        let gradients = backward::Gradients {
            dst: &dst[at.clone()],
            diff_dst: diff_dst.map(|diff| &diff[at.clone()]),
            diff_src: diff_src.tile(at),
        };
        gradients.dispatch(self.desc.kind, self.isa);
    }

    /// Zeroes the padded lanes of planes that hold the last channels: f(0) is not 0.
    fn clear_padding(&self, planes: &Range<usize>, dst: &mut Tiles<'_>) {
        let lanes = self.isa.lanes();
        let channel_blocks = self.layout.channel_blocks();
        let filled = self.desc.maps.c - (channel_blocks - 1) * lanes;
        if filled == lanes {
            return;
        }
        for plane in planes.clone().filter(|plane| (plane + 1) % channel_blocks == 0) {
            for pixel in dst.tile(self.elements(&(plane..plane + 1))).chunks_exact_mut(lanes) {
                pixel[filled..].fill(0.0);
            }
        }
    }

    /// Where `planes`, each one sample of one channel block, lie in a tensor.
    fn elements(&self, planes: &Range<usize>) -> Range<usize> {
        let plane_len = self.layout.sample_len() / self.layout.channel_blocks();
        planes.start * plane_len..planes.end * plane_len
    }
}
