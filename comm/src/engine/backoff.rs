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
    /// Until when the core is taken to be wanted by others.
    wanted_until: Option<Instant>,
}

impl Backoff {
    pub(super) fn new(patience: Patience) -> Backoff {
        Backoff { patience, quiet_since: None, wanted_until: None }
    }

    /// Something happened.
    pub(super) fn reset(&mut self) {
        self.quiet_since = None;
    }

    /// Nothing happened: waits a little longer than last time. `rings`: the transport rings `doorbell`, so the thread may sleep
    /// until it is rung. Submissions ring it in any case, and workers that have nothing to compute. `computing`: all of them compute.
    pub(super) fn wait(
        &mut self,
        waiting: Waiting,
        rings: bool,
        doorbell: &Doorbell,
        computing: impl Fn() -> bool,
        news: impl Fn() -> bool,
    ) {
        let now = Instant::now();
        let quiet = now - *self.quiet_since.get_or_insert(now);
        let Patience { spin, yielding, while_computing, .. } = self.patience;
        let seldom = while_computing.filter(|_| waiting != Waiting::Urgent && computing());
        if let Some(shortest) = seldom {
            let timeout = (!rings).then(|| sleep_of(&self.patience, quiet, waiting).max(shortest));
            doorbell.sleep(timeout, || news() || !computing());
        } else if quiet < spin {
            std::hint::spin_loop();
        } else if waiting == Waiting::Urgent || (quiet < spin + yielding && !self.is_wanted(now)) {
            std::thread::yield_now();
            // A worker of this rank that began to compute says so itself.
            if now.elapsed() > LATE && !(while_computing.is_some() && computing()) {
                self.wanted_until = Some(now + SHUN);
            }
        } else {
            let timeout = (!rings).then(|| sleep_of(&self.patience, quiet, waiting));
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

/// A sleep is this part of the time without news, so that what comes in the end comes late by no more than that part.
const PART: u32 = 8;

/// How long to sleep when nothing has happened for `quiet`.
fn sleep_of(patience: &Patience, quiet: Duration, waiting: Waiting) -> Duration {
    let longest =
        if waiting == Waiting::Idle { patience.longest_idle_sleep } else { patience.longest_sleep };
    (quiet / PART).max(patience.first_sleep).min(longest)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn sleeps_grow_with_the_wait_up_to_their_limit() {
        let patience = Patience {
            first_sleep: Duration::from_micros(50),
            longest_sleep: Duration::from_millis(1),
            longest_idle_sleep: Duration::from_millis(10),
            ..Patience::default()
        };
        let us =
            |quiet, waiting| sleep_of(&patience, Duration::from_micros(quiet), waiting).as_micros();
        assert_eq!(
            [0, 400, 800, 8000, 80_000].map(|quiet| us(quiet, Waiting::InFlight)),
            [50, 50, 100, 1000, 1000]
        );
        assert_eq!(
            [0, 8000, 80_000, 8_000_000].map(|quiet| us(quiet, Waiting::Idle)),
            [50, 1000, 10_000, 10_000]
        );
    }

    /// Whether waiting looks for news before it sleeps, which it does if and only if it sleeps.
    fn sleeps(backoff: &mut Backoff) -> bool {
        sleeps_while(false, backoff)
    }

    fn sleeps_while(computing: bool, backoff: &mut Backoff) -> bool {
        let (bell, looked) = (Doorbell::for_this_thread(), Cell::new(false));
        let news = || {
            looked.set(true);
            true
        };
        backoff.wait(Waiting::InFlight, false, &bell, || computing, news);
        looked.get()
    }

    #[test]
    fn news_make_it_eager_again() {
        let patience = Patience {
            spin: Duration::from_secs(60),
            yielding: Duration::ZERO,
            ..Patience::default()
        };
        let mut backoff = Backoff::new(patience);
        assert!(!sleeps(&mut backoff));
        backoff.quiet_since = Instant::now().checked_sub(Duration::from_secs(61));
        assert!(sleeps(&mut backoff));
        backoff.reset();
        assert!(!sleeps(&mut backoff));
    }

    #[test]
    fn where_the_core_is_wanted_it_sleeps_instead_of_yielding() {
        let yielding = Duration::from_secs(60);
        let patience = Patience { spin: Duration::ZERO, yielding, ..Patience::default() };
        let mut backoff = Backoff::new(patience);
        backoff.wanted_until = Some(Instant::now() + Duration::from_secs(60));
        assert!(sleeps(&mut backoff));
        backoff.wanted_until = None;
        assert!(!sleeps(&mut backoff));
    }

    #[test]
    fn while_workers_compute_it_sleeps_at_once() {
        let spin = Duration::from_secs(60);
        let shared = Patience { spin, ..Patience::shared_core() };
        assert!(sleeps_while(true, &mut Backoff::new(shared)));
        assert!(!sleeps_while(false, &mut Backoff::new(shared)));
        let own = Patience { spin, ..Patience::own_core() };
        assert!(!sleeps_while(true, &mut Backoff::new(own)));
    }
}
