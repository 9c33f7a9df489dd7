//! Runs a network on in-process ranks, each with its own executor and communicator, and watches that nothing hangs.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockstep_comm::{CommConfig, Communicator, LocalEndpoint, LocalJob};
use lockstep_graph::{
    Layer, Mode, Network, Param, Plan, PlanOptions, Platform, Strategy, WinogradTile,
};
use lockstep_ops::Isa;
use lockstep_scheduler::{
    BindOptions, Executor, Feed, Iteration, IterationReport, ParameterStore, Program, Router,
    ScheduleError, StepHook, WorkerConfig, flush_denormals,
};
use lockstep_traces::Recorder;

use super::samples;

/// Far more than any run here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// Fails when `body` does not come back; its panics are passed on.
pub(crate) fn watched<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    let thread = std::thread::Builder::new().spawn(move || {
        let outcome = catch_unwind(AssertUnwindSafe(body));
        // The watcher may have given up.
        let _ = sender.send(outcome);
    });
    thread.unwrap();
    match receiver.recv_timeout(PATIENCE) {
        Ok(Ok(value)) => value,
        Ok(Err(payload)) => std::panic::resume_unwind(payload),
        Err(RecvTimeoutError::Timeout) => panic!("the run hangs"),
        Err(RecvTimeoutError::Disconnected) => panic!("the run ended without a result"),
    }
}

/// Why a rank ended.
#[derive(Debug)]
pub(crate) enum Failure {
    Schedule(ScheduleError),
    /// The feed's own error.
    Data(&'static str),
    /// The feed panicked.
    Panic,
}

impl From<ScheduleError> for Failure {
    fn from(error: ScheduleError) -> Self {
        Self::Schedule(error)
    }
}

/// What a rank's feed does at some step, besides feeding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// Fails when asked for this step's samples.
    FailNext(u64),
    /// Fails when given this step's report.
    FailReport(u64),
    /// Panics when asked for this step's samples.
    PanicNext(u64),
    /// Sets the stop flag when given this step's report.
    StopAtReport(u64),
}

/// What to run.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) network: Arc<Network>,
    /// Samples of each iteration, over all ranks.
    pub(crate) sizes: Vec<usize>,
    pub(crate) ranks: usize,
    pub(crate) workers: usize,
    pub(crate) mode: Mode,
    pub(crate) strategy: Strategy,
    /// Whether the bits are to be the same on 1, 2, 4 and 8 ranks.
    pub(crate) reproducible: bool,
    pub(crate) clip_norm: Option<f32>,
    /// Whether activations are computed by the tasks next to them.
    pub(crate) fuse: bool,
    /// Whether small exchanges are made together.
    pub(crate) bundle: bool,
    /// The tile of convolutions that take one.
    pub(crate) winograd: Option<WinogradTile>,
    /// Called in the workers of one rank.
    pub(crate) hook: Option<(usize, StepHook)>,
    /// Layers that begin with the parameters of another one, by name.
    pub(crate) twins: BTreeMap<String, String>,
    /// Done by the feed of one rank.
    pub(crate) act: Option<(usize, Act)>,
}

/// What a rank has in the end.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) reports: Vec<IterationReport>,
    /// By name: the values of the rank's features, the rest is NaN.
    pub(crate) parameters: BTreeMap<String, Vec<f32>>,
    /// Iterations given back.
    pub(crate) recycled: Vec<u64>,
    /// Payload that the communicator counted.
    pub(crate) bytes_sent: u64,
}

impl Outcome {
    pub(crate) fn losses(&self) -> Vec<f64> {
        self.reports.iter().map(|r| r.loss).collect()
    }
}

struct Given<'a> {
    run: &'a Run,
    rank: usize,
    next: usize,
    stop: Arc<AtomicBool>,
    reports: Vec<IterationReport>,
    recycled: Vec<u64>,
}

impl Given<'_> {
    fn acts(&self, act: Act) -> bool {
        self.run.act == Some((self.rank, act))
    }
}

impl Feed for Given<'_> {
    type Error = Failure;

    fn next(&mut self) -> Result<Option<Iteration>, Failure> {
        let (run, index) = (self.run, self.next);
        let step = index as u64 + 1;
        if self.acts(Act::FailNext(step)) {
            return Err(Failure::Data("no samples"));
        }
        assert!(!self.acts(Act::PanicNext(step)), "the feed panics as it was told");
        self.next += 1;
        let place = (self.rank, run.ranks);
        let more = index < run.sizes.len();
        Ok(more.then(|| samples::iteration(&run.network, &run.sizes, index, place)))
    }

    fn report(&mut self, report: &IterationReport) -> Result<(), Failure> {
        self.reports.push(*report);
        if self.acts(Act::StopAtReport(report.step)) {
            self.stop.store(true, Ordering::Relaxed);
        }
        if self.acts(Act::FailReport(report.step)) {
            return Err(Failure::Data("cannot take the report"));
        }
        Ok(())
    }

    fn recycle(&mut self, iteration: Iteration) {
        self.recycled.push(iteration.step);
    }
}

/// A rank's executor, program and parameters; what a run needs.
pub(crate) struct Rank {
    pub(crate) executor: Executor,
    pub(crate) program: Arc<Program>,
    pub(crate) store: Arc<ParameterStore>,
    pub(crate) stop: Arc<AtomicBool>,
}

impl Run {
    pub(crate) fn new(network: Network, sizes: &[usize]) -> Self {
        let (network, sizes) = (Arc::new(network), sizes.to_vec());
        let mode = Mode::Train { momentum: true };
        let (ranks, workers, fuse) = (1, 2, true);
        Self {
            network,
            sizes,
            ranks,
            workers,
            mode,
            strategy: Strategy::Data,
            reproducible: false,
            clip_norm: None,
            fuse,
            bundle: true,
            winograd: None,
            hook: None,
            twins: BTreeMap::new(),
            act: None,
        }
    }

    pub(crate) fn on(self, ranks: usize, workers: usize) -> Self {
        Self { ranks, workers, ..self }
    }

    /// Every rank's end, by rank.
    pub(crate) fn outcomes(&self) -> Vec<Result<Outcome, Failure>> {
        let run = self.clone();
        watched(move || {
            let results: Vec<_> = (0..run.ranks).map(|_| Mutex::new(None)).collect();
            std::thread::scope(|scope| {
                for (rank, end) in LocalJob::endpoints(run.ranks).into_iter().enumerate() {
                    let (run, results) = (&run, &results);
                    let body = move || *results[rank].lock().unwrap() = Some(run.rank(rank, end));
                    std::thread::Builder::new().spawn_scoped(scope, body).unwrap();
                }
            });
            results.into_iter().map(|r| r.into_inner().unwrap().unwrap()).collect()
        })
    }

    /// The outcome, which must be the same on all ranks; parameters are put together from what each has.
    pub(crate) fn outcome(&self) -> Outcome {
        let mut outcomes = self.outcomes().into_iter().map(Result::unwrap);
        let mut first = outcomes.next().unwrap();
        for other in outcomes {
            assert_eq!(other.reports, first.reports, "ranks disagree");
            for (name, values) in other.parameters {
                let known = first.parameters.get_mut(&name).unwrap();
                for (known, value) in known.iter_mut().zip(values) {
                    if known.is_nan() {
                        *known = value;
                    }
                    assert!(value.is_nan() || *known == value, "ranks disagree on {name}");
                }
            }
        }
        first
    }

    /// Losses and parameters of a reproducible run on one rank with one worker are those on several, to the bit.
    #[track_caller]
    pub(crate) fn has_the_same_bits_everywhere(&self) {
        let expected = self.outcome();
        for (ranks, workers) in [(1, 3), (2, 1), (2, 2), (4, 1), (8, 1)] {
            let got = self.clone().on(ranks, workers).outcome();
            assert_eq!(got.losses(), expected.losses(), "{ranks} ranks, {workers} workers");
            for (name, values) in &got.parameters {
                let same = values.iter().zip(&expected.parameters[name]).all(|(a, b)| a == b);
                assert!(same, "{name} on {ranks} ranks with {workers} workers");
            }
        }
    }

    fn rank(&self, rank: usize, end: LocalEndpoint) -> Result<Outcome, Failure> {
        let (comm, router) = connect(end);
        let mut bound = self.bind(rank, Some((Arc::clone(&comm), router)));
        let stop = Arc::clone(&bound.stop);
        let mut feed =
            Given { run: self, rank, next: 0, stop, reports: Vec::new(), recycled: Vec::new() };
        let ended =
            catch_unwind(AssertUnwindSafe(|| bound.executor.run(&bound.program, &mut feed)))
                .unwrap_or(Err(Failure::Panic));
        let (reports, recycled) = (feed.reports, feed.recycled);
        // A rank that failed leaves; its peers are told by the communicator.
        ended?;
        let parameters = self.parameters(&bound.store);
        drop(bound);
        let bytes_sent = comm.counters().bytes_sent;
        Arc::into_inner(comm).unwrap().shutdown().map_err(ScheduleError::from)?;
        Ok(Outcome { reports, parameters, recycled, bytes_sent })
    }

    pub(crate) fn plan(&self) -> Plan {
        let options = PlanOptions {
            minibatch: self.sizes.iter().copied().max().unwrap(),
            ranks: self.ranks,
            mode: self.mode,
            strategy: self.strategy.clone(),
            platform: Platform::default(),
            fuse: self.fuse,
            bundle: self.bundle,
            reproducible: self.reproducible,
            clip: self.clip_norm.is_some(),
            winograd: self.winograd,
        };
        Plan::compile(Arc::clone(&self.network), options).unwrap()
    }

    /// Binds the network for training on one rank, with its initial parameters.
    pub(crate) fn bind(&self, rank: usize, comm: Option<(Arc<Communicator>, Arc<Router>)>) -> Rank {
        let plan = self.plan();
        let store = Arc::new(ParameterStore::new(&plan, rank, Isa::detect()).unwrap());
        for (layer, param, values) in self.initial() {
            store.import(&self.network, layer.id, &param.name, &values).unwrap();
        }
        let bind = BindOptions { decay_all: true, clip_norm: self.clip_norm };
        let program = Program::bind(vec![plan], &store, &bind).unwrap().pop().unwrap();
        let hook = self.hook.as_ref().filter(|(on, _)| *on == rank);
        let config = WorkerConfig {
            workers: self.workers,
            cores: None,
            spins: 3,
            name: "worker".to_owned(),
            recorder: Recorder::off(),
            on_step: hook.map(|(_, hook)| Arc::clone(hook)),
        };
        let stop = Arc::default();
        let executor = Executor::start(&config, comm, Arc::clone(&stop)).unwrap();
        Rank { executor, program: Arc::new(program), store, stop }
    }

    /// Initial values of all parameters.
    fn initial(&self) -> impl Iterator<Item = (&Layer, &Param, Vec<f32>)> {
        self.network.layers().iter().flat_map(move |layer| {
            layer.params.iter().map(move |param| {
                let twin = self.twins.get(&layer.name).filter(|_| param.role.is_trainable());
                (layer, param, samples::initial(twin.unwrap_or(&layer.name), param))
            })
        })
    }

    /// Parameters before the first step, by name.
    pub(crate) fn before(&self) -> BTreeMap<String, Vec<f32>> {
        let named = self
            .initial()
            .map(|(layer, param, values)| (format!("{}.{}", layer.name, param.name), values));
        named.collect()
    }

    /// A run of a rank that was bound before, without acts.
    pub(crate) fn again(&self, rank: usize, bound: &mut Rank) -> Result<(), Failure> {
        let stop = Arc::clone(&bound.stop);
        let mut feed =
            Given { run: self, rank, next: 0, stop, reports: Vec::new(), recycled: Vec::new() };
        bound.executor.run(&bound.program, &mut feed)
    }

    fn parameters(&self, store: &ParameterStore) -> BTreeMap<String, Vec<f32>> {
        let mut parameters = BTreeMap::new();
        for layer in self.network.layers() {
            for param in &layer.params {
                let mut values = vec![f32::NAN; param.elements()];
                let share = store.share(&self.network, layer.id, &param.name).unwrap();
                let own = store.export(&self.network, layer.id, &param.name).unwrap();
                values[share].copy_from_slice(&own);
                parameters.insert(format!("{}.{}", layer.name, param.name), values);
            }
        }
        parameters
    }
}

/// A communicator whose messages go to a router.
pub(crate) fn connect(end: LocalEndpoint) -> (Arc<Communicator>, Arc<Router>) {
    let router = Arc::new(Router::default());
    let (done, failed) = (Arc::clone(&router), Arc::clone(&router));
    let config = CommConfig {
        on_thread_start: Box::new(flush_denormals),
        on_complete: Box::new(move |c| done.exchange_done(c.token)),
        on_failure: Box::new(move |e| failed.failed(e)),
        ..CommConfig::default()
    };
    (Arc::new(Communicator::start(end, config).unwrap()), router)
}
