//! One run of a program: counts dependencies down, posts ready tasks, hands communication on, reports.
//!
//! Every task instance has a counter of what it still waits for: its predecessors within the iteration, its
//! predecessors carried from the iteration before, itself in the iteration before, and, for tasks without a predecessor
//! within the iteration, the feeder that brings the iteration's data. Whoever finishes a task's last block counts its
//! successors down and makes ready those that reach zero. The feeder starts iteration `t + 2` only when `t` is complete, so
//! three sets of counters suffice and a set is never shared by two iterations.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use crossbeam::channel::Sender;
use lockstep_comm::Communicator;
use lockstep_graph::TaskId;
use lockstep_traces::{ExchangeSpan, Recorder};

use crate::board::{Board, Place, SLOTS};
use crate::drill::Drill;
use crate::error::ScheduleError;
use crate::iteration::{Iteration, IterationReport};
#[cfg(debug_assertions)]
use crate::ledger::Ledger;
use crate::program::Program;
use crate::sleep::Sleep;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, lock};

/// What a session tells its feeder.
#[derive(Debug)]
pub(crate) enum Event {
    /// An iteration's result, before the iteration is complete.
    Report(IterationReport),
    /// All tasks of the oldest iteration are done.
    Complete,
    /// The run cannot go on; the reason is kept in the session.
    Failed,
}

/// Shared state of one run.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) program: Arc<Program>,
    /// What runs in place of the program's own blocks.
    pub(crate) drill: Option<Drill>,
    pub(crate) board: Board,
    pub(crate) sleep: Sleep,
    /// Weak: the communicator's callbacks lead here, and it must end when its owner drops it.
    pub(crate) comm: Option<Weak<Communicator>>,
    recorder: Recorder,
    began: Instant,
    /// When each communication task was submitted, in nanoseconds since the session began.
    submitted: Vec<AtomicU64>,
    events: Sender<Event>,
    /// Set by whoever wants the run to end at a step boundary.
    pub(crate) stop: Arc<AtomicBool>,
    waiting_for: Vec<AtomicU32>,
    blocks_left: Vec<AtomicU32>,
    tasks_left: [AtomicU32; SLOTS],
    iterations: [RwLock<Option<Arc<Iteration>>>; SLOTS],
    oldest: AtomicU64,
    over: AtomicBool,
    failure: Mutex<Option<ScheduleError>>,
    #[cfg(debug_assertions)]
    ledger: Ledger,
}

/// A task instance: which task, which slot's iteration.
#[derive(Debug, Clone, Copy)]
struct Instance {
    slot: usize,
    task: TaskId,
}

impl Session {
    pub(crate) fn new(
        program: Arc<Program>,
        comm: Option<&Arc<Communicator>>,
        recorder: Recorder,
        stop: Arc<AtomicBool>,
        events: Sender<Event>,
    ) -> Self {
        let n = program.n_tasks();
        let counters = || (0..SLOTS * n).map(|_| AtomicU32::new(0)).collect();
        let session = Self {
            board: Board::new(n, program.urgent()),
            sleep: Sleep::new(),
            comm: comm.map(Arc::downgrade),
            recorder,
            began: Instant::now(),
            submitted: (0..SLOTS * n).map(|_| AtomicU64::new(0)).collect(),
            events,
            stop,
            waiting_for: counters(),
            blocks_left: counters(),
            tasks_left: Default::default(),
            iterations: Default::default(),
            oldest: AtomicU64::new(0),
            over: AtomicBool::new(false),
            failure: Mutex::new(None),
            #[cfg(debug_assertions)]
            ledger: Ledger::default(),
            drill: None,
            program,
        };
        for slot in 0..SLOTS {
            for index in 0..n {
                let links = session.program.links(TaskId::from_index(index));
                // Nothing is carried into the first iteration.
                let count = if slot == 0 { links.waits_first } else { links.waits };
                session
                    .waiting(Instance { slot, task: TaskId::from_index(index) })
                    .store(count, Ordering::Relaxed);
            }
        }
        session
    }

    /// Starts iteration number `index` (0-based); at most two may be incomplete, this one included.
    pub(crate) fn feed(&self, index: u64, iteration: Iteration) {
        let slot = slot_of(index);
        let n = u32::try_from(self.program.n_tasks()).expect("task counts fit in 32 bits");
        *self.iterations[slot].write().unwrap_or_else(PoisonError::into_inner) =
            Some(Arc::new(iteration));
        self.tasks_left[slot].store(n, Ordering::Release);
        let mut ready = Vec::new();
        for &task in self.program.sources() {
            self.count_down(Instance { slot, task }, &mut ready);
        }
        let pieces = self.make_ready(ready);
        self.announce(pieces);
    }

    /// Takes a complete iteration's data back, to use its buffers again.
    pub(crate) fn take_back(&self, index: u64) -> Option<Iteration> {
        let slot = &self.iterations[slot_of(index)];
        let taken = slot.write().unwrap_or_else(PoisonError::into_inner).take();
        taken.and_then(Arc::into_inner)
    }

    /// The data of the iteration in a slot. Claims keep it there.
    pub(crate) fn iteration(&self, slot: usize) -> Arc<Iteration> {
        let guard = self.iterations[slot].read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(guard.as_ref().expect("a ready task's iteration has been fed"))
    }

    /// The oldest incomplete iteration's slot.
    pub(crate) fn oldest_slot(&self) -> usize {
        slot_of(self.oldest.load(Ordering::Relaxed))
    }

    /// True when workers should leave.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Ends the run: workers leave when they look next.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.sleep.announce_to_all();
    }

    /// Ends the run with an error; the first one counts.
    pub(crate) fn fail(&self, error: ScheduleError) {
        lock(&self.failure).get_or_insert(error);
        self.end();
        // The feeder may be gone already.
        let _ = self.events.send(Event::Failed);
    }

    pub(crate) fn take_failure(&self) -> Option<ScheduleError> {
        lock(&self.failure).take()
    }

    /// Hands the iteration's result to the feeder.
    pub(crate) fn report(&self, report: IterationReport) {
        // The feeder may be gone already.
        let _ = self.events.send(Event::Report(report));
    }

    /// A worker has done `blocks` blocks of the instance at `place`, and looks at the board next.
    pub(crate) fn blocks_done(&self, place: Place, blocks: usize) {
        let task = self.program.task_at(place.position);
        let instance = Instance { slot: place.slot, task };
        let done = u32::try_from(blocks).expect("block counts fit in 32 bits");
        // AcqRel: whoever does the last block sees what the others wrote, and passes it on.
        if self.blocks_left[self.index(instance)].fetch_sub(done, Ordering::AcqRel) == done {
            let pieces = self.finish(instance);
            // One of them is the worker's own: it finds that or something more urgent.
            self.announce(pieces.saturating_sub(1));
        }
    }

    /// The communication thread has completed the exchange submitted with `token`.
    pub(crate) fn exchange_done(&self, token: u64) {
        let n = self.program.n_tasks() as u64;
        let slot = usize::try_from(token / n).expect("tokens are made in `make_ready`");
        let index = usize::try_from(token % n).expect("tokens are made in `make_ready`");
        let instance = Instance { slot, task: TaskId::from_index(index) };
        self.record_exchange(instance);
        let pieces = self.finish(instance);
        self.announce(pieces);
    }

    /// An exchange in the trace, from its submission to now.
    fn record_exchange(&self, instance: Instance) {
        let iteration = self.iteration(instance.slot);
        let step = iteration.step;
        if !self.recorder.records(step) || !self.program.trains() {
            return;
        }
        let task = self.program.describe(instance.task);
        let submitted = self.submitted[self.index(instance)].load(Ordering::Relaxed);
        let exchange = self.program.exchange(instance.task, iteration.minibatch);
        let exchange = exchange.expect("only exchanges complete here");
        self.recorder.exchange(&ExchangeSpan {
            name: task.name,
            layer: task.layer,
            layer_index: task.layer_index,
            kind: task.pass,
            step,
            bytes: exchange.bytes_sent(),
            id: instance.task.index() as u64,
            submitted: self.began + Duration::from_nanos(submitted),
            completed: Instant::now(),
        });
    }

    /// Releases the successors of a finished instance and of all that finish with it, having nothing to do; returns the
    /// number of blocks that became claimable, for the caller to announce.
    fn finish(&self, instance: Instance) -> usize {
        let mut ready = Vec::new();
        self.count_successors_down(instance, &mut ready);
        self.make_ready(ready)
    }

    fn announce(&self, pieces: usize) {
        if pieces > 0 {
            self.sleep.announce(pieces);
        }
    }

    fn count_successors_down(&self, instance: Instance, ready: &mut Vec<Instance>) {
        #[cfg(debug_assertions)]
        self.ledger.leave((instance.slot, instance.task.index()));
        let next_slot = (instance.slot + 1) % SLOTS;
        for &(task, carried) in &self.program.links(instance.task).successors {
            let slot = if carried { next_slot } else { instance.slot };
            self.count_down(Instance { slot, task }, ready);
        }
        // Last: after this the feeder may start the iteration after the next one.
        if self.tasks_left[instance.slot].fetch_sub(1, Ordering::AcqRel) == 1 {
            self.oldest.fetch_add(1, Ordering::Relaxed);
            // The feeder may be gone already.
            let _ = self.events.send(Event::Complete);
        }
    }

    fn count_down(&self, instance: Instance, ready: &mut Vec<Instance>) {
        // AcqRel: the last to count down sees what all the others wrote.
        if self.waiting(instance).fetch_sub(1, Ordering::AcqRel) == 1 {
            ready.push(instance);
        }
    }

    /// Posts compute tasks, submits communication tasks, and finishes at once what has no blocks this time; returns the
    /// number of blocks posted.
    fn make_ready(&self, mut ready: Vec<Instance>) -> usize {
        let mut pieces = 0;
        while let Some(instance) = ready.pop() {
            let Instance { slot, task } = instance;
            // For the next iteration in this slot; nobody counts it down before this one is complete.
            let waits = self.program.links(task).waits;
            self.waiting(instance).store(waits, Ordering::Relaxed);
            let iteration = self.iteration(slot);
            #[cfg(debug_assertions)]
            self.ledger.enter(
                (slot, task.index()),
                &self.program.accesses(task, iteration.minibatch),
                |t| self.program.task_name(TaskId::from_index(t)).to_owned(),
            );
            let exchange = self.program.exchange(task, iteration.minibatch);
            let step = iteration.step;
            let blocks = match &self.drill {
                Some(drill) => drill.blocks_per_task,
                None => self.program.blocks(task, &iteration),
            };
            // Subtle: before others can finish the iteration, which is given back only if nobody holds it.
            drop(iteration);
            if let Some(exchange) = exchange {
                let token = (slot * self.program.n_tasks() + task.index()) as u64;
                let now = self.began.elapsed().as_nanos();
                // A run of 584 years would overflow this.
                let now = u64::try_from(now).unwrap_or(u64::MAX);
                self.submitted[self.index(instance)].store(now, Ordering::Relaxed);
                // A communicator that is gone has failed, and the session with it.
                if let Some(comm) = self.comm.as_ref().and_then(Weak::upgrade) {
                    self.program.submit(&comm, &exchange, step, token);
                }
                continue;
            }
            if blocks == 0 {
                self.count_successors_down(instance, &mut ready);
                continue;
            }
            let left = u32::try_from(blocks).expect("block counts fit in 32 bits");
            self.blocks_left[self.index(instance)].store(left, Ordering::Relaxed);
            self.board.post(Place { slot, position: self.program.position(task) }, blocks);
            pieces += blocks;
        }
        pieces
    }

    fn index(&self, instance: Instance) -> usize {
        instance.slot * self.program.n_tasks() + instance.task.index()
    }

    fn waiting(&self, instance: Instance) -> &AtomicU32 {
        &self.waiting_for[self.index(instance)]
    }
}

fn slot_of(index: u64) -> usize {
    usize::try_from(index % SLOTS as u64).expect("a remainder of three")
}
