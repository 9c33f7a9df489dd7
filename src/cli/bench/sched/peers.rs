//! What `lockstep bench sched` compares itself with: rayon's parallel iterators, and a plain loop over crossbeam's deques.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use crossbeam::deque::{Steal, Stealer, Worker};
use crossbeam::utils::Backoff;
use rayon::prelude::*;

use super::Job;

/// What a task is to rayon.
#[derive(Debug, Clone, Copy)]
pub(super) enum RayonTask {
    /// A parallel iterator over its blocks; rayon joins blocks to longer jobs while nobody is idle.
    Iterator,
    /// A scope in which each block is spawned.
    Scope,
}

/// Seconds of all chains on a pool of rayon's.
pub(super) fn rayon_chain(job: &Job, kind: RayonTask) -> f64 {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(job.workers).build();
    let pool = pool.expect("the system has threads");
    let blocks = 0..job.blocks_per_task;
    let task = || match kind {
        RayonTask::Iterator => blocks.clone().into_par_iter().for_each(|_| (job.block)()),
        RayonTask::Scope => {
            rayon::scope(|scope| blocks.clone().for_each(|_| scope.spawn(|_| (job.block)())));
        }
    };
    pool.install(|| {
        (0..job.tasks).for_each(|_| task());
        let began = Instant::now();
        for _ in 0..job.tasks * job.chains {
            task();
        }
        began.elapsed().as_secs_f64()
    })
}

/// Workers with a deque each; whoever does the last block of a task puts the next one's blocks into its own.
struct Deques<'a> {
    job: &'a Job,
    blocks_left: AtomicUsize,
    tasks_left: AtomicUsize,
    /// When the first chain, which is not timed, was done.
    began: OnceLock<Instant>,
}

/// Seconds of all chains on workers with deques.
pub(super) fn deque_chain(job: &Job) -> f64 {
    let deques = Deques {
        job,
        blocks_left: AtomicUsize::new(job.blocks_per_task),
        tasks_left: AtomicUsize::new(job.tasks * (job.chains + 1)),
        began: OnceLock::new(),
    };
    let own: Vec<Worker<()>> = (0..job.workers).map(|_| Worker::new_fifo()).collect();
    let all: Vec<Stealer<()>> = own.iter().map(Worker::stealer).collect();
    (0..job.blocks_per_task).for_each(|_| own[0].push(()));
    thread::scope(|scope| {
        let work = |own| scope.spawn(|| deques.work(own, &all));
        let workers: Vec<_> = own.into_iter().map(work).collect();
        let seconds = workers.into_iter().filter_map(|w| w.join().expect("blocks do not panic"));
        seconds.last().expect("somebody does the last block")
    })
}

impl Deques<'_> {
    /// Seconds since the first chain was done, from whoever does the last block.
    #[expect(clippy::needless_pass_by_value, reason = "a deque belongs to one worker")]
    fn work(&self, own: Worker<()>, all: &[Stealer<()>]) -> Option<f64> {
        let idle = Backoff::new();
        let steal =
            || all.iter().map(|other| other.steal_batch_and_pop(&own)).collect::<Steal<()>>();
        loop {
            if own.pop().or_else(|| steal().success()).is_none() {
                if self.tasks_left.load(Ordering::Acquire) == 0 {
                    return None;
                }
                idle.snooze();
                continue;
            }
            idle.reset();
            (self.job.block)();
            // AcqRel: the next task sees what this one did.
            if self.blocks_left.fetch_sub(1, Ordering::AcqRel) > 1 {
                continue;
            }
            let left = self.tasks_left.fetch_sub(1, Ordering::AcqRel) - 1;
            if left == self.job.tasks * self.job.chains {
                self.began.get_or_init(Instant::now);
            }
            if left == 0 {
                return self.began.get().map(|began| began.elapsed().as_secs_f64());
            }
            self.blocks_left.store(self.job.blocks_per_task, Ordering::Release);
            (0..self.job.blocks_per_task).for_each(|_| own.push(()));
        }
    }
}
