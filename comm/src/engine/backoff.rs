//! How the communication thread waits: eagerly at first, then cheaply.

use std::time::Duration;

use crate::doorbell::Doorbell;

/// Turns without progress after which the thread yields its core between polls instead of spinning. A poll takes 0.1 to 1 us,
/// so answers that come within some 50 us are taken at once.
const SPINS: u32 = 64;

/// Turns without progress after which the thread sleeps between polls.
const YIELDS: u32 = SPINS + 64;

/// Sleep between polls of a transport that does not ring: starts here ...
const FIRST_SLEEP: Duration = Duration::from_micros(50);

/// ... and doubles up to this while exchanges are in flight (some 3 % of a core) ...
const LONGEST_SLEEP: Duration = Duration::from_micros(200);

/// ... or up to this when nothing is (well below 0.1 % of a core). Such a transport must be polled even then: MPI may still
/// hold a message that it reported as sent.
const LONGEST_IDLE_SLEEP: Duration = Duration::from_millis(10);

/// What is going on while the thread has nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    /// Nothing is in flight.
    Idle,
    /// Exchanges are in flight.
    InFlight,
    /// A clock is being measured: latency is everything.
    Urgent,
}

/// Counts turns without progress.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    turns: u32,
}

impl Backoff {
    /// Something happened.
    pub(super) fn reset(&mut self) {
        self.turns = 0;
    }

    /// Nothing happened: waits a little longer than last time. `rings`: the transport rings `doorbell`, so the thread may sleep
    /// until it is rung. Submissions ring it in any case.
    pub(super) fn wait(
        &mut self,
        waiting: Waiting,
        rings: bool,
        doorbell: &Doorbell,
        news: impl Fn() -> bool,
    ) {
        self.turns = self.turns.saturating_add(1);
        if self.turns <= SPINS {
            std::hint::spin_loop();
        } else if self.turns <= YIELDS || waiting == Waiting::Urgent {
            std::thread::yield_now();
        } else {
            let timeout =
                if rings { None } else { Some(sleep_of(self.turns - YIELDS - 1, waiting)) };
            doorbell.sleep(timeout, news);
        }
    }
}

/// How long to sleep for the `nth` time in a row.
fn sleep_of(nth: u32, waiting: Waiting) -> Duration {
    let longest = if waiting == Waiting::Idle { LONGEST_IDLE_SLEEP } else { LONGEST_SLEEP };
    FIRST_SLEEP.saturating_mul(1 << nth.min(16)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_double_up_to_their_limit() {
        let us = |nth, waiting| sleep_of(nth, waiting).as_micros();
        assert_eq!(
            [0, 1, 2, 3, u32::MAX].map(|nth| us(nth, Waiting::InFlight)),
            [50, 100, 200, 200, 200]
        );
        assert_eq!(
            [0, 7, 8, u32::MAX].map(|nth| us(nth, Waiting::Idle)),
            [50, 6400, 10_000, 10_000]
        );
    }
}
