//! A chain of tasks as Lockstep runs it: a network whose layers follow one another, through the executor.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use lockstep::RunError;
use lockstep::graph::{
    GraphError, Linear, Mode, Network, NetworkBuilder, Plan, PlanOptions, Platform,
    SoftmaxCrossEntropy, Strategy,
};
use lockstep::ops::Isa;
use lockstep::ops::sgd::SgdHyper;
use lockstep::scheduler::{
    BindOptions, Drill, Executor, Feed, Iteration, IterationReport, LocalSamples, ParameterStore,
    Program, ScheduleError, WorkerConfig,
};
use lockstep::traces::Recorder;

use super::Job;

/// Looks at the board before a worker sleeps, as in training on cores of its own.
const SPINS: u32 = 200;

/// The chain as a network, bound for this machine, and the threads to run it.
pub(super) struct Chain {
    program: Arc<Program>,
    executor: Executor,
}

impl Chain {
    pub(super) fn new(job: &Job) -> Result<Self, RunError> {
        let network = Arc::new(chain(job.tasks)?);
        let options = PlanOptions {
            minibatch: 1,
            ranks: 1,
            mode: Mode::Score,
            strategy: Strategy::Data,
            platform: Platform::default(),
            fuse: false,
        };
        let plan = Plan::compile(network, options)?;
        let store = Arc::new(ParameterStore::new(&plan, 0, Isa::detect())?);
        let bound = Program::bind(vec![plan], &store, &BindOptions { decay_all: false })?;
        let program = bound.into_iter().next().expect("one plan makes one program");
        let config = WorkerConfig {
            workers: job.workers,
            cores: None,
            spins: SPINS,
            name: "worker".to_owned(),
            recorder: Recorder::off(),
            on_step: None,
        };
        let executor = Executor::start(&config, None, Arc::new(AtomicBool::new(false)))?;
        Ok(Self { program: Arc::new(program), executor })
    }

    /// Seconds of all chains.
    pub(super) fn run(&mut self, job: &Job) -> Result<f64, ScheduleError> {
        let drill = Drill { blocks_per_task: job.blocks_per_task, block: Arc::clone(&job.block) };
        let mut chains = Chains { left: job.chains, began: None, ended: None };
        self.executor.drill(&self.program, drill, &mut chains)?;
        let (began, ended) = chains.began.zip(chains.ended).expect("there is a chain");
        Ok((ended - began).as_secs_f64())
    }
}

/// Tasks of a network beside its layers': loading, the loss, the metrics and the report.
pub(super) const OTHER_TASKS: usize = 4;

/// A network whose scoring is a chain of so many compute tasks.
fn chain(tasks: usize) -> Result<Network, GraphError> {
    let mut network = NetworkBuilder::new("chain");
    let mut last = network.input("data", 2)?;
    for index in 0..tasks - OTHER_TASKS {
        last = network.linear(format!("fc{index}"), last, Linear::new(2))?;
    }
    network.softmax_cross_entropy("loss", last, SoftmaxCrossEntropy::default())?;
    network.build()
}

/// Feeds one iteration a chain, and notes when the first begins and the last is complete.
struct Chains {
    left: usize,
    began: Option<Instant>,
    ended: Option<Instant>,
}

impl Feed for Chains {
    type Error = ScheduleError;

    fn next(&mut self) -> Result<Option<Iteration>, ScheduleError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        self.began.get_or_insert_with(Instant::now);
        let hyper = SgdHyper { lr: 0.0, momentum: 0.0, weight_decay: 0.0, nesterov: false };
        let samples = LocalSamples { labels: vec![0], ..LocalSamples::default() };
        let ids = vec![0];
        Ok(Some(Iteration { step: 1, epoch: 1, minibatch: 1, hyper, seed: 0, ids, samples }))
    }

    fn report(&mut self, _: &IterationReport) -> Result<(), ScheduleError> {
        Ok(())
    }

    fn recycle(&mut self, _: Iteration) {
        self.ended = Some(Instant::now());
    }
}
