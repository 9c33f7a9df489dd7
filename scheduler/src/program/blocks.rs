//! How many blocks a task has this time, and how much scratch its blocks need.

use lockstep_graph::{TaskId, TaskKind};

use super::bind::{BoundTask, Program};
use super::kernel::Op;
use super::places::slices;
use super::update::Update;
use crate::iteration::Iteration;

/// Elements that one block adds to another term of a gradient.
pub(super) const SUM_CHUNK: usize = 16 * 1024;

/// Samples that one block of a load copies.
pub(super) const LOAD_SAMPLES: usize = 8;

impl Program {
    /// Blocks of a compute task for this iteration's number of samples; 0 when there is nothing to do.
    pub(crate) fn blocks(&self, id: TaskId, iteration: &Iteration) -> usize {
        let task = &self.tasks[id.index()];
        let mb = self.samples(task, iteration.minibatch).len();
        let op = &self.kernel(task.layer).op;
        match task.kind {
            TaskKind::Load => mb.div_ceil(LOAD_SAMPLES),
            TaskKind::Forward => self.forward_blocks(op, mb),
            TaskKind::Statistics | TaskKind::GradientStatistics
                if self.plan.options().reproducible =>
            {
                match op {
                    Op::BatchNorm(norm) => slices(&self.plan) * norm.range_blocks(),
                    _ => 0,
                }
            }
            TaskKind::Statistics => match op {
                Op::BatchNorm(norm) => norm.stats_blocks(mb),
                _ => 0,
            },
            TaskKind::GradientStatistics => match op {
                Op::BatchNorm(norm) => norm.backward_stats_blocks(mb),
                _ => 0,
            },
            TaskKind::LossStatistics => match op {
                Op::SplitLoss(loss) => loss.statistics_blocks(mb),
                _ => 0,
            },
            TaskKind::Loss => match op {
                Op::SplitLoss(loss) => loss.forward_backward_blocks(mb),
                Op::Loss(loss) if task.writes.len() > 1 => loss.forward_backward_blocks(mb),
                Op::Loss(loss) => loss.forward_blocks(mb),
                _ => 0,
            },
            TaskKind::Metrics
            | TaskKind::Report
            | TaskKind::MergeStatistics
            | TaskKind::MergeGradientStatistics
            | TaskKind::MergeSquares => 1,
            TaskKind::SumGradients => task.reads[0].range.len().div_ceil(SUM_CHUNK),
            TaskKind::GradientSquares => task.update.as_ref().map_or(0, Update::squares_blocks),
            TaskKind::AccumulateGradient => {
                self.kernel(task.layer).fan_out.as_ref().map_or(0, |add| add.forward_blocks(mb))
            }
            TaskKind::PrepareWeights => match op {
                Op::Conv2d(conv) => conv.pack_forward_blocks(),
                _ => 0,
            },
            TaskKind::PackWeights => match op {
                Op::Conv2d(conv) => conv.pack_backward_blocks(),
                _ => 0,
            },
            TaskKind::BackwardData => self.backward_data_blocks(task, op, mb),
            TaskKind::BackwardWeights => match op {
                Op::Conv2d(conv) => conv.backward_weights_blocks(mb),
                Op::Linear(linear) => linear.backward_weights_blocks(mb),
                Op::Bias(bias) => bias.backward_weights_blocks(mb),
                Op::BatchNorm(_) => 1,
                _ => 0,
            },
            TaskKind::Update => task.update.as_ref().map_or(0, Update::blocks),
            // Communication has no blocks; a kind added later must be given a number here.
            _ => 0,
        }
    }

    fn forward_blocks(&self, op: &Op, mb: usize) -> usize {
        match op {
            Op::Conv2d(conv) => conv.forward_blocks(mb),
            Op::Linear(linear) => linear.forward_blocks(mb),
            Op::Bias(bias) => bias.forward_blocks(mb),
            Op::Activation(activation) => activation.forward_blocks(mb),
            Op::Pool(pool) => pool.forward_blocks(mb),
            Op::Lrn(lrn) => lrn.forward_blocks(mb),
            Op::BatchNorm(norm) if self.trains() => norm.forward_blocks(mb),
            Op::BatchNorm(norm) => norm.eval_blocks(mb),
            Op::Dropout(dropout) => dropout.forward_blocks(mb),
            Op::Add(add) => add.forward_blocks(mb),
            Op::Concat(concat) => concat.forward_blocks(mb),
            Op::Flatten(flatten) => flatten.forward_blocks(mb),
            Op::Input | Op::Loss(_) | Op::SplitLoss(_) => 0,
        }
    }

    fn backward_data_blocks(&self, task: &BoundTask, op: &Op, mb: usize) -> usize {
        match op {
            Op::Conv2d(conv) => conv.backward_data_blocks(mb),
            Op::Linear(linear) => linear.backward_data_blocks(mb),
            Op::Activation(activation) => activation.backward_blocks(mb),
            Op::Pool(pool) => pool.backward_blocks(mb),
            Op::Lrn(lrn) => lrn.backward_blocks(mb),
            Op::BatchNorm(norm) => norm.backward_blocks(mb),
            Op::Dropout(dropout) => dropout.backward_blocks(mb),
            // One input after the other.
            Op::Concat(concat) => {
                task.inputs.iter().map(|&input| concat.backward_blocks(input, mb)).sum()
            }
            Op::Flatten(flatten) => flatten.backward_blocks(mb),
            Op::Bias(_) | Op::Add(_) | Op::Input | Op::Loss(_) | Op::SplitLoss(_) => 0,
        }
    }

    /// Elements of scratch that a task's blocks need.
    pub(super) fn task_scratch_len(&self, task: &BoundTask) -> usize {
        match (task.kind, &self.kernel(task.layer).op) {
            (TaskKind::Forward, Op::Conv2d(conv)) => conv.forward_scratch_len(),
            (TaskKind::Forward, Op::Lrn(lrn)) => lrn.forward_scratch_len(),
            (TaskKind::BackwardData, Op::Conv2d(conv)) => conv.backward_data_scratch_len(),
            (TaskKind::Forward, Op::Linear(linear)) => linear.forward_scratch_len(),
            (TaskKind::BackwardData, Op::Linear(linear)) => linear.backward_data_scratch_len(),
            (TaskKind::BackwardData, Op::Lrn(lrn)) => lrn.backward_scratch_len(),
            (TaskKind::BackwardWeights, Op::Conv2d(conv)) => {
                conv.sliced_backward_weights_scratch_len(slices(&self.plan))
            }
            (TaskKind::BackwardWeights, Op::Linear(linear))
                if slices(&self.plan) > 1 || task.update.is_some() =>
            {
                // Of the largest minibatch.
                let mb = self.plan.options().minibatch.div_ceil(task.mesh.groups());
                let sliced = linear.sliced_backward_weights_scratch_len(mb);
                sliced.max(linear.backward_weights_scratch_len())
            }
            (TaskKind::BackwardWeights, Op::Linear(linear)) => {
                linear.backward_weights_scratch_len()
            }
            _ => 0,
        }
    }
}
