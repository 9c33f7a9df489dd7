//! `lockstep train`.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args as ClapArgs;
use lockstep::comm::{ServiceOrder, launcher};
use lockstep::data::Schedule;
use lockstep::graph::Strategy;
use lockstep::{
    Decay, Job, Length, LrSchedule, RankChoice, RunError, RunOptions, Sgd, TraceOptions,
    check_weights, choose_ranks, load_weights, train,
};

use super::console::Console;
use super::metrics::Metrics;
use super::reproducible::ReproducibleArgs;
use super::signals::end_on_signals;
use super::steps::Steps;
use super::winograd::Winograd;
use super::{at_least_one, bad_flag, inputs};

/// Arguments of `lockstep train`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Network: a name (see `lockstep graph --list`) or a .json file
    #[arg(long, default_value = "lenet", value_name = "NAME|FILE.json")]
    net: String,
    /// Data: mnist (bundled), mnist:DIRECTORY or synthetic
    #[arg(long, default_value = "mnist")]
    data: String,
    /// Samples of a minibatch, over all ranks
    #[arg(long, default_value_t = 64, value_name = "B")]
    batch: usize,
    /// Passes over the training data
    #[arg(long, default_value_t = 3, value_name = "E")]
    epochs: u64,
    /// Steps to train, instead of whole epochs
    #[arg(long, value_name = "S", conflicts_with = "epochs")]
    steps: Option<u64>,
    /// Learning rate of the first step
    #[arg(long, default_value_t = 0.02)]
    lr: f32,
    /// How the learning rate changes: constant, cosine (down to 0 over the run), or step:EPOCHS:FACTOR (times FACTOR every
    /// EPOCHS epochs)
    #[arg(long, default_value = "cosine")]
    schedule: String,
    /// Momentum
    #[arg(long, default_value_t = 0.9, value_name = "M")]
    momentum: f32,
    /// Weight decay (L2)
    #[arg(long, default_value_t = 5e-4, value_name = "WD")]
    weight_decay: f32,
    /// What weight decay leaves out: nothing, or biases and batch normalization
    #[arg(long, value_enum, default_value = "nothing", value_name = "WHAT")]
    no_decay: NoDecay,
    /// Nesterov's form of momentum
    #[arg(long)]
    nesterov: bool,
    /// Shorten gradients whose norm, over all parameters, is larger than this
    #[arg(long, value_name = "NORM")]
    clip_norm: Option<f32>,
    /// Ranks, as threads of this process; leave it out under mpirun [default: 1]
    #[arg(long, value_name = "R")]
    ranks: Option<usize>,
    /// Compute threads a rank [default: by cores]
    #[arg(long, value_name = "W")]
    workers: Option<usize>,
    /// Threads that prepare minibatches, a rank
    #[arg(long, default_value_t = 1, value_name = "N")]
    loader_threads: usize,
    /// How ranks share the work of layers with weights: data (a part of the minibatch each), model (a part of the output
    /// features each), G=n (n groups; data between them, model within), auto, or a .json file with one of these a layer
    #[arg(long, default_value = "data")]
    strategy: String,
    #[command(flatten)]
    reproducible: ReproducibleArgs,
    /// Which exchange goes first: the one whose layer comes first in the next forward pass, or the one that was ready first
    #[arg(long, value_enum, default_value = "priority", value_name = "ORDER")]
    exchange_order: ExchangeOrder,
    /// The link between ranks, as `lockstep bench comm --json FILE` measured it: algorithms and the strategy auto are chosen by
    /// it [default: 1 Gbit/s, 50 us]
    #[arg(long, value_name = "FILE")]
    link: Option<PathBuf>,
    /// Exchange small gradients together with those of the layers next to them, and new parameters likewise; the results are the same
    #[arg(long, value_enum, default_value = "on", value_name = "SWITCH")]
    fuse_exchanges: Switch,
    #[command(flatten)]
    winograd: Winograd,
    /// Compare the ranks' copies of the parameters every K steps, and stop where they differ
    #[arg(long, value_name = "K")]
    check_replicas: Option<u64>,
    /// Seed of initial weights, sample order and dropout
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Start from a checkpoint's weights: a directory, or a .safetensors file
    #[arg(long, value_name = "PATH")]
    init: Option<PathBuf>,
    /// Save the weights after every epoch, as DIR/last/weights.safetensors
    #[arg(long, value_name = "DIR")]
    checkpoint: Option<PathBuf>,
    /// Write metrics: one JSON line after every step and every evaluation
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
    /// Write a timeline of some steps in Chrome's trace format; each rank's own goes beside it
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Steps to trace, counted from 1: B is left out, A..=B includes it
    #[arg(long, default_value = "3..6", value_name = "A..B", requires = "trace")]
    trace_steps: Steps,
    /// Do not score the test data after every epoch
    #[arg(long)]
    no_eval: bool,
}

/// The order in which exchanges are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ExchangeOrder {
    /// Most urgent first
    Priority,
    /// First come, first served
    Fifo,
}

impl From<ExchangeOrder> for ServiceOrder {
    fn from(order: ExchangeOrder) -> Self {
        match order {
            ExchangeOrder::Priority => Self::Priority,
            ExchangeOrder::Fifo => Self::Fifo,
        }
    }
}

/// Whether to do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Switch {
    /// Do it
    On,
    /// Leave it
    Off,
}

impl From<Switch> for bool {
    fn from(switch: Switch) -> Self {
        switch == Switch::On
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum NoDecay {
    /// Decay all parameters, as PyTorch does by default
    Nothing,
    /// Decay weights only
    BiasNorm,
}

impl Args {
    fn sgd(&self) -> Result<Sgd, RunError> {
        let schedule: LrSchedule = self.schedule.parse()?;
        let finite = |flag, value: f32, low: f32| {
            if value.is_finite() && value >= low {
                Ok(value)
            } else {
                Err(bad_flag(flag, &value, format!("must be a number of at least {low}")))
            }
        };
        let positive = |flag, value: f32| {
            if value > 0.0 && value.is_finite() {
                Ok(value)
            } else {
                Err(bad_flag(flag, &value, "must be a number above 0"))
            }
        };
        if self.momentum >= 1.0 {
            return Err(bad_flag("--momentum", &self.momentum, "must be below 1"));
        }
        if self.nesterov && self.momentum == 0.0 {
            return Err(bad_flag("--momentum", &self.momentum, "--nesterov needs one above 0"));
        }
        Ok(Sgd {
            lr: finite("--lr", self.lr, 0.0)?,
            schedule,
            momentum: finite("--momentum", self.momentum, 0.0)?,
            weight_decay: finite("--weight-decay", self.weight_decay, 0.0)?,
            decay: match self.no_decay {
                NoDecay::Nothing => Decay::All,
                NoDecay::BiasNorm => Decay::WeightsOnly,
            },
            nesterov: self.nesterov,
            clip_norm: self.clip_norm.map(|norm| positive("--clip-norm", norm)).transpose()?,
        })
    }

    fn length(&self) -> Result<Length, RunError> {
        match (self.steps, self.epochs) {
            (Some(0), _) => Err(bad_flag("--steps", &0, "must be at least 1")),
            (None, 0) => Err(bad_flag("--epochs", &0, "must be at least 1")),
            (Some(steps), _) => Ok(Length::Steps(steps)),
            (None, epochs) => Ok(Length::Epochs(epochs)),
        }
    }

    fn options(&self) -> Result<RunOptions, RunError> {
        at_least_one(&[
            ("--batch", Some(self.batch)),
            ("--ranks", self.ranks),
            ("--workers", self.workers),
            ("--loader-threads", Some(self.loader_threads)),
            ("--check-replicas", self.check_replicas.map(|every| every as usize)),
        ])?;
        let strategy: Strategy = self.strategy.parse()?;
        Ok(RunOptions {
            minibatch: self.batch,
            length: self.length()?,
            sgd: self.sgd()?,
            seed: self.seed,
            ranks: choose_ranks(RankChoice { asked: self.ranks })?,
            workers: self.workers,
            loader_threads: self.loader_threads,
            strategy,
            reproducible: self.reproducible.into(),
            bundle: self.fuse_exchanges.into(),
            winograd: self.winograd.of_plan(),
            exchange_order: self.exchange_order.into(),
            link: inputs::link(self.link.as_deref())?,
            check_replicas: self.check_replicas,
            isa: inputs::isa()?,
            checkpoint: self.checkpoint.clone(),
            trace: self
                .trace
                .clone()
                .map(|path| TraceOptions { path, steps: self.trace_steps.0.clone() }),
            evaluate: !self.no_eval,
            #[cfg(feature = "faults")]
            fault: lockstep::Fault::from_environment()?,
            ..RunOptions::default()
        })
    }
}

/// Trains.
pub(super) fn run(args: &Args) -> Result<(), RunError> {
    let options = args.options()?;
    let network = inputs::network(&args.net)?;
    let data = inputs::data(&args.data, &network, args.seed)?;
    let initial = match &args.init {
        Some(path) => {
            let weights = load_weights(path)?;
            check_weights(&network, &weights, path)?;
            Some(Arc::new(weights))
        }
        None => None,
    };
    // Of several processes only rank 0's is told of steps.
    let first = launcher().is_none_or(|launcher| launcher.rank == 0);
    let path = args.metrics.as_deref().filter(|_| first);
    let metrics = path.map(Metrics::create).transpose()?;
    let job = Job { network, train: data.train, test: Some(data.test), initial, options };
    check_trace_steps(&job)?;
    prepare_checkpoint(&job)?;
    end_on_signals(&job)?;
    let mut console = Console::new(metrics);
    let outcome = train(&job, &mut console);
    console.finish(outcome.as_ref().ok());
    console.metrics_result()?;
    outcome.map(drop)
}

/// A trace of steps that the run does not have would be empty.
fn check_trace_steps(job: &Job) -> Result<(), RunError> {
    let Some(trace) = &job.options.trace else { return Ok(()) };
    let schedule = Schedule { n_samples: job.train.len(), minibatch: job.options.minibatch };
    let steps = match job.options.length {
        Length::Steps(steps) => steps,
        Length::Epochs(epochs) => epochs * schedule.steps_per_epoch(),
    };
    if trace.steps.start <= steps {
        return Ok(());
    }
    let asked = format!("{}..{}", trace.steps.start, trace.steps.end);
    Err(bad_flag("--trace-steps", &asked, format!("the run has {steps} step(s) only")))
}

/// Makes the checkpoint's directory before the first step rather than after the first epoch, when work would be lost.
fn prepare_checkpoint(job: &Job) -> Result<(), RunError> {
    let Some(path) = &job.options.checkpoint else { return Ok(()) };
    // Only rank 0 saves.
    if launcher().is_some_and(|launcher| launcher.rank != 0) {
        return Ok(());
    }
    fs::create_dir_all(path).map_err(|source| RunError::File {
        action: "create",
        path: path.clone(),
        source,
    })
}
