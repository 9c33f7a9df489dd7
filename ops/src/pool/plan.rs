//! A pooling layer bound to an ISA: what one block of either pass does.

use std::ops::Range;

use super::window::Axis;
use super::{PoolDesc, PoolKind, average, max};
use crate::extent::expect_len;
use crate::grain::Grain;
use crate::{Isa, Layout, Maps, ShapeError, TensorLayout, Tiles};

/// A pooling layer, forward and backward.
///
/// ```text
/// max      dst[n,c,oy,ox] = max over the window of src
/// average  dst[n,c,oy,ox] = sum over the window of src / its number of positions
/// ```
///
/// The unit of work is a *plane*, one sample of one channel block: a block of either pass takes a few neighboring
/// planes whole, so that blocks write disjoint ranges even where windows overlap.
///
/// # Shapes
///
/// `src`, `diff_src`: (mb, c, ih, iw); `dst`, `diff_dst`: (mb, c, oh, ow), all blocked.
///
/// # Cost
///
/// mb·c·oh·ow·kh·kw operations; each tensor crosses the memory bus once. No scratch.
///
/// # Source
///
/// PyTorch's `max_pool2d` and `avg_pool2d`. Of equal maxima the first in row-major order takes the whole gradient.
///
/// # Examples
///
/// ```
/// use lockstep_ops::{Isa, Maps, Pool, PoolDesc, PoolForward};
///
/// let isa = Isa::named("portable")?;
/// let pool = Pool::new(PoolDesc::global_average(Maps { c: 1, h: 1, w: 2 }), isa)?;
/// // Channel 0 of two pixels of 8 lanes.
/// let (mut src, mut dst) = ([0.0; 16], [0.0; 8]);
/// (src[0], src[8]) = (1.0, 4.0);
/// pool.forward(0, PoolForward { mb: 1, src: &src, dst: dst.as_mut_slice().into() });
/// assert_eq!(dst[0], 2.5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Pool {
    desc: PoolDesc,
    isa: Isa,
    pub(super) geometry: Geometry,
    src: TensorLayout,
    dst: TensorLayout,
    grain: Grain,
}

/// Where the windows lie, and what the kernels divide by.
#[derive(Debug, Clone)]
pub(super) struct Geometry {
    pub(super) rows: Axis,
    pub(super) cols: Axis,
    /// Rows and columns of a window.
    pub(super) kernel: (usize, usize),
    /// Whether windows lie side by side from the first pixel on, none cut off: each input has at most one.
    pub(super) tiled: bool,
    pub(super) iw: usize,
    pub(super) ow: usize,
    /// Per output pixel: one over the divisor of an average.
    pub(super) inverse: Vec<f32>,
}

/// The tensors of a forward block.
#[derive(Debug)]
pub struct PoolForward<'a> {
    /// Samples.
    pub mb: usize,
    /// The input.
    pub src: &'a [f32],
    /// The output.
    pub dst: Tiles<'a>,
}

/// The tensors of a backward block.
#[derive(Debug)]
pub struct PoolBackward<'a> {
    /// Samples.
    pub mb: usize,
    /// The input of the forward pass, from which the maxima are found again. `None` if `diff_src` holds it, which is for maxima of
    /// windows that [tile](Pool::is_tiled) the map. An average reads it only where it is the value of an
    /// [activation](PoolDesc::src_activation); otherwise it is not needed.
    pub src: Option<&'a [f32]>,
    /// The gradient of the output.
    pub diff_dst: &'a [f32],
    /// The gradient of the input, which is overwritten.
    pub diff_src: Tiles<'a>,
}

impl Pool {
    /// Plans the layer.
    ///
    /// # Errors
    ///
    /// As [`PoolDesc::dst`].
    pub fn new(desc: PoolDesc, isa: Isa) -> Result<Pool, ShapeError> {
        let maps = desc.dst()?;
        let layout = Layout::Blocked(isa.lanes());
        let src = TensorLayout { maps: desc.src(), layout };
        let dst = TensorLayout { maps, layout };
        let rows = Axis::new(desc.vertical(), maps.h);
        let cols = Axis::new(desc.horizontal(), maps.w);
        let tiled = (desc.sh, desc.sw, desc.ph, desc.pw) == (desc.kh, desc.kw, 0, 0)
            && rows.inputs.iter().all(|y| y.len() == desc.kh)
            && cols.inputs.iter().all(|x| x.len() == desc.kw);
        let inverse = inverse_counts(desc.kind, &rows, &cols);
        let plane_bytes = size_of::<f32>() * (plane_len(src) + plane_len(dst));
        Ok(Pool {
            desc,
            isa,
            geometry: Geometry {
                rows,
                cols,
                kernel: (desc.kh, desc.kw),
                tiled,
                iw: desc.iw,
                ow: maps.w,
                inverse,
            },
            src,
            dst,
            grain: Grain::new(plane_bytes),
        })
    }

    /// What the layer was planned for.
    pub fn desc(&self) -> &PoolDesc {
        &self.desc
    }

    /// The shape of the output.
    pub fn dst_maps(&self) -> Maps {
        self.dst.maps
    }

    /// Whether windows lie side by side from the first pixel on, none cut off. Each input then has one window at most, and the
    /// gradient of a maximum can take its place.
    pub fn is_tiled(&self) -> bool {
        self.geometry.tiled
    }

    /// The number of blocks of the forward pass.
    pub fn forward_blocks(&self, mb: usize) -> usize {
        self.grain.blocks(self.planes(mb))
    }

    /// Computes one block of the output.
    ///
    /// # Panics
    ///
    /// If a buffer is shorter than `mb` samples.
    pub fn forward(&self, block: usize, io: PoolForward<'_>) {
        let PoolForward { mb, src, mut dst } = io;
        expect_len("pool forward", "src", src.len(), self.src.len(mb));
        expect_len("pool forward", "dst", dst.len(), self.dst.len(mb));
        let planes = self.grain.pieces(block, self.planes(mb));
        let kernel = Planes {
            geometry: &self.geometry,
            src: &src[elements(&planes, plane_len(self.src))],
            dst: dst.tile(elements(&planes, plane_len(self.dst))),
        };
        match self.desc.kind {
            PoolKind::Max => self.isa.dispatch(max::Forward(kernel)),
            PoolKind::Average { .. } => self.isa.dispatch(average::Forward(kernel)),
        }
    }

    /// The number of blocks of the backward pass.
    pub fn backward_blocks(&self, mb: usize) -> usize {
        self.forward_blocks(mb)
    }

    /// Computes one block of the gradient of the input.
    ///
    /// Where each maximum came from is not stored but found again from `src`, which is read anyway to compare: an
    /// index tensor would be memory traffic of the size of `dst`, the search stays in the first-level cache. `dst`
    /// itself is not read, so an in-place layer may follow.
    ///
    /// # Panics
    ///
    /// If a buffer is missing or shorter than `mb` samples.
    pub fn backward(&self, block: usize, io: PoolBackward<'_>) {
        let PoolBackward { mb, src, diff_dst, mut diff_src } = io;
        expect_len("pool backward", "diff_dst", diff_dst.len(), self.dst.len(mb));
        expect_len("pool backward", "diff_src", diff_src.len(), self.src.len(mb));
        let planes = self.grain.pieces(block, self.planes(mb));
        let inputs = elements(&planes, plane_len(self.src));
        let kernel = Planes {
            geometry: &self.geometry,
            src: &diff_dst[elements(&planes, plane_len(self.dst))],
            dst: diff_src.tile(inputs.clone()),
        };
        let (is_max, activation) = (self.desc.kind == PoolKind::Max, self.desc.src_activation);
        let in_place = is_max && self.geometry.tiled && src.is_none();
        let needed = (is_max || activation.is_some()) && !in_place;
        let needed = if needed { self.src.len(mb) } else { 0 };
        expect_len("pool backward", "src", src.map_or(0, <[f32]>::len), needed);
        let input = src.map(|src| &src[inputs]);
        if is_max {
            self.isa.dispatch(max::Backward { activation, input, diff: kernel });
        } else {
            let input = input.unwrap_or_default();
            self.isa.dispatch(average::Backward { activation, input, diff: kernel });
        }
    }

    fn planes(&self, mb: usize) -> usize {
        mb * self.src.channel_blocks()
    }
}

/// Whole planes of a block: read from `src`, written to `dst` (in a backward pass, the two gradients).
pub(super) struct Planes<'a> {
    pub(super) geometry: &'a Geometry,
    pub(super) src: &'a [f32],
    pub(super) dst: &'a mut [f32],
}

/// Elements of one sample of one channel block.
fn plane_len(layout: TensorLayout) -> usize {
    layout.sample_len() / layout.channel_blocks()
}

fn elements(planes: &Range<usize>, plane_len: usize) -> Range<usize> {
    planes.start * plane_len..planes.end * plane_len
}

fn inverse_counts(kind: PoolKind, rows: &Axis, cols: &Axis) -> Vec<f32> {
    let counts = |axis: &Axis| match kind {
        PoolKind::Average { include_pad: true } => axis.padded.clone(),
        _ => axis.inputs.iter().map(Range::len).collect::<Vec<_>>(),
    };
    let (tall, wide) = (counts(rows), counts(cols));
    tall.iter().flat_map(|y| wide.iter().map(move |x| 1.0 / (y * x) as f32)).collect()
}
