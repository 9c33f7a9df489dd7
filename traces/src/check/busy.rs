//! How busy the workers were.

use std::collections::BTreeMap;

use super::tables::{Row, ThreadKey};

/// How busy one worker was.
#[derive(Debug, Clone, PartialEq)]
pub struct BusyShare {
    /// The rank (process).
    pub rank: u64,
    /// The worker's name.
    pub worker: String,
    /// Time within slices, in nanoseconds.
    pub busy_ns: i64,
    /// From the first slice of any worker of the rank to the last, in nanoseconds.
    pub span_ns: i64,
}

impl BusyShare {
    /// The share of the time that the worker was busy, 0 to 1; 0 where no time passed.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.span_ns > 0 { self.busy_ns as f64 / self.span_ns as f64 } else { 0.0 }
    }
}

/// The share of each row whose name starts with `worker`. Slices must be sorted by start.
pub(super) fn shares(threads: &BTreeMap<ThreadKey, Row>) -> Vec<BusyShare> {
    let workers = || threads.iter().filter(|(_, row)| row.name.starts_with("worker"));
    let mut spans: BTreeMap<u64, (i64, i64)> = BTreeMap::new();
    for (&(pid, _), row) in workers() {
        for slice in &row.slices {
            let span = spans.entry(pid).or_insert((slice.start, slice.end));
            *span = (span.0.min(slice.start), span.1.max(slice.end));
        }
    }
    let share = |(&(pid, _), row): (&ThreadKey, &Row)| {
        let slices = row.slices.iter().map(|slice| (slice.start, slice.end));
        BusyShare {
            rank: pid,
            worker: row.name.clone(),
            busy_ns: union_length(slices),
            span_ns: spans.get(&pid).map_or(0, |&(start, end)| end - start),
        }
    };
    let mut shares: Vec<BusyShare> = workers().map(share).collect();
    // By length first, so that `worker 10` comes after `worker 9`.
    shares.sort_by(|a, b| {
        (a.rank, a.worker.len(), &a.worker).cmp(&(b.rank, b.worker.len(), &b.worker))
    });
    shares
}

/// The length of the union of intervals that come sorted by start.
pub(super) fn union_length(intervals: impl Iterator<Item = (i64, i64)>) -> i64 {
    let mut total = 0;
    let mut covered_to = i64::MIN;
    for (start, end) in intervals {
        total += (end - start.max(covered_to)).max(0);
        covered_to = covered_to.max(end);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_union_counts_each_moment_once() {
        let length = |intervals: &[(i64, i64)]| union_length(intervals.iter().copied());
        assert_eq!(length(&[]), 0);
        assert_eq!(length(&[(0, 10), (2, 4), (5, 12), (20, 21)]), 13);
        assert_eq!(length(&[(-5, 0), (0, 5), (3, 3)]), 10);
    }
}
