//! What every tensor of a plan looks like on one rank: its length with padding, and where it lies.

use std::ops::Range;

use lockstep_graph::{
    Extent, MemoryPlan, Plan, REPRODUCIBLE_SLICES, SampleAxis, Tensor, TensorId, TensorRole,
};
use lockstep_ops::gradient::SquareSum;
use lockstep_ops::{Maps, TensorLayout};

use super::kernel::{LayerKernel, Op, layout};
use super::slices::Slices;
use super::store::StoreLayout;
use super::update;

/// Where a tensor lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Buffer {
    /// In the parameter store's arena, not in the iteration's.
    pub(crate) lasts: bool,
    pub(crate) range: Range<usize>,
    /// Elements of one sample, where tasks may work on a part of the samples; 0 elsewhere.
    pub(crate) sample_len: usize,
}

impl Buffer {
    /// What comes after so many samples.
    pub(super) fn after_samples(&self, first: usize) -> Self {
        let start = self.range.start + first * self.sample_len;
        Self { range: start..self.range.end, ..*self }
    }

    /// Some of its samples; all of it where it has none.
    #[cfg(debug_assertions)]
    pub(super) fn samples(&self, samples: &Range<usize>) -> Self {
        if self.sample_len == 0 {
            return self.clone();
        }
        let at = |sample: usize| self.range.start + sample * self.sample_len;
        Self { range: at(samples.start)..at(samples.end), ..*self }
    }
}

/// Where the tensors of a plan lie on one rank.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places<'a> {
    pub(super) plan: &'a Plan,
    /// What lasts.
    pub(super) store: &'a StoreLayout,
    /// What does not.
    pub(super) memory: &'a MemoryPlan,
}

impl Places<'_> {
    pub(super) fn buffer(&self, id: TensorId) -> Buffer {
        let tensor = self.plan.tasks().tensor(id);
        if let Some(range) = self.store.range(tensor.layer, tensor.role) {
            return Buffer { lasts: true, range, sample_len: 0 };
        }
        let range = self.memory.range(id).expect("what does not last has a place in the arena");
        let samples = tensor.role.has_samples();
        let layout = samples.then(|| held_layout(self.plan, self.store, tensor));
        let sample_len = layout.map_or(0, |layout| layout.sample_len());
        Buffer { lasts: false, range, sample_len }
    }
}

/// Values of one rank's metrics: loss in two parts, hits, the request to stop.
pub(crate) const METRICS: usize = 4;

/// Elements of every tensor of a plan on one rank, padding included; a multiple of nothing.
pub(super) fn tensor_lens(plan: &Plan, store: &StoreLayout) -> Vec<usize> {
    plan.tasks().tensors().iter().map(|tensor| tensor_len(plan, store, tensor)).collect()
}

fn tensor_len(plan: &Plan, store: &StoreLayout, tensor: &Tensor) -> usize {
    let kernel = store.kernels().get(tensor.layer);
    let mesh = tensor.placement.mesh;
    let mb = capacity(plan, tensor);
    match tensor.role {
        TensorRole::Activation | TensorRole::ActivationGradient => {
            held_layout(plan, store, tensor).len(mb)
        }
        TensorRole::ParameterGradient => kernel.parameters_len(),
        TensorRole::ForwardWeights => kernel.forward_weights_len(),
        TensorRole::BackwardWeights => kernel.backward_weights_len(),
        TensorRole::SliceStatistics | TensorRole::SliceGradientSums
            if plan.options().reproducible =>
        {
            slices(plan) * kernel.statistics_len()
        }
        TensorRole::GatheredStatistics | TensorRole::GatheredGradientSums
            if plan.options().reproducible =>
        {
            REPRODUCIBLE_SLICES * kernel.statistics_len()
        }
        TensorRole::SliceStatistics => {
            let slices = Slices::of_statistics(store.kernels(), tensor.layer);
            slices.most(mb) * kernel.statistics_len()
        }
        TensorRole::SliceGradientSums => match &kernel.op {
            Op::BatchNorm(norm) => norm.stats_slices(mb) * norm.stats_len(),
            _ => 0,
        },
        TensorRole::LocalStatistics
        | TensorRole::BatchStatistics
        | TensorRole::LocalGradientSums => kernel.statistics_len(),
        TensorRole::GatheredStatistics | TensorRole::GatheredGradientSums => {
            mesh.groups() * kernel.statistics_len()
        }
        TensorRole::Labels => mb,
        TensorRole::LossStatistics => mb * loss_statistics_len(kernel),
        TensorRole::GatheredLossStatistics => mesh.members() * mb * loss_statistics_len(kernel),
        TensorRole::SampleLosses => 2 * mb,
        TensorRole::LocalMetrics => slices(plan) * METRICS,
        TensorRole::GatheredMetrics => plan.options().ranks * slices(plan) * METRICS,
        TensorRole::GradientSquares => {
            let strip = store.strip(tensor.layer).len();
            strip.div_ceil(update::SQUARES_CHUNK) * SquareSum::LEN
        }
        TensorRole::LocalSquares => SquareSum::LEN,
        TensorRole::GatheredSquares => plan.options().ranks * SquareSum::LEN,
        // What lasts is in the store; a role added later must be given a length here.
        _ => 0,
    }
}

/// The most samples that a rank holds of a tensor, whatever the minibatch: the same on all ranks.
fn capacity(plan: &Plan, tensor: &Tensor) -> usize {
    let minibatch = plan.options().minibatch;
    match tensor.placement.samples {
        SampleAxis::Split => minibatch.div_ceil(tensor.placement.mesh.groups()),
        _ => minibatch,
    }
}

/// The layout of the features that a store's rank holds of an activation or its gradient.
pub(super) fn held_layout(plan: &Plan, store: &StoreLayout, tensor: &Tensor) -> TensorLayout {
    let layer = plan.network().layer(tensor.layer);
    let (c, h, w) = layer.shape.maps();
    let extent = Extent { samples: plan.options().minibatch, features: c };
    let features = tensor.placement.region(store.rank(), extent).features;
    let isa = store.kernels().get(tensor.layer).isa();
    let maps = Maps { c: features.len(), h, w };
    TensorLayout { maps, layout: layout(plan.network(), layer, isa) }
}

/// Slices of one rank's samples: more than one in the reproducible mode alone.
pub(super) fn slices(plan: &Plan) -> usize {
    if plan.options().reproducible { REPRODUCIBLE_SLICES / plan.options().ranks } else { 1 }
}

fn loss_statistics_len(kernel: &LayerKernel) -> usize {
    match &kernel.op {
        Op::SplitLoss(loss) => loss.statistics_len(1),
        _ => 0,
    }
}
