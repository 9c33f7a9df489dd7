//! Sorts a trace's events into what the checks look at: rows of slices, and exchanges.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use serde_json::Value;

use super::problem::Problem;
use crate::chrome::{ChromeEvent, LocalId, Phase};
use crate::vocabulary::{exchange, pass};

/// A row of the trace: process and thread.
pub(super) type ThreadKey = (u64, u64);

/// What ties the ends of an exchange together: process, category and identity.
type ExchangeKey = (u64, Option<String>, Option<LocalId>);

/// All that a trace holds, sorted.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) names: Names,
    /// Processes with events or a name, and whether they have a name.
    pub(super) processes: BTreeMap<u64, bool>,
    pub(super) threads: BTreeMap<ThreadKey, Row>,
    pub(super) exchanges: Vec<Exchange>,
    pub(super) problems: Vec<Problem>,
    /// From the first event to the last.
    pub(super) range: Option<Range<i64>>,
    /// Exchanges whose end has not been seen yet, with the thread they began on.
    pending: HashMap<ExchangeKey, Vec<(u64, Exchange)>>,
    named_threads: BTreeSet<ThreadKey>,
}

/// One thread's slices.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) slices: Vec<Slice>,
    /// Slices that began as an event of their own and have not ended yet.
    begun: Vec<Slice>,
}

/// A slice, from `start` to `end` in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) name: NameId,
    /// Absent where it is no slice of a task.
    pub(super) task: Option<TaskRef>,
}

/// Which task a slice or an exchange belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TaskRef {
    pub(super) layer: NameId,
    pub(super) layer_index: u32,
    pub(super) step: u64,
    pub(super) role: Role,
}

/// What a slice or an exchange is to the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Forward,
    Backward,
    PartReduce,
    PartBroadcast,
    Other,
}

/// An exchange, from submission to completion.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exchange {
    pub(super) pid: u64,
    pub(super) submitted: i64,
    pub(super) completed: i64,
    pub(super) name: NameId,
    pub(super) task: Option<TaskRef>,
}

/// A name in [`Names`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct NameId(u32);

/// Names, each kept once.
#[derive(Debug, Default)]
pub(super) struct Names {
    texts: Vec<String>,
    ids: HashMap<String, NameId>,
}

impl Names {
    fn id(&mut self, text: &str) -> NameId {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let id = NameId(u32::try_from(self.texts.len()).expect("fewer than 2^32 names fit memory"));
        self.texts.push(text.to_owned());
        self.ids.insert(text.to_owned(), id);
        id
    }

    pub(super) fn text(&self, id: NameId) -> &str {
        &self.texts[id.0 as usize]
    }
}

impl Tables {
    pub(super) fn add(&mut self, event: &ChromeEvent) {
        if event.ph == Phase::Metadata {
            self.add_metadata(event);
            return;
        }
        self.processes.entry(event.pid).or_insert(false);
        let Some(start) = event.ts else {
            let (pid, tid, name) = identity(event);
            self.problems.push(Problem::Timeless { pid, tid, name });
            return;
        };
        let end = start + event.dur.unwrap_or(0);
        if start < 0 || end < start {
            let (pid, tid, name) = identity(event);
            self.problems.push(Problem::NegativeTime { pid, tid, name });
        }
        let range = self.range.get_or_insert(start..end);
        *range = range.start.min(start)..range.end.max(end);

        let name = self.names.id(&event.name);
        match event.ph {
            Phase::AsyncBegin => {
                let task = self.task(event, "kind");
                let exchange =
                    Exchange { pid: event.pid, submitted: start, completed: start, name, task };
                self.pending.entry(async_key(event)).or_default().push((event.tid, exchange));
            }
            Phase::AsyncEnd => match self.pending.get_mut(&async_key(event)).and_then(Vec::pop) {
                Some((_, exchange)) => {
                    if start < exchange.submitted {
                        let (pid, tid, name) = identity(event);
                        self.problems.push(Problem::NegativeTime { pid, tid, name });
                    }
                    self.exchanges.push(Exchange { completed: start, ..exchange });
                }
                None => self.unpaired(event.pid, event.tid, name),
            },
            Phase::Complete => {
                let task = self.task(event, "pass");
                self.row(event).slices.push(Slice { start, end, name, task });
            }
            Phase::Begin => {
                let task = self.task(event, "pass");
                self.row(event).begun.push(Slice { start, end: start, name, task });
            }
            Phase::End => match self.row(event).begun.pop() {
                Some(slice) => self.row(event).slices.push(Slice { end: start, ..slice }),
                None => self.unpaired(event.pid, event.tid, name),
            },
            Phase::Instant => {
                self.row(event);
            }
            Phase::Metadata | Phase::Foreign => {}
        }
    }

    /// Reports what can be told only at the end of the file.
    pub(super) fn finish(&mut self) {
        let mut left: Vec<(u64, u64, NameId)> = Vec::new();
        for (&(pid, tid), row) in &mut self.threads {
            left.extend(row.begun.drain(..).map(|slice| (pid, tid, slice.name)));
        }
        for (tid, exchange) in std::mem::take(&mut self.pending).into_values().flatten() {
            left.push((exchange.pid, tid, exchange.name));
        }
        left.sort_unstable_by_key(|&(pid, tid, name)| (pid, tid, name.0));
        for (pid, tid, name) in left {
            self.unpaired(pid, tid, name);
        }
        for (&pid, &named) in &self.processes {
            if !named {
                self.problems.push(Problem::UnnamedProcess { pid });
            }
        }
        for &(pid, tid) in self.threads.keys() {
            if !self.named_threads.contains(&(pid, tid)) {
                self.problems.push(Problem::UnnamedThread { pid, tid });
            }
        }
    }

    fn add_metadata(&mut self, event: &ChromeEvent) {
        if event.ts.is_some() {
            let (pid, tid, kind) = identity(event);
            self.problems.push(Problem::TimedMetadata { pid, tid, kind });
        }
        let name = event.args.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        match (event.name.as_str(), name) {
            ("process_name", Some(_)) => {
                self.processes.insert(event.pid, true);
            }
            ("thread_name", Some(name)) => {
                self.named_threads.insert((event.pid, event.tid));
                name.clone_into(&mut self.row(event).name);
            }
            _ => {}
        }
    }

    fn row(&mut self, event: &ChromeEvent) -> &mut Row {
        self.threads.entry((event.pid, event.tid)).or_default()
    }

    fn unpaired(&mut self, pid: u64, tid: u64, name: NameId) {
        let name = self.names.text(name).to_owned();
        self.problems.push(Problem::Unpaired { pid, tid, name });
    }

    /// The task that an event belongs to, whose role is told by the argument `role_key`.
    fn task(&mut self, event: &ChromeEvent, role_key: &str) -> Option<TaskRef> {
        let role = match event.args.get(role_key)?.as_str()? {
            pass::FORWARD => Role::Forward,
            pass::BACKWARD_DATA | pass::BACKWARD_WEIGHTS => Role::Backward,
            exchange::PART_REDUCE => Role::PartReduce,
            exchange::PART_BROADCAST => Role::PartBroadcast,
            _ => Role::Other,
        };
        Some(TaskRef {
            layer: self.names.id(event.args.get("layer")?.as_str()?),
            layer_index: event.args.get("layer_index")?.as_u64()?.try_into().ok()?,
            step: event.args.get("step")?.as_u64()?,
            role,
        })
    }
}

fn identity(event: &ChromeEvent) -> (u64, u64, String) {
    (event.pid, event.tid, event.name.clone())
}

fn async_key(event: &ChromeEvent) -> ExchangeKey {
    (event.pid, event.cat.clone(), event.id2.clone())
}
