//! What a run tells the outside as it goes.

use lockstep_scheduler::IterationReport;

/// What was chosen before the first step.
#[derive(Debug, Clone, PartialEq)]
pub struct RunStart {
    /// Network name.
    pub network: String,
    /// Parameters of the network.
    pub parameters: usize,
    /// Instruction set of the kernels.
    pub isa: &'static str,
    /// Compute threads a rank.
    pub workers: usize,
    /// Ranks.
    pub ranks: usize,
    /// How ranks talk: `local`, or the MPI library.
    pub transport: String,
    /// Samples of a minibatch over all ranks.
    pub minibatch: usize,
    /// Samples of the rank with the most.
    pub local_minibatch: usize,
    /// Parallel strategy.
    pub strategy: String,
    /// Whether the bits are the same on 1, 2, 4 and 8 ranks.
    pub reproducible: bool,
    /// Training samples.
    pub samples: usize,
    /// Steps of the whole run.
    pub total_steps: u64,
    /// Steps of an epoch.
    pub steps_per_epoch: u64,
    /// Predicted peak of resident memory of this process, in bytes.
    pub peak_memory: u64,
    /// Things the user should know: a thread binding that hurts, for one.
    pub warnings: Vec<String>,
}

/// One step's result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepRecord {
    /// Loss and hits over all ranks.
    pub report: IterationReport,
    /// Samples of all ranks a second since the report before.
    pub samples_per_s: f64,
    /// Learning rate of the step.
    pub lr: f32,
}

/// The score of a network on a whole data set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// Mean loss.
    pub loss: f64,
    /// Samples whose largest logit was their label's.
    pub correct: u64,
    /// Samples.
    pub samples: u64,
    /// Samples a second.
    pub samples_per_s: f64,
}

impl Score {
    /// The fraction of samples that were right.
    #[must_use]
    pub fn top1(&self) -> f64 {
        self.correct as f64 / self.samples as f64
    }
}

/// The end of an epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EpochRecord {
    /// Epoch, counted from 1.
    pub epoch: u64,
    /// Mean training loss over the epoch's samples.
    pub train_loss: f64,
    /// Seconds of training, evaluation not counted.
    pub seconds: f64,
    /// The score on the test data, where there is some.
    pub test: Option<Score>,
}

/// Listens to a run; called on rank 0's thread only, but for [`Observer::failed`].
pub trait Observer: Send {
    /// Before the first step.
    fn start(&mut self, _start: &RunStart) {}
    /// After every step.
    fn step(&mut self, _step: &StepRecord) {}
    /// After every epoch, and after the last step.
    fn epoch(&mut self, _epoch: &EpochRecord) {}
    /// A checkpoint was written.
    fn saved(&mut self, _path: &std::path::Path) {}
    /// This process's rank of an MPI job failed; the job is ended next, and this process with it.
    fn failed(&mut self, _rank: usize, _error: &crate::error::RunError) {}
}

/// Listens to nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {}
