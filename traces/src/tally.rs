//! A recording that is kept in memory as sums: where a rank's workers spend their time.
//!
//! A trace file holds every block of a few steps. A tally holds one row a task, for any number of steps, and is cheap enough
//! to take in the run that is measured: two looks at the clock and one short lock a block.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::recorder::{ExchangeSpan, Recorder, TaskSlice};

/// One rank's tally. Nothing is counted before [`open`](Tally::open).
#[derive(Debug)]
pub struct Tally {
    counts: Arc<Counts>,
}

/// What all recorders of one tally share.
pub(crate) struct Counts {
    /// Relaxed everywhere: a block too many or too few at either end does not matter.
    open: AtomicBool,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    opened: Option<Instant>,
    tasks: HashMap<String, TaskTime>,
    /// From when to when each block ran, for the question of what ran beside exchanges.
    busy: Vec<(Instant, Instant)>,
    exchanges: Vec<(Instant, Instant)>,
}

/// The time of one task, over all its blocks that were counted.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskTime {
    /// The task's name.
    pub name: String,
    /// Its layer's name.
    pub layer: String,
    /// The layer's place in the order of the forward pass.
    pub layer_index: usize,
    /// Its pass.
    pub pass: String,
    /// Time of all blocks on all workers.
    pub busy: Duration,
    /// Blocks.
    pub blocks: u64,
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes read and written, each operand once.
    pub bytes: f64,
}

/// What a tally counted.
#[derive(Debug, Clone, PartialEq)]
pub struct TallyReport {
    /// From opening to closing.
    pub elapsed: Duration,
    /// Tasks, the one that took most time first.
    pub tasks: Vec<TaskTime>,
    /// Time of all blocks on all workers.
    pub busy: Duration,
    /// Time in which an exchange was under way.
    pub exchanging: Duration,
    /// Time of blocks that ran while an exchange was under way, summed over workers.
    pub busy_beside_exchanges: Duration,
}

/// A block under way: counted when this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    counts: Arc<Counts>,
    began: Instant,
    task: TaskTime,
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counts").field("open", &self.open).finish_non_exhaustive()
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}

impl Tally {
    /// A tally that counts nothing yet.
    #[must_use]
    pub fn new() -> Self {
        let counts = Counts { open: AtomicBool::new(false), book: Mutex::default() };
        Self { counts: Arc::new(counts) }
    }

    /// The handle that the rank's threads count with.
    #[must_use]
    pub fn recorder(&self) -> Recorder {
        Recorder::tallying(Arc::clone(&self.counts))
    }

    /// Counts from now on, from zero.
    pub fn open(&self) {
        *self.counts.book() = Book { opened: Some(Instant::now()), ..Book::default() };
        self.counts.open.store(true, Ordering::Relaxed);
    }

    /// Counts no longer; gives what was counted. Blocks that are under way are left out.
    #[must_use]
    pub fn close(&self) -> TallyReport {
        self.counts.open.store(false, Ordering::Relaxed);
        let now = Instant::now();
        let Book { opened, tasks, mut busy, mut exchanges } =
            std::mem::take(&mut *self.counts.book());
        let mut tasks: Vec<TaskTime> = tasks.into_values().collect();
        // Ties by name, so that reports of one run do not depend on a hash.
        tasks.sort_by(|a, b| b.busy.cmp(&a.busy).then_with(|| a.name.cmp(&b.name)));
        let union = union(&mut exchanges);
        busy.sort_unstable();
        TallyReport {
            elapsed: opened.map_or(Duration::ZERO, |opened| now - opened),
            busy: tasks.iter().map(|task| task.busy).sum(),
            tasks,
            exchanging: union.iter().map(|(from, to)| *to - *from).sum(),
            busy_beside_exchanges: overlap(&busy, &union),
        }
    }
}

impl Counts {
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block begins.
    pub(crate) fn begin(self: &Arc<Self>, slice: &TaskSlice<'_>) -> Running {
        Running {
            counts: Arc::clone(self),
            task: TaskTime {
                name: slice.name.to_owned(),
                layer: slice.layer.to_owned(),
                layer_index: slice.layer_index,
                pass: slice.pass.to_owned(),
                busy: Duration::ZERO,
                blocks: slice.blocks.len() as u64,
                flops: slice.flops,
                bytes: slice.bytes,
            },
            began: Instant::now(),
        }
    }

    /// An exchange has completed.
    pub(crate) fn exchange(&self, span: &ExchangeSpan<'_>) {
        let mut book = self.book();
        // What was submitted before the tally opened counts from then.
        if let Some(opened) = book.opened {
            book.exchanges.push((span.submitted.max(opened), span.completed));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let now = Instant::now();
        if !self.counts.is_open() {
            return;
        }
        let mut book = self.counts.book();
        book.busy.push((self.began, now));
        let task = &mut self.task;
        task.busy = now - self.began;
        if let Some(known) = book.tasks.get_mut(&task.name) {
            known.busy += task.busy;
            known.blocks += task.blocks;
            known.flops += task.flops;
            known.bytes += task.bytes;
        } else {
            book.tasks.insert(task.name.clone(), task.clone());
        }
    }
}

/// Intervals without overlap that cover the same time, in order.
fn union(intervals: &mut [(Instant, Instant)]) -> Vec<(Instant, Instant)> {
    intervals.sort_unstable();
    let mut union: Vec<(Instant, Instant)> = Vec::new();
    for &mut (from, to) in intervals {
        match union.last_mut() {
            Some((_, last)) if from <= *last => *last = to.max(*last),
            _ => union.push((from, to)),
        }
    }
    union
}

/// How much of the intervals, which are in order of their start, lies in the union.
fn overlap(intervals: &[(Instant, Instant)], union: &[(Instant, Instant)]) -> Duration {
    let (mut total, mut first) = (Duration::ZERO, 0);
    for &(from, to) in intervals {
        // Later intervals start no earlier: what ends before this one is of no more use.
        while union.get(first).is_some_and(|&(_, end)| end <= from) {
            first += 1;
        }
        for &(begin, end) in union[first..].iter().take_while(|&&(begin, _)| begin < to) {
            total += end.min(to) - begin.max(from);
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(name: &str) -> TaskSlice<'_> {
        let (layer, pass) = name.split_once('.').unwrap();
        TaskSlice {
            name,
            layer,
            layer_index: 2,
            pass,
            step: 7,
            flops: 100.0,
            bytes: 8.0,
            blocks: 3..4,
        }
    }

    #[test]
    fn blocks_of_a_task_add_up_while_the_tally_is_open() {
        let tally = Tally::new();
        let recorder = tally.recorder();
        assert!(!recorder.records(7));
        drop(recorder.task(&slice("conv.forward")));
        tally.open();
        assert!(recorder.records(7));
        for _ in 0..3 {
            let guard = recorder.task(&slice("conv.forward"));
            std::thread::sleep(Duration::from_millis(1));
            drop(guard);
        }
        drop(recorder.task(&slice("fc.forward")));
        let late = recorder.task(&slice("fc.update"));
        let report = tally.close();
        drop(late);
        let names: Vec<_> = report.tasks.iter().map(|task| task.name.as_str()).collect();
        assert_eq!(names, ["conv.forward", "fc.forward"]);
        let conv = &report.tasks[0];
        assert_eq!(
            (conv.layer.as_str(), conv.pass.as_str(), conv.layer_index),
            ("conv", "forward", 2)
        );
        assert_eq!((conv.blocks, conv.flops, conv.bytes), (3, 300.0, 24.0));
        assert!(conv.busy >= Duration::from_millis(3));
        assert_eq!(report.busy, report.tasks[0].busy + report.tasks[1].busy);
        assert!(report.elapsed >= report.busy);
        assert!(tally.close().tasks.is_empty());
    }

    #[test]
    fn work_beside_exchanges_is_told_from_work_alone() {
        let origin = Instant::now();
        let at = |ms: u64| origin + Duration::from_millis(ms);
        let mut exchanges = [(at(40), at(50)), (at(10), at(20)), (at(15), at(25))];
        let union = union(&mut exchanges);
        assert_eq!(union, [(at(10), at(25)), (at(40), at(50))]);
        // 5 + 10 + 2 + 8 of these lie in it: two workers at once count twice.
        let busy = [(at(0), at(15)), (at(12), at(22)), (at(23), at(30)), (at(30), at(48))];
        assert_eq!(overlap(&busy, &union), Duration::from_millis(25));
    }
}
