//! `lockstep train`.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args as ClapArgs;
use lockstep::graph::Strategy;
use lockstep::{
    Decay, Job, Length, LrSchedule, RankChoice, RunError, RunOptions, Sgd, TraceOptions, choose_ranks,
    load_weights, train,
};

use super::console::Console;
use super::metrics::Metrics;
use super::signals::end_on_signals;
use super::steps::Steps;
use super::{bad_flag, inputs};

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
    /// How the rate changes: constant, cosine or step:EPOCHS:FACTOR
    #[arg(long, default_value = "cosine")]
    schedule: String,
    /// Momentum
    #[arg(long, default_value_t = 0.9)]
    momentum: f32,
    /// Weight decay (L2)
    #[arg(long, default_value_t = 5e-4)]
    weight_decay: f32,
    /// What weight decay leaves out: nothing, or biases and batch normalization
    #[arg(long, value_enum, default_value = "nothing")]
    no_decay: NoDecay,
    /// Nesterov momentum
    #[arg(long)]
    nesterov: bool,
    /// In-process ranks (without mpirun)
    #[arg(long, value_name = "R")]
    ranks: Option<usize>,
    /// Compute threads a rank [default: by cores]
    #[arg(long, value_name = "W")]
    workers: Option<usize>,
    /// Threads a rank that prepare minibatches
    #[arg(long, default_value_t = 1, value_name = "N")]
    loader_threads: usize,
    /// How ranks share the work: data
    #[arg(long, default_value = "data")]
    strategy: String,
    /// Seed of initial weights, sample order and dropout
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Start from a checkpoint's weights: a directory, or a .safetensors file
    #[arg(long, value_name = "PATH")]
    init: Option<PathBuf>,
    /// Save weights here after every epoch, in DIR/last/weights.safetensors
    #[arg(long, value_name = "DIR")]
    checkpoint: Option<PathBuf>,
    /// Write one JSON line a step and an epoch
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
    /// Write a Chrome trace
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Steps to trace, counted from 1
    #[arg(long, default_value = "3..6", value_name = "A..B", requires = "trace")]
    trace_steps: Steps,
    /// Do not score the test data after every epoch
    #[arg(long)]
    no_eval: bool,
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
                Err(bad_flag(flag, value, format!("must be a number of at least {low}")))
            }
        };
        if self.momentum >= 1.0 {
            return Err(bad_flag("--momentum", self.momentum, "must be below 1"));
        }
        if self.nesterov && self.momentum == 0.0 {
            return Err(bad_flag("--nesterov", "", "needs --momentum above 0"));
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
        })
    }

    fn length(&self) -> Result<Length, RunError> {
        match (self.steps, self.epochs) {
            (Some(0), _) => Err(bad_flag("--steps", 0, "must be at least 1")),
            (None, 0) => Err(bad_flag("--epochs", 0, "must be at least 1")),
            (Some(steps), _) => Ok(Length::Steps(steps)),
            (None, epochs) => Ok(Length::Epochs(epochs)),
        }
    }

    fn options(&self) -> Result<RunOptions, RunError> {
        for (flag, value) in [
            ("--batch", Some(self.batch)),
            ("--ranks", self.ranks),
            ("--workers", self.workers),
            ("--loader-threads", Some(self.loader_threads)),
        ] {
            if value == Some(0) {
                return Err(bad_flag(flag, 0, "must be at least 1"));
            }
        }
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
            isa: inputs::isa()?,
            checkpoint: self.checkpoint.clone(),
            trace: self.trace.clone().map(|path| TraceOptions {
                path,
                steps: self.trace_steps.0.clone(),
            }),
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
        Some(path) => Some(Arc::new(load_weights(path)?)),
        None => None,
    };
    let metrics = args.metrics.as_deref().map(Metrics::create).transpose()?;
    let job = Job { network, train: data.train, test: Some(data.test), initial, options };
    end_on_signals(&job)?;
    let mut console = Console::new(metrics);
    let outcome = train(&job, &mut console);
    console.finish(outcome.as_ref().ok());
    console.metrics_result()?;
    outcome.map(drop)
}
