//! How a communicator is set up: its thread, its callbacks, its chunks.

use std::fmt;

use crate::error::CommError;

/// An exchange is over: what was received is in place, what was sent may be overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The token given to [`crate::Communicator::submit`].
    pub token: u64,
}

/// Settings of a communicator. Start from `CommConfig::default()` and set what differs.
///
/// Callbacks run on the communication thread, so they must be short: nothing moves meanwhile. A callback may submit.
pub struct CommConfig {
    /// The communication thread's name (the operating system shows the first 15 bytes).
    pub thread_name: String,
    /// Called first thing on the communication thread: pinning, floating-point mode, trace dispatcher.
    pub on_thread_start: Box<dyn FnOnce() + Send>,
    /// Called once for each completed exchange.
    pub on_complete: Box<dyn FnMut(Completion) + Send>,
    /// Called at most once, when the communicator fails; afterwards nothing completes, and with MPI the job is aborted
    /// as soon as this returns.
    pub on_failure: Box<dyn FnMut(&CommError) + Send>,
    /// Called with a submission's step before it is served: a place for faults on purpose.
    pub on_step: Option<Box<dyn FnMut(u64) + Send>>,
    /// Longest message; larger transfers are cut. All ranks must agree (see [`crate::agree`]). From 4 bytes to 1 GiB;
    /// other values are moved to the nearest of these. Rounded down to whole elements.
    pub chunk_bytes: usize,
    /// Chunks that may be on the way to other ranks at once. More hide latency; fewer let an urgent exchange overtake sooner.
    pub window: usize,
}

impl Default for CommConfig {
    /// Thread `comm`, no callbacks, chunks of 1 MiB, 8 of them in flight.
    fn default() -> CommConfig {
        CommConfig {
            thread_name: "comm".to_owned(),
            on_thread_start: Box::new(|| ()),
            on_complete: Box::new(|_| ()),
            on_failure: Box::new(|_| ()),
            on_step: None,
            chunk_bytes: 1 << 20,
            window: 8,
        }
    }
}

impl fmt::Debug for CommConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommConfig")
            .field("thread_name", &self.thread_name)
            .field("chunk_bytes", &self.chunk_bytes)
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}
