//! How the communication thread is put to sleep and woken without a lock.
//!
//! Whoever has news for the thread makes it visible first (pushes to a queue, sets a flag) and rings second. The thread says
//! that it is asleep first and looks for news second. Each side has a sequentially consistent fence between its two steps, so at
//! least one of them sees the other: either the ringer finds `asleep` and unparks, or the sleeper finds the news and stays up.
//! An unpark that comes before the park makes the park return at once, so the gap between the look and the park is safe.
//!
//! | step | ringer                | thread                      |
//! |------|-----------------------|-----------------------------|
//! | 1    | publish the news      | `asleep = true`             |
//! | 2    | fence                 | fence                       |
//! | 3    | `asleep`? then unpark | news? then stay up          |
//! | 4    |                       | park; `asleep = false`      |
//!
//! `cargo test` with `--cfg loom` checks every interleaving of this table (see the tests below).

use std::time::Duration;

use crate::sync::{AtomicBool, Ordering, Thread, current, fence, park};

/// A bell that wakes one thread.
#[derive(Debug)]
pub(crate) struct Doorbell {
    asleep: AtomicBool,
    thread: Thread,
}

impl Doorbell {
    /// A bell for the calling thread.
    pub(crate) fn for_this_thread() -> Doorbell {
        Doorbell { asleep: AtomicBool::new(false), thread: current() }
    }

    /// Whether it would wake the calling thread.
    #[cfg(not(loom))]
    pub(crate) fn is_for_this_thread(&self) -> bool {
        self.thread.id() == current().id()
    }

    /// Loom's threads have ids that std's do not compare with; models do not ask.
    #[cfg(loom)]
    pub(crate) fn is_for_this_thread(&self) -> bool {
        false
    }

    /// Wakes the thread if it sleeps. The news must have been published before. Never blocks; one load if nobody sleeps.
    pub(crate) fn ring(&self) {
        // Pairs with the fence in `sleep`.
        fence(Ordering::SeqCst);
        // Relaxed: the fences order it; the swap only spares a second unpark.
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            self.thread.unpark();
        }
    }

    /// Sleeps until rung or until `timeout`, unless there are news. May also return for no reason, so callers loop.
    pub(crate) fn sleep(&self, timeout: Option<Duration>, news: impl Fn() -> bool) {
        // Swaps, not stores, here and below: all changes of `asleep` are then in one order for loom, too, which otherwise lets
        // a ringer's swap return a value from before this one.
        self.asleep.swap(true, Ordering::Relaxed);
        // Subtle: without this fence the change could still be hidden in this core while `news` reads an empty queue.
        fence(Ordering::SeqCst);
        if !news() {
            park(timeout);
        }
        self.asleep.swap(false, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::Instant;

    use super::*;

    #[test]
    fn news_prevent_sleep_and_time_ends_it() {
        let bell = Doorbell::for_this_thread();
        bell.sleep(None, || true);
        let before = Instant::now();
        while before.elapsed() < Duration::from_millis(2) {
            bell.sleep(Some(Duration::from_millis(2)), || false);
        }
    }

    #[test]
    fn no_ring_is_lost_between_threads() {
        const RINGS: usize = 20_000;
        let posted = Arc::new(AtomicUsize::new(0));
        let (send, receive) = std::sync::mpsc::channel();
        let theirs = Arc::clone(&posted);
        let sleeper = std::thread::spawn(move || {
            let bell = Arc::new(Doorbell::for_this_thread());
            send.send(Arc::clone(&bell)).unwrap();
            let mut seen = 0;
            while seen < RINGS {
                bell.sleep(None, || theirs.load(SeqCst) > seen);
                seen = theirs.load(SeqCst);
            }
            seen
        });
        let bell = receive.recv().unwrap();
        for _ in 0..RINGS {
            posted.fetch_add(1, SeqCst);
            bell.ring();
        }
        assert_eq!(sleeper.join().unwrap(), RINGS);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use std::sync::Arc;

    use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use loom::thread;

    use super::*;

    /// Producers publish with relaxed operations, weaker than any queue; the sleeper must see all of them.
    fn every_submission_is_seen(producers: usize) {
        loom::model(move || {
            let bell = Arc::new(Doorbell::for_this_thread());
            let posted = Arc::new(AtomicUsize::new(0));
            let threads: Vec<_> = (0..producers)
                .map(|_| {
                    let (bell, posted) = (Arc::clone(&bell), Arc::clone(&posted));
                    thread::spawn(move || {
                        posted.fetch_add(1, Relaxed);
                        bell.ring();
                    })
                })
                .collect();
            let mut taken = posted.swap(0, Relaxed);
            // A lost wake-up leaves this thread parked for ever, which loom reports as a deadlock.
            while taken < producers {
                bell.sleep(None, || posted.load(Relaxed) > 0);
                taken += posted.swap(0, Relaxed);
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    #[test]
    fn one_producer_always_wakes_the_sleeper() {
        every_submission_is_seen(1);
    }

    #[test]
    fn two_producers_always_wake_the_sleeper() {
        every_submission_is_seen(2);
    }
}
