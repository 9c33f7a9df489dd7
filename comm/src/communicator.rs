//! The handle through which other threads use the communication thread.

use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, current};
use std::time::Duration;

use crate::config::CommConfig;
use crate::counters::Counters;
use crate::error::CommError;
use crate::exchange::Exchange;
use crate::gather;
use crate::submission::{Command, Notify, Reply, Shared};
use crate::thread;
use crate::transport::Endpoint;

/// How long [`Communicator::abort`] waits for the communication thread, which may be inside a callback.
const ABORT_PATIENCE: Duration = Duration::from_secs(5);

/// One rank's running communication thread. `Send + Sync`; all methods but [`Communicator::shutdown`] take `&self`.
///
/// Dropping a communicator that was not shut down means that its rank failed, and ends the whole job: a rank that leaves
/// because of an error must not leave the others waiting.
pub struct Communicator {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The crate's own exchanges have fixed ids, so one caller at a time.
    gathering: Mutex<()>,
}

impl Communicator {
    /// Starts the communication thread. The transport is built there (MPI is initialized there), before this returns.
    ///
    /// # Errors
    /// The thread cannot be started, `on_thread_start` panics, or the transport cannot be built.
    pub fn start(
        endpoint: impl Into<Endpoint>,
        config: CommConfig,
    ) -> Result<Communicator, CommError> {
        let (shared, thread) = thread::start(endpoint.into(), config)?;
        Ok(Communicator { shared, thread: Some(thread), gathering: Mutex::new(()) })
    }

    /// This rank.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.shared.rank
    }

    /// Ranks of the job.
    #[must_use]
    pub fn n_ranks(&self) -> usize {
        self.shared.n_ranks
    }

    /// `local`, or the MPI library's version and the thread level that it provides.
    #[must_use]
    pub fn library(&self) -> &str {
        &self.shared.library
    }

    /// Asks for an exchange; `on_complete` is called with `token` when it is over. Every member submits its own description
    /// of the exchange, in any order relative to other exchanges. `step` is handed to `on_step`.
    ///
    /// Takes no lock. Waits only where a thousand requests are queued that the communication thread has not looked at yet. After a failure nothing completes. An exchange submitted again before its completion
    /// is a failure ([`CommError::StillInFlight`]).
    ///
    /// # Safety
    /// The contract of [`crate::Region::new`] holds for the exchange's regions from now until its completion.
    #[expect(unsafe_code, reason = "hands memory to another thread; the contract is Region's")]
    pub unsafe fn submit(&self, exchange: &Arc<Exchange>, step: u64, token: u64) {
        self.serve(Arc::clone(exchange), step, Notify::Token(token));
    }

    pub(crate) fn serve(&self, exchange: Arc<Exchange>, step: u64, notify: Notify) {
        self.shared.submit(Command::Serve { exchange, step, notify });
    }

    /// Gives every rank the bytes of all ranks, by rank. All ranks must call it, in the same order; blocks until all have.
    ///
    /// # Errors
    /// The communicator has failed or fails meanwhile.
    #[expect(clippy::needless_pass_by_value, reason = "callers are done with what they sent")]
    pub fn all_gather(&self, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>, CommError> {
        // A panicking caller leaves nothing behind that a later one could trip over.
        let _one_at_a_time = self.gathering.lock().unwrap_or_else(PoisonError::into_inner);
        gather::all_gather(self, &bytes)
    }

    /// This rank's Unix clock minus rank 0's, in nanoseconds: the best of some ping-pongs (the one with the shortest round
    /// trip), 0 on rank 0. All ranks must call it; blocks until all have. Error: half the shortest round trip at most.
    ///
    /// # Errors
    /// The communicator has failed or fails meanwhile.
    pub fn clock_offset(&self) -> Result<i64, CommError> {
        self.ask(Command::MeasureClock)
    }

    /// What has been moved so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.counters.read()
    }

    /// Says that the calling thread will compute, on cores that the communication thread may have to share. Until
    /// [`Communicator::worker_leaves`] it rests in [`Communicator::worker_rests`] alone.
    pub fn worker_joins(&self) {
        self.shared.workers.join();
    }

    /// Says that a worker that joined will compute no more.
    pub fn worker_leaves(&self) {
        self.shared.workers.leave();
    }

    /// Runs `rest`, in which a worker that joined has nothing to compute: the core is the communication thread's meanwhile.
    pub fn worker_rests<R>(&self, rest: impl FnOnce() -> R) -> R {
        self.shared.workers.rest(&self.shared.doorbell, rest)
    }

    /// Why the communicator failed, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<CommError> {
        self.shared.failure.get().cloned()
    }

    /// Longest message; part of what ranks must agree on.
    #[must_use]
    pub fn chunk_bytes(&self) -> usize {
        self.shared.chunk_bytes
    }

    /// Ends the whole job. With MPI: `MPI_Abort` with `code` on the communication thread; normally this does not return.
    /// Local ranks: every other rank fails with [`CommError::PeerFailed`], naming this rank and `message`.
    pub fn abort(&self, code: i32, message: &str) {
        let (reply, answer) = channel();
        self.shared.submit(Command::Abort { code, message: message.to_owned(), reply });
        if !self.on_own_thread() {
            // Whether carried out, already failed or stuck in a callback: there is nothing more to do from here.
            let _: Result<_, RecvTimeoutError> = answer.recv_timeout(ABORT_PATIENCE);
        }
    }

    /// Finishes what was submitted, leaves the job and ends the thread. With MPI this includes `MPI_Finalize`, for which all
    /// ranks must come; local ranks leave one by one.
    ///
    /// # Errors
    /// The communicator had failed, or fails to leave.
    pub fn shutdown(mut self) -> Result<(), CommError> {
        let left = self.ask(Command::Shutdown);
        self.join();
        left
    }

    /// Sends a command that answers, and waits for the answer.
    pub(crate) fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, CommError> {
        let (reply, answer) = channel();
        self.shared.submit(command(reply));
        self.wait_for(&answer)
    }

    /// Waits for an answer. If the thread ended without one, its failure is the answer.
    pub(crate) fn wait_for<T>(
        &self,
        answer: &Receiver<Result<T, CommError>>,
    ) -> Result<T, CommError> {
        answer.recv().unwrap_or_else(|_| Err(self.shared.failure()))
    }

    fn on_own_thread(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| thread.thread().id() == current().id())
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // The thread catches its panics and reports them as failures, so there is no news in the result.
            let _: std::thread::Result<()> = thread.join();
        }
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // `shutdown` has joined already. A communicator dropped by its own thread (in a callback) cannot wait for it.
        if self.thread.is_none() {
            return;
        }
        if self.n_ranks() > 1 && self.shared.failure.get().is_none() {
            self.abort(
                1,
                "it left without shutting down its communicator, because of an earlier error",
            );
        }
        let (reply, _) = channel();
        self.shared.submit(Command::Shutdown(reply));
        if !self.on_own_thread() {
            self.join();
        }
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Communicator")
            .field("rank", &self.rank())
            .field("n_ranks", &self.n_ranks())
            .field("library", &self.library())
            .finish_non_exhaustive()
    }
}
