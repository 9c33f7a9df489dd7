//! Ranks as threads of one process. A message is a loan of the sender's memory: the receiver's communication thread copies
//! straight to the destination, once. As with MPI's rendezvous, a send is finished when it has been received.

mod job;
#[expect(unsafe_code, reason = "lends memory to another thread for one copy")]
mod loan;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::doorbell::Doorbell;
use crate::error::CommError;
use crate::region::Span;

use super::{Address, STANDING_TAG, Ticket, Transport};
use job::{Parcel, Presence};
use loan::Loan;

pub use job::{LocalEndpoint, LocalJob};

/// A receive that waits for its message.
#[derive(Debug)]
struct Posted {
    tag: u32,
    bytes: Span,
    ticket: Ticket,
}

/// One rank's side of a [`LocalJob`].
#[derive(Debug)]
pub(super) struct LocalTransport {
    presence: Presence,
    /// Receives without a message and messages without a receive, by peer, in order.
    posted: Vec<VecDeque<Posted>>,
    unexpected: Vec<VecDeque<Parcel>>,
    /// Own messages that have not been read yet, with their receivers.
    lent: HashMap<Ticket, (Arc<Loan>, usize)>,
    /// Receives that were finished on the spot.
    finished: Vec<Ticket>,
    departures_seen: usize,
}

impl LocalTransport {
    pub(super) fn new(endpoint: LocalEndpoint) -> LocalTransport {
        let n_ranks = endpoint.presence.state().seats.len();
        LocalTransport {
            presence: endpoint.presence,
            posted: (0..n_ranks).map(|_| VecDeque::new()).collect(),
            unexpected: (0..n_ranks).map(|_| VecDeque::new()).collect(),
            lent: HashMap::new(),
            finished: Vec::new(),
            departures_seen: 0,
        }
    }

    /// Reads a message into its receive and returns the sender's ticket.
    fn deliver(&mut self, parcel: &Parcel, bytes: Span, ticket: Ticket) -> Result<(), CommError> {
        let Address { peer, tag } = parcel.from;
        if parcel.loan.len() != bytes.len() {
            let (expected, got) = (bytes.len(), parcel.loan.len());
            return Err(CommError::SizeMismatch { peer, tag, expected, got });
        }
        // If the sender took the message back it is failing: this receive never finishes, and the job's failure is next.
        if parcel.loan.read_into(bytes) {
            self.finished.push(ticket);
            self.presence.state().seats[peer].returns.push(parcel.ticket);
            self.presence.state().notify(peer);
        }
        Ok(())
    }

    /// The job's failure as this rank sees it.
    fn failure(&self) -> Option<CommError> {
        let (rank, message) = self.presence.state().failure.get()?.clone();
        let own = rank == self.presence.rank;
        Some(if own {
            CommError::Aborted { rank, message }
        } else {
            CommError::PeerFailed { rank, message }
        })
    }

    /// The ranks that have shut down.
    fn departed(&self) -> Vec<usize> {
        let seats = &self.presence.state().seats;
        // Acquire pairs with `JobState::leave`: what a rank did before it left is visible to whoever sees that it left.
        (0..seats.len()).filter(|&rank| seats[rank].left.load(Ordering::Acquire)).collect()
    }

    /// Whether something in flight depends on a rank.
    fn waits_for(&self, rank: usize) -> bool {
        self.posted[rank].iter().any(|posted| posted.tag != STANDING_TAG)
            || self.lent.values().any(|&(_, peer)| peer == rank)
    }
}

impl Transport for LocalTransport {
    fn rank(&self) -> usize {
        self.presence.rank
    }

    fn n_ranks(&self) -> usize {
        self.presence.state().seats.len()
    }

    fn library(&self) -> String {
        "local".to_owned()
    }

    fn take_doorbell(&mut self, doorbell: &Arc<Doorbell>) -> bool {
        let taken = self.presence.seat().doorbell.set(Arc::clone(doorbell));
        debug_assert!(taken.is_ok(), "an endpoint connects once");
        true
    }

    fn has_news(&self) -> bool {
        let seat = self.presence.seat();
        let state = self.presence.state();
        !seat.inbox.is_empty()
            || !seat.returns.is_empty()
            || !self.finished.is_empty()
            || state.failure.get().is_some()
            || state.departures.load(Ordering::Relaxed) != self.departures_seen
    }

    fn send(&mut self, to: Address, bytes: Span, ticket: Ticket) -> Result<(), CommError> {
        let loan = Arc::new(Loan::new(bytes));
        self.lent.insert(ticket, (Arc::clone(&loan), to.peer));
        let from = Address { peer: self.presence.rank, tag: to.tag };
        self.presence.state().seats[to.peer].inbox.push(Parcel { from, loan, ticket });
        self.presence.state().notify(to.peer);
        Ok(())
    }

    fn receive(&mut self, from: Address, bytes: Span, ticket: Ticket) -> Result<(), CommError> {
        let waiting = &mut self.unexpected[from.peer];
        match waiting.iter().position(|parcel| parcel.from.tag == from.tag) {
            Some(at) => {
                let parcel = waiting.remove(at).expect("the position was found just now");
                self.deliver(&parcel, bytes, ticket)
            }
            None => {
                self.posted[from.peer].push_back(Posted { tag: from.tag, bytes, ticket });
                Ok(())
            }
        }
    }

    fn poll(&mut self, finished: &mut Vec<Ticket>) -> Result<(), CommError> {
        // Before the queues, so that what a rank sent or read before it left is found below.
        let departures = self.presence.state().departures.load(Ordering::Acquire);
        let departed = if departures == 0 { Vec::new() } else { self.departed() };
        while let Some(parcel) = self.presence.seat().inbox.pop() {
            let Address { peer, tag } = parcel.from;
            match self.posted[peer].iter().position(|posted| posted.tag == tag) {
                Some(at) => {
                    let posted =
                        self.posted[peer].remove(at).expect("the position was found just now");
                    self.deliver(&parcel, posted.bytes, posted.ticket)?;
                }
                None => self.unexpected[peer].push_back(parcel),
            }
        }
        while let Some(ticket) = self.presence.seat().returns.pop() {
            self.lent.remove(&ticket);
            finished.push(ticket);
        }
        finished.append(&mut self.finished);
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        self.departures_seen = departures;
        match departed.into_iter().find(|&rank| self.waits_for(rank)) {
            Some(rank) => Err(CommError::PeerFailed {
                rank,
                message: "it shut down while this rank was exchanging with it".to_owned(),
            }),
            None => Ok(()),
        }
    }

    fn baseline(&mut self, _len: usize, _times: usize) -> Result<Option<Duration>, CommError> {
        Ok(None)
    }

    fn revoke(&mut self) {
        self.lent.drain().for_each(|(_, (loan, _))| loan.revoke());
    }

    fn abort(&mut self, _code: i32, error: &CommError) {
        let (state, own) = (self.presence.state(), self.presence.rank);
        match error {
            CommError::PeerFailed { rank, message } => state.fail(*rank, message),
            CommError::Aborted { message, .. } => state.fail(own, message),
            other => state.fail(own, &other.to_string()),
        }
    }

    fn finish(&mut self) -> Result<(), CommError> {
        self.presence.leave();
        Ok(())
    }
}
