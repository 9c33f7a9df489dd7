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
    /// Chunks' worth of bytes that may be on the way to one peer at once, sent and not yet received; to all peers together twice
    /// that, but always a chunk to each. More hide latency; fewer let an urgent exchange overtake sooner. A part-reduce stages as
    /// much for each peer, if it is one of the two most urgent exchanges, and two chunks otherwise.
    pub window: usize,
    /// Which exchange is served first.
    pub order: ServiceOrder,
}

/// Which of the exchanges in flight is served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ServiceOrder {
    /// The most urgent, by [`crate::ExchangeLabel::priority`]; it overtakes others between two of their chunks.
    #[default]
    Priority,
    /// The one submitted first.
    Fifo,
}

impl Default for CommConfig {
    /// Thread `comm`, no callbacks, chunks of 128 KiB, 4 of them on the way to a peer: 4 ms at 1 Gbit/s.
    fn default() -> CommConfig {
        CommConfig {
            thread_name: "comm".to_owned(),
            on_thread_start: Box::new(|| ()),
            on_complete: Box::new(|_| ()),
            on_failure: Box::new(|_| ()),
            on_step: None,
            chunk_bytes: 128 << 10,
            window: 4,
            order: ServiceOrder::Priority,
        }
    }
}

impl fmt::Debug for CommConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommConfig")
            .field("thread_name", &self.thread_name)
            .field("chunk_bytes", &self.chunk_bytes)
            .field("window", &self.window)
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}
