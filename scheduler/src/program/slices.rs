//! The slices of a batch normalization's input: who cuts them, how many there are, how many values each has.

use lockstep_graph::LayerId;
use lockstep_ops::TensorRegion;

use super::kernel::{Kernels, Op};

/// Who cuts the input of a batch normalization into the slices of its statistics.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slices<'a> {
    /// The convolution that computes the statistics of what it writes, or the normalization itself.
    by: &'a Op,
    /// Pixels of a row.
    width: usize,
}

impl<'a> Slices<'a> {
    /// Those of the statistics of the forward pass.
    pub(super) fn of_statistics(kernels: &'a Kernels, norm: LayerId) -> Self {
        let kernel = kernels.get(norm);
        let by = kernel.statistics_from.map_or(&kernel.op, |layer| &kernels.get(layer).op);
        Self { by, width: kernel.layout.maps.w }
    }

    /// The number of slices of `mb` samples.
    pub(super) fn number(&self, mb: usize) -> usize {
        match self.by {
            _ if mb == 0 => 0,
            Op::Conv2d(conv) => conv.forward_slices(mb),
            Op::BatchNorm(norm) => norm.stats_slices(mb),
            _ => unreachable!("no other layer computes statistics"),
        }
    }

    /// The most slices that up to `capacity` samples make.
    pub(super) fn most(&self, capacity: usize) -> usize {
        (1..=capacity).map(|mb| self.number(mb)).max().unwrap_or(0)
    }

    /// What a block reads or writes.
    pub(super) fn region(&self, block: usize, mb: usize) -> TensorRegion {
        match self.by {
            Op::Conv2d(conv) => conv.forward_region(block, mb).expect("one group fills vectors"),
            Op::BatchNorm(norm) => norm.stats_region(block, mb),
            _ => unreachable!("no other layer computes statistics"),
        }
    }

    /// Values a channel of every slice of `mb` samples, in order.
    pub(super) fn counts(&self, mb: usize) -> impl Iterator<Item = u64> {
        (0..self.number(mb)).map(move |slice| {
            let region = self.region(slice, mb);
            (region.samples.len() * region.rows.len() * self.width) as u64
        })
    }
}
