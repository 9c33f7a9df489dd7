//! The clock of a trace: one origin a process, anchored to the wall clock.
//!
//! Events are timed by [`Instant`], which never jumps, relative to the process's origin; the origin
//! itself is read once from the wall clock. All ranks of one process therefore share one clock
//! exactly. Processes of one host agree to about a microsecond, plus what the wall clock was slewed
//! between their starts (at most 0.5 ms for each second between them, and normally far less).
//! Across hosts the wall clocks' difference comes on top; a rank that has measured it says so in
//! `TraceConfig::clock_offset_ns`, in terms of [`clock_ns`].

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often the wall clock is read to find a reading that nothing interrupted.
const ANCHOR_TRIES: usize = 8;

struct Origin {
    instant: Instant,
    unix_ns: i64,
}

static ORIGIN: OnceLock<Origin> = OnceLock::new();

fn origin() -> &'static Origin {
    ORIGIN.get_or_init(|| {
        let mut best = Origin { instant: Instant::now(), unix_ns: 0 };
        let mut best_width = Duration::MAX;
        for _ in 0..ANCHOR_TRIES {
            let before = Instant::now();
            let wall = SystemTime::now();
            let width = before.elapsed();
            // The tightest bracket is the reading during which the thread was not descheduled.
            if width < best_width {
                best_width = width;
                let unix = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
                best = Origin { instant: before + width / 2, unix_ns: nanoseconds(unix) };
            }
        }
        best
    })
}

/// This process's trace clock: nanoseconds since the Unix epoch, never running backwards.
///
/// Ranks on different hosts exchange this value to measure `TraceConfig::clock_offset_ns`.
#[must_use]
pub fn clock_ns() -> i64 {
    let origin = origin();
    origin.unix_ns + nanoseconds(origin.instant.elapsed())
}

/// The origin of this process's trace times, in nanoseconds since the Unix epoch.
pub(crate) fn origin_unix_ns() -> i64 {
    origin().unix_ns
}

/// Nanoseconds from the origin to `instant`; 0 for an instant before it.
pub(crate) fn since_origin(instant: Instant) -> i64 {
    nanoseconds(instant.saturating_duration_since(origin().instant))
}

fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_follows_the_wall_clock_and_never_runs_backwards() {
        let wall = nanoseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap());
        let first = clock_ns();
        let second = clock_ns();
        assert!((first - wall).abs() < 1_000_000_000, "clock {first}, wall {wall}");
        assert!(second >= first);
    }

    #[test]
    fn an_instant_before_the_origin_is_time_zero() {
        let early = Instant::now().checked_sub(Duration::from_secs(3600));
        origin();
        if let Some(early) = early {
            assert_eq!(since_origin(early), 0);
        }
    }
}
