//! How a loader works.

use std::fmt;
use std::sync::Arc;

use crate::{DataError, Dataset, Schedule, share};

/// Called in a loader thread with the step that it is about to prepare.
pub type StepHook = Arc<dyn Fn(u64) + Send + Sync>;

/// Called in a loader thread with the thread's index, when it starts.
pub type ThreadHook = Arc<dyn Fn(usize) + Send + Sync>;

/// Batches that a caller is taken to hold: training works on two steps at once, as no barrier lies between them.
const IN_USE: usize = 2;

/// How a loader works: its threads, its memory, and whose part of which steps it prepares.
#[derive(Clone)]
pub struct LoaderConfig {
    /// Threads that read and decode.
    pub threads: usize,
    /// Batches prepared ahead.
    pub depth: usize,
    /// The rank whose samples are wanted.
    pub rank: usize,
    /// All ranks.
    pub n_ranks: usize,
    /// The first step, counted from 1 over all epochs.
    pub first_step: u64,
    /// The last step; `None` goes on from epoch to epoch.
    pub last_step: Option<u64>,
    /// Thread names are this and an index. Linux shows 15 bytes.
    pub thread_name: String,
    /// Called in each thread as it starts, such as for naming it in a trace. Must not panic: that would end the process.
    pub on_thread_start: ThreadHook,
    /// Called before each step, for making it fail or dawdle on purpose.
    pub on_step: Option<StepHook>,
}

impl LoaderConfig {
    /// Bytes of the batches that a loader has in use: those ahead and two with the caller.
    #[must_use]
    pub fn buffer_bytes(&self, dataset: &dyn Dataset, minibatch: usize) -> usize {
        let local = share(minibatch, self.n_ranks, self.rank).len();
        let sample = dataset.shape().values() * size_of::<f32>();
        (self.depth + IN_USE) * local * (sample + size_of::<u64>() + size_of::<u32>())
    }

    /// Whether a loader can work so.
    pub(super) fn check(&self, schedule: &Schedule) -> Result<(), DataError> {
        let not_zero = [
            ("threads", self.threads as u64),
            ("depth", self.depth as u64),
            ("n_ranks", self.n_ranks as u64),
            ("first_step", self.first_step),
            ("minibatch", schedule.minibatch as u64),
            ("n_samples", schedule.n_samples as u64),
        ];
        for (field, value) in not_zero {
            if value == 0 {
                return Err(DataError::Config { field, value, rule: "must be at least 1" });
            }
        }
        if self.rank >= self.n_ranks {
            let (value, rule) = (self.rank as u64, "must be below n_ranks");
            return Err(DataError::Config { field: "rank", value, rule });
        }
        Ok(())
    }
}

impl Default for LoaderConfig {
    /// One thread, three batches ahead, the only rank, from the first step on without end.
    fn default() -> Self {
        Self {
            threads: 1,
            depth: 3,
            rank: 0,
            n_ranks: 1,
            first_step: 1,
            last_step: None,
            thread_name: "loader".to_owned(),
            on_thread_start: Arc::new(|_| ()),
            on_step: None,
        }
    }
}

impl fmt::Debug for LoaderConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoaderConfig")
            .field("threads", &self.threads)
            .field("depth", &self.depth)
            .field("rank", &self.rank)
            .field("n_ranks", &self.n_ranks)
            .field("first_step", &self.first_step)
            .field("last_step", &self.last_step)
            .field("thread_name", &self.thread_name)
            .finish_non_exhaustive()
    }
}
