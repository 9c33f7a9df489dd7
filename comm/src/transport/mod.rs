//! What moves bytes between ranks: messages of known length between pairs, in order per sender and tag.

pub(crate) mod local;
#[cfg(feature = "mpi")]
pub(crate) mod mpi;

use std::sync::Arc;
use std::time::Duration;

use crate::doorbell::Doorbell;
use crate::error::CommError;
use crate::region::Span;

/// The tag of receives that stand for as long as the transport lives; being without a message is no fault of theirs.
pub(crate) const STANDING_TAG: u32 = crate::exchange::MAX_EXCHANGE_ID + 3;

/// Names one send or receive in flight; chosen by the engine, given back by [`Transport::poll`].
pub(crate) type Ticket = usize;

/// The other end of a message, and the tag that tells messages of different exchanges apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    /// The other rank.
    pub(crate) peer: usize,
    /// The exchange's id, or one of the engine's own tags.
    pub(crate) tag: u32,
}

/// A rank's connection to the others. Lives on the communication thread; nothing else calls it.
///
/// Messages from one rank with one tag are received in the order in which they were sent, as MPI guarantees.
pub(crate) trait Transport {
    /// This rank.
    fn rank(&self) -> usize;

    /// Ranks of the job.
    fn n_ranks(&self) -> usize;

    /// Name and version.
    fn library(&self) -> String;

    /// Takes the bell to ring when something arrives. Returns whether it will ring; otherwise it has to be polled.
    fn take_doorbell(&mut self, doorbell: &Arc<Doorbell>) -> bool;

    /// Whether `poll` would find something. Only meaningful if the transport rings.
    fn has_news(&self) -> bool;

    /// Starts to send; `bytes` stay as they are until the ticket is finished.
    fn send(&mut self, to: Address, bytes: Span, ticket: Ticket) -> Result<(), CommError>;

    /// Starts to receive; `bytes` belong to the transport until the ticket is finished.
    fn receive(&mut self, from: Address, bytes: Span, ticket: Ticket) -> Result<(), CommError>;

    /// Makes progress and appends the tickets that are finished.
    fn poll(&mut self, finished: &mut Vec<Ticket>) -> Result<(), CommError>;

    /// Time of `times` pairs of the transport's own reduce-scatter and all-gather of about `len` elements, for comparison. Blocks.
    /// `None`: it has none.
    fn baseline(&mut self, len: usize, times: usize) -> Result<Option<Duration>, CommError>;

    /// Takes back all memory from other threads; called first thing after a failure.
    fn revoke(&mut self);

    /// Ends the job for everybody because of `error`. MPI does not return from this.
    fn abort(&mut self, code: i32, error: &CommError);

    /// Leaves the job in good order. Only standing receives may still be in flight.
    fn finish(&mut self) -> Result<(), CommError>;
}

/// Where a rank connects: made from a [`crate::LocalEndpoint`] or, with the feature `mpi`, from an `MpiEndpoint`.
#[derive(Debug)]
pub struct Endpoint(Kind);

#[derive(Debug)]
enum Kind {
    Local(local::LocalEndpoint),
    #[cfg(feature = "mpi")]
    Mpi,
}

impl From<local::LocalEndpoint> for Endpoint {
    fn from(endpoint: local::LocalEndpoint) -> Endpoint {
        Endpoint(Kind::Local(endpoint))
    }
}

#[cfg(feature = "mpi")]
impl From<mpi::MpiEndpoint> for Endpoint {
    fn from(_: mpi::MpiEndpoint) -> Endpoint {
        Endpoint(Kind::Mpi)
    }
}

impl Endpoint {
    /// Connects; called on the communication thread.
    pub(crate) fn connect(self) -> Result<Box<dyn Transport>, CommError> {
        match self.0 {
            Kind::Local(endpoint) => Ok(Box::new(local::LocalTransport::new(endpoint))),
            #[cfg(feature = "mpi")]
            Kind::Mpi => Ok(Box::new(mpi::MpiTransport::connect()?)),
        }
    }
}
