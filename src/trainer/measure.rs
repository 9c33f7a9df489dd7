//! Measuring a network's speed: steps on one fixed minibatch, timed once they have settled.
//!
//! The samples are made once and given to every step, so that what is measured is the step and not where data comes from. Ranks
//! are threads of this process. What `train` does around the steps (epochs, scores, checkpoints) is left out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use lockstep_comm::{Communicator, LocalEndpoint, LocalJob};
use lockstep_data::{Dataset, SampleShape, Synthetic};
use lockstep_graph::{Mode, Network, Plan, PlanOptions, Platform, Strategy, share};
use lockstep_ops::Isa;
use lockstep_ops::sgd::SgdHyper;
use lockstep_scheduler::simulator::resolve_auto;
use lockstep_scheduler::{
    BindOptions, Executor, Feed, Iteration, IterationReport, LocalSamples, ParameterStore, Program,
    Router, WorkerConfig,
};
use lockstep_traces::{Recorder, Tally, TallyReport};

use super::job::{first_cause, guarded, start_communicator};
use super::memory::peak_resident_bytes;
use super::options::RunOptions;
use super::threads::Threads;
use crate::error::RunError;
use crate::init::initial_values;

/// What to measure.
#[derive(Debug, Clone)]
pub struct MeasureJob {
    /// The network, with a loss.
    pub network: Arc<Network>,
    /// Training or scoring.
    pub mode: Mode,
    /// Samples of a minibatch over all ranks.
    pub minibatch: usize,
    /// Ranks, as threads of this process.
    pub ranks: usize,
    /// Compute threads a rank; `None` chooses by cores.
    pub workers: Option<usize>,
    /// Instruction set.
    pub isa: Isa,
    /// How the ranks share the work.
    pub strategy: Strategy,
    /// How long.
    pub pace: Pace,
}

/// How long to measure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Steps before the first timed one: they start threads and fault memory in.
    pub warm_up: u64,
    /// Timed stretches of steps, one after another.
    pub runs: usize,
    /// Length of a stretch.
    pub run: Stretch,
}

/// The length of a stretch of steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stretch {
    /// So many steps.
    Steps(u64),
    /// Steps until so much time has passed, at least three.
    Time(Duration),
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// Compute threads a rank.
    pub workers: usize,
    /// Seconds of every step of every run, from one report to the next.
    pub step_seconds: Vec<Vec<f64>>,
    /// The most memory this process had resident up to the last timed step, in bytes.
    pub peak_resident: u64,
    /// Where the workers of the first rank spent a further stretch of steps, after the timed ones.
    pub profile: TallyReport,
    /// Steps of that stretch.
    pub profiled_steps: u64,
}

/// The peer's programs train with the same numbers; speed does not depend on them.
const HYPER: SgdHyper = SgdHyper { lr: 1e-3, momentum: 0.9, weight_decay: 0.0, nesterov: false };

/// Seed of parameters, samples and dropout.
const SEED: u64 = 1;

/// Measures.
///
/// # Errors
/// The plan cannot be made, or a task or rank failed.
///
/// # Panics
/// There is no rank.
pub fn measure(job: &MeasureJob) -> Result<Measurement, RunError> {
    assert!(job.ranks > 0, "a job has at least one rank");
    let options = RunOptions { workers: job.workers, ..RunOptions::default() };
    let threads = |rank| Threads::in_process(&options, rank, job.ranks);
    let mut watch = Watch::new(job.pace);
    if job.ranks == 1 {
        guarded(|| run_rank(job, &threads(0), None, Some(&mut watch)))?;
    } else {
        local_ranks(job, threads, &mut watch)?;
    }
    Ok(watch.into_measurement(threads(0).workers))
}

fn local_ranks(
    job: &MeasureJob,
    threads: impl Fn(usize) -> Threads,
    watch: &mut Watch,
) -> Result<(), RunError> {
    let mut watch = Some(watch);
    let outcomes: Vec<Result<(), RunError>> = std::thread::scope(|scope| {
        let ranks: Vec<_> = LocalJob::endpoints(job.ranks)
            .into_iter()
            .enumerate()
            .map(|(rank, endpoint)| {
                let (threads, watch) = (threads(rank), watch.take());
                std::thread::Builder::new()
                    .name(format!("rank {rank}"))
                    .spawn_scoped(scope, move || {
                        guarded(|| local_rank(job, &threads, endpoint, watch))
                    })
                    .expect("the system can start one more thread")
            })
            .collect();
        let join = |rank: std::thread::ScopedJoinHandle<'_, _>| {
            rank.join().expect("a rank's panics are caught inside")
        };
        ranks.into_iter().map(join).collect()
    });
    first_cause(outcomes)
}

fn local_rank(
    job: &MeasureJob,
    threads: &Threads,
    endpoint: LocalEndpoint,
    watch: Option<&mut Watch>,
) -> Result<(), RunError> {
    let router = Arc::new(Router::default());
    let comm = start_communicator(threads, endpoint, &router, &Arc::new(OnceLock::new()))?;
    let comm = Arc::new(comm);
    let outcome = guarded(|| run_rank(job, threads, Some((Arc::clone(&comm), router)), watch));
    match outcome {
        Ok(()) => {
            let comm = Arc::into_inner(comm).expect("the rank has given its handles back");
            Ok(comm.shutdown()?)
        }
        Err(error) => {
            comm.abort(i32::from(error.exit_code()), &error.to_string());
            Err(error)
        }
    }
}

/// One rank from its parameters to its last step; the rank with the watch measures and ends the run.
fn run_rank(
    job: &MeasureJob,
    threads: &Threads,
    comm: Option<(Arc<Communicator>, Arc<Router>)>,
    mut watch: Option<&mut Watch>,
) -> Result<(), RunError> {
    let program = bind(job, threads.rank)?;
    let stop = Arc::new(AtomicBool::new(false));
    let recorder = watch.as_ref().map_or_else(Recorder::off, |watch| watch.tally.recorder());
    let config = WorkerConfig {
        workers: threads.workers,
        cores: threads.worker_cores(),
        spins: threads.spins(),
        name: threads.prefix("worker"),
        recorder,
        on_step: None,
    };
    let mut executor = Executor::start(&config, comm, Arc::clone(&stop))?;
    let on_report = |now| {
        if let Some(watch) = &mut watch {
            watch.step_done(now);
            stop.store(watch.is_done(), Ordering::Relaxed);
        }
    };
    let iteration = fixed_iteration(job, threads.rank)?;
    executor.run(&program, &mut SameFeed { iteration, step: 0, spare: Vec::new(), on_report })
}

/// The program of one rank, with initial parameters.
fn bind(job: &MeasureJob, rank: usize) -> Result<Arc<Program>, RunError> {
    let (network, ranks) = (&job.network, job.ranks);
    let options = PlanOptions {
        minibatch: job.minibatch,
        ranks,
        mode: job.mode,
        strategy: job.strategy.clone(),
        platform: Platform::default(),
        fuse: true,
    };
    let plan = Plan::compile(Arc::clone(network), resolve_auto(network, options)?)?;
    let store = Arc::new(ParameterStore::new(&plan, rank, job.isa)?);
    for layer in network.layers() {
        for param in &layer.params {
            let values = initial_values(SEED, layer, param);
            store.import(network, layer.id, &param.name, &values)?;
        }
    }
    let options = BindOptions { decay_all: true };
    let mut programs = Program::bind(vec![plan], &store, &options)?;
    Ok(Arc::new(programs.pop().expect("one program a plan")))
}

/// A rank's share of the one minibatch.
fn fixed_iteration(job: &MeasureJob, rank: usize) -> Result<Iteration, RunError> {
    let network = &job.network;
    let (c, h, w) = network.layer(network.input()).shape.maps();
    let shape = SampleShape { c, h, w };
    let data = Synthetic::new(shape, network.classes(), job.minibatch, SEED);
    let mut samples = LocalSamples::default();
    for index in share(job.minibatch, job.ranks, rank) {
        let mut values = vec![0.0; shape.values()];
        samples.labels.push(data.read(index, &mut values)?);
        samples.values.extend(values);
    }
    let minibatch = job.minibatch;
    let ids = (0..minibatch as u64).collect();
    Ok(Iteration { step: 0, epoch: 1, minibatch, hyper: HYPER, seed: SEED, ids, samples })
}

/// Gives the same minibatch to every step, until a rank asks to stop.
struct SameFeed<F> {
    iteration: Iteration,
    step: u64,
    spare: Vec<Iteration>,
    on_report: F,
}

impl<F: FnMut(Instant)> Feed for SameFeed<F> {
    type Error = RunError;

    fn next(&mut self) -> Result<Option<Iteration>, RunError> {
        self.step += 1;
        let iteration = self.spare.pop().unwrap_or_else(|| self.iteration.clone());
        Ok(Some(Iteration { step: self.step, ..iteration }))
    }

    fn report(&mut self, _: &IterationReport) -> Result<(), RunError> {
        (self.on_report)(Instant::now());
        Ok(())
    }

    fn recycle(&mut self, iteration: Iteration) {
        self.spare.push(iteration);
    }
}

/// What is being measured now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    WarmUp,
    Run(usize),
    Profile,
    Done,
}

/// Times steps, counted by their reports, and takes the profile.
#[derive(Debug)]
struct Watch {
    pace: Pace,
    phase: Phase,
    /// Steps of this phase.
    steps: u64,
    /// When this phase and its last step began.
    began: Instant,
    last: Instant,
    tally: Tally,
    step_seconds: Vec<Vec<f64>>,
    peak_resident: u64,
    profile: Option<(TallyReport, u64)>,
}

/// Steps that a stretch of time has at least.
const FEWEST_STEPS: u64 = 3;

impl Watch {
    fn new(pace: Pace) -> Self {
        let now = Instant::now();
        Self {
            pace,
            phase: Phase::WarmUp,
            steps: 0,
            began: now,
            last: now,
            tally: Tally::new(),
            step_seconds: Vec::new(),
            peak_resident: 0,
            profile: None,
        }
    }

    fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    fn step_done(&mut self, now: Instant) {
        let seconds = (now - self.last).as_secs_f64();
        self.last = now;
        self.steps += 1;
        if let Phase::Run(run) = self.phase {
            self.step_seconds[run].push(seconds);
        }
        let over = match (self.phase, self.pace.run) {
            (Phase::WarmUp, _) => self.steps >= self.pace.warm_up,
            (Phase::Done, _) => false,
            (_, Stretch::Steps(steps)) => self.steps >= steps,
            (_, Stretch::Time(time)) => self.steps >= FEWEST_STEPS && now - self.began >= time,
        };
        if over {
            self.begin_next_phase(now);
        }
    }

    fn begin_next_phase(&mut self, now: Instant) {
        let next_run = |run| if run < self.pace.runs { Phase::Run(run) } else { Phase::Profile };
        let next = match self.phase {
            Phase::WarmUp => next_run(0),
            Phase::Run(run) => next_run(run + 1),
            Phase::Profile | Phase::Done => Phase::Done,
        };
        match next {
            Phase::Run(_) => self.step_seconds.push(Vec::new()),
            Phase::Profile => {
                self.peak_resident = peak_resident_bytes();
                self.tally.open();
            }
            Phase::Done => self.profile = Some((self.tally.close(), self.steps)),
            Phase::WarmUp => (),
        }
        (self.phase, self.steps, self.began) = (next, 0, now);
    }

    fn into_measurement(self, workers: usize) -> Measurement {
        let (profile, profiled_steps) = self.profile.expect("the run ends with the profile");
        let Self { step_seconds, peak_resident, .. } = self;
        Measurement { workers, step_seconds, peak_resident, profile, profiled_steps }
    }
}

#[cfg(test)]
mod tests {
    use lockstep_graph::zoo;

    use super::*;

    fn job(ranks: usize, mode: Mode) -> MeasureJob {
        MeasureJob {
            network: Arc::new(zoo::golden::small_resnet().unwrap()),
            mode,
            minibatch: 6,
            ranks,
            workers: Some(2),
            isa: Isa::detect(),
            strategy: Strategy::Data,
            pace: Pace { warm_up: 2, runs: 2, run: Stretch::Steps(4) },
        }
    }

    #[test]
    fn steps_are_timed_and_their_time_is_told_by_task() {
        for (ranks, mode) in [
            (1, Mode::Train { momentum: true }),
            (2, Mode::Train { momentum: true }),
            (1, Mode::Score),
        ] {
            let measured = measure(&job(ranks, mode)).unwrap();
            assert_eq!(measured.workers, 2);
            let steps: Vec<usize> = measured.step_seconds.iter().map(Vec::len).collect();
            assert_eq!(steps, [4, 4]);
            assert!(measured.step_seconds.iter().flatten().all(|&seconds| seconds > 0.0));
            assert_eq!(measured.profiled_steps, 4);
            let profile = &measured.profile;
            let has = |pass: &str| profile.tasks.iter().any(|task| task.pass == pass);
            assert!(has("forward"), "{profile:?}");
            assert_eq!(has("backward_weights"), mode != Mode::Score, "{profile:?}");
            assert!(profile.busy <= 2 * profile.elapsed, "{profile:?}");
            assert_eq!(profile.exchanging > Duration::ZERO, ranks > 1, "{profile:?}");
        }
    }

    #[test]
    fn a_stretch_of_time_has_three_steps_at_least() {
        let run = Stretch::Time(Duration::from_secs(1));
        let mut watch = Watch::new(Pace { warm_up: 1, runs: 1, run });
        let at = |ms| watch_start() + Duration::from_millis(ms);
        watch.step_done(at(500));
        assert_eq!(watch.phase, Phase::Run(0));
        for ms in [2500, 4500] {
            watch.step_done(at(ms));
            assert_eq!(watch.phase, Phase::Run(0));
        }
        watch.step_done(at(5000));
        assert_eq!(watch.phase, Phase::Profile);
        assert_eq!(watch.step_seconds, [[2.0, 2.0, 0.5]]);
    }

    /// One moment for all calls, after any watch's start.
    fn watch_start() -> Instant {
        static START: OnceLock<Instant> = OnceLock::new();
        *START.get_or_init(|| Instant::now() + Duration::from_secs(1))
    }
}
