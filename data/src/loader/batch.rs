//! One rank's part of one step's minibatch.

/// The samples that one rank computes in one step. There may be none, where a minibatch has fewer samples than there are
/// ranks: the rank still takes part in the step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// The step, counted from 1 over all epochs.
    pub step: u64,
    /// Its epoch, counted from 1.
    pub epoch: u64,
    /// Samples of this step over all ranks: what the mean gradient is taken over.
    pub minibatch: usize,
    /// Indices, in the data set, of all samples of the step, over all ranks; this rank's are its [`share`](crate::share).
    pub ids: Vec<u64>,
    /// This rank's samples as plain NCHW, `labels.len()` times the values of a sample.
    pub samples: Vec<f32>,
    /// Their labels.
    pub labels: Vec<u32>,
}
