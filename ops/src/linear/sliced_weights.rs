//! The gradients of weights and bias where the samples are cut into slices, whose sums are added in a balanced tree.
//!
//! A register tile's sums over all slices are computed one after another and added while they are in registers and in the
//! first-level cache, so that nothing but the whole gradient goes to memory. A panel therefore has all samples, and as many
//! input features as then fit scratch:
//!
//! ```text
//! loop 4: a few ic of the block; their src is copied to scratch, in strips
//! loop 3:   a few groups of oc; their diff_dst is copied to scratch too
//! loop 2:     vectors of oc
//! loop 1:       half a register tile at a time, so that the sums of two slices fit the registers
//! ```

use super::Linear;
use super::backward_weights::{
    COPIED_OUTPUTS, CopyGroups, CopyStrips, DEPTH, LinearBackwardWeights, clear_padding, strip_len,
    strips_len,
};
use super::blocking::{VECTORS, tile_rows};
use super::packing::GROUP;
use super::tile::{Lhs, Rhs, accumulate, load_sums, store_sums};
use crate::simd::{Kernel, Simd};
use crate::slices::{MAX_LEVELS, merges_after};
use crate::{SampleSlices, Tiles};

impl Linear {
    /// Elements of scratch that a worker needs for [`Self::sliced_backward_weights`] of up to `mb` samples.
    pub fn sliced_backward_weights_scratch_len(&self, mb: usize) -> usize {
        self.sliced_strips_len(mb) + copied_len(mb)
    }

    /// Room for the strips of a block's inputs, or for one strip if that is longer.
    fn sliced_strips_len(&self, mb: usize) -> usize {
        let lanes = self.isa.lanes();
        strips_len(lanes).max(strip_len(tile_rows(lanes), mb))
    }

    /// [`Self::backward_weights`] whose sums over slices of the samples are added in a balanced tree. Scratch:
    /// [`Self::sliced_backward_weights_scratch_len`] elements.
    ///
    /// # Panics
    ///
    /// As [`Self::backward_weights`], and if the slices have not `mb` samples.
    pub fn sliced_backward_weights(
        &self,
        block: usize,
        slices: &SampleSlices,
        io: LinearBackwardWeights<'_>,
    ) {
        let samples = slices.mb();
        assert_eq!(samples, io.mb, "linear backward weights: samples of all slices");
        self.check_backward_weights(&io, self.sliced_backward_weights_scratch_len(samples));
        let (block_inputs, block_outputs) = self.backward_weights_grid().block(block);
        let LinearBackwardWeights { mb, src, diff_dst, mut diff_wei, mut diff_bia, scratch } = io;
        let lanes = self.isa.lanes();
        let (strips, copied) = scratch.split_at_mut(self.sliced_strips_len(mb));
        let rows = tile_rows(lanes);
        let inputs_at_once = strips.len() / strip_len(rows, mb) * rows;
        let outputs_at_once = outputs_at_once(mb);
        let (stride, samples) = (self.ic.padded(), &(0..mb));
        for first in block_inputs.clone().step_by(inputs_at_once) {
            let inputs = &(first..(first + inputs_at_once).min(block_inputs.end));
            self.isa.dispatch(CopyStrips { src, stride, samples, inputs, strips });
            for first in block_outputs.clone().step_by(outputs_at_once) {
                let outputs = &(first..(first + outputs_at_once).min(block_outputs.end));
                let (plan, panel) = (self, &mut *copied);
                self.isa.dispatch(CopyGroups { plan, diff_dst, samples, outputs, panel });
                let mut panel = &*copied;
                for group in self.oc.groups(outputs) {
                    let at = group.first * self.desc.in_features + inputs.start * group.width;
                    for columns in group.tiles(lanes) {
                        let (diff_dst, rest) = panel.split_at(mb * columns.len());
                        panel = rest;
                        let bia = group.first + columns.start..group.first + columns.end;
                        self.isa.dispatch(Product {
                            strips,
                            diff_dst,
                            slices,
                            vectors: columns.len() / lanes,
                            rows: inputs.len(),
                            out: &mut diff_wei,
                            at: at + columns.start,
                            stride: group.width,
                        });
                        if let Some(diff_bia) = diff_bia.as_mut().filter(|_| inputs.start == 0) {
                            let sums = diff_bia.tile(bia);
                            self.isa.dispatch(SumSamples { src: diff_dst, slices, sums });
                        }
                    }
                    clear_padding(&mut diff_wei, at, inputs.len(), &group);
                }
            }
        }
    }
}

/// Output features whose gradients are copied at a time: whole groups, as many as fit where a panel of fewer samples does.
fn outputs_at_once(mb: usize) -> usize {
    (DEPTH * COPIED_OUTPUTS / mb.max(1) / GROUP * GROUP).clamp(GROUP, COPIED_OUTPUTS)
}

fn copied_len(mb: usize) -> usize {
    (DEPTH * COPIED_OUTPUTS).max(mb * GROUP)
}

/// The product of all strips and some vectors of gradients, over all slices.
struct Product<'a, 't> {
    strips: &'a [f32],
    diff_dst: &'a [f32],
    slices: &'a SampleSlices,
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
            (12, 1) => self.multiply::<S, 12, 12, 1>(simd),
            (12, _) => self.multiply::<S, 12, 6, VECTORS>(simd),
            (_, 1) => self.multiply::<S, 6, 6, 1>(simd),
            _ => self.multiply::<S, 6, 3, VECTORS>(simd),
        }
    }
}

impl Product<'_, '_> {
    /// Strips are `W` rows wide, sums `R` rows high.
    #[inline(always)]
    fn multiply<S: Simd, const W: usize, const R: usize, const N: usize>(self, simd: S) {
        let Product { strips, diff_dst, slices, rows, out: tiles, at, stride, .. } = self;
        let strips = strips.chunks_exact(strip_len(W, slices.mb()));
        for (strip_row, strip) in (0..rows).step_by(W).zip(strips) {
            for row in (strip_row..rows.min(strip_row + W)).step_by(R) {
                let filled = (rows - row).min(R);
                let at = at + row * stride;
                let out = tiles.tile(at..at + (filled - 1) * stride + N * S::LANES);
                let src = &strip[row - strip_row..];
                let sums = tree_of_slices::<S, W, R, N>(simd, slices, src, diff_dst);
                store_sums(simd, sums, out, stride, filled);
            }
        }
    }
}

/// The sums of a tile over all slices, added in a balanced tree. Two slices at a time: their sums are in registers, those of
/// more on a stack.
#[inline(always)]
fn tree_of_slices<S: Simd, const W: usize, const R: usize, const N: usize>(
    simd: S,
    slices: &SampleSlices,
    src: &[f32],
    diff_dst: &[f32],
) -> [[S::F32; N]; R] {
    let slice = |index: usize| {
        let samples = slices.slice(index);
        let sums = load_sums::<S, R, N>(simd, &[], 0, 0);
        if samples.is_empty() {
            return sums;
        }
        let lhs = Lhs { src: &src[samples.start * W..], row_stride: 1, k_stride: W };
        let k_stride = N * S::LANES;
        let rhs = Rhs { src: &diff_dst[samples.start * k_stride..], k_stride };
        accumulate(simd, sums, lhs, rhs, samples.len())
    };
    if slices.count() == 1 {
        return slice(0);
    }
    let mut stack = [[[simd.zero(); N]; R]; MAX_LEVELS - 1];
    let mut depth = 0;
    let pairs = slices.count() / 2;
    for pair in 0..pairs {
        let mut sums = add(simd, &slice(2 * pair), slice(2 * pair + 1));
        for _ in 0..merges_after(pair) {
            depth -= 1;
            sums = add(simd, &stack[depth], sums);
        }
        stack[depth] = sums;
        depth += 1;
    }
    stack[0]
}

#[inline(always)]
fn add<S: Simd, const R: usize, const N: usize>(
    simd: S,
    left: &[[S::F32; N]; R],
    mut right: [[S::F32; N]; R],
) -> [[S::F32; N]; R] {
    for row in 0..R {
        for vector in 0..N {
            right[row][vector] = simd.add(left[row][vector], right[row][vector]);
        }
    }
    right
}

/// Adds the vectors of every sample to `sums`, which are as wide.
struct SumSamples<'a> {
    src: &'a [f32],
    slices: &'a SampleSlices,
    sums: &'a mut [f32],
}

impl Kernel for SumSamples<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let width = self.sums.len();
        for (vector, out) in self.sums.chunks_exact_mut(S::LANES).enumerate() {
            let (mut stack, mut depth) = ([simd.zero(); MAX_LEVELS], 0);
            for (index, samples) in self.slices.iter().enumerate() {
                let mut sum = simd.zero();
                for sample in samples {
                    let sample = &self.src[sample * width..];
                    sum = simd.add(sum, simd.load(&sample[vector * S::LANES..]));
                }
                for _ in 0..merges_after(index) {
                    depth -= 1;
                    sum = simd.add(stack[depth], sum);
                }
                stack[depth] = sum;
                depth += 1;
            }
            simd.store(out, stack[0]);
        }
    }
}
