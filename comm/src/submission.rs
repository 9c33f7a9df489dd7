//! What other threads hand to the communication thread, and the state that both sides see.

use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::counters::CounterCells;
use crate::doorbell::Doorbell;
use crate::error::CommError;
use crate::exchange::Exchange;
use crate::ring::Producer;
use crate::workers::Workers;

/// Commands that may wait for the communication thread. Far more than a job has exchanges in flight.
pub(crate) const QUEUE_LENGTH: usize = 1024;

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
    /// Many threads put, the communication thread takes.
    pub(crate) queue: Producer<Command>,
    /// What the communication thread itself asked for, in callbacks, while the ring was full: it cannot wait for itself.
    pub(crate) overflow: Mutex<VecDeque<Command>>,
    pub(crate) doorbell: Arc<Doorbell>,
    pub(crate) counters: CounterCells,
    pub(crate) workers: Workers,
    /// Set once, before anybody is told of the failure.
    pub(crate) failure: OnceLock<CommError>,
}

impl Shared {
    /// Hands over a command: into the ring, then the bell (`doorbell.rs` says why in this order). Waits while the ring is full,
    /// which takes [`QUEUE_LENGTH`] commands that the communication thread has not looked at.
    pub(crate) fn submit(&self, command: Command) {
        if let Err(command) = self.queue.try_put(command) {
            if self.doorbell.is_for_this_thread() {
                self.overflow().push_back(command);
            } else {
                self.queue.put(command);
            }
        }
        self.doorbell.ring();
    }

    /// Locked by the communication thread alone, so never for long; nobody panics meanwhile.
    pub(crate) fn overflow(&self) -> MutexGuard<'_, VecDeque<Command>> {
        self.overflow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the communicator failed; [`CommError::Stopped`] if its thread just ended.
    pub(crate) fn failure(&self) -> CommError {
        self.failure.get().cloned().unwrap_or(CommError::Stopped)
    }
}
