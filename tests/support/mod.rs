//! Runs of given minibatches through the scheduler's API, on any number of in-process ranks and workers.
#![allow(dead_code, clippy::allow_attributes, reason = "each test binary uses a part of it")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use lockstep::comm::{CommConfig, Communicator, LocalJob};
use lockstep::graph::{Mode, Network, Plan, PlanOptions, Platform, Strategy, WinogradTile, share};
use lockstep::ops::Isa;
use lockstep::ops::sgd::SgdHyper;
use lockstep::scheduler::{
    BindOptions, Executor, Feed, Iteration, IterationReport, LocalSamples, ParameterStore, Program,
    Router, ScheduleError, WorkerConfig,
};
use lockstep::traces::Recorder;

/// A minibatch over all ranks: plain samples and labels.
#[derive(Debug, Clone)]
pub(crate) struct Minibatch {
    pub(crate) values: Vec<f32>,
    pub(crate) labels: Vec<u32>,
}

/// What to run.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) network: Arc<Network>,
    pub(crate) initial: BTreeMap<String, Vec<f32>>,
    pub(crate) minibatches: Vec<Minibatch>,
    pub(crate) hyper: SgdHyper,
    pub(crate) ranks: usize,
    pub(crate) strategy: Strategy,
    pub(crate) reproducible: bool,
    pub(crate) winograd: Option<WinogradTile>,
    pub(crate) clip_norm: Option<f32>,
    pub(crate) workers: usize,
    pub(crate) isa: Isa,
}

/// What comes out.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Result {
    pub(crate) losses: Vec<f64>,
    pub(crate) correct: Vec<u64>,
    pub(crate) parameters: BTreeMap<String, Vec<f32>>,
}

struct Given {
    queue: VecDeque<Iteration>,
    reports: Vec<IterationReport>,
}

impl Feed for Given {
    type Error = ScheduleError;

    fn next(&mut self) -> std::result::Result<Option<Iteration>, ScheduleError> {
        Ok(self.queue.pop_front())
    }

    fn report(&mut self, report: &IterationReport) -> std::result::Result<(), ScheduleError> {
        self.reports.push(*report);
        Ok(())
    }
}

impl Run {
    /// Trains one step a minibatch. All ranks must give the same losses and the same parameters.
    pub(crate) fn train(&self) -> Result {
        let results: Vec<Result> = std::thread::scope(|scope| {
            let ends = LocalJob::endpoints(self.ranks);
            let ranks: Vec<_> = ends
                .into_iter()
                .enumerate()
                .map(|(rank, end)| {
                    std::thread::Builder::new()
                        .spawn_scoped(scope, move || {
                            let router = Arc::new(Router::default());
                            let (done, failed) = (Arc::clone(&router), Arc::clone(&router));
                            let config = CommConfig {
                                on_complete: Box::new(move |c| done.exchange_done(c.token)),
                                on_failure: Box::new(move |e| failed.failed(e)),
                                ..CommConfig::default()
                            };
                            let comm = Arc::new(Communicator::start(end, config).unwrap());
                            let result = self.train_rank(rank, Some((Arc::clone(&comm), router)));
                            Arc::into_inner(comm).unwrap().shutdown().unwrap();
                            result
                        })
                        .unwrap()
                })
                .collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        let mut results = results.into_iter();
        let mut first = results.next().unwrap();
        for other in results {
            assert_eq!((&other.losses, &other.correct), (&first.losses, &first.correct));
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

    fn train_rank(&self, rank: usize, comm: Option<(Arc<Communicator>, Arc<Router>)>) -> Result {
        let momentum = self.hyper.momentum != 0.0;
        let capacity = self.minibatches.iter().map(|m| m.labels.len()).max().unwrap();
        let plan = Plan::compile(
            Arc::clone(&self.network),
            PlanOptions {
                minibatch: capacity,
                ranks: self.ranks,
                mode: Mode::Train { momentum },
                strategy: self.strategy.clone(),
                platform: Platform::default(),
                fuse: true,
                bundle: true,
                reproducible: self.reproducible,
                clip: self.clip_norm.is_some(),
                winograd: self.winograd,
            },
        )
        .unwrap();
        let store = Arc::new(ParameterStore::new(&plan, rank, self.isa).unwrap());
        self.each_parameter(|layer, param, name| {
            store.import(&self.network, layer, param, &self.initial[name]).unwrap();
        });
        let bind = BindOptions { decay_all: true, clip_norm: self.clip_norm };
        let program = Arc::new(Program::bind(vec![plan], &store, &bind).unwrap().pop().unwrap());
        let config = WorkerConfig {
            workers: self.workers,
            cores: None,
            spins: 5,
            name: "worker".to_owned(),
            recorder: Recorder::off(),
            on_step: None,
        };
        let mut executor = Executor::start(&config, comm, Arc::default()).unwrap();
        let mut feed = Given { queue: self.iterations(rank), reports: Vec::new() };
        executor.run(&program, &mut feed).unwrap();
        let mut parameters = BTreeMap::new();
        self.each_parameter(|layer, param, name| {
            // What other ranks have is put in its place when all are done.
            let mut values = vec![f32::NAN; self.initial[name].len()];
            let share = store.share(&self.network, layer, param).unwrap();
            values[share].copy_from_slice(&store.export(&self.network, layer, param).unwrap());
            parameters.insert(name.to_owned(), values);
        });
        Result {
            losses: feed.reports.iter().map(|r| r.loss).collect(),
            correct: feed.reports.iter().map(|r| r.correct).collect(),
            parameters,
        }
    }

    fn each_parameter(&self, mut visit: impl FnMut(lockstep::graph::LayerId, &str, &str)) {
        for layer in self.network.layers() {
            for param in &layer.params {
                visit(layer.id, &param.name, &format!("{}.{}", layer.name, param.name));
            }
        }
    }

    fn iterations(&self, rank: usize) -> VecDeque<Iteration> {
        let mut first = 0;
        let one = |(step, m): (usize, &Minibatch)| {
            let n = m.labels.len();
            let mine = share(n, self.ranks, rank);
            let len = m.values.len() / n;
            let samples = LocalSamples {
                values: m.values[mine.start * len..mine.end * len].to_vec(),
                labels: m.labels[mine].to_vec(),
            };
            let ids = (first..first + n).map(|id| id as u64).collect();
            first += n;
            Iteration {
                step: step as u64 + 1,
                epoch: 1,
                minibatch: n,
                hyper: self.hyper,
                seed: 1,
                ids,
                samples,
            }
        };
        self.minibatches.iter().enumerate().map(one).collect()
    }
}
