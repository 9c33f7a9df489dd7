//! What the ranks of one process share: a seat each, where the others leave messages, and the job's fate.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam::queue::SegQueue;

use crate::doorbell::Doorbell;
use crate::sync::fence;
use crate::transport::{Address, Ticket};

use super::loan::Loan;

/// A message on its way.
#[derive(Debug)]
pub(super) struct Parcel {
    /// The sender, and the message's tag.
    pub(super) from: Address,
    pub(super) loan: Arc<Loan>,
    /// The sender's ticket, to be returned when the loan has been read.
    pub(super) ticket: Ticket,
}

/// Where one rank receives. Lock-free queues: many push, the rank's communication thread pops.
#[derive(Debug, Default)]
pub(super) struct Seat {
    pub(super) inbox: SegQueue<Parcel>,
    /// Tickets of own messages that have been read.
    pub(super) returns: SegQueue<Ticket>,
    pub(super) doorbell: OnceLock<Arc<Doorbell>>,
    /// Whether the rank has shut down.
    pub(super) left: AtomicBool,
}

/// The shared state behind [`LocalJob`].
#[derive(Debug)]
pub(super) struct JobState {
    pub(super) seats: Vec<Seat>,
    /// The first failure and its rank; later ones are consequences.
    pub(super) failure: OnceLock<(usize, String)>,
    /// How many ranks have shut down; tells waiting ranks to look at `left`.
    pub(super) departures: AtomicUsize,
}

impl JobState {
    /// Wakes a rank after something was put where it looks.
    pub(super) fn notify(&self, rank: usize) {
        // A rank that connects right now sets its bell, passes `Doorbell::sleep`'s fence and looks; we put, pass this fence and
        // look for the bell. One of the two sees the other.
        fence(Ordering::SeqCst);
        if let Some(doorbell) = self.seats[rank].doorbell.get() {
            doorbell.ring();
        }
    }

    fn notify_all(&self) {
        (0..self.seats.len()).for_each(|rank| self.notify(rank));
    }

    pub(super) fn fail(&self, rank: usize, message: &str) {
        // Only the first failure counts; an error here means that there is one already.
        if self.failure.set((rank, message.to_owned())).is_ok() {
            self.notify_all();
        }
    }

    pub(super) fn leave(&self, rank: usize) {
        // Both release: whoever sees them sees all that the rank has sent and read.
        self.seats[rank].left.store(true, Ordering::Release);
        self.departures.fetch_add(1, Ordering::Release);
        self.notify_all();
    }
}

/// A job whose ranks are threads of this process.
#[derive(Debug, Clone)]
pub struct LocalJob {
    pub(super) state: Arc<JobState>,
}

impl LocalJob {
    /// One endpoint per rank, by rank.
    ///
    /// ```
    /// use lockstep_comm::{CommConfig, Communicator, LocalJob};
    ///
    /// let start = |endpoint| Communicator::start(endpoint, CommConfig::default());
    /// let comms = LocalJob::endpoints(2).into_iter().map(start).collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(comms.iter().map(Communicator::rank).collect::<Vec<_>>(), [0, 1]);
    /// comms.into_iter().try_for_each(Communicator::shutdown)?;
    /// # Ok::<(), lockstep_comm::CommError>(())
    /// ```
    #[must_use]
    pub fn endpoints(n_ranks: usize) -> Vec<LocalEndpoint> {
        let state = Arc::new(JobState {
            seats: (0..n_ranks).map(|_| Seat::default()).collect(),
            failure: OnceLock::new(),
            departures: AtomicUsize::new(0),
        });
        let job = LocalJob { state };
        (0..n_ranks)
            .map(|rank| LocalEndpoint { presence: Presence::new(job.clone(), rank) })
            .collect()
    }

    /// Ends the job because of `rank`: the communicators of all other ranks fail with [`crate::CommError::PeerFailed`], that of
    /// `rank` with [`crate::CommError::Aborted`]. Without effect if the job has failed already.
    pub fn fail(&self, rank: usize, message: &str) {
        self.state.fail(rank, message);
    }
}

/// The place of one rank in a [`LocalJob`]; give it to [`crate::Communicator::start`].
///
/// An endpoint that is dropped unused ends the job, because the other ranks would wait for it.
#[derive(Debug)]
pub struct LocalEndpoint {
    pub(super) presence: Presence,
}

impl LocalEndpoint {
    /// The job that the endpoint belongs to.
    #[must_use]
    pub fn job(&self) -> LocalJob {
        self.presence.job.clone()
    }
}

/// A rank's membership. Dropped without [`Presence::leave`], it fails the job.
#[derive(Debug)]
pub(super) struct Presence {
    job: LocalJob,
    pub(super) rank: usize,
    left: bool,
}

impl Presence {
    fn new(job: LocalJob, rank: usize) -> Presence {
        Presence { job, rank, left: false }
    }

    pub(super) fn state(&self) -> &JobState {
        &self.job.state
    }

    pub(super) fn seat(&self) -> &Seat {
        &self.state().seats[self.rank]
    }

    pub(super) fn leave(&mut self) {
        self.left = true;
        self.state().leave(self.rank);
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        if !self.left {
            self.state().fail(self.rank, "it left without shutting down its communicator");
        }
    }
}
