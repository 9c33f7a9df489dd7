//! How the communication thread waits: eagerly at first, then cheaply.

use std::time::{Duration, Instant};

use crate::config::Patience;
use crate::doorbell::Doorbell;

/// A yield that takes longer has let somebody else run: the core is wanted.
const LATE: Duration = Duration::from_micros(300);

/// How long a thread whose yield was late sleeps instead of yielding: a worker that computes runs for milliseconds before it gives
/// the core back, while a sleeper is woken in time.
const SHUN: Duration = Duration::from_millis(20);

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

/// Keeps how long nothing has happened.
#[derive(Debug)]
pub(super) struct Backoff {
    patience: Patience,
    quiet_since: Option<Instant>,
    sleeps: u32,
    /// Until when the core is taken to be wanted by others.
    wanted_until: Option<Instant>,
}

impl Backoff {
    pub(super) fn new(patience: Patience) -> Backoff {
        Backoff { patience, quiet_since: None, sleeps: 0, wanted_until: None }
    }

    /// Something happened.
    pub(super) fn reset(&mut self) {
        self.quiet_since = None;
        self.sleeps = 0;
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
        let now = Instant::now();
        let quiet = now - *self.quiet_since.get_or_insert(now);
        let Patience { spin, yielding, .. } = self.patience;
        if quiet < spin {
            std::hint::spin_loop();
        } else if waiting == Waiting::Urgent || (quiet < spin + yielding && !self.is_wanted(now)) {
            std::thread::yield_now();
            if now.elapsed() > LATE {
                self.wanted_until = Some(now + SHUN);
            }
        } else {
            let timeout = (!rings).then(|| sleep_of(&self.patience, self.sleeps, waiting));
            self.sleeps = self.sleeps.saturating_add(1);
            doorbell.sleep(timeout, news);
        }
    }
}

impl Backoff {
    /// Whether somebody else computes on this core, as far as the last yields tell.
    fn is_wanted(&self, now: Instant) -> bool {
        self.wanted_until.is_some_and(|until| now < until)
    }
}

/// How long to sleep for the `nth` time in a row: twice as long as the last time, up to a limit.
fn sleep_of(patience: &Patience, nth: u32, waiting: Waiting) -> Duration {
    let longest =
        if waiting == Waiting::Idle { patience.longest_idle_sleep } else { patience.longest_sleep };
    patience.first_sleep.saturating_mul(1 << nth.min(16)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_double_up_to_their_limit() {
        let patience = Patience {
            first_sleep: Duration::from_micros(50),
            longest_sleep: Duration::from_micros(150),
            longest_idle_sleep: Duration::from_millis(10),
            ..Patience::default()
        };
        let us = |nth, waiting| sleep_of(&patience, nth, waiting).as_micros();
        assert_eq!(
            [0, 1, 2, 3, u32::MAX].map(|nth| us(nth, Waiting::InFlight)),
            [50, 100, 150, 150, 150]
        );
        assert_eq!(
            [0, 7, 8, u32::MAX].map(|nth| us(nth, Waiting::Idle)),
            [50, 6400, 10_000, 10_000]
        );
    }

    #[test]
    fn a_thread_that_is_patient_sleeps_and_starts_anew_after_news() {
        let patience = Patience {
            spin: Duration::ZERO,
            yielding: Duration::ZERO,
            first_sleep: Duration::from_nanos(1),
            ..Patience::default()
        };
        let (mut backoff, bell) = (Backoff::new(patience), Doorbell::for_this_thread());
        for _ in 0..3 {
            backoff.wait(Waiting::InFlight, false, &bell, || true);
        }
        assert_eq!(backoff.sleeps, 3);
        backoff.reset();
        assert_eq!((backoff.sleeps, backoff.quiet_since), (0, None));
    }

    #[test]
    fn where_the_core_is_wanted_yields_give_way_to_sleeps() {
        let patience = Patience {
            spin: Duration::ZERO,
            yielding: Duration::from_secs(60),
            ..Patience::default()
        };
        let (mut backoff, bell) = (Backoff::new(patience), Doorbell::for_this_thread());
        backoff.wanted_until = Some(Instant::now() + Duration::from_secs(60));
        backoff.wait(Waiting::InFlight, false, &bell, || true);
        assert_eq!(backoff.sleeps, 1);
        backoff.wanted_until = None;
        backoff.wait(Waiting::InFlight, false, &bell, || true);
        assert_eq!(backoff.sleeps, 1, "it yielded");
    }
}
