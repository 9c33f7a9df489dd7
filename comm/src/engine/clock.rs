//! Measuring a rank's clock against rank 0's by ping-pong.
//!
//! Every other rank sends pings; rank 0 answers each with its Unix time. The answer was given about half a round trip before it
//! came, and the shortest round trip bounds the error best: it is off by half of itself at most.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::error::CommError;
use crate::exchange::MAX_EXCHANGE_ID;
use crate::submission::Reply;
use crate::transport::Address;

use super::wire::Wire;

const CLOCK_TAG: u32 = MAX_EXCHANGE_ID + 4;

/// Pings per rank.
const ROUNDS: u32 = 64;

/// A measurement in progress.
#[derive(Debug)]
pub(super) struct ClockMeasurement {
    pub(super) reply: Reply<i64>,
    /// Pings still to be answered (rank 0, over all ranks) or sent.
    left: u32,
    /// When the last ping left.
    sent: Instant,
    /// Shortest round trip so far in nanoseconds, and the offset that it gives.
    best: (i64, i64),
    /// On rank 0: pings still to come from each rank.
    expected: Vec<u32>,
}

impl ClockMeasurement {
    pub(super) fn start(reply: Reply<i64>, wire: &mut Wire) -> Result<ClockMeasurement, CommError> {
        let (rank, n_ranks) = (wire.transport.rank(), wire.transport.n_ranks());
        let peers = if rank == 0 { 1..n_ranks } else { 0..1 };
        let mut measurement = ClockMeasurement {
            reply,
            left: ROUNDS * u32::try_from(peers.len()).expect("ranks are counted by MPI's int"),
            sent: Instant::now(),
            best: (i64::MAX, 0),
            expected: vec![ROUNDS; n_ranks],
        };
        for peer in peers {
            wire.receive_note(Address { peer, tag: CLOCK_TAG })?;
        }
        if rank != 0 {
            measurement.ping(wire)?;
        }
        Ok(measurement)
    }

    fn ping(&mut self, wire: &mut Wire) -> Result<(), CommError> {
        self.sent = Instant::now();
        wire.send_note(Address { peer: 0, tag: CLOCK_TAG }, 0)
    }

    /// A ping (on rank 0) or an answer came.
    pub(super) fn note(
        &mut self,
        peer: usize,
        value: u64,
        wire: &mut Wire,
    ) -> Result<(), CommError> {
        let address = Address { peer, tag: CLOCK_TAG };
        self.left -= 1;
        if wire.transport.rank() == 0 {
            wire.send_note(address, unix_ns().cast_unsigned())?;
            self.expected[peer] -= 1;
            return if self.expected[peer] > 0 { wire.receive_note(address) } else { Ok(()) };
        }
        let round_trip = i64::try_from(self.sent.elapsed().as_nanos()).unwrap_or(i64::MAX);
        if round_trip < self.best.0 {
            self.best = (round_trip, unix_ns() - round_trip / 2 - value.cast_signed());
        }
        if self.left > 0 {
            wire.receive_note(address)?;
            self.ping(wire)?;
        }
        Ok(())
    }

    /// This rank's clock minus rank 0's, when all pings are done.
    pub(super) fn result(&self) -> Option<i64> {
        (self.left == 0).then_some(self.best.1)
    }
}

/// Nanoseconds since 1970 by this machine's clock; 0 before that.
fn unix_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
