//! Running one block of a task: operands become slices, the kernel does the rest.
#![expect(
    unsafe_code,
    reason = "turns the arenas' memory into slices for blocks that run at the same time"
)]

use std::ops::Range;
use std::sync::atomic::Ordering;

use lockstep_graph::{LayerId, Mode, REPRODUCIBLE_SLICES, SamplePart, TaskId, TaskKind};
use lockstep_ops::{
    ActivationBackward, ActivationForward, AddForward, BatchNorm, BatchNormBackward,
    BatchNormBackwardStats, BatchNormEval, BatchNormForward, BatchNormMerge, BatchNormRange,
    BatchNormStats, BiasForward, ConcatBackward, ConcatForward, Conv2dBackwardData, Conv2dForward,
    DropoutBackward, DropoutForward, DropoutKey, FlattenBackward, FlattenForward,
    LinearBackwardData, LinearForward, LrnBackward, LrnForward, PoolBackward, PoolForward, Tiles,
    block_samples,
};

use super::bind::{BoundTask, Program};
use super::blocks::LOAD_SAMPLES;
use super::kernel::Op;
use super::places::{Buffer, slices};
use super::slices::Slices;
use crate::iteration::Iteration;
use crate::session::Session;

/// A worker's memory between blocks.
#[derive(Debug)]
pub(crate) struct Scratch<'a> {
    /// As long as the program's longest block needs.
    pub(crate) values: &'a mut [f32],
    /// Values a channel of every rank.
    pub(crate) counts: &'a mut Vec<u64>,
    /// Labels that came from other ranks.
    pub(crate) labels: &'a mut Vec<u32>,
}

/// What a block works with.
pub(super) struct Context<'a> {
    pub(super) program: &'a Program,
    pub(super) task: &'a BoundTask,
    pub(super) iteration: &'a Iteration,
    /// Samples that this rank computes, as positions within the minibatch, and their number.
    pub(super) samples: Range<usize>,
    pub(super) mb: usize,
    /// Samples of the operands before those.
    pub(super) skipped: usize,
    /// Which block of the task.
    pub(super) block: usize,
}

impl Program {
    pub(crate) fn trains(&self) -> bool {
        matches!(self.plan.options().mode, Mode::Train { .. })
    }

    /// Runs a block that the caller has claimed.
    pub(crate) fn run_block(
        &self,
        id: TaskId,
        block: usize,
        iteration: &Iteration,
        session: &Session,
        scratch: Scratch<'_>,
    ) {
        let task = &self.tasks[id.index()];
        let samples = self.samples(task, iteration.minibatch);
        let mb = samples.len();
        let skipped = samples.start - self.group(task, iteration.minibatch).start;
        let context = Context { program: self, task, iteration, samples, mb, skipped, block };
        match task.kind {
            TaskKind::Load => context.load(),
            TaskKind::Forward => context.forward(scratch),
            TaskKind::Statistics => context.statistics(),
            TaskKind::MergeStatistics => context.merge_statistics(scratch.counts),
            TaskKind::MergeGradientStatistics => context.merge_gradient_statistics(),
            TaskKind::LossStatistics => context.loss_statistics(scratch.labels),
            TaskKind::Loss => context.loss(scratch.labels),
            TaskKind::Metrics => context.metrics(session.stop.load(Ordering::Relaxed)),
            TaskKind::Report => session.report(context.report()),
            TaskKind::AccumulateGradient => context.accumulate(),
            TaskKind::PrepareWeights => context.prepare_weights(),
            TaskKind::PackWeights => context.pack_weights(),
            TaskKind::GradientStatistics => context.gradient_statistics(),
            TaskKind::BackwardData => context.backward_data(scratch),
            TaskKind::BackwardWeights => context.backward_weights(scratch),
            TaskKind::SumGradients => context.sum_gradients(),
            TaskKind::GradientSquares => context.gradient_squares(),
            TaskKind::MergeSquares => context.merge_squares(),
            TaskKind::Update => context.update(),
            kind => unreachable!("{kind:?} has no blocks"),
        }
    }
}

impl<'a> Context<'a> {
    pub(super) fn op(&self) -> &'a Op {
        &self.program.kernel(self.task.layer).op
    }

    /// The elements of a buffer, for reading.
    fn slice(&self, buffer: &Buffer) -> &'a [f32] {
        let program = self.program;
        let arena = if buffer.lasts { program.store.arena() } else { &*program.arena };
        // SAFETY: the buffer is one of the task's operands and the task is running, so its dependencies keep every writer
        // of it waiting (checked by the ledger in debug builds); a task that writes its own operand takes it as `None`.
        unsafe { arena.slice(buffer.range.clone()) }
    }

    pub(super) fn tiles(&self, buffer: &Buffer) -> Tiles<'a> {
        let program = self.program;
        let arena = if buffer.lasts { program.store.arena() } else { &*program.arena };
        // SAFETY: the buffer is one of the task's results and the task is running, so its dependencies keep every other
        // task off it; the task's own blocks touch disjoint parts, which each op's tests check.
        unsafe { arena.tiles(buffer.range.clone()) }
    }

    /// An operand, from the first sample that the task works on.
    pub(super) fn read(&self, index: usize) -> &'a [f32] {
        self.slice(&self.task.reads[index].after_samples(self.skipped))
    }

    /// The first operand, unless the result takes its place.
    fn read_unless_in_place(&self) -> Option<&'a [f32]> {
        (!self.task.in_place).then(|| self.read(0))
    }

    pub(super) fn write(&self, index: usize) -> Tiles<'a> {
        self.tiles(&self.task.writes[index].after_samples(self.skipped))
    }

    /// Weights and biases of the layer's flat parameters; `None` for a part that it lacks.
    fn parameters(&self, flat: &'a [f32]) -> (&'a [f32], Option<&'a [f32]>) {
        let parts = self.program.kernel(self.task.layer).parts();
        let bia = (!parts.bia.is_empty()).then(|| &flat[parts.bia]);
        (&flat[parts.wei], bia)
    }

    fn load(&self) {
        let layout = self.program.kernel(self.task.layer).layout;
        let maps = layout.maps;
        let plain_len = maps.c * maps.h * maps.w;
        let first = self.block * LOAD_SAMPLES;
        let last = (first + LOAD_SAMPLES).min(self.mb);
        let mut dst = self.write(0);
        let dst = dst.tile(layout.len(first)..layout.len(last));
        let samples = &self.iteration.samples;
        block_samples(layout, &samples.values[first * plain_len..last * plain_len], dst);
        if self.task.writes.len() > 1 {
            let mut numbers = self.write(1);
            let numbers = numbers.tile(first..last).iter_mut();
            // Exact below 2^24 classes.
            numbers.zip(&samples.labels[first..last]).for_each(|(to, &label)| *to = label as f32);
        }
    }

    fn forward(&self, scratch: Scratch<'_>) {
        let (mb, block, dst) = (self.mb, self.block, self.write(0));
        let Scratch { values: scratch, counts, .. } = scratch;
        match self.op() {
            Op::Conv2d(conv) => {
                let (wei, bia) = self.parameters(self.read(1));
                let wei = if conv.prepares_forward() { self.read(2) } else { wei };
                let src = self.read(0);
                conv.forward(block, Conv2dForward { mb, src, wei, bia, dst, scratch });
                if let Some(norm) = self.task.statistics_along {
                    self.statistics_of_output(norm);
                }
            }
            Op::Linear(linear) => {
                let (wei, bia) = self.parameters(self.read(1));
                let src = self.read(0);
                linear.forward(block, LinearForward { mb, src, wei, bia, dst, scratch });
            }
            Op::Bias(bias) => {
                let (_, bia) = self.parameters(self.read(1));
                let bia = bia.expect("a bias layer has biases");
                let src = self.read_unless_in_place();
                bias.forward(block, BiasForward { mb, src, bia, dst });
            }
            Op::Activation(activation) => {
                let src = self.read_unless_in_place();
                activation.forward(block, ActivationForward { mb, src, dst });
            }
            Op::Pool(pool) => pool.forward(block, PoolForward { mb, src: self.read(0), dst }),
            Op::Lrn(lrn) => {
                lrn.forward(block, LrnForward { mb, src: self.read(0), dst, scratch });
            }
            Op::BatchNorm(norm) => {
                let (wei, bia) = self.parameters(self.read(1));
                let bia = bia.expect("batch normalization has shifts");
                if self.program.trains() {
                    let src = self.read(0);
                    let counts = self.counts(counts);
                    // The buffer is as long as the most samples need.
                    let stats = &self.read(2)[..counts.len() * norm.stats_len()];
                    let (saved, running) = (self.write(1), self.write(2));
                    let io =
                        BatchNormForward { mb, src, wei, bia, stats, counts, dst, saved, running };
                    norm.forward(block, io);
                } else {
                    let running = self.read(2);
                    let src = self.read_unless_in_place();
                    norm.eval(block, BatchNormEval { mb, src, wei, bia, running, dst });
                }
            }
            Op::Dropout(dropout) => {
                let (key, samples) = (self.dropout_key(), self.ids());
                let src = self.read_unless_in_place();
                dropout.forward(block, DropoutForward { mb, key, samples, src, dst });
            }
            Op::Add(add) => {
                let others: Vec<_> = (1..self.task.reads.len()).map(|i| self.read(i)).collect();
                let src = self.read_unless_in_place();
                add.forward(block, AddForward { mb, src, others: &others, value: None, dst });
            }
            Op::Concat(concat) => {
                let srcs: Vec<_> = (0..self.task.reads.len()).map(|i| self.read(i)).collect();
                concat.forward(block, ConcatForward { mb, srcs: &srcs, dst });
            }
            Op::Flatten(flatten) => {
                flatten.forward(block, FlattenForward { mb, src: self.read(0), dst });
            }
            Op::Input | Op::Loss(_) | Op::SplitLoss(_) => {
                unreachable!("has no forward task of this kind")
            }
        }
    }

    /// Values a channel of every part of a batch normalization's statistics: of every rank, or of every slice of this one.
    fn counts<'c>(&self, counts: &'c mut Vec<u64>) -> &'c [u64] {
        counts.clear();
        if self.program.plan.options().reproducible {
            let maps = self.program.kernel(self.task.layer).layout.maps;
            let (pixels, slices) = ((maps.h * maps.w) as u64, REPRODUCIBLE_SLICES);
            counts.extend(self.iteration.counts(slices).map(|samples| samples as u64 * pixels));
        } else if self.task.gathered {
            let maps = self.program.kernel(self.task.layer).layout.maps;
            let (pixels, groups) = ((maps.h * maps.w) as u64, self.task.mesh.groups());
            counts.extend(self.iteration.counts(groups).map(|samples| samples as u64 * pixels));
        } else {
            counts.extend(self.slices(self.task.layer).counts(self.mb));
        }
        counts
    }

    fn slices(&self, norm: LayerId) -> Slices<'a> {
        Slices::of_statistics(self.program.store.kernels(), norm)
    }

    /// Global indices of the samples that this rank computes.
    fn ids(&self) -> &'a [u64] {
        &self.iteration.ids[self.samples.clone()]
    }

    fn dropout_key(&self) -> DropoutKey {
        let Iteration { seed, step, .. } = *self.iteration;
        DropoutKey { seed, layer: self.task.layer.index() as u64, step }
    }

    /// The samples of a slice, counted from this rank's first.
    pub(super) fn slice_samples(&self, index: usize) -> Range<usize> {
        let groups = self.task.mesh.groups();
        let part = SamplePart { index, of: slices(&self.program.plan), groups };
        let samples = self.program.part_samples(self.task, part, self.iteration.minibatch);
        samples.start - self.samples.start..samples.end - self.samples.start
    }

    /// In the reproducible mode: the slice of this rank's samples that a block is of, and the block within it.
    fn slice_of_block(&self, norm: &BatchNorm) -> Option<(BatchNormRange, usize)> {
        self.program.plan.options().reproducible.then(|| {
            let (index, block) =
                (self.block / norm.range_blocks(), self.block % norm.range_blocks());
            (BatchNormRange { samples: self.slice_samples(index), slice: index }, block)
        })
    }

    fn statistics(&self) {
        let Op::BatchNorm(norm) = self.op() else { unreachable!("only batch normalization") };
        let (src, stats) = (self.read(0), self.write(0));
        if let Some((range, block)) = self.slice_of_block(norm) {
            norm.range_stats(block, &range, BatchNormStats { mb: self.mb, src, stats });
            return;
        }
        norm.stats(self.block, BatchNormStats { mb: self.mb, src, stats });
    }

    /// The statistics of what this block of a convolution has just written, for the normalization after it.
    fn statistics_of_output(&self, layer: LayerId) {
        let Op::BatchNorm(norm) = &self.program.kernel(layer).op else {
            unreachable!("only batch normalization")
        };
        let region = self.slices(layer).region(self.block, self.mb);
        norm.stats_of(&region, &self.write(0), self.write(1));
    }

    fn merge_statistics(&self, counts: &mut Vec<u64>) {
        let Op::BatchNorm(norm) = self.op() else { unreachable!("only batch normalization") };
        let counts = self.counts(counts);
        let slices = &self.read(0)[..counts.len() * norm.stats_len()];
        norm.merge_stats(BatchNormMerge { slices, counts, merged: self.write(0) });
    }

    fn merge_gradient_statistics(&self) {
        let Op::BatchNorm(norm) = self.op() else { unreachable!("only batch normalization") };
        norm.merge_sums(self.gradient_sums(norm, 0), self.write(0));
    }

    /// The sums of a normalization's gradients: of this rank's slices or merged, or of every rank.
    pub(super) fn gradient_sums(&self, norm: &BatchNorm, operand: usize) -> &'a [f32] {
        let sums = self.read(operand);
        if self.program.plan.options().reproducible {
            return sums;
        }
        let slices = norm.stats_slices(self.mb) * norm.stats_len();
        if self.task.gathered || self.task.merged { sums } else { &sums[..slices] }
    }

    fn gradient_statistics(&self) {
        let Op::BatchNorm(norm) = self.op() else { unreachable!("only batch normalization") };
        let (src, diff_dst, saved) = (self.read(0), self.read(1), self.read(2));
        let io = BatchNormBackwardStats { mb: self.mb, src, diff_dst, saved, sums: self.write(0) };
        match self.slice_of_block(norm) {
            Some((range, block)) => norm.range_sums(block, &range, io),
            None => norm.backward_stats(self.block, io),
        }
    }

    fn accumulate(&self) {
        let add = self.program.kernel(self.task.layer).fan_out.as_ref();
        let add = add.expect("a layer with several consumers adds their terms");
        let terms = add.desc().terms;
        let others: Vec<_> = (1..terms).map(|i| self.read(i)).collect();
        // After the terms comes the activation by whose slope their sum is multiplied, where there is one.
        let value = (terms < self.task.reads.len()).then(|| self.read(terms));
        let src = self.read_unless_in_place();
        let io = AddForward { mb: self.mb, src, others: &others, value, dst: self.write(0) };
        add.forward(self.block, io);
    }

    fn prepare_weights(&self) {
        let Op::Conv2d(conv) = self.op() else { unreachable!("only convolutions") };
        let (wei, _) = self.parameters(self.read(0));
        conv.pack_forward(self.block, wei, self.write(0));
    }

    fn pack_weights(&self) {
        let Op::Conv2d(conv) = self.op() else { unreachable!("only convolutions") };
        let (wei, _) = self.parameters(self.read(0));
        conv.pack_backward(self.block, wei, self.write(0));
    }

    /// The operand of a data gradient that is there only where the slope of an activation is multiplied in.
    fn read_if_any(&self, index: usize) -> Option<&'a [f32]> {
        (index < self.task.reads.len()).then(|| self.read(index))
    }

    fn backward_data(&self, scratch: Scratch<'_>) {
        let (mb, block) = (self.mb, self.block);
        let Scratch { values: scratch, counts, .. } = scratch;
        match self.op() {
            Op::Conv2d(conv) => {
                let (diff_dst, wei, diff_src) = (self.read(0), self.read(1), self.write(0));
                let src = self.read_if_any(2);
                let io = Conv2dBackwardData { mb, diff_dst, wei, src, diff_src, scratch };
                conv.backward_data(block, io);
            }
            Op::Linear(linear) => {
                let (wei, _) = self.parameters(self.read(1));
                let (diff_dst, src, diff_src) = (self.read(0), self.read_if_any(2), self.write(0));
                let io = LinearBackwardData { mb, diff_dst, wei, src, diff_src, scratch };
                linear.backward_data(block, io);
            }
            Op::Activation(activation) => {
                let (dst, diff_dst) = (self.read(1), self.read_unless_in_place());
                let io = ActivationBackward { mb, dst, diff_dst, diff_src: self.write(0) };
                activation.backward(block, io);
            }
            Op::Pool(pool) => {
                let src = if self.task.in_place { None } else { self.read_if_any(1) };
                let (diff_dst, diff_src) = (self.read(0), self.write(0));
                pool.backward(block, PoolBackward { mb, src, diff_dst, diff_src });
            }
            Op::Lrn(lrn) => {
                let (diff_dst, src, diff_src) = (self.read(0), self.read(1), self.write(0));
                lrn.backward(block, LrnBackward { mb, src, diff_dst, diff_src, scratch });
            }
            Op::BatchNorm(norm) => {
                let (diff_dst, src, saved) = (Some(self.read(0)), self.read(1), self.read(2));
                let (wei, _) = self.parameters(self.read(3));
                let (sums, counts) = (self.gradient_sums(norm, 4), self.counts(counts));
                let diff_src = self.write(0);
                let io =
                    BatchNormBackward { mb, src, wei, saved, sums, counts, diff_dst, diff_src };
                norm.backward(block, io);
            }
            Op::Dropout(dropout) => {
                let (key, samples) = (self.dropout_key(), self.ids());
                let (diff_dst, diff_src) = (self.read_unless_in_place(), self.write(0));
                let dst = self.read_if_any(1);
                let io = DropoutBackward { mb, key, samples, dst, diff_dst, diff_src };
                dropout.backward(block, io);
            }
            Op::Concat(concat) => {
                let mut block = block;
                for (index, &input) in self.task.inputs.iter().enumerate() {
                    let blocks = concat.backward_blocks(input, mb);
                    if block < blocks {
                        let (diff_dst, diff_src) = (self.read(0), self.write(index));
                        concat.backward(block, ConcatBackward { mb, input, diff_dst, diff_src });
                        return;
                    }
                    block -= blocks;
                }
            }
            Op::Flatten(flatten) => {
                let (diff_dst, src, diff_src) = (self.read(0), self.read_if_any(1), self.write(0));
                flatten.backward(block, FlattenBackward { mb, diff_dst, src, diff_src });
            }
            Op::Bias(_) | Op::Add(_) | Op::Input | Op::Loss(_) | Op::SplitLoss(_) => {
                unreachable!("has no task of this kind: the gradient passes unchanged")
            }
        }
    }
}
