//! A local response normalization bound to an ISA, and how its passes are cut into blocks.

use std::ops::Range;

use super::LrnDesc;
use super::power::InversePower;
use crate::grain::Grain;
use crate::{Isa, Layout, ShapeError, TensorLayout};

/// Elements of scratch lines that a run of pixels may fill: 16 KiB, half of a first-level cache.
const RUN_ELEMENTS: usize = 4096;

/// Local response normalization across channels.
///
/// ```text
/// s[n,c,y,x]   = k + alpha / size * sum of src[n,j,y,x]^2 over j in c - size/2 ..= c + (size - 1)/2
/// dst[n,c,y,x] = src[n,c,y,x] * s[n,c,y,x]^-beta
/// ```
///
/// (integer divisions; channels that do not exist count as zero.)
///
/// A block takes all channels of a few neighboring pixels. Channel windows cross the channel blocks of the layout, so
/// the squares of a pixel's channels are laid out as one line in scratch, where each window is a row of shifted loads.
///
/// # Shapes
///
/// All tensors (mb, c, h, w), blocked.
///
/// # Cost
///
/// About (size + 10) operations an element forward and twice that backward; each tensor crosses the memory bus once.
/// Scratch: 16 KiB forward, 32 KiB backward, or one pixel's channels where those are more.
///
/// # Source
///
/// Krizhevsky, Sutskever and Hinton 2012, section 3.3, in PyTorch's form (`alpha` over `size`).
///
/// # Examples
///
/// ```
/// use lockstep_ops::{Isa, Lrn, LrnDesc, LrnForward, Maps};
///
/// let isa = Isa::named("portable")?;
/// let maps = Maps { c: 2, h: 1, w: 1 };
/// let desc = LrnDesc { maps, size: 3, alpha: 3.0, beta: 0.5, k: 0.0, src_activation: None };
/// let lrn = Lrn::new(desc, isa)?;
/// let (mut src, mut dst) = ([0.0; 8], [0.0; 8]);
/// (src[0], src[1]) = (3.0, 4.0);
/// let mut scratch = vec![0.0; lrn.forward_scratch_len()];
/// let dst_tiles = dst.as_mut_slice().into();
/// lrn.forward(0, LrnForward { mb: 1, src: &src, dst: dst_tiles, scratch: &mut scratch });
/// // Both divisors are the root of 9 + 16.
/// assert!((dst[0] - 0.6).abs() < 1e-6 && (dst[1] - 0.8).abs() < 1e-6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Lrn {
    pub(super) desc: LrnDesc,
    pub(super) isa: Isa,
    lanes: usize,
    pub(super) layout: TensorLayout,
    pub(super) power: InversePower,
    /// Pixels whose lines are in scratch at a time.
    pub(super) run: usize,
    grain: Grain,
}

impl Lrn {
    /// Plans the layer.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] if a size is zero.
    pub fn new(desc: LrnDesc, isa: Isa) -> Result<Lrn, ShapeError> {
        desc.validate()?;
        let lanes = isa.lanes();
        let layout = TensorLayout { maps: desc.maps, layout: Layout::Blocked(lanes) };
        let channels = layout.channel_blocks() * lanes;
        let mut lrn = Lrn {
            desc,
            isa,
            lanes,
            layout,
            power: InversePower::new(desc.beta),
            run: 1,
            // Arithmetic counts as much as memory here: as if an element were moved twice as often.
            grain: Grain::new(4 * size_of::<f32>() * channels),
        };
        lrn.run = (RUN_ELEMENTS / lrn.line_len()).clamp(1, 32);
        Ok(lrn)
    }

    /// What the layer was planned for.
    pub fn desc(&self) -> &LrnDesc {
        &self.desc
    }

    /// Channels before a channel in its window.
    pub(super) fn before(&self) -> usize {
        self.desc.size / 2
    }

    /// Channels after a channel in its window.
    pub(super) fn after(&self) -> usize {
        (self.desc.size - 1) / 2
    }

    /// Zeros at each end of a scratch line, so that no window leaves it.
    pub(super) fn margin(&self) -> usize {
        self.before().next_multiple_of(self.lanes)
    }

    /// Elements of a scratch line: the channels of one pixel between two margins.
    pub(super) fn line_len(&self) -> usize {
        2 * self.margin() + self.layout.channel_blocks() * self.lanes
    }

    pub(super) fn pixel_blocks(&self, mb: usize) -> usize {
        self.grain.blocks(mb * self.pixels())
    }

    /// The runs of pixels of a block.
    pub(super) fn runs(&self, block: usize, mb: usize) -> impl Iterator<Item = Run> {
        let pixels = self.pixels();
        let Range { start, end } = self.grain.pieces(block, mb * pixels);
        let mut next = start;
        std::iter::from_fn(move || {
            (next < end).then(|| {
                let (sample, first) = (next / pixels, next % pixels);
                let len = self.run.min(end - next).min(pixels - first);
                next += len;
                Run { sample, first, len }
            })
        })
    }

    /// The elements of a run in one channel block.
    #[inline(always)]
    pub(super) fn elements(&self, run: Run, channel_block: usize) -> Range<usize> {
        let plane = run.sample * self.layout.channel_blocks() + channel_block;
        let start = (plane * self.pixels() + run.first) * self.lanes;
        start..start + run.len * self.lanes
    }

    /// How many lanes of a channel block are channels; the rest is padding.
    pub(super) fn real_lanes(&self, channel_block: usize) -> usize {
        (self.desc.maps.c - channel_block * self.lanes).min(self.lanes)
    }

    fn pixels(&self) -> usize {
        self.desc.maps.h * self.desc.maps.w
    }
}

/// Neighboring pixels of one sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) sample: usize,
    pub(super) first: usize,
    pub(super) len: usize,
}
