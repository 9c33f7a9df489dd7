//! What every task instance still waits for, in virtual time: the session's counters without its threads.

use lockstep_graph::{TaskGraph, TaskId};

use crate::board::SLOTS;
use crate::program::{Links, links};

/// A task in one iteration, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Instance {
    pub(super) iteration: u64,
    pub(super) task: TaskId,
}

/// Counters of three iterations, as in a [`Session`](crate::session::Session).
#[derive(Debug)]
pub(super) struct Counts {
    links: Vec<Links>,
    sources: Vec<TaskId>,
    waiting: [Vec<u32>; SLOTS],
    tasks_left: [usize; SLOTS],
}

impl Counts {
    pub(super) fn new(graph: &TaskGraph) -> Self {
        let (links, sources) = links(graph);
        let waits: Vec<u32> = links.iter().map(|l| l.waits).collect();
        let mut waiting: [_; SLOTS] = std::array::from_fn(|_| waits.clone());
        // Nothing is carried into the first iteration.
        waiting[0] = links.iter().map(|l| l.waits_first).collect();
        Self { links, sources, waiting, tasks_left: [0; SLOTS] }
    }

    /// Starts an iteration; adds what is ready now.
    pub(super) fn feed(&mut self, iteration: u64, ready: &mut Vec<Instance>) {
        self.tasks_left[slot(iteration)] = self.links.len();
        for task in self.sources.clone() {
            self.count_down(Instance { iteration, task }, ready);
        }
    }

    /// A task is done; adds what is ready now. True where it was the last one of its iteration.
    pub(super) fn finish(&mut self, done: Instance, ready: &mut Vec<Instance>) -> bool {
        for at in 0..self.links[done.task.index()].successors.len() {
            let (task, carried) = self.links[done.task.index()].successors[at];
            let iteration = done.iteration + u64::from(carried);
            self.count_down(Instance { iteration, task }, ready);
        }
        let left = &mut self.tasks_left[slot(done.iteration)];
        *left -= 1;
        *left == 0
    }

    fn count_down(&mut self, instance: Instance, ready: &mut Vec<Instance>) {
        let index = instance.task.index();
        let waiting = &mut self.waiting[slot(instance.iteration)][index];
        *waiting -= 1;
        if *waiting == 0 {
            // For the iteration that has this slot next.
            *waiting = self.links[index].waits;
            ready.push(instance);
        }
    }
}

fn slot(iteration: u64) -> usize {
    usize::try_from(iteration % SLOTS as u64).expect("less than the number of slots")
}
