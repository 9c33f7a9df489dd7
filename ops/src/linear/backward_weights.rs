//! The gradients of weights and bias: diff_wei = diff_dst^T * src, diff_bia = the sum of diff_dst.
//!
//! The sum runs over samples. Where samples are a multiple of [`ALIASED`] elements apart, as is usual, their lines
//! compete for the same few places of the first-level cache, so each block copies its part of them into scratch first.

use std::ops::Range;

use super::Linear;
use super::blocking::{Grid, STREAM_SAMPLES, panel_depth, panels, tile_rows};
use super::tile::{Lhs, Output, Rhs, Start, Strip};
use crate::Tiles;
use crate::extent::expect_len;
use crate::simd::{Kernel, Simd};

/// Input features whose samples are in scratch at a time: whole vectors, and whole register tiles, of any width.
const STRIP: usize = 48;

const _: () = assert!(STRIP.is_multiple_of(tile_rows(8)) && STRIP.is_multiple_of(tile_rows(16)));
const _: () = assert!(STRIP.is_multiple_of(8) && STRIP.is_multiple_of(16));

/// At a distance that is a multiple of 1 KiB, the samples of a panel share four (or fewer) of the 64 sets of a first-level
/// cache, 48 lines where there are 12 ways. Measured with 1024 features, AVX2: 59 % of peak without copy, 85 % with one;
/// at a distance that does not alias a copy costs a tenth.
const ALIASED: usize = 256;

/// Input features of a block, if there are as many: each vector of `diff_dst` that comes into cache meets them all.
const MIN_FEATURES: usize = 2 * STRIP;

/// The tensors of a block of the gradients of weights and bias.
#[derive(Debug)]
pub struct LinearBackwardWeights<'a> {
    /// Samples.
    pub mb: usize,
    /// The input of the forward pass.
    pub src: &'a [f32],
    /// The gradient of the output.
    pub diff_dst: &'a [f32],
    /// The gradient of the weights, packed, which is overwritten.
    pub diff_wei: Tiles<'a>,
    /// The gradient of the bias, packed, which is overwritten; `None` if the layer has none.
    pub diff_bia: Option<Tiles<'a>>,
    /// Scratch of [`Linear::backward_weights_scratch_len`] elements, of any values.
    pub scratch: &'a mut [f32],
}

impl Linear {
    /// Elements of scratch that a worker needs for [`Self::backward_weights`].
    pub fn backward_weights_scratch_len(&self) -> usize {
        panel_depth(self.isa.lanes()) * (STRIP + self.oc.full_width())
    }

    /// The number of blocks of the gradients of weights and bias; also without samples there are some, which write
    /// zeros.
    pub fn backward_weights_blocks(&self, mb: usize) -> usize {
        self.backward_weights_grid(mb).blocks()
    }

    /// Computes one block of the gradients of weights and bias, sums over `mb` samples.
    ///
    /// # Panics
    ///
    /// If a buffer is shorter than `mb` samples, the weights or the bias than the packed ones, the scratch than
    /// [`Self::backward_weights_scratch_len`], or a bias is given to a layer without, or not to one with.
    pub fn backward_weights(&self, block: usize, io: LinearBackwardWeights<'_>) {
        let op = "linear backward weights";
        expect_len(op, "src", io.src.len(), io.mb * self.ic.padded());
        expect_len(op, "diff_dst", io.diff_dst.len(), io.mb * self.oc.padded());
        expect_len(op, "diff_wei", io.diff_wei.len(), self.wei_len());
        assert!(
            io.diff_bia.is_some() == self.desc.bias,
            "{op}: bias given and bias planned differ"
        );
        if let Some(diff_bia) = &io.diff_bia {
            expect_len(op, "diff_bia", diff_bia.len(), self.bia_len());
        }
        expect_len(op, "scratch", io.scratch.len(), self.backward_weights_scratch_len());
        let (features, groups) = self.backward_weights_grid(io.mb).block(block);
        self.isa.dispatch(BackwardWeights { plan: self, features, groups, io });
    }

    /// Input features by groups of output features.
    fn backward_weights_grid(&self, mb: usize) -> Grid {
        let width = self.oc.full_width().min(self.oc.padded());
        let column_flop = 2 * mb * width;
        Grid {
            rows: self.desc.in_features,
            columns: self.oc.count(),
            row_step: STRIP,
            min_rows: MIN_FEATURES,
            cell_flop: column_flop + 2 * STREAM_SAMPLES * width,
            column_flop,
        }
    }
}

struct BackwardWeights<'a> {
    plan: &'a Linear,
    features: Range<usize>,
    groups: Range<usize>,
    io: LinearBackwardWeights<'a>,
}

impl Kernel for BackwardWeights<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let BackwardWeights { plan, features, groups, io } = self;
        let LinearBackwardWeights { mb, src, diff_dst, mut diff_wei, mut diff_bia, scratch } = io;
        let (ic_stride, oc_stride) = (plan.ic.padded(), plan.oc.padded());
        let (src, diff_dst) = (&src[..mb * ic_stride], &diff_dst[..mb * oc_stride]);
        let (src_panel, diff_panel) = scratch.split_at_mut(panel_depth(S::LANES) * STRIP);
        // Loop 4: groups of output features.
        for group in groups.map(|group| plan.oc.group(group)) {
            // Loop 3: samples, so many that their gradients stay in the first-level cache while all features pass.
            for samples in panels(mb, S::LANES) {
                let rows = &diff_dst[samples.start * oc_stride..samples.end * oc_stride];
                let columns = group.first..group.first + group.width;
                let (diff, diff_stride) = near(simd, rows, oc_stride, columns, diff_panel);
                // Loop 2: input features, so many that they too stay there.
                for ic in features.clone().step_by(STRIP) {
                    let ics = ic..(ic + STRIP).min(features.end);
                    let rows = &src[samples.start * ic_stride..samples.end * ic_stride];
                    let columns = ic..ic + ics.len().next_multiple_of(S::LANES);
                    let (src, k_stride) = near(simd, rows, ic_stride, columns, src_panel);
                    let mut strip = Strip {
                        lhs: Lhs { src, row_stride: 1, k_stride },
                        rhs: Rhs { src: diff, stride: diff_stride, depth: samples.len() },
                        out: Output {
                            tiles: &mut diff_wei,
                            at: group.first * plan.desc.in_features + ic * group.width,
                            stride: group.width,
                            columns: group,
                            start: if samples.start > 0 { Start::Output } else { Start::Zero },
                        },
                    };
                    // Loop 1: a register tile of features at a time.
                    strip.multiply(simd, 0..ics.len());
                }
            }
            if let Some(diff_bia) = diff_bia.as_mut().filter(|_| features.start == 0) {
                let out = diff_bia.tile(group.first..group.first + group.width);
                sum_samples(simd, diff_dst, oc_stride, group.first, out);
            }
        }
    }
}

/// The same columns, a number of vectors, of all rows, which are `stride` apart: where they are, or copied to `panel` if
/// they alias. Also returns how far apart they are then.
#[inline(always)]
fn near<'a, S: Simd>(
    simd: S,
    rows: &'a [f32],
    stride: usize,
    columns: Range<usize>,
    panel: &'a mut [f32],
) -> (&'a [f32], usize) {
    if !stride.is_multiple_of(ALIASED) {
        // Without samples there is no first column either.
        return (rows.get(columns.start..).unwrap_or_default(), stride);
    }
    for (src, dst) in rows.chunks_exact(stride).zip(panel.chunks_exact_mut(columns.len())) {
        let src = src[columns.clone()].chunks_exact(S::LANES);
        for (src, dst) in src.zip(dst.chunks_exact_mut(S::LANES)) {
            simd.store(dst, simd.load(src));
        }
    }
    (panel, columns.len())
}

/// Sums up a few vectors of every sample.
#[inline(always)]
fn sum_samples<S: Simd>(simd: S, src: &[f32], stride: usize, first: usize, sums: &mut [f32]) {
    for (vector, out) in sums.chunks_exact_mut(S::LANES).enumerate() {
        let mut sum = simd.zero();
        for sample in src.chunks_exact(stride) {
            sum = simd.add(sum, simd.load(&sample[first + vector * S::LANES..]));
        }
        simd.store(out, sum);
    }
}
