//! How many threads a rank has, where they run, what they are called.

use std::cell::RefCell;
use std::fs;
#[cfg(feature = "faults")]
use std::sync::Arc;

use lockstep_scheduler::{Cores, StepHook};
use lockstep_traces::{Recorder, ThreadGuard};

use super::options::RunOptions;

/// Looks an idle worker takes before it sleeps, where every thread has a core to itself.
const SPINS: u32 = 200;

/// Looks where a machine has no other rank: waking a worker costs more than the looks, and nobody needs the core.
const SPINS_ALONE: u32 = 2000;

/// Looks before sleeping where compute threads may share cores with others.
const SPINS_SHARED: u32 = 10;

/// One rank's threads.
#[derive(Debug, Clone)]
pub(super) struct Threads {
    /// This rank.
    pub(super) rank: usize,
    /// All ranks.
    pub(super) ranks: usize,
    /// Ranks of the job on this machine.
    pub(super) ranks_on_machine: usize,
    /// This rank's index among them.
    pub(super) index_on_machine: usize,
    /// Ranks of the job in this process.
    pub(super) ranks_here: usize,
    /// Compute threads.
    pub(super) workers: usize,
    /// The launcher that started this process, if one did.
    pub(super) launcher: Option<String>,
    cores: Cores,
    #[cfg(feature = "faults")]
    fault: Option<crate::fault::Fault>,
}

impl Threads {
    /// Chooses threads for the `rank`-th of `ranks` ranks, all in this process.
    pub(super) fn in_process(options: &RunOptions, rank: usize, ranks: usize) -> Self {
        let cores = Cores::detect();
        let workers = options.workers.unwrap_or_else(|| cores.default_workers(ranks, ranks > 1));
        Self {
            rank,
            ranks,
            ranks_on_machine: ranks,
            index_on_machine: rank,
            ranks_here: ranks,
            workers,
            launcher: None,
            cores,
            #[cfg(feature = "faults")]
            fault: options.fault.clone(),
        }
    }

    /// Chooses threads for this process, which is one of `ranks_on_machine` ranks here.
    ///
    /// A launcher that binds each rank to cores of its own has shared the machine out already.
    #[cfg(feature = "mpi")]
    pub(super) fn of_process(
        options: &RunOptions,
        launcher: &lockstep_comm::Launcher,
        machine_cores: usize,
    ) -> Self {
        let cores = Cores::detect();
        let ranks_on_machine = launcher.local_ranks;
        let bound = cores.in_mask() < machine_cores;
        let sharing = if bound { 1 } else { ranks_on_machine };
        let workers =
            options.workers.unwrap_or_else(|| cores.default_workers(sharing, launcher.n_ranks > 1));
        Self {
            rank: launcher.rank,
            ranks: launcher.n_ranks,
            ranks_on_machine: sharing,
            index_on_machine: launcher.local_rank % sharing,
            ranks_here: 1,
            workers,
            launcher: Some(launcher.name.to_owned()),
            cores,
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
        self.cores.placement(self.index_on_machine, self.ranks_on_machine, threads + 1)
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
        if self.ranks_on_machine == 1 {
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
        let mut warnings = Vec::new();
        let per_rank = self.cores.usable();
        if let Some(launcher) = &self.launcher {
            if self.workers > per_rank {
                warnings.push(format!(
                    "{launcher} bound this rank to {per_rank} core(s) but it has {} workers: start with --bind-to none",
                    self.workers
                ));
            } else if per_rank == 1 && self.communicates() {
                warnings.push(format!(
                    "{launcher} bound this rank to one core, which its worker and its communication thread share; \
                     with cores to spare start with --bind-to none"
                ));
            }
        } else if self.workers * self.ranks_here > per_rank {
            warnings.push(format!(
                "{} compute threads share {per_rank} core(s)",
                self.workers * self.ranks_here
            ));
        }
        warnings
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

/// Cores of this machine that are on line, whoever may use them.
#[cfg(feature = "mpi")]
pub(super) fn machine_cores() -> usize {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    // A list of ranges: 0-3,8-11.
    let ranges = online.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)? + 1)
    });
    ranges.sum::<usize>().max(1)
}
