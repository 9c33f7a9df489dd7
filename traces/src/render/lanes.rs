//! Which row of the trace a thread draws on: a name and a small number for each, reused in turn.

use std::collections::{HashMap, HashSet};

/// Numbers of each class of threads start at a multiple of this. Viewers order rows by number, and
/// take a thread with its process's number for the main thread, so 0, where ranks are, stays free.
const CLASS: u64 = 10_000;

/// The rows of a rank.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    tids: HashSet<u64>,
    /// Which lane each thread has now, by tracing-chrome's number of the thread.
    of_thread: HashMap<u64, usize>,
    /// Lanes whose thread has left, by name.
    vacant: HashMap<String, Vec<usize>>,
}

/// One row.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) tid: u64,
    pub(super) name: String,
}

impl Lanes {
    /// Gives the thread a row of this name: a vacant one, or a new one.
    pub(super) fn enter(&mut self, thread: u64, name: &str) {
        self.leave(thread);
        let lane = match self.vacant.get_mut(name).and_then(Vec::pop) {
            Some(lane) => lane,
            None => self.add(name.to_owned()),
        };
        self.of_thread.insert(thread, lane);
    }

    /// Makes the thread's row free for the next of that name.
    pub(super) fn leave(&mut self, thread: u64) {
        if let Some(lane) = self.of_thread.remove(&thread) {
            self.vacant.entry(self.lanes[lane].name.clone()).or_default().push(lane);
        }
    }

    /// The number of the thread's row, which is made up for a thread that has not entered.
    pub(super) fn tid(&mut self, thread: u64) -> u64 {
        let lane = match self.of_thread.get(&thread) {
            Some(&lane) => lane,
            None => {
                let lane = self.add(format!("unnamed {thread}"));
                self.of_thread.insert(thread, lane);
                lane
            }
        };
        self.lanes[lane].tid
    }

    /// All rows, in the order in which they came up.
    pub(super) fn all(&self) -> &[Lane] {
        &self.lanes
    }

    fn add(&mut self, name: String) -> usize {
        let mut tid = preferred_tid(&name);
        while !self.tids.insert(tid) {
            tid += 1;
        }
        self.lanes.push(Lane { tid, name });
        self.lanes.len() - 1
    }
}

/// The number that puts a row in its place: workers in order, then the communication thread, the
/// loaders, and the rest. Depends on the name alone, so that ranks and runs look alike.
fn preferred_tid(name: &str) -> u64 {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name[stem.len()..].parse::<u64>().unwrap_or(0);
    let class = match stem.trim_end() {
        "worker" => 1,
        "comm" => 2,
        "loader" => 3,
        _ => 4,
    };
    class * CLASS + number.min(CLASS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_taken_over_by_the_next_thread_of_its_name_only_when_vacant() {
        let mut lanes = Lanes::default();
        lanes.enter(70, "worker 0");
        lanes.enter(71, "worker 0");
        assert_eq!((lanes.tid(70), lanes.tid(71)), (10_000, 10_001));
        lanes.leave(70);
        lanes.enter(72, "worker 0");
        assert_eq!(lanes.tid(72), 10_000);
        assert_eq!(lanes.tid(99), 40_099);
        assert_eq!(lanes.all()[2].name, "unnamed 99");
    }

    #[test]
    fn rows_are_ordered_workers_first() {
        let order = ["worker 0", "worker 2", "worker 10", "comm", "loader 0", "loader 1", "main"];
        assert!(order.map(preferred_tid).is_sorted_by(|a, b| a < b));
    }
}
