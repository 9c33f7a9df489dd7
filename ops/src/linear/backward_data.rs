//! The gradient of the input: diff_src = diff_dst * wei.
//!
//! Vectors run over input features, but packed weights have vectors of output features. A transposed copy of all
//! weights would double their memory, so each block transposes the panel that is next into scratch, where it stays
//! in the first-level cache while all samples pass.

use std::ops::Range;

use super::Linear;
use super::blocking::{Grid, STREAM_SAMPLES, panel_depth, panels, tile_rows};
use super::tile::{Lhs, Output, Rhs, Start, Strip};
use super::transpose::PackedWeights;
use crate::Tiles;
use crate::extent::expect_len;
use crate::simd::{Kernel, Simd};

/// Samples of a block, if there are as many: each transposed weight should be used by some.
const MIN_SAMPLES: usize = 64;

/// The tensors of a block of the input's gradient.
#[derive(Debug)]
pub struct LinearBackwardData<'a> {
    /// Samples.
    pub mb: usize,
    /// The gradient of the output.
    pub diff_dst: &'a [f32],
    /// The weights, packed.
    pub wei: &'a [f32],
    /// The gradient of the input.
    pub diff_src: Tiles<'a>,
    /// Scratch of [`Linear::backward_data_scratch_len`] elements, of any values.
    pub scratch: &'a mut [f32],
}

impl Linear {
    /// Elements of scratch that a worker needs for [`Self::backward_data`].
    pub fn backward_data_scratch_len(&self) -> usize {
        panel_depth(self.isa.lanes()) * self.ic.full_width().min(self.ic.padded())
    }

    /// The number of blocks of the input's gradient.
    pub fn backward_data_blocks(&self, mb: usize) -> usize {
        self.backward_data_grid(mb).blocks()
    }

    /// Computes one block of the gradient of the input.
    ///
    /// # Panics
    ///
    /// If a buffer is shorter than `mb` samples, the weights than the packed ones, or the scratch than
    /// [`Self::backward_data_scratch_len`].
    pub fn backward_data(&self, block: usize, io: LinearBackwardData<'_>) {
        let op = "linear backward data";
        expect_len(op, "diff_dst", io.diff_dst.len(), io.mb * self.oc.padded());
        expect_len(op, "wei", io.wei.len(), self.wei_len());
        expect_len(op, "diff_src", io.diff_src.len(), io.mb * self.ic.padded());
        expect_len(op, "scratch", io.scratch.len(), self.backward_data_scratch_len());
        let (samples, groups) = self.backward_data_grid(io.mb).block(block);
        self.isa.dispatch(BackwardData { plan: self, samples, groups, io });
    }

    /// Samples by groups of input features.
    fn backward_data_grid(&self, mb: usize) -> Grid {
        let cell_flop = 2 * self.desc.out_features * self.ic.full_width().min(self.ic.padded());
        Grid {
            rows: mb,
            columns: self.ic.count(),
            row_step: tile_rows(self.isa.lanes()),
            min_rows: MIN_SAMPLES,
            cell_flop,
            column_flop: STREAM_SAMPLES * cell_flop,
        }
    }
}

struct BackwardData<'a> {
    plan: &'a Linear,
    samples: Range<usize>,
    groups: Range<usize>,
    io: LinearBackwardData<'a>,
}

impl Kernel for BackwardData<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let BackwardData { plan, samples, groups, io } = self;
        let LinearBackwardData { diff_dst, wei, mut diff_src, scratch, .. } = io;
        let weights = PackedWeights { wei, ic_total: plan.desc.in_features, oc: plan.oc };
        // Loop 3: groups of input features.
        for group in groups.map(|group| plan.ic.group(group)) {
            // Loop 2: output features, so many that their weights fit into scratch and the first-level cache.
            for oc in panels(plan.desc.out_features, S::LANES) {
                weights.transpose(simd, &oc, &group, scratch);
                let mut strip = Strip {
                    lhs: Lhs {
                        src: &diff_dst[oc.start..],
                        row_stride: plan.oc.padded(),
                        k_stride: 1,
                    },
                    rhs: Rhs { src: scratch, stride: group.width, depth: oc.len() },
                    out: Output {
                        tiles: &mut diff_src,
                        at: group.first,
                        stride: plan.ic.padded(),
                        columns: group,
                        start: if oc.start > 0 { Start::Output } else { Start::Zero },
                    },
                };
                // Loop 1: samples, a register tile at a time.
                strip.multiply(simd, samples.clone());
            }
        }
    }
}
