//! The forward pass: dst = src * wei^T + bia.

use std::ops::Range;

use super::Linear;
use super::blocking::{Grid, STREAM_SAMPLES, panels, tile_rows};
use super::tile::{Lhs, Output, Rhs, Start, Strip};
use crate::Tiles;
use crate::extent::expect_len;
use crate::simd::{Kernel, Simd};

/// Samples of a block, if there are as many: each weight that comes from memory meets them all.
const MIN_SAMPLES: usize = 32;

/// The tensors of a forward block.
#[derive(Debug)]
pub struct LinearForward<'a> {
    /// Samples.
    pub mb: usize,
    /// The input.
    pub src: &'a [f32],
    /// The weights, packed.
    pub wei: &'a [f32],
    /// The bias, packed; `None` if the layer has none.
    pub bia: Option<&'a [f32]>,
    /// The output.
    pub dst: Tiles<'a>,
}

impl Linear {
    /// The number of blocks of the forward pass.
    pub fn forward_blocks(&self, mb: usize) -> usize {
        self.forward_grid(mb).blocks()
    }

    /// Computes one block of the output.
    ///
    /// # Panics
    ///
    /// If a buffer is shorter than `mb` samples, the weights or the bias than the packed ones, or a bias is given to
    /// a layer without, or not to one with.
    pub fn forward(&self, block: usize, io: LinearForward<'_>) {
        let op = "linear forward";
        expect_len(op, "src", io.src.len(), io.mb * self.ic.padded());
        expect_len(op, "wei", io.wei.len(), self.wei_len());
        expect_len(op, "dst", io.dst.len(), io.mb * self.oc.padded());
        assert!(io.bia.is_some() == self.desc.bias, "{op}: bias given and bias planned differ");
        if let Some(bia) = io.bia {
            expect_len(op, "bia", bia.len(), self.bia_len());
        }
        let (samples, groups) = self.forward_grid(io.mb).block(block);
        self.isa.dispatch(Forward { plan: self, samples, groups, io });
    }

    /// Samples by groups of output features.
    fn forward_grid(&self, mb: usize) -> Grid {
        let cell_flop = 2 * self.desc.in_features * self.oc.full_width().min(self.oc.padded());
        Grid {
            rows: mb,
            columns: self.oc.count(),
            row_step: tile_rows(self.isa.lanes()),
            min_rows: MIN_SAMPLES,
            cell_flop,
            column_flop: STREAM_SAMPLES * cell_flop,
        }
    }
}

struct Forward<'a> {
    plan: &'a Linear,
    samples: Range<usize>,
    groups: Range<usize>,
    io: LinearForward<'a>,
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Forward { plan, samples, groups, io: LinearForward { src, wei, bia, mut dst, .. } } =
            self;
        let ic_total = plan.desc.in_features;
        // Loop 3: groups of outputs, each with weights of its own.
        for group in groups.map(|group| plan.oc.group(group)) {
            let wei = &wei[group.first * ic_total..][..group.width * ic_total];
            // Loop 2: inputs, so far that their weights stay in the first-level cache while all samples pass.
            for ic in panels(ic_total, S::LANES) {
                let start = match bia {
                    _ if ic.start > 0 => Start::Output,
                    Some(bia) => Start::Bias(&bia[group.first..]),
                    None => Start::Zero,
                };
                let mut strip = Strip {
                    lhs: Lhs { src: &src[ic.start..], row_stride: plan.ic.padded(), k_stride: 1 },
                    rhs: Rhs {
                        src: &wei[ic.start * group.width..],
                        stride: group.width,
                        depth: ic.len(),
                    },
                    out: Output {
                        tiles: &mut dst,
                        at: group.first,
                        stride: plan.oc.padded(),
                        columns: group,
                        start,
                    },
                };
                // Loop 1: samples, a register tile at a time.
                strip.multiply(simd, samples.clone());
            }
        }
    }
}
