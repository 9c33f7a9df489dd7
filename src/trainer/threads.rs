//! How many threads a rank has, where they run, what they are called.

use std::cell::RefCell;
use std::fs;
#[cfg(feature = "faults")]
use std::sync::Arc;

use lockstep_comm::{Launcher, launcher};
use lockstep_scheduler::{Cores, StepHook};
use lockstep_traces::{Recorder, ThreadGuard};

use super::options::RunOptions;

/// Looks an idle worker takes before it sleeps, where every thread has a core to itself.
const SPINS: u32 = 200;

/// Looks where a rank has its cores to itself, and more than one: waking a worker costs more than the looks, and nobody needs the core.
const SPINS_ALONE: u32 = 2000;

/// Looks before sleeping where compute threads share cores with others: the communication thread's turn must come.
const SPINS_SHARED: u32 = 10;

/// One rank's threads.
#[derive(Debug, Clone)]
pub(super) struct Threads {
    /// This rank.
    pub(super) rank: usize,
    /// All ranks.
    pub(super) ranks: usize,
    /// Ranks of the job that have the same cores, this one among them.
    sharing: usize,
    /// This rank's index among them, where it is known.
    index: Option<usize>,
    /// Cores for each of them, at least one.
    cores_each: usize,
    /// Ranks of the job in this process.
    pub(super) ranks_here: usize,
    /// Compute threads.
    pub(super) workers: usize,
    /// Cores that this process may use.
    cores: Cores,
    /// What started this process as one rank of several, and the cores that it could have given.
    launched: Option<(Launcher, usize)>,
    #[cfg(feature = "faults")]
    fault: Option<crate::fault::Fault>,
}

impl Threads {
    /// Chooses threads for the `rank`-th of `ranks` ranks, all in this process.
    pub(super) fn in_process(options: &RunOptions, rank: usize, ranks: usize) -> Self {
        let cores = Cores::detect();
        let cores_each = cores.usable() / ranks.max(1);
        Self {
            rank,
            ranks,
            sharing: ranks,
            index: Some(rank),
            cores_each: cores_each.max(1),
            ranks_here: ranks,
            workers: options.workers.unwrap_or_else(|| Cores::workers_on(cores_each, ranks > 1)),
            cores,
            launched: None,
            #[cfg(feature = "faults")]
            fault: options.fault.clone(),
        }
    }

    /// Chooses threads for this process, one rank of the job of its launcher, or the only one where there is none.
    pub(super) fn of_this_process(options: &RunOptions) -> Self {
        let alone =
            Launcher { name: "no launcher", rank: 0, n_ranks: 1, local_ranks: 1, local_rank: 0 };
        let launcher = launcher().unwrap_or(alone);
        Self::of_process(options, launcher, Cores::detect(), launchers_cores())
    }

    /// Chooses threads for a process that `launcher` started on `cores`, out of `available` that it could have given.
    fn of_process(
        options: &RunOptions,
        launcher: Launcher,
        cores: Cores,
        available: usize,
    ) -> Self {
        let sharing = sharing(launcher.local_ranks, cores.in_mask(), available);
        let mut cores_each = cores.in_mask() / sharing;
        if cores.usable() < cores.in_mask() {
            // A quota is for all of this machine's ranks together.
            cores_each = cores_each.min(cores.usable() / launcher.local_ranks);
        }
        let workers =
            options.workers.unwrap_or_else(|| Cores::workers_on(cores_each, launcher.n_ranks > 1));
        // Which ranks were given the same cores is certain only if all were, or none.
        let index = match sharing {
            1 => Some(0),
            _ if sharing == launcher.local_ranks => Some(launcher.local_rank),
            _ => None,
        };
        Self {
            rank: launcher.rank,
            ranks: launcher.n_ranks,
            sharing,
            index,
            cores_each: cores_each.max(1),
            ranks_here: 1,
            workers,
            cores,
            launched: Some((launcher, available)),
            #[cfg(feature = "faults")]
            fault: options.fault.clone(),
        }
    }

    fn communicates(&self) -> bool {
        self.ranks > 1
    }

    /// Cores of all this rank's pinned threads, workers first.
    fn placement(&self) -> Option<Vec<usize>> {
        let threads = self.workers + usize::from(self.communicates());
        // A lone rank's workers may float: loaders and the program's own thread need the cores as well.
        self.cores.placement(self.index?, self.sharing, threads + 1)
    }

    /// A core for each worker, where threads are pinned.
    pub(super) fn worker_cores(&self) -> Option<Vec<usize>> {
        Some(self.placement()?[..self.workers].to_vec())
    }

    /// The communication thread's core, where threads are pinned.
    pub(super) fn comm_core(&self) -> Option<usize> {
        self.placement()?.get(self.workers).copied().filter(|_| self.communicates())
    }

    /// How long idle workers look for work before they sleep.
    pub(super) fn spins(&self) -> u32 {
        if self.communicates() && self.cores_each == 1 {
            SPINS_SHARED
        } else if self.sharing == 1 {
            SPINS_ALONE
        } else if self.placement().is_some() {
            SPINS
        } else {
            SPINS_SHARED
        }
    }

    /// A thread name that tells ranks of one process apart. The system shows 15 bytes.
    pub(super) fn prefix(&self, name: &str) -> String {
        if self.ranks_here > 1 { format!("r{} {name}", self.rank) } else { name.to_owned() }
    }

    /// What the user should know about the threads.
    pub(super) fn warnings(&self) -> Vec<String> {
        let usable = self.cores.usable();
        let (workers, threads) = (self.workers, self.workers * self.sharing);
        let warning = match &self.launched {
            Some((launcher, available)) => {
                let Launcher { name, local_ranks, .. } = launcher;
                let unbind = unbind(name);
                let could_have = available / local_ranks;
                if usable == 1 && could_have > 1 {
                    Some(format!(
                        "{name} bound all threads of this rank to one core, though this machine has {could_have} for each of its \
                         {local_ranks} rank(s): start with {unbind}"
                    ))
                } else if workers > usable && could_have > usable {
                    Some(format!(
                        "{name} bound this rank to {usable} core(s) but it has {workers} workers: start with {unbind}"
                    ))
                } else {
                    (threads > usable).then(|| {
                        format!(
                            "{threads} compute threads of {} rank(s) share {usable} core(s): start fewer ranks on this machine, \
                             or give fewer --workers",
                            self.sharing
                        )
                    })
                }
            }
            None => (threads > usable)
                .then(|| format!("{threads} compute threads share {usable} core(s)")),
        };
        warning.into_iter().collect()
    }

    /// The hook that makes a thread of this kind fail on purpose, when that was asked for.
    #[cfg(feature = "faults")]
    pub(super) fn hook(&self, thread: &str) -> Option<StepHook> {
        let fault = self.fault.clone()?;
        fault.applies(self.rank, thread).then(|| -> StepHook {
            let rank = self.rank;
            Arc::new(move |step| fault.strike(rank, step))
        })
    }

    /// No failures on purpose in this build.
    #[cfg(not(feature = "faults"))]
    #[expect(clippy::unused_self, reason = "the same call as with feature faults")]
    pub(super) fn hook(&self, _thread: &str) -> Option<StepHook> {
        None
    }
}

thread_local! {
    static RECORDED: RefCell<Option<ThreadGuard>> = const { RefCell::new(None) };
}

/// Makes the calling thread part of a recording until the thread ends; the first call counts.
pub(super) fn record_thread(recorder: &Recorder, name: &str) {
    RECORDED.with_borrow_mut(|guard| {
        guard.get_or_insert_with(|| recorder.enter_thread(name));
    });
}

/// This machine's name, for traces.
pub(super) fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}

/// How many of `local_ranks` ranks have the same cores as one that may use `in_mask` of the `available` ones, if all were
/// bound alike: one where each has cores of its own, all where none was bound.
fn sharing(local_ranks: usize, in_mask: usize, available: usize) -> usize {
    (local_ranks * in_mask).div_ceil(available.max(1)).clamp(1, local_ranks.max(1))
}

/// What to tell a launcher so that it leaves the choice of cores to us.
fn unbind(launcher: &str) -> &'static str {
    match launcher {
        "srun" => "--cpu-bind=none and --cpus-per-task",
        "MPICH's mpirun" => "-bind-to none",
        _ => "--bind-to none",
    }
}

/// Cores that the launcher could give to its ranks on this machine: those of the process that started this one, which is
/// not bound itself, or all that are on line.
fn launchers_cores() -> usize {
    let of_parent = || {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let parent = field(&status, "PPid:")?;
        let status = fs::read_to_string(format!("/proc/{parent}/status")).ok()?;
        Some(count_of_list(field(&status, "Cpus_allowed_list:")?))
    };
    let on_line = || {
        let list = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        count_of_list(list.trim())
    };
    of_parent().filter(|&cores| cores > 0).unwrap_or_else(on_line).max(1)
}

/// The value of a line `name value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// How many numbers a list of ranges such as `0-3,8-11` has.
fn count_of_list(list: &str) -> usize {
    let length = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)? + 1)
    };
    list.split(',').filter_map(length).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rank of several on one machine, which has `mask` of `available` cores.
    fn rank(local_ranks: usize, mask: usize, available: usize, workers: Option<usize>) -> Threads {
        let launcher = Launcher {
            name: "Open MPI's mpirun",
            rank: 1,
            n_ranks: local_ranks.max(2),
            local_ranks,
            local_rank: local_ranks - 1,
        };
        let options = RunOptions { workers, ..RunOptions::default() };
        Threads::of_process(&options, launcher, Cores::new((0..mask).collect(), mask), available)
    }

    #[track_caller]
    fn check(threads: &Threads, workers: usize, warning: &str) {
        assert_eq!(threads.workers, workers);
        assert_eq!(threads.warnings().concat(), warning);
    }

    #[test]
    fn ranks_that_were_not_bound_share_the_machine_equally() {
        check(&rank(4, 16, 16, None), 3, "");
        check(&rank(2, 4, 4, None), 2, "");
        check(&rank(4, 4, 4, None), 1, "");
    }

    #[test]
    fn a_rank_with_cores_of_its_own_uses_them_all() {
        check(&rank(4, 4, 16, None), 3, "");
        check(&rank(2, 8, 16, None), 7, "");
    }

    #[test]
    fn ranks_bound_to_a_socket_share_it() {
        let threads = rank(4, 8, 16, None);
        check(&threads, 3, "");
        // Which two of the four are on this socket is not known, so nothing is pinned.
        assert_eq!((threads.worker_cores(), threads.comm_core()), (None, None));
    }

    #[test]
    fn a_quota_is_for_all_ranks_of_a_machine() {
        let launcher =
            Launcher { name: "srun", rank: 0, n_ranks: 4, local_ranks: 4, local_rank: 0 };
        let cores = Cores::new((0..16).collect(), 8);
        let threads = Threads::of_process(&RunOptions::default(), launcher, cores, 16);
        assert_eq!(threads.workers, 2);
    }

    #[test]
    fn one_core_for_all_threads_is_told_where_there_are_more() {
        check(
            &rank(2, 1, 8, None),
            1,
            "Open MPI's mpirun bound all threads of this rank to one core, though this machine has 4 for each of its 2 rank(s): \
             start with --bind-to none",
        );
        // With a core a rank there is nothing to be gained.
        check(&rank(2, 1, 2, None), 1, "");
    }

    #[test]
    fn more_workers_than_cores_are_told() {
        check(
            &rank(2, 2, 8, Some(4)),
            4,
            "Open MPI's mpirun bound this rank to 2 core(s) but it has 4 workers: start with --bind-to none",
        );
        check(
            &rank(4, 2, 2, None),
            1,
            "4 compute threads of 4 rank(s) share 2 core(s): start fewer ranks on this machine, or give fewer --workers",
        );
    }

    #[test]
    fn workers_on_the_communication_threads_only_core_let_it_have_its_turn() {
        assert_eq!(rank(1, 1, 1, None).spins(), SPINS_SHARED);
        assert_eq!(rank(1, 8, 8, None).spins(), SPINS_ALONE);
    }

    #[test]
    fn lists_of_cores_are_counted() {
        assert_eq!(count_of_list("0-3,8-11"), 8);
        assert_eq!(count_of_list("5"), 1);
        assert_eq!(count_of_list(""), 0);
        assert_eq!(
            field("PPid:\t12\nCpus_allowed_list:\t0-1\n", "Cpus_allowed_list:"),
            Some("0-1")
        );
        assert!(launchers_cores() >= 1);
    }
}
