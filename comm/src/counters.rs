//! What a communicator has moved so far.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Totals since the communicator was started. Payload of submitted exchanges alone: the small control messages and
/// [`crate::Communicator::all_gather`] are not counted, so that the numbers compare with a plan's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Payload bytes sent to other ranks.
    pub bytes_sent: u64,
    /// Payload bytes received from other ranks.
    pub bytes_received: u64,
    /// Messages (chunks) sent to other ranks.
    pub messages_sent: u64,
    /// Time during which at least one exchange was in flight.
    pub busy: Duration,
}

/// The live counters; written by the communication thread alone, read by anyone.
#[derive(Debug, Default)]
pub(crate) struct CounterCells {
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
    messages_sent: AtomicU64,
    busy_ns: AtomicU64,
}

impl CounterCells {
    pub(crate) fn sent(&self, bytes: usize) {
        self.bytes_sent.fetch_add(bytes as u64, Relaxed);
        self.messages_sent.fetch_add(1, Relaxed);
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.bytes_received.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn busy(&self, elapsed: Duration) {
        self.busy_ns.fetch_add(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Each number is exact once the exchanges concerned are completed; together they are no snapshot (`Relaxed`).
    pub(crate) fn read(&self) -> Counters {
        Counters {
            bytes_sent: self.bytes_sent.load(Relaxed),
            bytes_received: self.bytes_received.load(Relaxed),
            messages_sent: self.messages_sent.load(Relaxed),
            busy: Duration::from_nanos(self.busy_ns.load(Relaxed)),
        }
    }
}
