//! A flattening bound to an ISA: what one block of either pass does.

use std::ops::Range;

use crate::activation::Slope;
use crate::extent::{expect_len, expect_maps};
use crate::grain::Grain;
use crate::{ActivationKind, Isa, Layout, Maps, ShapeError, TensorLayout, Tiles};

/// Pixels that are transposed at a time: their vectors stay in the first-level cache until every lane is done.
const STRIP: usize = 64;

/// A flattening of maps to features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlattenDesc {
    /// The shape of a sample.
    pub maps: Maps,
    /// The activation function that the source is the value of: backward then returns the gradient of its input.
    pub src_activation: Option<ActivationKind>,
}

/// Lays the maps of a sample out as features: feature `(c·h + y)·w + x` is pixel (y, x) of channel c.
///
/// Within a channel block this transposes lanes and pixels. A block takes a few planes (one sample of one channel
/// block), whose features are neighbors too.
///
/// # Shapes
///
/// `src` (mb, c, h, w) blocked; `dst` (mb, c·h·w, 1, 1) blocked, that is each sample's features in order, then zeros up to
/// whole vectors.
///
/// # Cost
///
/// Memory bound: each tensor crosses the bus once. No scratch.
///
/// # Examples
///
/// ```
/// use lockstep_ops::{Flatten, FlattenDesc, FlattenForward, Isa, Maps};
///
/// let isa = Isa::named("portable")?;
/// let desc = FlattenDesc { maps: Maps { c: 2, h: 1, w: 2 }, src_activation: None };
/// let flatten = Flatten::new(desc, isa)?;
/// // Two pixels of 8 lanes, the first two of which are channels.
/// let (mut src, mut dst) = ([0.0; 16], [0.0; 8]);
/// (src[0], src[1], src[8], src[9]) = (1.0, 3.0, 2.0, 4.0);
/// flatten.forward(0, FlattenForward { mb: 1, src: &src, dst: dst.as_mut_slice().into() });
/// assert_eq!(dst, [1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Flatten {
    desc: FlattenDesc,
    isa: Isa,
    lanes: usize,
    src: TensorLayout,
    dst: TensorLayout,
    grain: Grain,
}

/// The tensors of a forward block.
#[derive(Debug)]
pub struct FlattenForward<'a> {
    /// Samples.
    pub mb: usize,
    /// The maps.
    pub src: &'a [f32],
    /// The features.
    pub dst: Tiles<'a>,
}

/// The tensors of a backward block.
#[derive(Debug)]
pub struct FlattenBackward<'a> {
    /// Samples.
    pub mb: usize,
    /// The gradient of the features.
    pub diff_dst: &'a [f32],
    /// The maps, where they are the value of an [activation](FlattenDesc::src_activation).
    pub src: Option<&'a [f32]>,
    /// The gradient of the maps.
    pub diff_src: Tiles<'a>,
}

impl Flatten {
    /// Plans the flattening.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] if a size is zero.
    pub fn new(desc: FlattenDesc, isa: Isa) -> Result<Flatten, ShapeError> {
        expect_maps("flatten", desc.maps)?;
        let lanes = isa.lanes();
        let blocked = |maps| TensorLayout { maps, layout: Layout::Blocked(lanes) };
        let Maps { c, h, w } = desc.maps;
        Ok(Flatten {
            desc,
            isa,
            lanes,
            src: blocked(desc.maps),
            dst: blocked(Maps { c: c * h * w, h: 1, w: 1 }),
            grain: Grain::new(2 * size_of::<f32>() * h * w * lanes),
        })
    }

    /// What was planned.
    pub fn desc(&self) -> &FlattenDesc {
        &self.desc
    }

    /// The shape of the result.
    pub fn dst_maps(&self) -> Maps {
        self.dst.maps
    }

    /// The number of blocks of the forward pass.
    pub fn forward_blocks(&self, mb: usize) -> usize {
        self.grain.blocks(mb * self.src.channel_blocks())
    }

    /// Computes one block of the features.
    ///
    /// # Panics
    ///
    /// If a buffer is shorter than `mb` samples.
    pub fn forward(&self, block: usize, io: FlattenForward<'_>) {
        let FlattenForward { mb, src, mut dst } = io;
        expect_len("flatten forward", "src", src.len(), self.src.len(mb));
        expect_len("flatten forward", "dst", dst.len(), self.dst.len(mb));
        let pixels = self.pixels();
        for plane in self.grain.pieces(block, mb * self.src.channel_blocks()) {
            let src = &src[self.plane(plane)];
            let features = self.features(plane);
            let real = self.real_lanes(plane) * pixels;
            let dst = dst.tile(features);
            dst[real..].fill(0.0);
            for first in (0..pixels).step_by(STRIP) {
                let strip = first..(first + STRIP).min(pixels);
                let src = &src[strip.start * self.lanes..strip.end * self.lanes];
                for (lane, row) in dst[..real].chunks_exact_mut(pixels).enumerate() {
                    for (dst, pixel) in
                        row[strip.clone()].iter_mut().zip(src.chunks_exact(self.lanes))
                    {
                        *dst = pixel[lane];
                    }
                }
            }
        }
    }

    /// The number of blocks of the backward pass.
    pub fn backward_blocks(&self, mb: usize) -> usize {
        self.forward_blocks(mb)
    }

    /// Computes one block of the gradient of the maps.
    ///
    /// # Panics
    ///
    /// If a buffer is missing or shorter than `mb` samples.
    pub fn backward(&self, block: usize, io: FlattenBackward<'_>) {
        let FlattenBackward { mb, diff_dst, src, mut diff_src } = io;
        expect_len("flatten backward", "diff_dst", diff_dst.len(), self.dst.len(mb));
        expect_len("flatten backward", "diff_src", diff_src.len(), self.src.len(mb));
        let slope = Slope::new("flatten backward", self.desc.src_activation, src, self.src.len(mb));
        let pixels = self.pixels();
        for plane in self.grain.pieces(block, mb * self.src.channel_blocks()) {
            let at = self.plane(plane);
            let whole = diff_src.tile(at.clone());
            let real = self.real_lanes(plane);
            let rows = &diff_dst[self.features(plane)][..real * pixels];
            for first in (0..pixels).step_by(STRIP) {
                let strip = first..(first + STRIP).min(pixels);
                let diff_src = &mut whole[strip.start * self.lanes..strip.end * self.lanes];
                if real < self.lanes {
                    diff_src.fill(0.0);
                }
                for (lane, row) in rows.chunks_exact(pixels).enumerate() {
                    let diffs = diff_src.chunks_exact_mut(self.lanes).zip(&row[strip.clone()]);
                    for (pixel, diff) in diffs {
                        pixel[lane] = *diff;
                    }
                }
            }
            slope.apply(self.isa, at, whole);
        }
    }

    fn pixels(&self) -> usize {
        self.desc.maps.h * self.desc.maps.w
    }

    /// The elements of a plane of maps.
    fn plane(&self, plane: usize) -> Range<usize> {
        let len = self.pixels() * self.lanes;
        plane * len..(plane + 1) * len
    }

    /// The features of a plane, and in a sample's last one the padding after them.
    fn features(&self, plane: usize) -> Range<usize> {
        let channel_blocks = self.src.channel_blocks();
        let (sample, channel_block) = (plane / channel_blocks, plane % channel_blocks);
        let first = sample * self.dst.sample_len();
        let start = first + channel_block * self.lanes * self.pixels();
        let end = start + self.real_lanes(plane) * self.pixels();
        let is_last = channel_block + 1 == channel_blocks;
        start..if is_last { first + self.dst.sample_len() } else { end }
    }

    /// How many lanes of a plane are channels; the rest is padding.
    fn real_lanes(&self, plane: usize) -> usize {
        let channel_block = plane % self.src.channel_blocks();
        (self.desc.maps.c - channel_block * self.lanes).min(self.lanes)
    }
}
