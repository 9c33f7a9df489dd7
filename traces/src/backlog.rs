//! Keeps memory bounded: how many lines may be between the recording threads and the file.
//!
//! tracing-chrome's channel to its writer thread has no bound. Threads that record faster than it
//! writes, for long enough, would fill the memory; so beyond [`LIMIT`] lines they wait for it. A
//! trace of a few steps never gets there; one that does shows the waiting as gaps between slices.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Lines under way at which recording threads wait: about 100 MB of tracing-chrome's messages.
const LIMIT: u64 = 1 << 18;

/// How long the writer may stand still before threads give up on it and record no more.
const PATIENCE: Duration = Duration::from_secs(1);

/// Counts lines under way. Relaxed throughout: the counts order nothing, and a stale one only moves
/// the moment at which a thread begins or ends to wait.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    sent: AtomicU64,
    passed: AtomicU64,
    /// Set when a thread has lost its patience, so that the others need not wait in their turn.
    stuck: AtomicBool,
}

impl Backlog {
    /// Announces lines, after waiting for room if need be. False if there is none to be had: the
    /// lines must not be sent then.
    #[inline]
    pub(crate) fn admit(&self, n_lines: u64) -> bool {
        if self.under_way() >= LIMIT && !self.wait_for_room() {
            return false;
        }
        self.sent.fetch_add(n_lines, Ordering::Relaxed);
        true
    }

    /// Notes that the writer has passed on lines.
    pub(crate) fn pass(&self, n_lines: u64) {
        self.passed.fetch_add(n_lines, Ordering::Relaxed);
    }

    fn under_way(&self) -> u64 {
        let sent = self.sent.load(Ordering::Relaxed);
        sent.saturating_sub(self.passed.load(Ordering::Relaxed))
    }

    #[cold]
    fn wait_for_room(&self) -> bool {
        let mut passed = self.passed.load(Ordering::Relaxed);
        let mut progress = Instant::now();
        while self.under_way() >= LIMIT {
            if self.stuck.load(Ordering::Relaxed) {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
            let now_passed = self.passed.load(Ordering::Relaxed);
            if now_passed != passed {
                passed = now_passed;
                progress = Instant::now();
            } else if progress.elapsed() > PATIENCE {
                self.stuck.store(true, Ordering::Relaxed);
            }
        }
        self.stuck.store(false, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_backlog_makes_threads_wait_until_lines_have_passed() {
        let backlog = Backlog::default();
        assert!(backlog.admit(LIMIT));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| backlog.admit(1));
            thread::sleep(Duration::from_millis(50));
            assert!(!waiting.is_finished());
            backlog.pass(10);
            assert!(waiting.join().unwrap());
        });
        assert_eq!(backlog.under_way(), LIMIT - 9);
    }

    #[test]
    fn a_stuck_writer_is_given_up_once_and_trusted_again_when_it_moves() {
        let backlog = Backlog::default();
        assert!(backlog.admit(LIMIT));
        assert!(!backlog.admit(1));
        let start = Instant::now();
        assert!(!backlog.admit(1));
        assert!(start.elapsed() < PATIENCE);
        backlog.pass(1);
        assert!(backlog.admit(1));
    }
}
