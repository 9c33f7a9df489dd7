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

#[cfg(all(test, not(loom)))]
#[expect(clippy::unwrap_used, reason = "in tests, helpers included, a panic is the report")]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use lockstep_graph::{Mode, Plan, PlanOptions, Platform, Strategy, zoo};

    use super::*;

    fn plan(ranks: usize) -> Plan {
        let mode = Mode::Train { momentum: true };
        let platform = Platform::default();
        let network = Arc::new(zoo::golden::small_resnet().unwrap());
        let options = PlanOptions {
            minibatch: 8,
            ranks,
            mode,
            strategy: Strategy::Data,
            platform,
            fuse: true,
            ..PlanOptions::default()
        };
        Plan::compile(network, options).unwrap()
    }

    fn named(graph: &TaskGraph, name: &str) -> TaskId {
        graph.tasks().find(|t| t.name == name).unwrap().id
    }

    #[test]
    fn every_edge_counts_once_and_every_task_follows_itself() {
        for ranks in [1, 2] {
            let plan = plan(ranks);
            let graph = plan.tasks();
            let (links, sources) = links(graph);
            let mut edges: BTreeSet<_> =
                graph.dependencies().map(|(from, to, d)| (from, to, d.carried)).collect();
            edges.extend(graph.tasks().map(|t| (t.id, t.id, true)));
            let counted: Vec<_> = graph
                .tasks()
                .flat_map(|t| {
                    links[t.id.index()].successors.iter().map(move |&(to, c)| (t.id, to, c))
                })
                .collect();
            assert_eq!(counted.len(), edges.len());
            assert_eq!(counted.into_iter().collect::<BTreeSet<_>>(), edges);
            for task in graph.tasks() {
                let (link, id) = (&links[task.id.index()], task.id);
                let fed = u32::from(sources.contains(&id));
                let into = |carried: bool| {
                    let n = edges.iter().filter(|e| e.1 == id && e.2 == carried).count();
                    u32::try_from(n).unwrap()
                };
                assert_eq!(link.waits, into(false) + into(true) + fed, "{}", task.name);
                assert_eq!(link.waits_first, into(false) + fed, "{}", task.name);
            }
        }
    }

    #[test]
    fn the_feeder_starts_what_has_no_predecessor_in_the_iteration() {
        let plan = plan(2);
        let (links, sources) = links(plan.tasks());
        assert!(sources.contains(&named(plan.tasks(), "data.load")));
        assert!(!sources.contains(&named(plan.tasks(), "loss.report")));
        for task in plan.tasks().tasks() {
            let first = plan.tasks().predecessors(task.id).all(|(_, d)| d.carried);
            assert_eq!(sources.contains(&task.id), first, "{}", task.name);
            assert!(links[task.id.index()].waits_first > 0, "{} would never start", task.name);
        }
    }
}
