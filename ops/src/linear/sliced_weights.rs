//! The gradients of weights and bias with all samples at once: where the samples are cut into slices, whose sums are added in
//! a balanced tree, and where the weights make their step with the gradient, which is not kept.
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
    COPIED_OUTPUTS, CopyGroups, CopyStrips, DEPTH, LinearBackwardWeights, strip_len, strips_len,
};
use super::blocking::{VECTORS, tile_rows};
use super::packing::GROUP;
use super::tile::{Lhs, Rhs, accumulate, load_sums, step_sums, store_sums};
use crate::SampleSlices;
use crate::sgd::{GradientSink, Rule, SgdStep};
use crate::simd::{Kernel, Simd};
use crate::slices::{MAX_LEVELS, MAX_SLICES, merges_after};

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

    /// [`Self::backward_weights`] whose sums over slices of the samples are added in a balanced tree, and which can make the
    /// weights' step with them. Scratch: [`Self::sliced_backward_weights_scratch_len`] elements.
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
                            real: group.filled - columns.start,
                            out: &mut diff_wei,
                            at: at + columns.start,
                            stride: group.width,
                        });
                        if let Some(diff_bia) = diff_bia.as_mut().filter(|_| inputs.start == 0) {
                            let sums = &mut [0.0; GROUP][..bia.len()];
                            let (src, sums) = (diff_dst, &mut *sums);
                            self.isa.dispatch(SumSamples { src, slices, sums });
                            diff_bia.put(self.isa, bia, sums);
                        }
                    }
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
    /// Output features that are no padding, which must stay zero: a product of a zero and an infinity would not be.
    real: usize,
    out: &'a mut GradientSink<'t>,
    /// Where the first of their weights is.
    at: usize,
    /// From one input feature to the next.
    stride: usize,
}

impl Kernel for Product<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        match self.slices.count() {
            1 => self.slices::<S, 1>(simd),
            2 => self.slices::<S, 2>(simd),
            4 => self.slices::<S, 4>(simd),
            _ => self.slices::<S, MAX_SLICES>(simd),
        }
    }
}

impl Product<'_, '_> {
    /// With so many slices, the sums of two of which must fit the registers.
    #[inline(always)]
    fn slices<S: Simd, const C: usize>(self, simd: S) {
        match (tile_rows(S::LANES), self.vectors) {
            (12, 1) => self.multiply::<S, 12, 12, 1, C>(simd),
            (12, _) if C == 1 => self.multiply::<S, 12, 12, VECTORS, C>(simd),
            (12, _) => self.multiply::<S, 12, 6, VECTORS, C>(simd),
            (_, 1) => self.multiply::<S, 6, 6, 1, C>(simd),
            _ if C == 1 => self.multiply::<S, 6, 6, VECTORS, C>(simd),
            _ => self.multiply::<S, 6, 3, VECTORS, C>(simd),
        }
    }
}

impl Product<'_, '_> {
    /// Strips are `W` rows wide, sums `R` rows high; there are `C` slices.
    #[inline(always)]
    fn multiply<S: Simd, const W: usize, const R: usize, const N: usize, const C: usize>(
        self,
        simd: S,
    ) {
        let Product { strips, diff_dst, slices, rows, real, out, at, stride, .. } = self;
        let strips = strips.chunks_exact(strip_len(W, slices.mb()));
        for (strip_row, strip) in (0..rows).step_by(W).zip(strips) {
            for row in (strip_row..rows.min(strip_row + W)).step_by(R) {
                let filled = (rows - row).min(R);
                let tile = |row| at + row * stride..at + (row + filled - 1) * stride + N * S::LANES;
                if row + R + filled <= rows {
                    out.fetch(simd, tile(row + R));
                }
                let src = &strip[row - strip_row..];
                let slices = Slices { simd, slices, src, diff_dst };
                let mut sums = match C {
                    1 => slices.sums::<W, R, N>(0),
                    2 => slices.two::<W, R, N>(0),
                    4 => slices.four::<W, R, N>(0),
                    _ => slices.eight::<W, R, N>(),
                };
                if real < N * S::LANES {
                    for vector in 0..N {
                        let real = real.saturating_sub(vector * S::LANES).min(S::LANES);
                        for row in 0..R {
                            sums[row][vector] = simd.keep_first(sums[row][vector], real);
                        }
                    }
                }
                match &mut *out {
                    GradientSink::Store(tiles) => {
                        store_sums(simd, sums, tiles.tile(tile(row)), stride, filled);
                    }
                    GradientSink::Step(SgdStep { hyper, wei, velocity }) => {
                        let rule = Rule::new(simd, *hyper, 1.0);
                        let (wei, velocity) = (wei.tile(tile(row)), velocity.as_mut());
                        let velocity = velocity.filter(|_| rule.has_momentum());
                        let velocity = velocity.map(|tiles| tiles.tile(tile(row)));
                        step_sums(simd, sums, &rule, wei, velocity, [stride, filled]);
                    }
                }
            }
        }
    }
}

/// What the sums of a tile are made of, slice by slice.
#[derive(Clone, Copy)]
struct Slices<'a, S> {
    simd: S,
    slices: &'a SampleSlices,
    src: &'a [f32],
    diff_dst: &'a [f32],
}

/// Sums over neighboring slices, added in a balanced tree. Written out for every number of them, so that the compiler knows where all
/// sums are: of slices of two samples the tree is half of the work.
impl<S: Simd> Slices<'_, S> {
    /// Over one slice.
    #[inline(always)]
    fn sums<const W: usize, const R: usize, const N: usize>(
        &self,
        slice: usize,
    ) -> [[S::F32; N]; R] {
        let samples = self.slices.slice(slice);
        let sums = load_sums::<S, R, N>(self.simd, &[], 0, 0);
        if samples.is_empty() {
            return sums;
        }
        let lhs = Lhs { src: &self.src[samples.start * W..], row_stride: 1, k_stride: W };
        let k_stride = N * S::LANES;
        let rhs = Rhs { src: &self.diff_dst[samples.start * k_stride..], k_stride };
        accumulate(self.simd, sums, lhs, rhs, samples.len())
    }

    /// Over the `pair`th two.
    #[inline(always)]
    fn two<const W: usize, const R: usize, const N: usize>(&self, pair: usize) -> [[S::F32; N]; R] {
        let first = self.sums::<W, R, N>(2 * pair);
        add(self.simd, &first, self.sums::<W, R, N>(2 * pair + 1))
    }

    /// Over the `half`th four.
    #[inline(always)]
    fn four<const W: usize, const R: usize, const N: usize>(
        &self,
        half: usize,
    ) -> [[S::F32; N]; R] {
        let first = self.two::<W, R, N>(2 * half);
        add(self.simd, &first, self.two::<W, R, N>(2 * half + 1))
    }

    /// Over all eight.
    #[inline(always)]
    fn eight<const W: usize, const R: usize, const N: usize>(&self) -> [[S::F32; N]; R] {
        let first = self.four::<W, R, N>(0);
        add(self.simd, &first, self.four::<W, R, N>(1))
    }
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
