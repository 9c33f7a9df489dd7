//! The compute threads of one rank. They are started once and serve one session after another.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use crossbeam::channel::{Receiver, Sender, bounded};
use crossbeam::utils::Backoff;
use lockstep_graph::TaskId;
use lockstep_ops::{Arena, flush_denormals};
use lockstep_traces::{Recorder, TaskGuard, TaskSlice};

use crate::board::Claim;
use crate::cpus::pin_current_thread;
use crate::error::{ScheduleError, panic_message};
use crate::iteration::Iteration;
use crate::program::{Program, Scratch};
use crate::session::Session;

/// A function of the step number that a test puts into a thread to make it fail there.
pub type StepHook = Arc<dyn Fn(u64) + Send + Sync>;

/// What a rank's compute threads are started with.
#[derive(Clone)]
pub struct WorkerConfig {
    /// Number of compute threads, at least one.
    pub workers: usize,
    /// One core a worker, where threads are pinned.
    pub cores: Option<Vec<usize>>,
    /// Looks at the board that an idle worker takes before it sleeps, each after a longer pause. Zero where ranks share cores.
    pub spins: u32,
    /// Prefix of thread names: `worker` gives `worker 0`, `worker 1`.
    pub name: String,
    /// Where tasks are recorded.
    pub recorder: Recorder,
    /// Called before a worker's first block of a task.
    pub on_step: Option<StepHook>,
}

impl std::fmt::Debug for WorkerConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerConfig")
            .field("workers", &self.workers)
            .field("cores", &self.cores)
            .field("spins", &self.spins)
            .finish_non_exhaustive()
    }
}

/// Running compute threads; dropping them ends and joins them.
#[derive(Debug)]
pub(crate) struct Workers {
    inboxes: Vec<Sender<Arc<Session>>>,
    done: Receiver<()>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    pub(crate) fn start(config: &WorkerConfig) -> Result<Self, ScheduleError> {
        let (done_sender, done) = bounded(config.workers);
        let mut workers = Self { inboxes: Vec::new(), done, threads: Vec::new() };
        for index in 0..config.workers {
            let (inbox, sessions) = bounded::<Arc<Session>>(1);
            let (config, done_sender) = (config.clone(), done_sender.clone());
            let name = format!("{} {index}", config.name);
            let thread = std::thread::Builder::new()
                .name(name.clone())
                .spawn(move || {
                    if let Some(&core) = config.cores.as_ref().and_then(|cores| cores.get(index)) {
                        pin_current_thread(core);
                    }
                    flush_denormals();
                    let _recording = config.recorder.enter_thread(&format!("worker {index}"));
                    let mut worker = Worker {
                        config: &config,
                        scratch: Arena::new(0),
                        counts: Vec::new(),
                        labels: Vec::new(),
                    };
                    for session in sessions {
                        worker.serve(&session);
                        drop(session);
                        if done_sender.send(()).is_err() {
                            break;
                        }
                    }
                })
                .map_err(|source| ScheduleError::Thread { name, source })?;
            workers.inboxes.push(inbox);
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// Gives a session to all workers.
    pub(crate) fn serve(&self, session: &Arc<Session>) {
        for inbox in &self.inboxes {
            inbox.send(Arc::clone(session)).expect("workers live as long as their inboxes");
        }
    }

    /// Waits until all workers have left the session, which must be over.
    pub(crate) fn wait(&self) {
        for _ in &self.threads {
            self.done.recv().expect("workers live as long as their inboxes");
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.inboxes.clear();
        for thread in self.threads.drain(..) {
            // A worker catches the panics of tasks; one of its own has been printed already.
            let _ = thread.join();
        }
    }
}

struct Worker<'a> {
    config: &'a WorkerConfig,
    scratch: Arena,
    counts: Vec<u64>,
    labels: Vec<u32>,
}

impl Worker<'_> {
    fn serve(&mut self, session: &Session) {
        let needed = session.program.scratch_len();
        if self.scratch.len() < needed {
            self.scratch = Arena::new(needed);
        }
        // Its communication thread is told when the cores are free. Held for the session: a communicator lives longer.
        let comm = session.comm.as_ref().and_then(Weak::upgrade);
        if let Some(comm) = &comm {
            comm.worker_joins();
        }
        let backoff = Backoff::new();
        let mut looks = 0;
        while !session.is_over() {
            let ticket = session.sleep.ticket();
            if let Some(claim) = session.board.claim(session.oldest_slot()) {
                self.run(session, claim);
                backoff.reset();
                looks = 0;
            } else if looks < self.config.spins && !session.is_over() {
                looks += 1;
                backoff.snooze();
            } else if !session.is_over() {
                match &comm {
                    Some(comm) => comm.worker_rests(|| session.sleep.sleep(ticket)),
                    None => session.sleep.sleep(ticket),
                }
                backoff.reset();
                looks = 0;
            }
        }
        if let Some(comm) = &comm {
            comm.worker_leaves();
        }
    }

    /// Runs the claimed block and further blocks of the same task until there are none or something more urgent is ready.
    #[expect(clippy::needless_pass_by_value, reason = "a claimed block is run once")]
    fn run(&mut self, session: &Session, claim: Claim) {
        let Claim { place, block } = claim;
        let program = &session.program;
        let task = program.task_at(place.position);
        let iteration = session.iteration(place.slot);
        let step = iteration.step;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            if let Some(hook) = &self.config.on_step {
                hook(step);
            }
            // Scoring counts its own steps; a trace is of training, a tally of either.
            let recorder = &self.config.recorder;
            let traced = recorder.records(step) && (program.trains() || recorder.tallies());
            let (mut block, mut done) = (block, 0);
            loop {
                let slice = traced.then(|| self.slice(program, task, block, &iteration));
                if let Some(drill) = &session.drill {
                    (drill.block)();
                } else {
                    let scratch = Scratch {
                        values: self.scratch.as_slice_mut(),
                        counts: &mut self.counts,
                        labels: &mut self.labels,
                    };
                    program.run_block(task, block, &iteration, session, scratch);
                }
                drop(slice);
                done += 1;
                if session.board.has_more_urgent(place, session.oldest_slot()) {
                    break;
                }
                match session.board.claim_block(place) {
                    Some(next) => block = next,
                    None => break,
                }
            }
            // The data must be free to be taken back once the iteration is complete.
            drop(iteration);
            session.blocks_done(place, done);
        }));
        if let Err(payload) = outcome {
            session.fail(ScheduleError::TaskPanicked {
                task: program.task_name(task).to_owned(),
                step,
                message: panic_message(&*payload),
            });
        }
    }

    /// One block in the trace, with its share of the task's cost.
    fn slice(
        &self,
        program: &Program,
        task: TaskId,
        block: usize,
        iteration: &Iteration,
    ) -> TaskGuard {
        let bound = program.describe(task);
        let share = 1.0 / program.blocks(task, iteration) as f64;
        self.config.recorder.task(&TaskSlice {
            name: bound.name,
            layer: bound.layer,
            layer_index: bound.layer_index,
            pass: bound.pass,
            step: iteration.step,
            flops: bound.price.flops * share,
            bytes: bound.price.bytes * share,
            blocks: block..block + 1,
        })
    }
}
