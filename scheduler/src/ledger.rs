//! Debug builds check every buffer access against the running tasks.
//!
//! A task instance enters its reads and writes when it becomes ready and takes them out when it is finished. If two
//! instances ever hold overlapping ranges, one of them writing, then the graph lacks a dependency: that is a bug of ours,
//! and the run stops with both names. Release builds compile none of this.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// One tensor held by a task instance.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    /// Which arena.
    pub(crate) arena: ArenaId,
    /// Elements of it.
    pub(crate) range: Range<usize>,
    /// True when the task writes there.
    pub(crate) writes: bool,
}

/// The two memories that tensors live in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArenaId {
    /// What lasts for one iteration.
    Iteration,
    /// What outlives it: parameters, velocity, running statistics.
    Parameters,
}

/// Who holds what right now.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    held: Mutex<Vec<(usize, usize, Access)>>,
}

impl Ledger {
    /// Enters the accesses of task `task` in slot `slot`; `name` gives task names for the message.
    ///
    /// # Panics
    /// Another task instance holds an overlapping range and one of the two writes.
    pub(crate) fn enter(
        &self,
        (slot, task): (usize, usize),
        accesses: &[Access],
        name: impl Fn(usize) -> String,
    ) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        for access in accesses {
            let clash = held.iter().find(|(s, t, other)| {
                (*s, *t) != (slot, task)
                    && other.arena == access.arena
                    && (other.writes || access.writes)
                    && other.range.start < access.range.end
                    && access.range.start < other.range.end
            });
            if let Some((_, other, _)) = clash {
                let (this, other) = (name(task), name(*other));
                drop(held);
                panic!(
                    "{this} and {other} use the same buffer at the same time, one of them \
                     writing: the task graph lacks a dependency between them"
                );
            }
        }
        held.extend(accesses.iter().map(|a| (slot, task, a.clone())));
    }

    /// Takes them out again.
    pub(crate) fn leave(&self, (slot, task): (usize, usize)) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|(s, t, _)| (*s, *t) != (slot, task));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(range: Range<usize>, writes: bool) -> Access {
        Access { arena: ArenaId::Iteration, range, writes }
    }

    #[test]
    fn readers_share_and_disjoint_writers_do_too() {
        let ledger = Ledger::default();
        ledger.enter((0, 0), &[access(0..8, false), access(8..16, true)], |t| t.to_string());
        ledger.enter((0, 1), &[access(0..8, false), access(16..20, true)], |t| t.to_string());
        ledger.leave((0, 0));
        ledger.enter((1, 0), &[access(8..16, true)], |t| t.to_string());
    }

    #[test]
    #[should_panic(expected = "b and a use the same buffer at the same time")]
    fn a_writer_beside_a_reader_is_a_missing_dependency() {
        let ledger = Ledger::default();
        let name = |t: usize| ["a", "b"][t].to_owned();
        ledger.enter((0, 0), &[access(0..8, false)], name);
        ledger.enter((0, 1), &[access(7..9, true)], name);
    }
}
