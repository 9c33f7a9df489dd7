//! Critical paths: how long a chain of work hangs on each task; and the order in which ready tasks are served.

use petgraph::graph::NodeIndex;

use super::graph::{SamplePart, Task, TaskGraph, TaskId, TaskKind};
use crate::cost::Platform;

/// In which order ready tasks are served.
#[derive(Debug, Clone)]
pub struct ServiceOrder {
    /// All tasks, the most urgent first.
    pub tasks: Vec<TaskId>,
    /// How many of them are urgent. The others can wait until the next iteration has nothing urgent to do either: nothing of
    /// their own iteration waits for them, so they fill the gaps in which exchanges are waited for.
    pub urgent: usize,
}

impl TaskGraph {
    /// Urgent tasks before those that can wait, each by their critical paths; tasks of equal path in the order of the plan.
    ///
    /// With several ranks a weight gradient can wait whose parameters make their step here and are sent to nobody, as a split
    /// layer's are: the next forward pass begins without the upper layers' gradients, and computes them while its
    /// activations travel. On one rank nothing travels, and what is computed at once is read from the cache.
    pub fn service_order(&self) -> ServiceOrder {
        let exchanges = self.tasks().any(|task| task.kind.is_communication());
        let can_wait = |id: TaskId| {
            exchanges
                && self.task(id).kind == TaskKind::BackwardWeights
                && self.successors(id).all(|(_, dependency)| dependency.carried)
        };
        let mut order: Vec<(bool, TaskId)> =
            self.tasks().map(|task| (can_wait(task.id), task.id)).collect();
        let path = |id: TaskId| self.task(id).critical_path;
        order.sort_by(|a, b| a.0.cmp(&b.0).then(path(b.1).total_cmp(&path(a.1))));
        let urgent = order.iter().filter(|(can_wait, _)| !can_wait).count();
        ServiceOrder { tasks: order.into_iter().map(|(_, id)| id).collect(), urgent }
    }

    /// Sets every task's critical path: its own time plus the longest chain behind it, over this iteration and
    /// the next one, so that an update whose forward comes first is served first.
    ///
    /// With several ranks a layer's weight gradient is placed just before its data gradient: its exchange can then
    /// travel while the data gradient is computed. Where the data gradient itself must travel before the layer below can go on,
    /// it comes first.
    ///
    /// # Cost
    /// O(V + E). Tasks are numbered in a topological order, so one walk backwards suffices.
    pub(super) fn assign_critical_paths(&mut self, platform: &Platform) {
        let n = self.graph.node_count();
        // chain[0]: the second iteration (nothing behind it counts); chain[1]: the first one.
        let mut chain = [vec![0.0_f64; n], vec![0.0_f64; n]];
        for pass in 0..2 {
            for index in (0..n).rev() {
                let id = TaskId::from_index(index);
                let mut longest = 0.0_f64;
                for (successor, dependency) in self.successors(id) {
                    let behind = match (dependency.carried, pass) {
                        (false, _) => chain[pass][successor.index()],
                        (true, 0) => 0.0,
                        (true, _) => chain[0][successor.index()],
                    };
                    longest = longest.max(behind);
                }
                chain[pass][index] = platform.seconds(&self.task(id).price) + longest;
            }
        }
        let exchanges = self.tasks().any(|t| t.kind.is_communication());
        for (task, &path) in self.graph.node_weights_mut().zip(&chain[1]) {
            task.critical_path = path;
        }
        if exchanges {
            self.weights_before_data();
            self.updates_first();
            self.parts_in_turn();
        }
    }

    /// Puts updates whose result is sent on before everything else: they are short, and while one waits behind the backward
    /// passes of the layers below, whose chains are longer, the link may have nothing to carry.
    fn updates_first(&mut self) {
        let longest = self.tasks().map(|t| t.critical_path).fold(0.0, f64::max);
        let sent_on: Vec<TaskId> = self
            .tasks()
            .filter(|t| t.kind == TaskKind::Update)
            .map(|t| t.id)
            .filter(|&id| self.successors(id).any(|(to, _)| self.task(to).kind.is_communication()))
            .collect();
        for id in sent_on {
            // By their own chains among each other.
            let path = &mut self.graph[NodeIndex::new(id.index())].critical_path;
            *path = longest + *path * 1e-9;
        }
    }

    /// Puts all forward tasks of a part of the samples before those of the next part, in the layers that feed a split one: their
    /// chains are as long, but what the first part feeds is to travel while the next is computed.
    fn parts_in_turn(&mut self) {
        let feeds = |task: &&Task| {
            let whole = |&tensor| self.tensor(tensor).placement.mesh.members() == 1;
            task.kind == TaskKind::Forward && task.part.is_some() && task.writes.iter().all(whole)
        };
        let mut tasks: Vec<_> =
            self.tasks().filter(feeds).filter_map(|task| Some((task.part?, task.id))).collect();
        // The last part first, each above all that come after it.
        tasks.sort_by_key(|(part, _)| (part.groups, part.of, std::cmp::Reverse(part.index)));
        let same_cut = |a: &(SamplePart, TaskId), b: &(SamplePart, TaskId)| {
            (a.0.groups, a.0.of) == (b.0.groups, b.0.of)
        };
        for cut in tasks.chunk_by(same_cut) {
            let mut later = 0.0_f64;
            for part in cut.chunk_by(|a, b| a.0 == b.0) {
                let mut longest = later;
                for &(_, id) in part {
                    let path = &mut self.graph[NodeIndex::new(id.index())].critical_path;
                    *path = path.max(later * (1.0 + 1e-9));
                    longest = longest.max(*path);
                }
                later = longest;
            }
        }
    }

    /// True for a data gradient whose terms are summed over ranks.
    fn is_partial(&self, task: &Task) -> bool {
        task.writes.iter().any(|&tensor| self.tensor(tensor).placement.partial)
    }

    fn weights_before_data(&mut self) {
        let data: Vec<_> = self
            .tasks()
            .filter(|t| t.kind == TaskKind::BackwardData && !self.is_partial(t))
            .map(|t| (t.layer, t.critical_path))
            .collect();
        for task in self.graph.node_weights_mut() {
            let data = data.iter().find(|(layer, _)| *layer == task.layer);
            if let (TaskKind::BackwardWeights, Some(&(_, path))) = (task.kind, data) {
                task.critical_path = task.critical_path.max(path * (1.0 + 1e-9));
            }
        }
    }
}
