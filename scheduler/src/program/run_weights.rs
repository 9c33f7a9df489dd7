//! Blocks of weight gradients: summed over slices of the samples, written or used up by the step that parameters make.

use std::ops::Range;

use lockstep_ops::sgd::{GradientSink, SgdStep};
use lockstep_ops::{
    BiasBackwardWeights, Conv2dBackwardWeights, LinearBackwardWeights, SampleSlices, Tiles,
};

use super::kernel::Op;
use super::places::{Buffer, slices};
use super::run::{Context, Scratch};

impl<'a> Context<'a> {
    pub(super) fn backward_weights(&self, scratch: Scratch<'_>) {
        let (mb, block, scratch) = (self.mb, self.block, scratch.values);
        let parts = self.program.kernel(self.task.layer).parts();
        let slices = self.sample_slices();
        let diff_bia = (!parts.bia.is_empty()).then_some(&parts.bia);
        match self.op() {
            Op::Conv2d(conv) => {
                let (src, diff_dst) = (self.read(0), self.read(1));
                let (diff_wei, diff_bia) = (self.sink(&parts.wei), diff_bia.map(|p| self.sink(p)));
                let io = Conv2dBackwardWeights { mb, src, diff_dst, diff_wei, diff_bia, scratch };
                conv.sliced_backward_weights(block, &slices, io);
            }
            Op::Linear(linear) => {
                let (src, diff_dst) = (self.read(0), self.read(1));
                let (diff_wei, diff_bia) = (self.sink(&parts.wei), diff_bia.map(|p| self.sink(p)));
                let io = LinearBackwardWeights { mb, src, diff_dst, diff_wei, diff_bia, scratch };
                if slices.count() > 1 || self.task.update.is_some() {
                    linear.sliced_backward_weights(block, &slices, io);
                } else {
                    linear.backward_weights(block, io);
                }
            }
            Op::Bias(bias) => {
                let diff_bia = self.result_part(0, &parts.bia);
                let io = BiasBackwardWeights { mb, diff_dst: self.read(0), diff_bia };
                bias.sliced_backward_weights(block, &slices, io);
            }
            Op::BatchNorm(norm) => {
                // The sums over this rank's samples are the gradients.
                let (diff_wei, diff_bia) =
                    (self.result_part(0, &parts.wei), self.result_part(0, &parts.bia));
                let sums = self.gradient_sums(norm, 0);
                if let Some(part) = self.task.part {
                    let slice = part.index * norm.stats_len()..(part.index + 1) * norm.stats_len();
                    norm.parameter_gradients(&sums[slice], diff_wei, diff_bia);
                } else if self.program.plan.options().reproducible {
                    norm.sliced_parameter_gradients(sums, diff_wei, diff_bia);
                } else {
                    norm.parameter_gradients(sums, diff_wei, diff_bia);
                }
            }
            _ => unreachable!("has no parameters"),
        }
    }

    /// The slices of this rank's samples over which weight gradients are summed: one but in the reproducible mode.
    fn sample_slices(&self) -> SampleSlices {
        let slices = slices(&self.program.plan);
        // A tied layer's gradient over one slice is a task of its own.
        if slices == 1 || self.task.part.is_some() {
            return SampleSlices::whole(self.mb);
        }
        SampleSlices::new((0..slices).map(|index| self.slice_samples(index).end))
    }

    /// A part of one of the results, which are as long as the layer's flat parameters.
    fn result_part(&self, index: usize, part: &Range<usize>) -> Tiles<'a> {
        let result = &self.task.writes[index];
        let start = result.range.start;
        self.tiles(&Buffer { range: start + part.start..start + part.end, ..*result })
    }

    /// Where the gradient of a part of the parameters goes.
    fn sink(&self, part: &Range<usize>) -> GradientSink<'a> {
        let first = self.result_part(0, part);
        let Some(update) = &self.task.update else { return first.into() };
        // Nothing is exchanged, so all parameters are this rank's own, and the velocity lies as they do.
        let velocity = (self.task.writes.len() > 1).then(|| self.result_part(1, part));
        let hyper = update.hyper(self.iteration.hyper, part);
        GradientSink::Step(SgdStep { hyper, wei: first, velocity })
    }
}
