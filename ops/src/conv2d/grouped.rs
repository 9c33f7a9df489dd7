//! The path for groups that share channel blocks, depthwise convolution included.
//!
//! A vector of output channels spans several groups, so each lane has input channels of its own. Lanes are gathered one
//! by one, unless they lie side by side as in a depthwise convolution, and multiplied with a vector of weights. There is no
//! register blocking but for depthwise layers, whose rows `depthwise` computes.
//!
//! Weights are packed as (block of output channels, input channel within the group, kh, kw, lane), turned around as (block
//! of input channels, output channel within the group, kh, kw, lane).

use std::ops::Range;

use super::backward_data::Conv2dBackwardData;
use super::backward_weights::Conv2dBackwardWeights;
use super::depthwise::Gather;
use super::desc::Conv2dDesc;
use super::forward::Conv2dForward;
use crate::simd::{Kernel, Simd};
use crate::slices::{SumStack, levels};
use crate::{Isa, Layout, SampleSlices, TensorLayout, Tiles};

/// One direction: from `inner` channels, which are summed over, to vectors of `outer` channels.
#[derive(Debug, Clone)]
pub(super) struct Direction {
    lanes: usize,
    outer: usize,
    /// Channels of a group that are summed over.
    pub(super) inner_of_group: usize,
    /// For each block of outer channels, inner channel of a group, and lane: where a sample's channel begins.
    starts: Vec<usize>,
    /// Whether each channel is a group, so that the lanes are a vector of the tensor.
    depthwise: bool,
}

impl Direction {
    fn new(groups: usize, inner: TensorLayout, outer: usize, lanes: usize) -> Direction {
        let (inner_of_group, outer_of_group) = (inner.maps.c / groups, outer / groups);
        let mut starts = Vec::new();
        for block in 0..outer.div_ceil(lanes) {
            for i in 0..inner_of_group {
                for lane in 0..lanes {
                    let channel = (block * lanes + lane).min(outer - 1);
                    let from = channel / outer_of_group * inner_of_group + i;
                    starts.push(inner.index(0, from, 0, 0));
                }
            }
        }
        let depthwise = [inner_of_group, outer_of_group] == [1, 1];
        Direction { lanes, outer, inner_of_group, starts, depthwise }
    }

    pub(super) fn blocks(&self) -> usize {
        self.outer.div_ceil(self.lanes)
    }

    fn real_lanes(&self, block: usize) -> usize {
        self.lanes.min(self.outer - block * self.lanes)
    }

    /// The inner channel `i` of each lane's group, at a pixel `offset` elements into a sample's channel.
    #[inline(always)]
    fn gather<S: Simd>(&self, simd: S, sample: &[f32], at: [usize; 3]) -> S::F32 {
        let [block, i, offset] = at;
        let vector = block * self.inner_of_group + i;
        let starts = &self.starts[vector * S::LANES..(vector + 1) * S::LANES];
        if self.depthwise {
            return simd.load(&sample[starts[0] + offset..]);
        }
        // At most 16 lanes.
        let mut lanes = [0.0; 16];
        for (lane, start) in lanes.iter_mut().zip(&starts[..self.real_lanes(block)]) {
            *lane = sample[start + offset];
        }
        simd.load(&lanes)
    }
}

/// How the three passes are computed.
#[derive(Debug, Clone)]
pub(super) struct GroupedPlan {
    isa: Isa,
    desc: Conv2dDesc,
    src: TensorLayout,
    dst: TensorLayout,
    pub(super) forward: Direction,
    pub(super) backward: Direction,
}

impl GroupedPlan {
    pub(super) fn new(desc: &Conv2dDesc, isa: Isa) -> GroupedPlan {
        let lanes = isa.lanes();
        let src = TensorLayout { maps: desc.src_maps(), layout: Layout::Blocked(lanes) };
        let dst = TensorLayout { maps: desc.dst_maps(), layout: Layout::Blocked(lanes) };
        GroupedPlan {
            isa,
            desc: *desc,
            src,
            dst,
            forward: Direction::new(desc.groups, src, desc.oc, lanes),
            backward: Direction::new(desc.groups, dst, desc.ic, lanes),
        }
    }

    fn kernel_len(&self) -> usize {
        self.desc.kh * self.desc.kw
    }

    /// Elements of the weights of one block of outer channels.
    fn block_len(&self, direction: &Direction) -> usize {
        direction.inner_of_group * self.kernel_len() * direction.lanes
    }

    pub(super) fn wei_len(&self, direction: &Direction) -> usize {
        direction.blocks() * self.block_len(direction)
    }

    /// Visits (plain position, packed position) of every weight.
    pub(super) fn each(&self, mut visit: impl FnMut(usize, usize)) {
        let kernel = self.kernel_len();
        let lanes = self.forward.lanes;
        for plain in 0..self.desc.plain_wei_len() {
            let (channel, k) = (plain / kernel, plain % kernel);
            let i = channel % self.forward.inner_of_group;
            let o = channel / self.forward.inner_of_group;
            let vector = (o / lanes * self.forward.inner_of_group + i) * kernel + k;
            visit(plain, vector * lanes + o % lanes);
        }
    }

    /// Turns around the weights of a block of input channels.
    pub(super) fn pack_backward(&self, block: usize, wei: &[f32], mut dst: Tiles<'_>) {
        let (kernel, lanes) = (self.kernel_len(), self.forward.lanes);
        let (group_ic, group_oc) = (self.forward.inner_of_group, self.backward.inner_of_group);
        let len = self.block_len(&self.backward);
        let turned = dst.tile(block * len..(block + 1) * len);
        turned.fill(0.0);
        for lane in 0..self.backward.real_lanes(block) {
            let c = block * lanes + lane;
            let (group, i) = (c / group_ic, c % group_ic);
            for j in 0..group_oc {
                let o = group * group_oc + j;
                for k in 0..kernel {
                    let from = ((o / lanes * group_ic + i) * kernel + k) * lanes + o % lanes;
                    turned[(j * kernel + k) * lanes + lane] = wei[from];
                }
            }
        }
    }

    pub(super) fn forward_blocks(&self, mb: usize) -> usize {
        mb * self.forward.blocks()
    }

    pub(super) fn run_forward(&self, block: usize, io: Conv2dForward<'_>) {
        self.isa.dispatch(Forward { plan: self, block, io });
    }

    pub(super) fn backward_data_blocks(&self, mb: usize) -> usize {
        mb * self.backward.blocks()
    }

    pub(super) fn run_backward_data(&self, block: usize, io: Conv2dBackwardData<'_>) {
        self.isa.dispatch(BackwardData { plan: self, block, io });
    }

    pub(super) fn backward_weights_blocks(&self) -> usize {
        self.forward.blocks()
    }

    /// Elements of the sums of a block of the gradients: its weights and its bias.
    fn sums_len(&self) -> usize {
        self.block_len(&self.forward) + self.forward.lanes
    }

    /// Elements of scratch for a number of slices.
    pub(super) fn backward_weights_scratch_len(&self, slices: usize) -> usize {
        levels(slices) * self.sums_len()
    }

    pub(super) fn run_backward_weights(
        &self,
        block: usize,
        slices: &SampleSlices,
        io: Conv2dBackwardWeights<'_>,
    ) {
        let Conv2dBackwardWeights { src, diff_dst, mut diff_wei, diff_bia, scratch, .. } = io;
        let (len, lanes) = (self.block_len(&self.forward), self.forward.lanes);
        let mut stack = SumStack::new(self.isa, scratch, self.sums_len());
        for (index, samples) in slices.iter().enumerate() {
            let (sums, bias) = stack.next().split_at_mut(len);
            self.isa.dispatch(Sums { plan: self, block, samples, src, diff_dst, sums, bias });
            stack.push(index);
        }
        let (sums, bias) = stack.total().split_at(len);
        diff_wei.put(self.isa, block * len..(block + 1) * len, sums);
        if let Some(mut diff_bia) = diff_bia {
            diff_bia.put(self.isa, block * lanes..(block + 1) * lanes, bias);
        }
    }

    /// The source row that an output row and a kernel row meet in, if it is not padding.
    #[inline(always)]
    fn src_row(&self, y: usize, ky: usize) -> Option<usize> {
        let row = (y * self.desc.sh + ky).wrapping_sub(self.desc.ph);
        (row < self.desc.ih).then_some(row)
    }

    /// As [`GroupedPlan::src_row`], for columns.
    #[inline(always)]
    fn src_column(&self, x: usize, kx: usize) -> Option<usize> {
        let column = (x * self.desc.sw + kx).wrapping_sub(self.desc.pw);
        (column < self.desc.iw).then_some(column)
    }
}

struct Forward<'a> {
    plan: &'a GroupedPlan,
    block: usize,
    io: Conv2dForward<'a>,
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Forward { plan, block, mut io } = self;
        let (desc, direction) = (&plan.desc, &plan.forward);
        let (n, block) = (block / direction.blocks(), block % direction.blocks());
        let src = &io.src[n * plan.src.sample_len()..];
        let wei = &io.wei[block * plan.block_len(direction)..];
        let bias = match io.bia {
            Some(bia) => simd.load(&bia[block * S::LANES..]),
            None => simd.zero(),
        };
        for y in 0..desc.oh() {
            let start = plan.dst.index(n, block * S::LANES, y, 0);
            let row = io.dst.tile(start..start + desc.ow() * S::LANES);
            if direction.depthwise {
                let plane = &src[direction.starts[block * S::LANES]..];
                Gather::forward(desc).row(simd, y, [plane, wei], bias, row);
                for pixel in row.chunks_exact_mut(S::LANES) {
                    let sum = simd.load(pixel);
                    let value = desc.dst_activation.map_or(sum, |kind| kind.apply(simd, sum));
                    simd.store(pixel, simd.keep_first(value, direction.real_lanes(block)));
                }
                continue;
            }
            for (x, pixel) in row.chunks_exact_mut(S::LANES).enumerate() {
                let mut sum = bias;
                for i in 0..direction.inner_of_group {
                    for ky in 0..desc.kh {
                        let Some(from_y) = plan.src_row(y, ky) else { continue };
                        for kx in 0..desc.kw {
                            let Some(from_x) = plan.src_column(x, kx) else { continue };
                            let offset = (from_y * desc.iw + from_x) * S::LANES;
                            let src = direction.gather(simd, src, [block, i, offset]);
                            let k = (i * desc.kh + ky) * desc.kw + kx;
                            sum = simd.mul_add(src, simd.load(&wei[k * S::LANES..]), sum);
                        }
                    }
                }
                let value = desc.dst_activation.map_or(sum, |kind| kind.apply(simd, sum));
                simd.store(pixel, simd.keep_first(value, direction.real_lanes(block)));
            }
        }
    }
}

struct BackwardData<'a> {
    plan: &'a GroupedPlan,
    block: usize,
    io: Conv2dBackwardData<'a>,
}

impl Kernel for BackwardData<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let BackwardData { plan, block, mut io } = self;
        let (desc, direction) = (&plan.desc, &plan.backward);
        let (n, block) = (block / direction.blocks(), block % direction.blocks());
        let diff_dst = &io.diff_dst[n * plan.dst.sample_len()..];
        let wei = &io.wei[block * plan.block_len(direction)..];
        let start = plan.src.index(n, block * S::LANES, 0, 0);
        let plane = io.diff_src.tile(start..start + desc.ih * desc.iw * S::LANES);
        plane.fill(0.0);
        let (oh, ow) = (desc.oh(), desc.ow());
        let gather = Gather::backward_data(desc).filter(|_| direction.depthwise);
        if let Some(gather) = gather {
            let from = &diff_dst[direction.starts[block * S::LANES]..];
            for (y, row) in plane.chunks_exact_mut(desc.iw * S::LANES).enumerate() {
                gather.row(simd, y, [from, wei], simd.zero(), row);
                for pixel in row.chunks_exact_mut(S::LANES) {
                    let sum = simd.load(pixel);
                    simd.store(pixel, simd.keep_first(sum, direction.real_lanes(block)));
                }
            }
        }
        // Every product of an output pixel and a kernel position goes to one source pixel, in the order of the loops.
        let scattered = if gather.is_some() { 0 } else { direction.inner_of_group };
        for j in 0..scattered {
            for (y, x) in (0..oh).flat_map(|y| (0..ow).map(move |x| (y, x))) {
                let offset = (y * ow + x) * S::LANES;
                let diff = direction.gather(simd, diff_dst, [block, j, offset]);
                for ky in 0..desc.kh {
                    let Some(to_y) = plan.src_row(y, ky) else { continue };
                    for kx in 0..desc.kw {
                        let Some(to_x) = plan.src_column(x, kx) else { continue };
                        let pixel = &mut plane[(to_y * desc.iw + to_x) * S::LANES..];
                        let k = (j * desc.kh + ky) * desc.kw + kx;
                        let wei = simd.load(&wei[k * S::LANES..]);
                        let sum = simd.mul_add(diff, wei, simd.load(pixel));
                        simd.store(pixel, simd.keep_first(sum, direction.real_lanes(block)));
                    }
                }
            }
        }
        if let (Some(kind), Some(src)) = (desc.src_activation, io.src) {
            let values = src[start..].chunks_exact(S::LANES);
            for (pixel, value) in plane.chunks_exact_mut(S::LANES).zip(values) {
                simd.store(pixel, kind.gradient(simd, simd.load(value), simd.load(pixel)));
            }
        }
    }
}

/// The gradients of a block over some samples.
struct Sums<'a> {
    plan: &'a GroupedPlan,
    block: usize,
    samples: Range<usize>,
    src: &'a [f32],
    diff_dst: &'a [f32],
    /// Of the weights.
    sums: &'a mut [f32],
    bias: &'a mut [f32],
}

impl Kernel for Sums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Sums { plan, block, samples, src, diff_dst, sums: diff_wei, bias: bias_sums } = self;
        let (desc, direction) = (&plan.desc, &plan.forward);
        diff_wei.fill(0.0);
        let mut bias = simd.zero();
        let pixels = || (0..desc.oh()).flat_map(|y| (0..desc.ow()).map(move |x| (y, x)));
        for n in samples {
            let src = &src[n * plan.src.sample_len()..];
            if direction.depthwise {
                let plane = &src[direction.starts[block * S::LANES]..];
                let diffs = &diff_dst[plan.dst.index(n, block * S::LANES, 0, 0)..];
                let diffs = &diffs[..desc.oh() * desc.ow() * S::LANES];
                Gather::forward(desc).add_taps(simd, [plane, diffs], diff_wei);
                for diff in diffs.chunks_exact(S::LANES) {
                    bias = simd.add(bias, simd.load(diff));
                }
                continue;
            }
            for (y, x) in pixels() {
                let diff = &diff_dst[plan.dst.index(n, block * S::LANES, y, x)..];
                let diff = simd.load(diff);
                bias = simd.add(bias, diff);
                for i in 0..direction.inner_of_group {
                    for ky in 0..desc.kh {
                        let Some(from_y) = plan.src_row(y, ky) else { continue };
                        for kx in 0..desc.kw {
                            let Some(from_x) = plan.src_column(x, kx) else { continue };
                            let offset = (from_y * desc.iw + from_x) * S::LANES;
                            let src = direction.gather(simd, src, [block, i, offset]);
                            let k = (i * desc.kh + ky) * desc.kw + kx;
                            let element = &mut diff_wei[k * S::LANES..];
                            let sum = simd.mul_add(src, diff, simd.load(element));
                            simd.store(element, simd.keep_first(sum, direction.real_lanes(block)));
                        }
                    }
                }
            }
        }
        // Zeros of diff_dst do not make a padded lane zero where the source is infinite.
        for element in diff_wei.chunks_exact_mut(S::LANES).filter(|_| direction.depthwise) {
            let sum = simd.load(element);
            simd.store(element, simd.keep_first(sum, direction.real_lanes(block)));
        }
        simd.store(bias_sums, bias);
    }
}
