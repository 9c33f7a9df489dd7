//! Dependencies derived from what tasks read and write.
//!
//! Tasks are given in a sequential order that would be correct if they ran one after another, iteration
//! after iteration. Two iterations are walked in that order; for every tensor the last writer and the readers since
//! are remembered, which yields each read-after-write, write-after-read and write-after-write pair. A pair inside
//! the first iteration is an edge *within*, a pair from the first to the second one an edge *carried*.
//!
//! Tasks that work on different parts of the samples have nothing to do with each other: an access is a tensor and a part.

use std::collections::BTreeMap;

use petgraph::graph::{DiGraph, NodeIndex};

use super::access::{Tensor, TensorId};
use super::graph::{Dependency, Hazard, SamplePart, Task, TaskGraph, TaskGraphBuilder, TaskId};
use crate::cost::Platform;

/// A task in iteration 0 or 1, and the part of a tensor that it touches.
#[derive(Debug, Clone, Copy)]
struct Touch {
    task: TaskId,
    iteration: u8,
    part: SamplePart,
}

/// Who touched a tensor last.
#[derive(Debug, Clone, Default)]
struct LastAccess {
    writers: Vec<Touch>,
    readers: Vec<Touch>,
}

/// All samples.
const WHOLE: SamplePart = SamplePart { index: 0, of: 1, groups: 1 };

impl TaskGraphBuilder {
    /// The graph of the collected tasks, with dependencies and critical paths.
    ///
    /// # Cost
    /// O(V + E) for the dependencies, where E counts reader-writer pairs.
    pub(crate) fn finish(self, platform: &Platform) -> TaskGraph {
        let edges = dependencies(&self.tasks, &self.tensors);
        let mut graph = DiGraph::with_capacity(self.tasks.len(), edges.len());
        for task in self.tasks {
            graph.add_node(task);
        }
        for ((from, to, carried), (tensor, hazard)) in edges {
            let dependency = Dependency { tensor, hazard, carried };
            graph.add_edge(node(from), node(to), dependency);
        }
        let mut graph = TaskGraph { graph, tensors: self.tensors };
        graph.assign_critical_paths(platform);
        graph
    }
}

impl TaskGraph {
    /// Adds a carried edge, unless one between these tasks is there already.
    pub(crate) fn add_carried(&mut self, from: TaskId, to: TaskId, tensor: TensorId) {
        let known = self.successors(from).any(|(id, d)| id == to && d.carried);
        if !known {
            let dependency = Dependency { tensor, hazard: Hazard::MemoryReuse, carried: true };
            self.graph.add_edge(node(from), node(to), dependency);
        }
    }
}

fn node(id: TaskId) -> NodeIndex {
    NodeIndex::new(id.index())
}

type EdgeKey = (TaskId, TaskId, bool);

/// One edge a (from, to, carried); of several reasons the first in hazard order is kept.
fn dependencies(tasks: &[Task], tensors: &[Tensor]) -> BTreeMap<EdgeKey, (TensorId, Hazard)> {
    let mut last = vec![LastAccess::default(); tensors.len()];
    let mut edges: BTreeMap<EdgeKey, (TensorId, Hazard)> = BTreeMap::new();
    let mut add = |from: Touch, to: Touch, tensor, hazard| {
        // Pairs inside the second iteration repeat those inside the first. A task never overtakes itself: the scheduler runs
        // its instances in order without being told.
        if from.iteration == 1 || from.task == to.task || !from.part.overlaps(to.part) {
            return;
        }
        let key = (from.task, to.task, to.iteration == 1);
        let reason = edges.entry(key).or_insert((tensor, hazard));
        if hazard < reason.1 {
            *reason = (tensor, hazard);
        }
    };
    for iteration in 0..2 {
        for task in tasks {
            let touch = |tensor: TensorId| {
                let samples = tensors[tensor.index()].role.has_samples();
                let part = task.part.filter(|_| samples).unwrap_or(WHOLE);
                Touch { task: task.id, iteration, part }
            };
            for &tensor in &task.reads {
                let (access, this) = (&mut last[tensor.index()], touch(tensor));
                for &writer in &access.writers {
                    add(writer, this, tensor, Hazard::ReadAfterWrite);
                }
                access.readers.push(this);
            }
            for &tensor in &task.writes {
                let (access, this) = (&mut last[tensor.index()], touch(tensor));
                for &writer in &access.writers {
                    add(writer, this, tensor, Hazard::WriteAfterWrite);
                }
                for &reader in &access.readers {
                    add(reader, this, tensor, Hazard::WriteAfterRead);
                }
                // Whoever comes later waits for this task, and so for those.
                access.readers.retain(|reader| !this.part.covers(reader.part));
                access.writers.retain(|writer| !this.part.covers(writer.part));
                access.writers.push(this);
            }
        }
    }
    edges
}

#[cfg(test)]
mod tests {
    use super::super::access::TensorRole;
    use super::super::graph::{NewTask, TaskKind};
    use super::*;
    use crate::cost::Price;
    use crate::layer::LayerId;
    use crate::placement::{Mesh, Placement};

    /// Builds a graph from `(reads, writes)` rows over `n` tensors and lists its edges as text.
    #[track_caller]
    fn check(n: usize, rows: &[(&[usize], &[usize])], expected: &[&str]) {
        let rows: Vec<_> = rows.iter().map(|&(reads, writes)| (reads, writes, None)).collect();
        check_parts(n, &rows, expected);
    }

    /// What a task reads and writes, and the part of the samples that it works on: index, of how many, of how many groups.
    type Row<'a> = (&'a [usize], &'a [usize], Option<(usize, usize, usize)>);

    /// The same with parts.
    #[track_caller]
    fn check_parts(n: usize, rows: &[Row<'_>], expected: &[&str]) {
        let mut builder = TaskGraphBuilder::default();
        let layer = LayerId::new(0);
        let placement = Placement::activation(Mesh::data_parallel(1), 1);
        for i in 0..n {
            builder.tensor(layer, TensorRole::Activation, format!("x{i}"), placement);
        }
        for (reads, writes, part) in rows {
            let ids = |list: &[usize]| list.iter().map(|&i| TensorId::new(i)).collect();
            builder.task(NewTask {
                kind: TaskKind::Forward,
                layer,
                name: String::new(),
                reads: ids(reads),
                writes: ids(writes),
                part: part.map(|(index, of, groups)| SamplePart { index, of, groups }),
                in_place: None,
                price: Price::default(),
            });
        }
        let graph = builder.finish(&Platform::default());
        let mut got: Vec<String> = graph
            .dependencies()
            .map(|(a, b, d)| {
                let arrow = if d.carried { "=>" } else { "->" };
                format!("{}{arrow}{} {:?}", a.index(), b.index(), d.hazard)
            })
            .collect();
        got.sort();
        assert_eq!(got, expected);
    }

    #[test]
    fn a_reader_waits_for_its_writer_and_the_next_writer_for_the_reader() {
        check(1, &[(&[], &[0]), (&[0], &[])], &["0->1 ReadAfterWrite", "1=>0 WriteAfterRead"]);
    }

    #[test]
    fn parameters_are_carried_into_the_next_iteration() {
        // 0 reads the parameters, 1 updates them.
        check(1, &[(&[0], &[]), (&[], &[0])], &["0->1 WriteAfterRead", "1=>0 ReadAfterWrite"]);
    }

    #[test]
    fn a_task_that_reads_and_writes_orders_both_sides() {
        // gradient -> part-reduce in place -> update
        check(
            1,
            &[(&[], &[0]), (&[0], &[0]), (&[0], &[])],
            &[
                "0->1 ReadAfterWrite",
                "1->2 ReadAfterWrite",
                "1=>0 WriteAfterWrite",
                "2=>0 WriteAfterRead",
            ],
        );
    }

    #[test]
    fn tasks_on_different_parts_of_the_samples_do_not_wait_for_each_other() {
        // Two halves are written, then two quarters of the second half are read, then all.
        check_parts(
            1,
            &[
                (&[], &[0], Some((0, 2, 1))),
                (&[], &[0], Some((1, 2, 1))),
                (&[0], &[], Some((2, 4, 1))),
                (&[0], &[], None),
            ],
            &[
                "0->3 ReadAfterWrite",
                "1->2 ReadAfterWrite",
                "1->3 ReadAfterWrite",
                "2=>1 WriteAfterRead",
                "3=>0 WriteAfterRead",
                "3=>1 WriteAfterRead",
            ],
        );
    }

    #[test]
    fn parts_of_different_groups_meet_where_the_minibatch_is_the_same() {
        // The halves of two groups' samples are the quarters 0 and 2, 1 and 3 of one group's.
        check_parts(
            1,
            &[
                (&[], &[0], Some((0, 2, 2))),
                (&[], &[0], Some((1, 2, 2))),
                (&[0], &[], Some((0, 4, 1))),
                (&[0], &[], Some((3, 4, 1))),
                (&[0], &[], Some((0, 2, 1))),
            ],
            &[
                "0->2 ReadAfterWrite",
                "0->4 ReadAfterWrite",
                "1->3 ReadAfterWrite",
                "1->4 ReadAfterWrite",
                "2=>0 WriteAfterRead",
                "3=>1 WriteAfterRead",
                "4=>0 WriteAfterRead",
                "4=>1 WriteAfterRead",
            ],
        );
    }

    #[test]
    fn independent_tasks_have_no_edge() {
        check(2, &[(&[], &[0]), (&[], &[1])], &[]);
    }
}
