//! One iteration's data: which step it is, its samples, its hyper-parameters, and what it reports.

use lockstep_graph::share;
use lockstep_ops::sgd::SgdHyper;

/// What one iteration works on. Every rank makes its own, from the same schedule.
#[derive(Debug, Clone)]
pub struct Iteration {
    /// Step number, counted from 1 through all epochs; 0-based counts are the scheduler's own.
    pub step: u64,
    /// Epoch number, counted from 1.
    pub epoch: u64,
    /// Samples of this step's minibatch over all ranks; at most the plan's.
    pub minibatch: usize,
    /// The optimizer's numbers for this step.
    pub hyper: SgdHyper,
    /// Seed of what is random within a step (dropout).
    pub seed: u64,
    /// Global index of every sample of the minibatch, in order; dropout masks are functions of it.
    pub ids: Vec<u64>,
    /// This rank's share of the minibatch.
    pub samples: LocalSamples,
}

/// One rank's share of a minibatch; may be empty.
#[derive(Debug, Clone, Default)]
pub struct LocalSamples {
    /// Values, plain `[sample][channel][row][column]`.
    pub values: Vec<f32>,
    /// Class of each sample.
    pub labels: Vec<u32>,
}

impl Iteration {
    /// Samples that this rank loads.
    #[must_use]
    pub fn local_minibatch(&self) -> usize {
        self.samples.labels.len()
    }

    /// Samples of each of `groups` groups of ranks, ascending: the same rule on all ranks.
    pub fn counts(&self, groups: usize) -> impl Iterator<Item = usize> + use<> {
        let minibatch = self.minibatch;
        (0..groups).map(move |group| share(minibatch, groups, group).len())
    }
}

/// The result of one iteration over all ranks; the same numbers on every rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IterationReport {
    /// Step number.
    pub step: u64,
    /// Epoch number.
    pub epoch: u64,
    /// Samples of the minibatch.
    pub minibatch: usize,
    /// Mean loss over the minibatch.
    pub loss: f64,
    /// Samples whose largest logit was their label's.
    pub correct: u64,
    /// True when some rank was asked to stop before this iteration's end.
    pub stop: bool,
}
