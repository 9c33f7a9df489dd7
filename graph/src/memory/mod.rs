//! Buffers by lifetime: which tensors of an iteration may lie in the same memory.
//!
//! Two tensors may share memory when every task that touches the one comes before the first writer of the
//! other *in every possible order*, that is when the dependencies say so. Sharing therefore takes no parallelism away
//! within an iteration. Across iterations it adds carried edges: the first owner's next writer waits for the
//! last owner's last user. Tensors that travel between ranks never share, so that those edges cannot
//! make the next forward pass wait for the network.

use std::ops::Range;

use crate::task::{Task, TaskGraph, TaskId, TensorId};

/// Where each tensor of an iteration lies in one arena.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPlan {
    ranges: Vec<Option<Range<usize>>>,
    len: usize,
}

/// Tensors that lie at one place because a computation is done in place.
#[derive(Debug)]
struct Slot {
    tensors: Vec<TensorId>,
    len: usize,
    /// Every task that touches one of the tensors.
    users: Vec<TaskId>,
    /// Every task that writes one of them; the first in the plan's order comes first. Writers of different parts of the samples
    /// are in no order.
    writers: Vec<TaskId>,
    /// Never shares: it travels between ranks.
    exclusive: bool,
}

impl MemoryPlan {
    /// Plans an arena for all tensors that do not outlive an iteration, and adds the carried dependencies that sharing
    /// needs to the graph.
    ///
    /// `lens[t]` is the number of elements of tensor `t`; offsets are multiples of `align` elements.
    ///
    /// # Panics
    /// `lens` has not one entry a tensor.
    ///
    /// # Cost
    /// O(T^2) in tensors and O(V^2) bits for the ancestor sets. Placement is greedy by size, which is within a few
    /// percent of the lower bound for networks (each large tensor gets the lowest free place).
    #[must_use]
    pub fn new(graph: &mut TaskGraph, lens: &[usize], align: usize) -> Self {
        assert_eq!(lens.len(), graph.tensors().len(), "one length a tensor");
        let ancestors = Ancestors::new(graph);
        let slots = slots(graph, lens, &ancestors);
        let mut order: Vec<usize> = (0..slots.len()).collect();
        order.sort_by_key(|&s| (std::cmp::Reverse(slots[s].len), slots[s].writers[0]));

        let mut placed: Vec<(Range<usize>, usize)> = Vec::new();
        let mut ranges = vec![None; lens.len()];
        let mut len = 0;
        for s in order {
            let mut busy: Vec<&Range<usize>> = placed
                .iter()
                .filter(|(_, other)| interferes(&slots[s], &slots[*other], &ancestors))
                .map(|(range, _)| range)
                .collect();
            busy.sort_by_key(|range| range.start);
            let mut start = 0;
            for range in busy {
                if start + slots[s].len <= range.start {
                    break;
                }
                start = start.max(range.end.next_multiple_of(align));
            }
            let range = start..start + slots[s].len;
            len = len.max(range.end);
            for tensor in &slots[s].tensors {
                ranges[tensor.index()] = Some(start..start + lens[tensor.index()]);
            }
            placed.push((range, s));
        }
        add_reuse_edges(graph, &slots, &placed, &ancestors);
        Self { ranges, len: len.next_multiple_of(align.max(1)) }
    }

    /// A place of its own for every tensor, one after another: the plan of an arena that is talked about but never filled.
    #[must_use]
    pub fn apart(lens: &[usize], align: usize) -> Self {
        let mut len = 0;
        let mut place = |n: &usize| {
            let start = len;
            len += n.next_multiple_of(align.max(1));
            Some(start..start + n)
        };
        let ranges = lens.iter().map(&mut place).collect();
        Self { ranges, len }
    }

    /// Where a tensor lies, in elements; `None` for what outlives the iteration.
    #[must_use]
    pub fn range(&self, tensor: TensorId) -> Option<Range<usize>> {
        self.ranges[tensor.index()].clone()
    }

    /// Elements of the arena.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when no tensor needs memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True when the task's result lies in its operand's memory.
    #[must_use]
    pub fn is_in_place(&self, task: &Task) -> bool {
        task.in_place.is_some_and(|p| {
            let source = &self.ranges[p.source.index()];
            source.is_some() && *source == self.ranges[p.result.index()]
        })
    }
}

/// For every task the set of tasks that must come before it within the iteration, as bits.
#[derive(Debug)]
struct Ancestors {
    words: usize,
    bits: Vec<u64>,
}

impl Ancestors {
    fn new(graph: &TaskGraph) -> Self {
        let n = graph.tasks().len();
        let words = n.div_ceil(64);
        let mut bits = vec![0_u64; n * words];
        // Tasks are numbered in a topological order.
        for index in 0..n {
            for (predecessor, dependency) in graph.predecessors(TaskId::from_index(index)) {
                if dependency.carried {
                    continue;
                }
                let p = predecessor.index();
                for word in 0..words {
                    bits[index * words + word] |= bits[p * words + word];
                }
                bits[index * words + p / 64] |= 1 << (p % 64);
            }
        }
        Self { words, bits }
    }

    fn is_before(&self, earlier: TaskId, later: TaskId) -> bool {
        let e = earlier.index();
        self.bits[later.index() * self.words + e / 64] >> (e % 64) & 1 == 1
    }
}

fn touches(task: &Task, tensor: TensorId) -> bool {
    task.reads.contains(&tensor) || task.writes.contains(&tensor)
}

/// One slot a tensor, then slots of in-place computations merged.
fn slots(graph: &TaskGraph, lens: &[usize], ancestors: &Ancestors) -> Vec<Slot> {
    let mut slots: Vec<Option<Slot>> = Vec::new();
    let mut slot_of = vec![usize::MAX; lens.len()];
    for tensor in graph.tensors().iter().filter(|t| !t.role.is_persistent()) {
        let users: Vec<&Task> = graph.tasks().filter(|t| touches(t, tensor.id)).collect();
        let writers: Vec<TaskId> =
            users.iter().filter(|t| t.writes.contains(&tensor.id)).map(|t| t.id).collect();
        if writers.is_empty() {
            continue;
        }
        slot_of[tensor.id.index()] = slots.len();
        let travels = users.iter().any(|t| t.kind.is_communication());
        slots.push(Some(Slot {
            tensors: vec![tensor.id],
            len: lens[tensor.id.index()],
            users: users.iter().map(|t| t.id).collect(),
            writers,
            exclusive: travels,
        }));
    }
    for task in graph.tasks() {
        let Some(pair) = task.in_place else { continue };
        let (source, result) = (slot_of[pair.source.index()], slot_of[pair.result.index()]);
        if source == usize::MAX || result == usize::MAX || source == result {
            continue;
        }
        let (from, to) = (slots[source].as_ref(), slots[result].as_ref());
        let (Some(from), Some(to)) = (from, to) else { continue };
        // With the tasks that work on other parts of the samples, in no order among them.
        let here: Vec<&Task> = graph.tasks().filter(|t| t.in_place == task.in_place).collect();
        let is_here = |&id: &TaskId| here.iter().any(|t| t.id == id);
        let before = |&u: &TaskId| here.iter().all(|t| ancestors.is_before(u, t.id));
        let after = |&u: &TaskId| here.iter().all(|t| ancestors.is_before(t.id, u));
        let dies_here = from.users.iter().all(|u| is_here(u) || before(u));
        let reads = |t: &Task| t.reads.iter().filter(|&&read| read == pair.source).count();
        let read_once = here.iter().all(|t| reads(t) == 1);
        let starts_here = to.writers.iter().all(|w| is_here(w) || after(w));
        if from.len != to.len || !dies_here || !read_once || !starts_here {
            continue;
        }
        let merged = slots[result].take().expect("looked at above");
        let target = slots[source].as_mut().expect("looked at above");
        for tensor in &merged.tensors {
            slot_of[tensor.index()] = source;
        }
        target.tensors.extend(merged.tensors);
        target.users.extend(merged.users);
        target.writers.extend(merged.writers);
        target.exclusive |= merged.exclusive;
    }
    slots.into_iter().flatten().collect()
}

/// True unless all users of one slot come before all writers of the other.
fn interferes(a: &Slot, b: &Slot, ancestors: &Ancestors) -> bool {
    a.exclusive || b.exclusive || !(precedes(a, b, ancestors) || precedes(b, a, ancestors))
}

fn precedes(a: &Slot, b: &Slot, ancestors: &Ancestors) -> bool {
    let before = |&user: &TaskId| b.writers.iter().all(|&w| ancestors.is_before(user, w));
    a.users.iter().all(before)
}

/// Where slot A precedes slot B in the same memory, A's next first writer waits for B's last users; where a computation is
/// done in place, the operand's next writer waits for the result's last users.
fn add_reuse_edges(
    graph: &mut TaskGraph,
    slots: &[Slot],
    placed: &[(Range<usize>, usize)],
    ancestors: &Ancestors,
) {
    let mut reuse = |earlier: &Slot, later: &Slot| {
        for &user in &later.users {
            let is_last = !later.users.iter().any(|&other| ancestors.is_before(user, other));
            if !is_last {
                continue;
            }
            for &writer in &earlier.writers {
                let is_first = !earlier.writers.iter().any(|&w| ancestors.is_before(w, writer));
                if is_first && user != writer {
                    graph.add_carried(user, writer, later.tensors[0]);
                }
            }
        }
    };
    for slot in slots.iter().filter(|slot| slot.tensors.len() > 1) {
        reuse(slot, slot);
    }
    for (range_a, a) in placed {
        for (range_b, b) in placed {
            let overlap = range_a.start < range_b.end && range_b.start < range_a.end;
            let (a, b) = (&slots[*a], &slots[*b]);
            if overlap && precedes(a, b, ancestors) {
                reuse(a, b);
            }
        }
    }
}

#[cfg(test)]
mod tests;
