//! Scoring a checkpoint on a data set, on one rank.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use lockstep_data::{Dataset, Loader, LoaderConfig, Order, Schedule};
use lockstep_graph::{Mode, Network, Plan, PlanOptions, Platform, Strategy, WinogradTile};
use lockstep_ops::Isa;
use lockstep_scheduler::{
    BindOptions, Cores, Executor, IterationReport, ParameterStore, Program, WorkerConfig,
};
use lockstep_traces::Recorder;

use super::feed::{LoaderFeed, Recipe};
use super::observer::Score;
use super::options::Sgd;
use super::rank::check_fit;
use crate::checkpoint::{NamedTensor, find_tensor, tensor_names};
use crate::error::RunError;

/// What to score.
#[derive(Clone)]
pub struct ScoreJob {
    /// The network, with a loss.
    pub network: Arc<Network>,
    /// The data.
    pub data: Arc<dyn Dataset>,
    /// Its parameters and running statistics.
    pub weights: BTreeMap<String, NamedTensor>,
    /// Where the weights came from, for messages.
    pub weights_path: PathBuf,
    /// Samples scored at once.
    pub minibatch: usize,
    /// Compute threads; `None` chooses by cores.
    pub workers: Option<usize>,
    /// Instruction set.
    pub isa: Isa,
    /// Whether large 3x3 convolutions are computed by Winograd's minimal filtering
    /// ([`PlanOptions::winograd`](lockstep_graph::PlanOptions)).
    pub winograd: Option<WinogradTile>,
}

impl std::fmt::Debug for ScoreJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScoreJob")
            .field("network", &self.network.name())
            .field("weights_path", &self.weights_path)
            .finish_non_exhaustive()
    }
}

/// Scores.
///
/// # Errors
/// A parameter is missing or has another shape, the data does not fit the network or cannot be read.
#[expect(
    clippy::missing_panics_doc,
    reason = "the weights are checked, and binding gives one program a plan"
)]
pub fn score(job: &ScoreJob) -> Result<Score, RunError> {
    check_fit(&job.network, &*job.data)?;
    check_weights(&job.network, &job.weights, &job.weights_path)?;
    let plan = Plan::compile(
        Arc::clone(&job.network),
        PlanOptions {
            minibatch: job.minibatch,
            ranks: 1,
            mode: Mode::Score,
            strategy: Strategy::Data,
            platform: Platform::default(),
            fuse: true,
            winograd: job.winograd,
            ..PlanOptions::default()
        },
    )?;
    let workers = job.workers.unwrap_or_else(|| Cores::detect().default_workers(1, false));
    let store = Arc::new(ParameterStore::new(&plan, 0, job.isa)?.for_workers(workers));
    for layer in job.network.layers() {
        for param in &layer.params {
            let tensor = find_tensor(&job.network, &job.weights, layer, param);
            let tensor = tensor.expect("the weights were checked");
            store.import(&job.network, layer.id, &param.name, &tensor.values)?;
        }
    }
    let options = BindOptions { decay_all: true, ..BindOptions::default() };
    let program = Program::bind(vec![plan], &store, &options)?.pop().expect("one program a plan");
    let config = WorkerConfig {
        workers,
        cores: None,
        spins: 50,
        name: "worker".to_owned(),
        recorder: Recorder::off(),
        on_step: None,
    };
    let mut executor = Executor::start(&config, None, Arc::default())?;
    let schedule = Schedule { n_samples: job.data.len(), minibatch: job.minibatch };
    let steps = schedule.steps_per_epoch();
    let config = LoaderConfig { last_step: Some(steps), ..LoaderConfig::default() };
    let mut loader = Loader::start(Arc::clone(&job.data), schedule, Order::sequential(), config)?;
    score_dataset(&mut executor, &Arc::new(program), &mut loader, steps)
}

/// Every parameter of the network must be among the weights, in its shape; a tied one under one or several of its names.
///
/// # Errors
/// The first that is not, by name; or one that has different values under different names.
pub fn check_weights(
    network: &Network,
    weights: &BTreeMap<String, NamedTensor>,
    path: &std::path::Path,
) -> Result<(), RunError> {
    for layer in network.layers() {
        for param in &layer.params {
            let Some(first) = find_tensor(network, weights, layer, param) else {
                let name = format!("{}.{}", layer.name, param.name);
                return Err(RunError::MissingTensor { path: path.to_owned(), name });
            };
            for name in tensor_names(network, layer, param) {
                let Some(tensor) = weights.get(&name) else { continue };
                if tensor.shape != param.shape {
                    return Err(RunError::TensorShape {
                        path: path.to_owned(),
                        name,
                        expected: param.shape.clone(),
                        got: tensor.shape.clone(),
                    });
                }
                let bits =
                    |t: &NamedTensor| t.values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                if bits(tensor) != bits(first) {
                    let (path, first) = (path.to_owned(), first.name.clone());
                    return Err(RunError::TiedTensors { path, first, second: name });
                }
            }
        }
    }
    Ok(())
}

/// Scores a data set, which takes a loader's next `steps` minibatches, with a scoring program.
pub(super) fn score_dataset(
    executor: &mut Executor,
    program: &Arc<Program>,
    loader: &mut Loader,
    steps: u64,
) -> Result<Score, RunError> {
    let began = Instant::now();
    let (mut total, mut correct) = (EpochLoss::default(), 0);
    let mut on_report = |report: &IterationReport| {
        total.add(report);
        correct += report.correct;
        Ok(())
    };
    let recipe = Recipe { sgd: Sgd::default(), seed: 0, total_steps: steps };
    let mut feed =
        LoaderFeed { loader, recipe: &recipe, steps_left: steps, on_report: &mut on_report };
    executor.run(program, &mut feed)?;
    let seconds = began.elapsed().as_secs_f64();
    let samples = total.samples;
    Ok(Score { loss: total.mean(), correct, samples, samples_per_s: samples as f64 / seconds })
}

/// The mean loss over samples, from minibatches of any size.
#[derive(Debug, Default)]
pub(super) struct EpochLoss {
    sum: f64,
    samples: u64,
}

impl EpochLoss {
    pub(super) fn add(&mut self, report: &IterationReport) {
        self.sum += report.loss * report.minibatch as f64;
        self.samples += report.minibatch as u64;
    }

    pub(super) fn mean(&self) -> f64 {
        self.sum / self.samples as f64
    }
}
