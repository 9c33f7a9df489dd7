//! `lockstep bench net`: whole networks on synthetic data, training or scoring.
#![expect(clippy::print_stdout, reason = "the result is what the command is for")]

use std::sync::Arc;

use clap::Args as ClapArgs;
use lockstep::data::{Dataset, SampleShape, Synthetic};
use lockstep::graph::Network;
use lockstep::ops::peak;
use lockstep::scheduler::Cores;
use lockstep::{
    Job, Length, NamedTensor, Observer, RunError, RunOptions, ScoreJob, StepRecord, initial_values,
    score, train,
};

use super::rows::{NetRow, write_json};
use super::{Common, PEAK_TIME, median};
use crate::cli::resident::peak_resident_mb;
use crate::cli::{at_least_one, bad_flag, inputs};

/// Arguments of `lockstep bench net`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Network: a name or a .json file
    #[arg(long, default_value = "lenet", value_name = "NAME|FILE.json")]
    net: String,
    /// What to measure
    #[arg(long, value_enum, default_value = "train")]
    mode: BenchMode,
    /// Samples of a minibatch
    #[arg(long, default_value_t = 64, value_name = "B")]
    batch: usize,
    /// Steps of one run
    #[arg(long, default_value_t = 50, value_name = "S")]
    steps: u64,
    /// Compute threads [default: by cores]
    #[arg(long, value_name = "W")]
    workers: Option<usize>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum BenchMode {
    /// Forward, backward and update
    Train,
    /// Forward
    Score,
}

/// Measures.
pub(super) fn run(args: &Args) -> Result<(), RunError> {
    at_least_one(&[
        ("--batch", Some(args.batch)),
        ("--workers", args.workers),
        ("--runs", Some(args.common.runs)),
    ])?;
    if args.steps < 5 {
        return Err(bad_flag(
            "--steps",
            &args.steps,
            "must be at least 5: the first steps are not timed",
        ));
    }
    let isa = inputs::isa()?;
    let network = inputs::network(&args.net)?;
    let workers = args.workers.unwrap_or_else(|| Cores::detect().default_workers(1, false));
    let peak_gflops = peak::gflops(isa, PEAK_TIME) * workers as f64;
    println!("{}: peak of {workers} core(s) {peak_gflops:.1} GFLOP/s", isa.name());
    println!("{}", NetRow::HEADER);
    let mut rates = Vec::new();
    for _ in 0..args.common.runs {
        rates.push(match args.mode {
            BenchMode::Train => train_once(args, &network)?,
            BenchMode::Score => score_once(args, &network)?,
        });
    }
    let per_s = median(&mut rates);
    // Convolutions and linear layers; a training step counts three forward passes.
    let passes = if args.mode == BenchMode::Train { 3.0 } else { 1.0 };
    let flops: u64 = network
        .layers()
        .iter()
        .filter(|layer| layer.params.iter().any(|p| p.name == "weight"))
        .map(|layer| network.forward_flops_per_sample(layer.id))
        .sum();
    let gflops = per_s * passes * flops as f64 / 1e9;
    let row = NetRow {
        net: network.name().to_owned(),
        mode: if args.mode == BenchMode::Train { "train" } else { "score" },
        batch: args.batch,
        isa: isa.name(),
        workers,
        per_s,
        per_s_range: (rates[0], rates[rates.len() - 1]),
        gflops,
        peak_gflops,
        peak_fraction: gflops / peak_gflops,
        peak_rss_mb: peak_resident_mb(),
    };
    row.print();
    write_json(args.common.json.as_deref(), &[row])
}

fn samples(network: &Network, len: usize) -> Arc<dyn Dataset> {
    let (c, h, w) = network.layer(network.input()).shape.maps();
    Arc::new(Synthetic::new(SampleShape { c, h, w }, network.classes(), len, 1))
}

/// Rates of the steps after the first three, which start threads and fault memory in.
#[derive(Default)]
struct Rates {
    samples: usize,
    seconds: f64,
}

impl Observer for Rates {
    fn step(&mut self, step: &StepRecord) {
        if step.report.step > 3 {
            self.samples += step.report.minibatch;
            self.seconds += step.report.minibatch as f64 / step.samples_per_s;
        }
    }
}

fn train_once(args: &Args, network: &Arc<Network>) -> Result<f64, RunError> {
    let len = args.batch * usize::try_from(args.steps).unwrap_or(usize::MAX);
    let job = Job {
        network: Arc::clone(network),
        train: samples(network, len),
        test: None,
        initial: None,
        options: RunOptions {
            minibatch: args.batch,
            length: Length::Steps(args.steps),
            workers: args.workers,
            isa: inputs::isa()?,
            ..RunOptions::default()
        },
    };
    let mut rates = Rates::default();
    train(&job, &mut rates)?;
    Ok(rates.samples as f64 / rates.seconds)
}

fn score_once(args: &Args, network: &Arc<Network>) -> Result<f64, RunError> {
    let mut weights = std::collections::BTreeMap::new();
    for layer in network.layers() {
        for param in &layer.params {
            let name = format!("{}.{}", layer.name, param.name);
            let values = initial_values(1, layer, param);
            let tensor = NamedTensor { name: name.clone(), shape: param.shape.clone(), values };
            weights.insert(name, tensor);
        }
    }
    let len = args.batch * usize::try_from(args.steps).unwrap_or(usize::MAX);
    let score = score(&ScoreJob {
        network: Arc::clone(network),
        data: samples(network, len),
        weights,
        weights_path: "initial weights".into(),
        minibatch: args.batch,
        workers: args.workers,
        isa: inputs::isa()?,
    })?;
    Ok(score.samples_per_s)
}
