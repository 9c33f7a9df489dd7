//! Pairs the begins and ends of task slices, thread by thread, however many of them were lost.

use std::collections::HashMap;

use crate::chrome::{ChromeEvent, Phase};
use crate::event::Task;

/// The slices under way on all threads.
#[derive(Debug, Default)]
pub(super) struct OpenSlices {
    /// The slices of each thread, the innermost last.
    of_thread: HashMap<u64, Vec<OpenSlice>>,
}

/// A slice whose end has not been seen yet.
#[derive(Debug)]
pub(super) struct OpenSlice {
    tid: u64,
    start_ns: i64,
    task: Task<'static>,
}

impl OpenSlices {
    pub(super) fn open(&mut self, thread: u64, tid: u64, start_ns: i64, task: Task<'static>) {
        self.of_thread.entry(thread).or_default().push(OpenSlice { tid, start_ns, task });
    }

    /// The slice of this task, and before it those inside it whose own ends were lost. Empty if it
    /// is the begin that was lost.
    pub(super) fn close(
        &mut self,
        thread: u64,
        task: &Task<'_>,
    ) -> impl Iterator<Item = OpenSlice> {
        let open = self.of_thread.entry(thread).or_default();
        let from = open.iter().rposition(|slice| slice.task == *task).unwrap_or(open.len());
        open.drain(from..).rev()
    }

    /// All slices of the thread, the innermost first.
    pub(super) fn close_all(&mut self, thread: u64) -> impl Iterator<Item = OpenSlice> {
        self.of_thread.remove(&thread).into_iter().flatten().rev()
    }

    /// All slices of all threads.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = OpenSlice> {
        std::mem::take(&mut self.of_thread).into_values().flatten()
    }
}

impl OpenSlice {
    /// The slice as it is drawn, having ended at `end_ns`.
    pub(super) fn finished(&self, pid: u64, end_ns: i64) -> ChromeEvent {
        let task = &self.task;
        let dur_ns = (end_ns - self.start_ns).max(0);
        let mut event = ChromeEvent::new(Phase::Complete, task.name.as_ref(), pid, self.tid);
        event.cat = Some(task.pass.clone().into_owned());
        event.ts = Some(self.start_ns);
        event.dur = Some(dur_ns);
        for (key, value) in [
            ("layer", task.layer.as_ref().into()),
            ("layer_index", task.layer_index.into()),
            ("pass", task.pass.as_ref().into()),
            ("step", task.step.into()),
            ("blocks", format!("{}..{}", task.blocks.start, task.blocks.end).into()),
        ] {
            event.args.insert(key.to_owned(), value);
        }
        // An operation per nanosecond is 10^9 per second.
        let rate = task.flops.filter(|&flops| flops > 0.0 && dur_ns > 0);
        for (key, value) in [
            ("flops", task.flops),
            ("bytes", task.bytes),
            ("GFLOP/s", rate.map(|flops| flops / dur_ns as f64)),
        ] {
            if let Some(value) = value {
                event.args.insert(key.to_owned(), value.into());
            }
        }
        event
    }

    /// The slice as it is drawn if the recording ended at `end_ns`, in the middle of it.
    pub(super) fn unfinished(&self, pid: u64, end_ns: i64) -> ChromeEvent {
        let mut event = self.finished(pid, end_ns);
        // Part of the work in part of the time says nothing about the rate.
        event.args.remove("GFLOP/s");
        event.args.insert("unfinished".to_owned(), true.into());
        event
    }
}
