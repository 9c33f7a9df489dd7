//! A concatenation bound to an ISA: what one block of either pass does.

use std::ops::Range;

use super::ConcatDesc;
use super::runs::{LaneRun, copy_lanes, lane_runs};
use crate::extent::expect_len;
use crate::grain::Grain;
use crate::{Isa, Layout, Maps, ShapeError, TensorLayout, Tiles};

/// Joins tensors along the channels, and splits the gradient of the result.
///
/// A block takes a few planes (one sample of one channel block) of what it writes. The backward pass has blocks of its
/// own for each input, so that inputs which need no gradient cost nothing.
///
/// # Shapes
///
/// Inputs (mb, their channels, h, w), result (mb, their sum, h, w), all blocked.
///
/// # Cost
///
/// Memory bound: each tensor crosses the bus once. Inputs whose channels do not fill vectors cost the pixels after them a
/// copy lane by lane. No scratch.
///
/// # Examples
///
/// ```
/// use lockstep_ops::{Concat, ConcatDesc, ConcatForward, Isa};
///
/// let isa = Isa::named("portable")?;
/// let concat = Concat::new(ConcatDesc { channels: vec![1, 2], h: 1, w: 1 }, isa)?;
/// let (a, b) = ([1.0, 0., 0., 0., 0., 0., 0., 0.], [2.0, 3.0, 0., 0., 0., 0., 0., 0.]);
/// let mut dst = [0.0; 8];
/// let srcs: &[&[f32]] = &[&a, &b];
/// concat.forward(0, ConcatForward { mb: 1, srcs, dst: dst.as_mut_slice().into() });
/// assert_eq!(dst, [1.0, 2.0, 3.0, 0., 0., 0., 0., 0.]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Concat {
    desc: ConcatDesc,
    lanes: usize,
    dst: TensorLayout,
    srcs: Vec<TensorLayout>,
    /// Per channel block of the result: where its lanes come from.
    join: Vec<Vec<LaneRun>>,
    /// Per input and channel block of it: where the lanes of its gradient come from.
    split: Vec<Vec<Vec<LaneRun>>>,
    grain: Grain,
}

/// The tensors of a forward block.
#[derive(Debug)]
pub struct ConcatForward<'a> {
    /// Samples.
    pub mb: usize,
    /// The inputs, in order.
    pub srcs: &'a [&'a [f32]],
    /// The result.
    pub dst: Tiles<'a>,
}

/// The tensors of a backward block of one input.
#[derive(Debug)]
pub struct ConcatBackward<'a> {
    /// Samples.
    pub mb: usize,
    /// Which input's gradient is computed.
    pub input: usize,
    /// The gradient of the result.
    pub diff_dst: &'a [f32],
    /// The gradient of the input.
    pub diff_src: Tiles<'a>,
}

impl Concat {
    /// Plans the concatenation.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] if there is no input, or a size is zero.
    pub fn new(desc: ConcatDesc, isa: Isa) -> Result<Concat, ShapeError> {
        desc.validate()?;
        let lanes = isa.lanes();
        let blocked = |maps: Maps| TensorLayout { maps, layout: Layout::Blocked(lanes) };
        let inputs = 0..desc.channels.len();
        let srcs = inputs.clone().map(|input| blocked(desc.src(input))).collect();
        let join = channel_blocks(desc.dst().c, lanes)
            .map(|block| inputs.clone().flat_map(|i| join_runs(&desc, i, &block, lanes)).collect())
            .collect();
        let split = inputs
            .clone()
            .map(|input| {
                let first = desc.first_channel(input);
                channel_blocks(desc.channels[input], lanes)
                    .map(|b| lane_runs(0, first + b.start..first + b.end, 0, lanes).collect())
                    .collect()
            })
            .collect();
        let plane_bytes = size_of::<f32>() * desc.h * desc.w * lanes;
        Ok(Concat {
            lanes,
            dst: blocked(desc.dst()),
            srcs,
            join,
            split,
            grain: Grain::new(2 * plane_bytes),
            desc,
        })
    }

    /// What was planned.
    pub fn desc(&self) -> &ConcatDesc {
        &self.desc
    }

    /// The number of blocks of the forward pass.
    pub fn forward_blocks(&self, mb: usize) -> usize {
        self.grain.blocks(mb * self.join.len())
    }

    /// Computes one block of the result.
    ///
    /// # Panics
    ///
    /// If the number of inputs is not the plan's, or a buffer is shorter than `mb` samples.
    pub fn forward(&self, block: usize, io: ConcatForward<'_>) {
        let ConcatForward { mb, srcs, mut dst } = io;
        let (inputs, planned) = (srcs.len(), self.srcs.len());
        assert!(inputs == planned, "concat: {inputs} inputs given, planned for {planned}");
        for (src, layout) in srcs.iter().zip(&self.srcs) {
            expect_len("concat forward", "an input", src.len(), layout.len(mb));
        }
        expect_len("concat forward", "dst", dst.len(), self.dst.len(mb));
        for plane in self.grain.pieces(block, mb * self.join.len()) {
            let (sample, channel_block) = (plane / self.join.len(), plane % self.join.len());
            let source = |run: LaneRun| {
                let blocks = self.srcs[run.tensor].channel_blocks();
                &srcs[run.tensor][self.plane(sample * blocks + run.from_block)]
            };
            self.fill(&self.join[channel_block], source, dst.tile(self.plane(plane)));
        }
    }

    /// The number of blocks of the backward pass of one input.
    ///
    /// # Panics
    ///
    /// If there is no such input.
    pub fn backward_blocks(&self, input: usize, mb: usize) -> usize {
        self.grain.blocks(mb * self.split[input].len())
    }

    /// Computes one block of the gradient of one input.
    ///
    /// # Panics
    ///
    /// If there is no such input, or a buffer is shorter than `mb` samples.
    pub fn backward(&self, block: usize, io: ConcatBackward<'_>) {
        let ConcatBackward { mb, input, diff_dst, mut diff_src } = io;
        expect_len("concat backward", "diff_dst", diff_dst.len(), self.dst.len(mb));
        expect_len("concat backward", "diff_src", diff_src.len(), self.srcs[input].len(mb));
        let split = &self.split[input];
        for plane in self.grain.pieces(block, mb * split.len()) {
            let (sample, channel_block) = (plane / split.len(), plane % split.len());
            let source =
                |run: LaneRun| &diff_dst[self.plane(sample * self.join.len() + run.from_block)];
            self.fill(&split[channel_block], source, diff_src.tile(self.plane(plane)));
        }
    }

    /// Writes one plane, lane run by lane run.
    fn fill<'a>(&self, runs: &[LaneRun], source: impl Fn(LaneRun) -> &'a [f32], plane: &mut [f32]) {
        // The padding of a last block comes from nowhere.
        if runs.iter().map(|run| run.len).sum::<usize>() < self.lanes {
            plane.fill(0.0);
        }
        for &run in runs {
            copy_lanes(run, self.lanes, source(run), plane);
        }
    }

    /// The elements of a plane, all of which have one size.
    fn plane(&self, plane: usize) -> Range<usize> {
        let len = self.desc.h * self.desc.w * self.lanes;
        plane * len..(plane + 1) * len
    }
}

/// The channels of each channel block.
fn channel_blocks(channels: usize, lanes: usize) -> impl Iterator<Item = Range<usize>> {
    (0..channels).step_by(lanes).map(move |first| first..(first + lanes).min(channels))
}

/// The runs of one input in the channel block of the result that holds `channels`.
fn join_runs(
    desc: &ConcatDesc,
    input: usize,
    channels: &Range<usize>,
    lanes: usize,
) -> impl Iterator<Item = LaneRun> + use<> {
    let first = desc.first_channel(input);
    let start = channels.start.max(first);
    let end = channels.end.min(first + desc.channels[input]).max(start);
    lane_runs(input, start - first..end - first, start, lanes)
}
