//! A task's neighbors as the session counts them.

use lockstep_graph::{TaskGraph, TaskId};

/// Who waits for a task, and for how many it waits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Links {
    /// Tasks to count down when it is finished; true for those of the next iteration. Itself in the next iteration is
    /// among them: instances of a task run in order.
    pub(crate) successors: Vec<(TaskId, bool)>,
    /// What it waits for, from the second iteration on.
    pub(crate) waits: u32,
    /// What it waits for in the first iteration, into which nothing is carried.
    pub(crate) waits_first: u32,
}

/// The links of all tasks, and the tasks that the feeder starts: those with no predecessor in the iteration.
pub(crate) fn links(graph: &TaskGraph) -> (Vec<Links>, Vec<TaskId>) {
    let mut links = vec![Links::default(); graph.tasks().len()];
    let mut sources = Vec::new();
    for task in graph.tasks() {
        let id = task.id;
        let mut successors: Vec<_> =
            graph.successors(id).map(|(to, dependency)| (to, dependency.carried)).collect();
        successors.push((id, true));
        successors.sort_unstable();
        successors.dedup();
        for &(to, carried) in &successors {
            links[to.index()].waits += 1;
            links[to.index()].waits_first += u32::from(!carried);
        }
        links[id.index()].successors = successors;
    }
    for task in graph.tasks() {
        let link = &mut links[task.id.index()];
        if link.waits_first == 0 {
            // The feeder counts as one more predecessor, in every iteration.
            link.waits += 1;
            link.waits_first += 1;
            sources.push(task.id);
        }
    }
    (links, sources)
}
