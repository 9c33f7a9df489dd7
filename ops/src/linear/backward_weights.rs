//! The gradients of weights and bias: diff_wei = diff_dst^T * src, diff_bia = the sum of diff_dst.
//!
//! ```text
//! loop 5: panels of samples; their src of the block's ic is copied to scratch, in strips as wide as a tile is high
//! loop 4:   a few groups of oc; their diff_dst is copied to scratch too
//! loop 3:     groups of oc: diff_dst stays in the first-level cache,
//! loop 2:       while all strips of ic pass, which stay in the second-level one,
//! loop 1:         a register tile at a time: rows of ic, vectors of oc
//! ```
//!
//! Where samples lie, they are kilobytes apart: each would need a page of its own, and all would compete for the same few
//! places of the first-level cache.

use std::ops::Range;

use super::Linear;
use super::blocking::{Grid, Side, VECTORS, panels, tile_rows};
use super::packing::{GROUP, Group};
use super::tile::{Lhs, Rhs, accumulate, load_sums, store_sums};
use crate::Tiles;
use crate::extent::expect_len;
use crate::sgd::GradientSink;
use crate::simd::{Kernel, Simd};

/// Samples of a panel. More than of the other passes' terms: sums that do not come back need not be read, and those of
/// this pass are too many for the cache.
pub(super) const DEPTH: usize = 256;

/// Input features of a block at most: with their samples they are half a MiB.
const MAX_INPUTS: usize = 512;

/// Output features of a block at most, so that there are blocks enough.
const MAX_OUTPUTS: usize = 1024;

/// Output features whose gradients are copied at a time: neighbors lie side by side, and come from memory together.
pub(super) const COPIED_OUTPUTS: usize = 128;

/// Samples that are copied to strips together.
const NEAR_SAMPLES: usize = 8;

/// Elements of the strips of inputs; the last strip is filled up.
pub(super) const fn strips_len(lanes: usize) -> usize {
    let rows = tile_rows(lanes);
    (MAX_INPUTS + rows).div_ceil(rows) * strip_len(rows, DEPTH)
}

/// The tensors of a block of the gradients of weights and bias.
#[derive(Debug)]
pub struct LinearBackwardWeights<'a> {
    /// Samples.
    pub mb: usize,
    /// The input of the forward pass.
    pub src: &'a [f32],
    /// The gradient of the output.
    pub diff_dst: &'a [f32],
    /// For the gradient of the weights, packed.
    pub diff_wei: GradientSink<'a>,
    /// For the gradient of the bias, packed; `None` if the layer has none.
    pub diff_bia: Option<GradientSink<'a>>,
    /// Scratch of [`Linear::backward_weights_scratch_len`] elements, of any values.
    pub scratch: &'a mut [f32],
}

impl Linear {
    /// Elements of scratch that a worker needs for [`Self::backward_weights`].
    pub fn backward_weights_scratch_len(&self) -> usize {
        let lanes = self.isa.lanes();
        strips_len(lanes) + DEPTH * COPIED_OUTPUTS
    }

    /// The number of blocks of the gradients of weights and bias; also without samples there are some, which write
    /// zeros.
    pub fn backward_weights_blocks(&self, _mb: usize) -> usize {
        self.backward_weights_grid().blocks()
    }

    /// Computes one block of the gradients of weights and bias, sums over `mb` samples, and stores them. Steps are made by
    /// [`Self::sliced_backward_weights`], which has the sums over all samples at once.
    ///
    /// # Panics
    ///
    /// If the gradients are not to be stored, a buffer is shorter than `mb` samples, the weights or the bias than the packed ones, the scratch than
    /// [`Self::backward_weights_scratch_len`], or a bias is given to a layer without, or not to one with.
    pub fn backward_weights(&self, block: usize, io: LinearBackwardWeights<'_>) {
        self.check_backward_weights(&io, self.backward_weights_scratch_len());
        let (inputs, outputs) = self.backward_weights_grid().block(block);
        let LinearBackwardWeights { mb, src, diff_dst, diff_wei, diff_bia, scratch } = io;
        let mut diff_wei = stored(diff_wei);
        let mut diff_bia = diff_bia.map(stored);
        let lanes = self.isa.lanes();
        let (strips, copied) = scratch.split_at_mut(strips_len(lanes));
        for samples in panels(mb, DEPTH) {
            let (stride, samples, inputs) = (self.ic.padded(), &samples, &inputs);
            self.isa.dispatch(CopyStrips { src, stride, samples, inputs, strips });
            for first in outputs.clone().step_by(COPIED_OUTPUTS) {
                let outputs = first..(first + COPIED_OUTPUTS).min(outputs.end);
                let (plan, panel) = (self, &mut *copied);
                self.isa.dispatch(CopyGroups { plan, diff_dst, samples, outputs: &outputs, panel });
                let mut panel = &*copied;
                for group in self.oc.groups(&outputs) {
                    let at = group.first * self.desc.in_features + inputs.start * group.width;
                    for columns in group.tiles(lanes) {
                        let (diff_dst, rest) = panel.split_at(samples.len() * columns.len());
                        panel = rest;
                        let bia = group.first + columns.start..group.first + columns.end;
                        self.isa.dispatch(Product {
                            strips,
                            diff_dst,
                            samples,
                            vectors: columns.len() / lanes,
                            rows: inputs.len(),
                            out: &mut diff_wei,
                            at: at + columns.start,
                            stride: group.width,
                        });
                        if let Some(diff_bia) = diff_bia.as_mut().filter(|_| inputs.start == 0) {
                            let sums = diff_bia.tile(bia);
                            if samples.start == 0 {
                                sums.fill(0.0);
                            }
                            self.isa.dispatch(SumSamples { src: diff_dst, sums });
                        }
                    }
                    if samples.end == mb {
                        clear_padding(&mut diff_wei, at, inputs.len(), &group);
                    }
                }
            }
        }
    }

    /// Panics where [`Self::backward_weights`] says so.
    pub(super) fn check_backward_weights(
        &self,
        io: &LinearBackwardWeights<'_>,
        scratch_len: usize,
    ) {
        let op = "linear backward weights";
        expect_len(op, "src", io.src.len(), io.mb * self.ic.padded());
        expect_len(op, "diff_dst", io.diff_dst.len(), io.mb * self.oc.padded());
        io.diff_wei.expect_len(op, "diff_wei", self.wei_len());
        assert!(
            io.diff_bia.is_some() == self.desc.bias,
            "{op}: bias given and bias planned differ"
        );
        if let Some(diff_bia) = &io.diff_bia {
            diff_bia.expect_len(op, "diff_bia", self.bia_len());
        }
        expect_len(op, "scratch", io.scratch.len(), scratch_len);
    }

    /// Input features by output features.
    pub(super) fn backward_weights_grid(&self) -> Grid {
        let (step, len) = (tile_rows(self.isa.lanes()), self.desc.in_features);
        Grid::new(
            Side { len, step, min: 192, good: 384, max: MAX_INPUTS },
            Side {
                len: self.desc.out_features,
                step: GROUP,
                min: 128,
                good: 384,
                max: MAX_OUTPUTS,
            },
            self.workers,
        )
    }
}

fn stored(sink: GradientSink<'_>) -> Tiles<'_> {
    match sink {
        GradientSink::Store(gradient) => gradient,
        GradientSink::Step(_) => {
            panic!("linear backward weights: a step needs all samples at once")
        }
    }
}

/// Copies the inputs of `samples`, which are `stride` apart, to strips `[inputs of a tile][sample][input]`.
pub(super) struct CopyStrips<'a> {
    pub(super) src: &'a [f32],
    pub(super) stride: usize,
    pub(super) samples: &'a Range<usize>,
    pub(super) inputs: &'a Range<usize>,
    pub(super) strips: &'a mut [f32],
}

impl Kernel for CopyStrips<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let CopyStrips { src, stride, samples, inputs, strips } = self;
        let rows = tile_rows(S::LANES);
        let len = strip_len(rows, samples.len());
        // A few samples at a time: so many that a strip's cache lines are filled while they are in the first-level cache,
        // and so few that the lines of all these samples fit there.
        for first in samples.clone().step_by(NEAR_SAMPLES) {
            let near = first..(first + NEAR_SAMPLES).min(samples.end);
            for (input, strip) in inputs.clone().step_by(rows).zip(strips.chunks_exact_mut(len)) {
                for sample in near.clone() {
                    simd.prefetch(src, (sample + NEAR_SAMPLES) * stride + input);
                    let src = &src[sample * stride..(sample + 1) * stride];
                    // A vector is wider than a strip: what it writes too much the next sample overwrites.
                    let values = if input + S::LANES <= stride {
                        simd.load(&src[input..])
                    } else {
                        simd.load_partial(&src[input..])
                    };
                    simd.store(&mut strip[(sample - samples.start) * rows..], values);
                }
            }
        }
    }
}

/// Elements from one strip to the next: room for a whole vector at the last sample, and a whole number of cache lines,
/// which is odd, so that strips do not compete for places in the cache while they are filled.
pub(super) const fn strip_len(rows: usize, samples: usize) -> usize {
    (rows * samples + 16).next_multiple_of(32) + 16
}

/// Copies the gradients of some output features, a register tile's at a time, to `[vectors][sample][oc]`.
pub(super) struct CopyGroups<'a> {
    pub(super) plan: &'a Linear,
    pub(super) diff_dst: &'a [f32],
    pub(super) samples: &'a Range<usize>,
    pub(super) outputs: &'a Range<usize>,
    pub(super) panel: &'a mut [f32],
}

impl Kernel for CopyGroups<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let CopyGroups { plan, diff_dst, samples, outputs, panel } = self;
        let stride = plan.oc.padded();
        let columns = outputs.start..outputs.end.next_multiple_of(S::LANES);
        let width = VECTORS * S::LANES;
        for (i, sample) in samples.clone().enumerate() {
            for column in columns.clone().step_by(16) {
                simd.prefetch(diff_dst, (sample + NEAR_SAMPLES) * stride + column);
            }
            let src = &diff_dst[sample * stride..][columns.clone()];
            let panels = panel.chunks_mut(samples.len() * width);
            for (src, panel) in src.chunks(width).zip(panels) {
                let dst = &mut panel[i * src.len()..];
                for (src, dst) in src.chunks_exact(S::LANES).zip(dst.chunks_exact_mut(S::LANES)) {
                    simd.store(dst, simd.load(src));
                }
            }
        }
    }
}

/// The product of all strips and some vectors of gradients.
struct Product<'a, 't> {
    strips: &'a [f32],
    diff_dst: &'a [f32],
    samples: &'a Range<usize>,
    /// Vectors of output features.
    vectors: usize,
    /// Input features.
    rows: usize,
    out: &'a mut Tiles<'t>,
    /// Where the first of their weights is.
    at: usize,
    /// From one input feature to the next.
    stride: usize,
}

impl Kernel for Product<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        match (tile_rows(S::LANES), self.vectors) {
            (12, 1) => self.multiply::<S, 12, 1>(simd),
            (12, _) => self.multiply::<S, 12, VECTORS>(simd),
            (_, 1) => self.multiply::<S, 6, 1>(simd),
            _ => self.multiply::<S, 6, VECTORS>(simd),
        }
    }
}

impl Product<'_, '_> {
    #[inline(always)]
    fn multiply<S: Simd, const R: usize, const N: usize>(self, simd: S) {
        let Product { strips, diff_dst, samples, rows, out: tiles, at, stride, .. } = self;
        let depth = samples.len();
        let strips = strips.chunks_exact(strip_len(R, depth));
        for (row, src) in (0..rows).step_by(R).zip(strips) {
            let filled = (rows - row).min(R);
            let at = at + row * stride;
            let out = tiles.tile(at..at + (filled - 1) * stride + N * S::LANES);
            // Rows that do not exist start with anything and end nowhere.
            let present = if samples.start == 0 { 0 } else { filled };
            let sums = load_sums::<S, R, N>(simd, out, stride, present);
            let lhs = Lhs { src, row_stride: 1, k_stride: R };
            let rhs = Rhs { src: diff_dst, k_stride: N * S::LANES };
            let sums = accumulate(simd, sums, lhs, rhs, depth);
            store_sums(simd, sums, out, stride, filled);
        }
    }
}

/// Padding must stay zero, which a product of a zero and an infinity would not be.
pub(super) fn clear_padding(diff_wei: &mut Tiles<'_>, at: usize, rows: usize, group: &Group) {
    if group.filled < group.width {
        for row in 0..rows {
            let at = at + row * group.width;
            diff_wei.tile(at + group.filled..at + group.width).fill(0.0);
        }
    }
}

/// Adds the vectors of every sample to `sums`, which are as wide.
struct SumSamples<'a> {
    src: &'a [f32],
    sums: &'a mut [f32],
}

impl Kernel for SumSamples<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let width = self.sums.len();
        for (vector, out) in self.sums.chunks_exact_mut(S::LANES).enumerate() {
            let mut sum = simd.load(out);
            for sample in self.src.chunks_exact(width) {
                sum = simd.add(sum, simd.load(&sample[vector * S::LANES..]));
            }
            simd.store(out, sum);
        }
    }
}
