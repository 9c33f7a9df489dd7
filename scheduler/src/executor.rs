//! The executor of one rank: its workers and its communicator, and the feeder loop that drives a run.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam::channel::{Receiver, unbounded};
use lockstep_comm::{CommError, Communicator};
use lockstep_traces::Recorder;

use crate::drill::Drill;
use crate::error::ScheduleError;
use crate::iteration::{Iteration, IterationReport};
use crate::program::{Lease, Program};
use crate::session::{Event, Session};
use crate::workers::{WorkerConfig, Workers};

/// Iterations that may be incomplete at once.
const IN_FLIGHT: u64 = 2;

/// Where a run's minibatches come from and its results go. Called on the thread that called [`Executor::run`].
pub trait Feed {
    /// What the feed fails with.
    type Error: From<ScheduleError>;

    /// The next iteration; `None` ends the run. May block until the data is there.
    ///
    /// # Errors
    /// The data cannot be had; the run ends with this error.
    fn next(&mut self) -> Result<Option<Iteration>, Self::Error>;

    /// An iteration's result, in order. The same on every rank, so that all ranks decide alike.
    ///
    /// # Errors
    /// The run ends with this error.
    fn report(&mut self, report: &IterationReport) -> Result<(), Self::Error>;

    /// Gives an iteration's buffers back.
    fn recycle(&mut self, _iteration: Iteration) {}
}

/// One rank's threads.
#[derive(Debug)]
pub struct Executor {
    // Dropped first: until the communication thread has ended, exchanges may touch buffers of the last session.
    comm: Option<Arc<Communicator>>,
    router: Arc<Router>,
    workers: Workers,
    recorder: Recorder,
    stop: Arc<AtomicBool>,
}

/// Leads the communication thread's messages to the session that is running.
#[derive(Debug, Default)]
pub struct Router {
    session: Mutex<Option<Arc<Session>>>,
    failure: Mutex<Option<CommError>>,
}

impl Router {
    fn current(&self) -> Option<Arc<Session>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, session: Option<Arc<Session>>) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = session;
    }

    /// To be called by the communication thread when an exchange is complete.
    pub fn exchange_done(&self, token: u64) {
        if let Some(session) = self.current() {
            session.exchange_done(token);
        }
    }

    /// To be called by the communication thread when it, or another rank, has failed.
    pub fn failed(&self, error: &CommError) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert_with(|| error.clone());
        drop(failure);
        if let Some(session) = self.current() {
            session.fail(failure_of(error.clone()));
        }
    }

    fn failure(&self) -> Option<ScheduleError> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.clone().map(failure_of)
    }
}

/// A peer's failure is a consequence; anything else of the communication thread is a cause.
fn failure_of(error: CommError) -> ScheduleError {
    match error {
        CommError::PeerFailed { .. } => ScheduleError::PeerFailed { source: error },
        cause => ScheduleError::Comm(cause),
    }
}

impl Executor {
    /// Starts the workers. `comm` and its `router` are there when the job has several ranks; `stop` is set from outside to
    /// end a run, on all ranks, at the same step.
    ///
    /// # Errors
    /// A thread cannot be started.
    ///
    /// # Panics
    /// `config.workers` is zero.
    pub fn start(
        config: &WorkerConfig,
        comm: Option<(Arc<Communicator>, Arc<Router>)>,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, ScheduleError> {
        assert!(config.workers > 0, "a rank has at least one worker");
        let (comm, router) = comm.unzip();
        Ok(Self {
            comm,
            router: router.unwrap_or_default(),
            workers: Workers::start(config)?,
            recorder: config.recorder.clone(),
            stop,
        })
    }

    /// The communicator, in a job of several ranks.
    #[must_use]
    pub fn communicator(&self) -> Option<&Arc<Communicator>> {
        self.comm.as_ref()
    }

    /// Runs iterations until the feed ends, a rank asks to stop, or something fails. Iterations overlap: the next one's
    /// first tasks run while this one's exchanges are still under way. When it returns, all exchanges are complete,
    /// unless it failed.
    ///
    /// # Errors
    /// The feed's own, or a [`ScheduleError`] naming the task or peer that failed.
    pub fn run<F: Feed>(&mut self, program: &Arc<Program>, feed: &mut F) -> Result<(), F::Error> {
        self.serve(program, None, feed)
    }

    /// Runs iterations of a program whose blocks do what the drill says: nothing is read, computed or reported. The program
    /// is one rank's.
    ///
    /// # Errors
    /// The feed's own, or a [`ScheduleError`] naming the task that failed.
    ///
    /// # Panics
    /// The drill has no blocks.
    pub fn drill<F: Feed>(
        &mut self,
        program: &Arc<Program>,
        drill: Drill,
        feed: &mut F,
    ) -> Result<(), F::Error> {
        assert!(drill.blocks_per_task > 0, "a task has at least one block");
        self.serve(program, Some(drill), feed)
    }

    fn serve<F: Feed>(
        &mut self,
        program: &Arc<Program>,
        drill: Option<Drill>,
        feed: &mut F,
    ) -> Result<(), F::Error> {
        self.check(program)?;
        let lease = program.store().lease()?;
        let (sender, events) = unbounded();
        let mut session = Session::new(
            Arc::clone(program),
            self.comm.as_ref(),
            self.recorder.clone(),
            Arc::clone(&self.stop),
            sender,
        );
        session.drill = drill;
        let session = Arc::new(session);
        self.router.set(Some(Arc::clone(&session)));
        self.workers.serve(&session);
        let mut running = Running { executor: self, session: &session, lease, finished: false };
        // Subtle: asked again, now that the router has the session. A failure before that has met no session to end.
        if let Some(failure) = self.router.failure() {
            return Err(failure.into());
        }
        Feeder { session: &session, events, feed, fed: 0, reported: 0, complete: 0, last: None }
            .run()?;
        running.finished = true;
        Ok(())
    }

    /// What would make a run hang, or meet the exchanges of an earlier one.
    fn check(&self, program: &Program) -> Result<(), ScheduleError> {
        if let Some(failure) = self.router.failure() {
            return Err(failure);
        }
        if self.router.current().is_some() {
            return Err(ScheduleError::Abandoned);
        }
        let (planned, connected) =
            (program.ranks(), self.comm.as_ref().map_or(1, |comm| comm.n_ranks()));
        if planned != connected {
            return Err(ScheduleError::Ranks { planned, connected });
        }
        Ok(())
    }
}

/// A session that the workers serve. Dropped at the end of a run, also when the feed fails or panics: the workers have left
/// when nothing holds the lease any more.
struct Running<'a> {
    executor: &'a Executor,
    session: &'a Session,
    lease: Lease<'a>,
    /// All that was fed is complete.
    finished: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.session.end();
        self.executor.workers.wait();
        if self.finished || self.executor.comm.is_none() {
            self.executor.router.set(None);
        } else {
            // Exchanges may still be under way. The router keeps the session, and so the buffers, until the
            // communication thread has ended.
            self.lease.abandon();
        }
    }
}

/// Counts of a run, and what drives it. Iterations are counted from 0 here.
struct Feeder<'a, F> {
    session: &'a Session,
    events: Receiver<Event>,
    feed: &'a mut F,
    fed: u64,
    reported: u64,
    complete: u64,
    /// Iterations to feed in all, once known.
    last: Option<u64>,
}

impl<F: Feed> Feeder<'_, F> {
    fn run(mut self) -> Result<(), F::Error> {
        loop {
            while let Ok(event) = self.events.try_recv() {
                self.handle(&event)?;
            }
            let wanted = self.last.is_none_or(|last| self.fed < last);
            if wanted && self.fed - self.complete < IN_FLIGHT {
                self.feed_next()?;
            } else if self.complete == self.fed {
                return Ok(());
            } else {
                let event = self.events.recv().expect("the session holds a sender");
                self.handle(&event)?;
            }
        }
    }

    fn feed_next(&mut self) -> Result<(), F::Error> {
        let Some(iteration) = self.feed.next()? else {
            self.last = Some(self.fed);
            return Ok(());
        };
        let (got, capacity) = (iteration.local_minibatch(), self.session.program.capacity());
        if got > capacity {
            return Err(
                ScheduleError::MinibatchTooLarge { step: iteration.step, got, capacity }.into()
            );
        }
        self.session.feed(self.fed, iteration);
        self.fed += 1;
        Ok(())
    }

    fn handle(&mut self, event: &Event) -> Result<(), F::Error> {
        match event {
            Event::Report(report) => {
                if report.stop && self.last.is_none() {
                    // All ranks see this report before they could feed the iteration after the next, and none can
                    // have been kept from feeding the next: all end after that one. Counted by reports: the
                    // completion of the iteration before may be announced after this report, on some ranks.
                    self.last = Some(self.reported + IN_FLIGHT);
                }
                self.reported += 1;
                self.feed.report(report)?;
            }
            Event::Complete => {
                if let Some(iteration) = self.session.take_back(self.complete) {
                    self.feed.recycle(iteration);
                }
                self.complete += 1;
            }
            Event::Failed => {
                let failure = self.session.take_failure();
                return Err(failure.expect("a failure is stored before it is announced").into());
            }
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use lockstep_graph::zoo;

    use super::*;
    use crate::rehearsal;

    /// Feeds without end.
    struct Endless;

    impl Feed for Endless {
        type Error = ScheduleError;

        fn next(&mut self) -> Result<Option<Iteration>, ScheduleError> {
            Ok(Some(rehearsal::iteration(0, 1)))
        }

        fn report(&mut self, _: &IterationReport) -> Result<(), ScheduleError> {
            Ok(())
        }
    }

    /// Feeds some iterations and counts those that come back.
    struct Counted {
        left: u64,
        recycled: u64,
    }

    impl Feed for Counted {
        type Error = ScheduleError;

        fn next(&mut self) -> Result<Option<Iteration>, ScheduleError> {
            let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
            self.left = left;
            Ok(Some(rehearsal::iteration(0, 1)))
        }

        fn report(&mut self, _: &IterationReport) -> Result<(), ScheduleError> {
            unreachable!("a drill computes nothing that could be reported")
        }

        fn recycle(&mut self, _: Iteration) {
            self.recycled += 1;
        }
    }

    #[test]
    fn a_drill_runs_the_blocks_of_every_task() {
        let program = rehearsal::program(zoo::golden::mlp().expect("it is valid"), 1);
        for workers in [1, 2, 3] {
            let config = WorkerConfig {
                workers,
                cores: None,
                spins: 5,
                name: "worker".to_owned(),
                recorder: Recorder::off(),
                on_step: None,
            };
            let mut executor = Executor::start(&config, None, Arc::default()).expect("threads");
            let ran = Arc::new(AtomicUsize::new(0));
            let counter = Arc::clone(&ran);
            let block = Arc::new(move || {
                counter.fetch_add(1, Ordering::Relaxed);
            });
            let mut feed = Counted { left: 7, recycled: 0 };
            executor
                .drill(&program, Drill { blocks_per_task: 5, block }, &mut feed)
                .expect("nothing fails");
            assert_eq!(ran.load(Ordering::Relaxed), 7 * 5 * program.n_tasks());
            assert_eq!(feed.recycled, 7);
        }
    }

    /// The last iteration after reports of iterations 0 and 1, the second one with a request to stop.
    fn last_fed(order: [Event; 3]) -> Option<u64> {
        let program = rehearsal::program(zoo::golden::mlp().expect("it is valid"), 1);
        let (sender, events) = unbounded();
        let session = Session::new(program, None, Recorder::off(), Arc::default(), sender);
        let (feed, session) = (&mut Endless, &session);
        let mut feeder =
            Feeder { session, events, feed, fed: 2, reported: 0, complete: 0, last: None };
        for event in order {
            feeder.handle(&event).expect("nothing fails");
        }
        feeder.last
    }

    #[test]
    fn ranks_agree_on_the_last_iteration_whichever_announcement_is_late() {
        let report = |step: u64| {
            let (loss, correct) = (0.0, 0);
            let stop = step == 2;
            Event::Report(IterationReport { step, epoch: 1, minibatch: 1, loss, correct, stop })
        };
        assert_eq!(last_fed([report(1), Event::Complete, report(2)]), Some(3));
        assert_eq!(last_fed([report(1), report(2), Event::Complete]), Some(3));
    }
}
