//! What other threads hand to the communication thread, and the state that both sides see.

use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam::queue::SegQueue;

use crate::counters::CounterCells;
use crate::doorbell::Doorbell;
use crate::error::CommError;
use crate::exchange::Exchange;

/// The answer to a caller that waits.
pub(crate) type Reply<T> = Sender<Result<T, CommError>>;

/// Whom to tell that an exchange is over.
#[derive(Debug)]
pub(crate) enum Notify {
    /// The scheduler, through `on_complete`.
    Token(u64),
    /// A caller that blocks.
    Caller(Reply<()>),
    /// A caller that blocks until exchanges that follow one another are all over.
    Series(Box<Series>),
}

impl Notify {
    /// The caller that blocks, if one does.
    pub(crate) fn caller(&self) -> Option<&Reply<()>> {
        match self {
            Notify::Token(_) => None,
            Notify::Caller(reply) => Some(reply),
            Notify::Series(series) => Some(&series.reply),
        }
    }
}

/// Exchanges that the communication thread serves one after another, over and over.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) exchanges: Vec<Arc<Exchange>>,
    /// How many are still to be served after the one that this goes with.
    pub(crate) left: usize,
    pub(crate) reply: Reply<()>,
}

/// Everything that can be asked of the communication thread.
#[derive(Debug)]
pub(crate) enum Command {
    /// Serve an exchange.
    Serve { exchange: Arc<Exchange>, step: u64, notify: Notify },
    /// Measure this rank's clock against rank 0's.
    MeasureClock(Reply<i64>),
    /// Measure the transport's own collectives, if it has any, on `len` elements.
    Baseline { len: usize, times: usize, reply: Reply<Option<Duration>> },
    /// End the job now.
    Abort { code: i32, message: String, reply: Reply<()> },
    /// Finish what is in flight, then end the thread.
    Shutdown(Reply<()>),
}

/// Shared by a communicator's handle and its thread.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) rank: usize,
    pub(crate) n_ranks: usize,
    pub(crate) library: String,
    pub(crate) chunk_bytes: usize,
    /// Unbounded and lock-free; many producers, the communication thread consumes.
    pub(crate) queue: SegQueue<Command>,
    pub(crate) doorbell: Arc<Doorbell>,
    pub(crate) counters: CounterCells,
    /// Set once, before anybody is told of the failure.
    pub(crate) failure: OnceLock<CommError>,
}

impl Shared {
    /// Hands over a command: one queue node, then the bell (`doorbell.rs` says why in this order).
    pub(crate) fn submit(&self, command: Command) {
        self.queue.push(command);
        self.doorbell.ring();
    }

    /// Why the communicator failed; [`CommError::Stopped`] if its thread just ended.
    pub(crate) fn failure(&self) -> CommError {
        self.failure.get().cloned().unwrap_or(CommError::Stopped)
    }
}
