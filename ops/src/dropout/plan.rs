//! Dropout bound to an ISA: what one block of either pass does.

use super::DropoutDesc;
use super::mask::{DropoutKey, SampleKey};
use crate::activation::Slope;
use crate::extent::expect_len;
use crate::grain::Grain;
use crate::simd::{Kernel, Simd};
use crate::{ActivationKind, Isa, Layout, ShapeError, TensorLayout, Tiles};

/// The widest vector there is, in lanes.
const MAX_LANES: usize = 16;

/// Dropout: each element is zeroed with probability p, and the others are scaled up so that the mean stays.
///
/// ```text
/// dst[n,c,y,x] = src[n,c,y,x] * mask / (1 - p),   mask = 0 with probability p, else 1
/// ```
///
/// The mask is a function of the [`DropoutKey`], the sample's number and the element's index in c, h, w order: the same
/// on every rank, for every lane width and in both passes, so it is computed twice rather than stored.
///
/// # Shapes
///
/// All tensors (mb, c, h, w), blocked.
///
/// # Cost
///
/// About 20 integer operations an element; each tensor crosses the memory bus once. No scratch.
///
/// # Source
///
/// Srivastava et al. 2014, scaled in training as in PyTorch (whose masks differ).
///
/// # Examples
///
/// ```
/// use lockstep_ops::{Dropout, DropoutDesc, DropoutForward, DropoutKey, Isa, Maps};
///
/// let isa = Isa::named("portable")?;
/// let maps = Maps { c: 8, h: 1, w: 1 };
/// let desc = DropoutDesc { maps, first_channel: 0, p: 0.5, follows_relu: false };
/// let dropout = Dropout::new(desc, isa)?;
/// let (key, mut dst) = (DropoutKey { seed: 1, layer: 0, step: 0 }, [3.0; 8]);
/// let io = DropoutForward { mb: 1, key, samples: &[17], src: None, dst: dst.as_mut_slice().into() };
/// dropout.forward(0, io);
/// assert!(dst.iter().all(|v| *v == 0.0 || *v == 6.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Dropout {
    desc: DropoutDesc,
    isa: Isa,
    layout: TensorLayout,
    rule: MaskRule,
    grain: Grain,
}

/// The tensors of a forward block.
#[derive(Debug)]
pub struct DropoutForward<'a> {
    /// Samples of this rank.
    pub mb: usize,
    /// What the masks depend on beside the sample.
    pub key: DropoutKey,
    /// The number of each sample: in the minibatch or in the data set, but the same for any number of ranks.
    pub samples: &'a [u64],
    /// The input, or `None` where `dst` holds it already.
    pub src: Option<&'a [f32]>,
    /// The output.
    pub dst: Tiles<'a>,
}

/// The tensors of a backward block.
#[derive(Debug)]
pub struct DropoutBackward<'a> {
    /// Samples of this rank.
    pub mb: usize,
    /// The key of the forward pass.
    pub key: DropoutKey,
    /// The samples of the forward pass.
    pub samples: &'a [u64],
    /// The output of the forward pass, where it [follows a ReLU](DropoutDesc::follows_relu).
    pub dst: Option<&'a [f32]>,
    /// The gradient of the output, or `None` where `diff_src` holds it already.
    pub diff_dst: Option<&'a [f32]>,
    /// The gradient of the input.
    pub diff_src: Tiles<'a>,
}

/// From a random number to a factor.
#[derive(Debug, Clone, Copy)]
struct MaskRule {
    /// Random numbers from here on keep their element.
    kept_from: u32,
    /// What kept elements are multiplied by: 0 if p is 1.
    scale: f32,
}

impl Dropout {
    /// Plans the layer.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] if a size is zero, `p` is not within 0 and 1, or a sample has 2^32 elements or more.
    pub fn new(desc: DropoutDesc, isa: Isa) -> Result<Dropout, ShapeError> {
        desc.validate()?;
        let layout = TensorLayout { maps: desc.maps, layout: Layout::Blocked(isa.lanes()) };
        let plane_bytes = size_of::<f32>() * layout.sample_len() / layout.channel_blocks();
        Ok(Dropout {
            desc,
            isa,
            layout,
            rule: MaskRule {
                kept_from: (f64::from(desc.p) * 2.0_f64.powi(32)).ceil() as u32,
                scale: if desc.p < 1.0 { 1.0 / (1.0 - desc.p) } else { 0.0 },
            },
            grain: Grain::new(2 * plane_bytes),
        })
    }

    /// What the layer was planned for.
    pub fn desc(&self) -> &DropoutDesc {
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
    /// If a buffer or `samples` is shorter than `mb` samples.
    pub fn forward(&self, block: usize, io: DropoutForward<'_>) {
        let DropoutForward { mb, key, samples, src, mut dst } = io;
        let key = |sample| key.sample(samples[sample]);
        self.mask(block, mb, key, src, Slope::none(), &mut dst);
    }

    /// The number of blocks of the backward pass.
    pub fn backward_blocks(&self, mb: usize) -> usize {
        self.forward_blocks(mb)
    }

    /// Computes one block of the gradient of the input: the same mask once more.
    ///
    /// # Panics
    ///
    /// If a buffer is missing, or it or `samples` is shorter than `mb` samples.
    pub fn backward(&self, block: usize, io: DropoutBackward<'_>) {
        let DropoutBackward { mb, key, samples, dst, diff_dst, mut diff_src } = io;
        let planned = self.desc.follows_relu.then_some(ActivationKind::Relu);
        let slope = Slope::new("dropout backward", planned, dst, self.layout.len(mb));
        let key = |sample| key.sample(samples[sample]);
        self.mask(block, mb, key, diff_dst, slope, &mut diff_src);
    }

    /// Both passes: masks the planes of a block.
    fn mask(
        &self,
        block: usize,
        mb: usize,
        key: impl Fn(usize) -> SampleKey,
        src: Option<&[f32]>,
        slope: Slope<'_>,
        dst: &mut Tiles<'_>,
    ) {
        if let Some(src) = src {
            expect_len("dropout", "the input", src.len(), self.layout.len(mb));
        }
        expect_len("dropout", "the output", dst.len(), self.layout.len(mb));
        let channel_blocks = self.layout.channel_blocks();
        let plane_len = self.layout.sample_len() / channel_blocks;
        let pixels = self.desc.maps.h * self.desc.maps.w;
        for plane in self.grain.pieces(block, mb * channel_blocks) {
            let channel = self.desc.first_channel + plane % channel_blocks * self.isa.lanes();
            let at = plane * plane_len..(plane + 1) * plane_len;
            let dst = dst.tile(at.clone());
            self.isa.dispatch(MaskPlane {
                mask: PlaneMask {
                    rule: self.rule,
                    key: key(plane / channel_blocks),
                    first_index: (channel * pixels) as u32,
                    pixels: pixels as u32,
                },
                src: src.map(|src| &src[at.clone()]),
                dst: &mut *dst,
            });
            slope.apply(self.isa, at, dst);
        }
    }
}

/// One sample of one channel block.
struct MaskPlane<'a> {
    mask: PlaneMask,
    src: Option<&'a [f32]>,
    dst: &'a mut [f32],
}

impl Kernel for MaskPlane<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let MaskPlane { mask, src, dst } = self;
        let dst = (0..).zip(dst.chunks_exact_mut(S::LANES));
        match src {
            Some(src) => {
                for (src, (pixel, dst)) in src.chunks_exact(S::LANES).zip(dst) {
                    simd.store(dst, simd.mul(simd.load(src), mask.factors(simd, pixel)));
                }
            }
            None => {
                for (pixel, dst) in dst {
                    simd.store(dst, simd.mul(simd.load(dst), mask.factors(simd, pixel)));
                }
            }
        }
    }
}

/// The mask of one sample of one channel block.
#[derive(Debug, Clone, Copy)]
struct PlaneMask {
    rule: MaskRule,
    key: SampleKey,
    /// The index of the first lane's first pixel.
    first_index: u32,
    /// Pixels of a map: how far the indices of two lanes are apart.
    pixels: u32,
}

impl PlaneMask {
    /// What the lanes of a pixel are multiplied by.
    #[inline(always)]
    fn factors<S: Simd>(self, simd: S, pixel: u32) -> S::F32 {
        let mut factors = [0.0; MAX_LANES];
        for (lane, factor) in (0..).zip(&mut factors[..S::LANES]) {
            // Padded lanes may wrap around; whatever they are multiplied by, they stay zero.
            let offset = self.pixels.wrapping_mul(lane).wrapping_add(pixel);
            let random = self.key.random(self.first_index.wrapping_add(offset));
            *factor = if random >= self.rule.kept_from { self.rule.scale } else { 0.0 };
        }
        simd.load(&factors)
    }
}
