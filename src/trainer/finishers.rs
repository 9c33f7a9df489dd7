//! The recordings that are under way in this process, so that a signal handler can end them.

use std::sync::{Mutex, PoisonError};

use lockstep_traces::Finisher;

/// Recordings of this process's ranks.
#[derive(Debug, Default)]
pub struct Finishers(Mutex<Vec<Finisher>>);

impl Finishers {
    pub(super) fn add(&self, finisher: Finisher) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(finisher);
    }

    /// True when this process has one recording only.
    #[must_use]
    pub fn is_single(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len() == 1
    }

    /// Ends every recording and writes its file. What cannot be written is reported by the rank that owns it.
    pub fn finish_all(&self) {
        for finisher in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            if let Err(error) = finisher.finish() {
                tracing::error!("{error}");
            }
        }
    }
}
