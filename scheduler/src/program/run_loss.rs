//! Blocks of the loss and of what is reported of it.

use lockstep_ops::{
    SoftmaxCrossEntropyForward, SoftmaxCrossEntropyForwardBackward, SplitSoftmaxCrossEntropyLoss,
    SplitSoftmaxCrossEntropyStatistics,
};

use super::kernel::Op;
use super::places::{Buffer, METRICS, slices};
use super::run::Context;
use crate::iteration::{Iteration, IterationReport};

impl<'a> Context<'a> {
    /// The labels of the samples that this rank computes; where it has not loaded them all, they are an operand.
    fn labels<'l>(&self, labels: &'l mut Vec<u32>) -> &'l [u32]
    where
        'a: 'l,
    {
        if self.task.mesh.members() == 1 {
            return &self.iteration.samples.labels;
        }
        labels.clear();
        // The inverse of what the load did.
        labels.extend(self.read(1)[..self.mb].iter().map(|&label| label as u32));
        labels
    }

    pub(super) fn loss_statistics(&self, labels: &mut Vec<u32>) {
        let Op::SplitLoss(loss) = self.op() else { unreachable!("only a split loss") };
        let (src, stats) = (self.read(0), self.write(0));
        let labels = self.labels(labels);
        let io = SplitSoftmaxCrossEntropyStatistics { mb: self.mb, src, labels, stats };
        loss.statistics(self.block, io);
    }

    pub(super) fn loss(&self, labels: &mut Vec<u32>) {
        let losses = &self.task.writes[0];
        let middle = losses.range.start + losses.range.len() / 2;
        let part = |range| Buffer { range, ..*losses };
        let correct = self.tiles(&part(middle..losses.range.end));
        let losses = self.tiles(&part(losses.range.start..middle));
        let (mb, src, labels) = (self.mb, self.read(0), self.labels(labels));
        let scale = 1.0 / self.iteration.minibatch as f32;
        let diff_src = (self.task.writes.len() > 1).then(|| self.write(1));
        match (self.op(), diff_src) {
            (Op::SplitLoss(loss), diff_src) => {
                let (gathered, members) = (self.read(2), self.task.mesh.members());
                let member_stride = gathered.len() / members;
                let gradient = diff_src.map(|diff_src| (scale, diff_src));
                let io = SplitSoftmaxCrossEntropyLoss {
                    mb,
                    src,
                    labels,
                    gathered,
                    members,
                    member_stride,
                    losses,
                    correct,
                    gradient,
                };
                loss.forward_backward(self.block, io);
            }
            (Op::Loss(loss), Some(diff_src)) => {
                let forward = SoftmaxCrossEntropyForward { mb, src, labels, losses, correct };
                let io = SoftmaxCrossEntropyForwardBackward { forward, scale, diff_src };
                loss.forward_backward(self.block, io);
            }
            (Op::Loss(loss), None) => {
                let io = SoftmaxCrossEntropyForward { mb, src, labels, losses, correct };
                loss.forward(self.block, io);
            }
            _ => unreachable!("only the loss layer"),
        }
    }

    /// Sums this rank's losses in sample order, slice by slice; in double precision, kept as two floats. Of members that all know
    /// the losses of their group's samples, the first counts them.
    pub(super) fn metrics(&self, stop: bool) {
        let samples = self.read(0);
        let (losses, correct) = samples.split_at(samples.len() / 2);
        let counts = self.program.rank().is_multiple_of(self.task.mesh.members());
        let mut sums = self.write(0);
        for index in 0..slices(&self.program.plan) {
            let slice = if counts { self.slice_samples(index) } else { 0..0 };
            let loss: f64 = losses[slice.clone()].iter().map(|&l| f64::from(l)).sum();
            let hits: f64 = correct[slice].iter().map(|&c| f64::from(c)).sum();
            let high = loss as f32;
            let low = if high.is_finite() { (loss - f64::from(high)) as f32 } else { 0.0 };
            let values = [high, low, hits as f32, f32::from(u8::from(stop))];
            sums.tile(index * METRICS..(index + 1) * METRICS).copy_from_slice(&values);
        }
    }

    /// Combines all ranks' sums in rank order.
    pub(super) fn report(&self) -> IterationReport {
        let (mut loss, mut correct, mut stop) = (0.0, 0.0, false);
        for rank in self.read(0).chunks_exact(METRICS) {
            loss += f64::from(rank[0]) + f64::from(rank[1]);
            correct += f64::from(rank[2]);
            stop |= rank[3] != 0.0;
        }
        let Iteration { step, epoch, minibatch, .. } = *self.iteration;
        let loss = loss / minibatch as f64;
        IterationReport { step, epoch, minibatch, loss, correct: correct as u64, stop }
    }
}
