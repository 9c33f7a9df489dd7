//! How often an exchange was served, and for how long.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Written by the communication thread alone, read by anyone.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    times: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Tally {
    /// Counts one completion.
    pub(crate) fn add(&self, time: Duration) {
        self.times.fetch_add(1, Relaxed);
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Relaxed);
    }

    /// Completions and their total time; while the exchange is being completed, perhaps of one more than the other.
    pub(crate) fn read(&self) -> (u64, Duration) {
        (self.times.load(Relaxed), Duration::from_nanos(self.nanoseconds.load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up() {
        let tally = Tally::default();
        tally.add(Duration::from_micros(2));
        tally.add(Duration::from_micros(5));
        assert_eq!(tally.read(), (2, Duration::from_micros(7)));
    }
}
