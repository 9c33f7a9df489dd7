//! From the loader to the executor: one rank's minibatches with their hyper-parameters, and the reports back.

use lockstep_data::{Batch, Loader};
use lockstep_ops::sgd::SgdHyper;
use lockstep_scheduler::{Feed, Iteration, IterationReport, LocalSamples};

use super::options::Sgd;
use crate::error::RunError;
use crate::schedule::Progress;

/// Hyper-parameters of a step.
#[derive(Debug, Clone)]
pub(super) struct Recipe {
    pub(super) sgd: Sgd,
    pub(super) seed: u64,
    pub(super) total_steps: u64,
}

impl Recipe {
    /// The learning rate of a step.
    pub(super) fn rate(&self, step: u64, epoch: u64) -> f32 {
        let progress = Progress { step, total_steps: self.total_steps, epoch };
        self.sgd.schedule.rate(self.sgd.lr, progress)
    }

    fn hyper(&self, step: u64, epoch: u64) -> SgdHyper {
        SgdHyper {
            lr: self.rate(step, epoch),
            momentum: self.sgd.momentum,
            weight_decay: self.sgd.weight_decay,
            nesterov: self.sgd.nesterov,
        }
    }
}

/// Feeds an executor from a loader until `last_step`, and hands every report to `on_report`.
pub(super) struct LoaderFeed<'a> {
    pub(super) loader: &'a mut Loader,
    pub(super) recipe: &'a Recipe,
    /// Steps this feed may still give.
    pub(super) steps_left: u64,
    pub(super) on_report: &'a mut dyn FnMut(&IterationReport) -> Result<(), RunError>,
}

impl Feed for LoaderFeed<'_> {
    type Error = RunError;

    fn next(&mut self) -> Result<Option<Iteration>, RunError> {
        if self.steps_left == 0 {
            return Ok(None);
        }
        let Some(batch) = self.loader.next() else { return Ok(None) };
        let batch = batch?;
        self.steps_left -= 1;
        Ok(Some(Iteration {
            step: batch.step,
            epoch: batch.epoch,
            minibatch: batch.minibatch,
            hyper: self.recipe.hyper(batch.step, batch.epoch),
            seed: self.recipe.seed,
            ids: batch.ids,
            samples: LocalSamples { values: batch.samples, labels: batch.labels },
        }))
    }

    fn report(&mut self, report: &IterationReport) -> Result<(), RunError> {
        (self.on_report)(report)
    }

    fn recycle(&mut self, iteration: Iteration) {
        let Iteration { step, epoch, minibatch, ids, samples, .. } = iteration;
        let LocalSamples { values, labels } = samples;
        self.loader.recycle(Batch { step, epoch, minibatch, ids, samples: values, labels });
    }
}
