//! `lockstep bench net`: whole networks on a synthetic minibatch, training or scoring.
#![expect(clippy::print_stdout, reason = "the result is what the command is for")]

use std::time::Duration;

use clap::Args as ClapArgs;
use lockstep::graph::{LayerKind, Mode, Network, Strategy};
use lockstep::scheduler::Cores;
use lockstep::{MeasureJob, Measurement, Pace, RunError, Stretch, measure};

use super::rows::{NetRow, write_json};
use super::shares::{Shares, TaskRow};
use super::yardstick::Peak;
use super::{Common, median};
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
    /// Seconds of one run, which has three steps at least
    #[arg(long, default_value_t = 2.0, value_name = "S")]
    seconds: f64,
    /// Steps of one run, whatever time they take
    #[arg(long, value_name = "S", conflicts_with = "seconds")]
    steps: Option<u64>,
    /// Steps before the first timed one
    #[arg(long, default_value_t = 3, value_name = "S")]
    warm_up: u64,
    /// Compute threads a rank [default: by cores]
    #[arg(long, value_name = "W")]
    workers: Option<usize>,
    /// Ranks, as threads of this process
    #[arg(long, default_value_t = 1, value_name = "R")]
    ranks: usize,
    /// Tell the time of every task, the longest first
    #[arg(long)]
    layers: bool,
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

impl BenchMode {
    fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Score => "score",
        }
    }

    fn mode(self) -> Mode {
        match self {
            Self::Train => Mode::Train { momentum: true },
            Self::Score => Mode::Score,
        }
    }

    /// Forward passes that a step counts for: the backward pass costs two.
    fn passes(self) -> f64 {
        match self {
            Self::Train => 3.0,
            Self::Score => 1.0,
        }
    }
}

/// Samples of the peak before and after the measurement, each.
const PEAK_SAMPLES: usize = 3;

/// Tasks with a smaller share of the workers' time are not printed; the JSON rows hold all.
const SMALLEST_SHARE: f64 = 0.001;

/// Measures.
pub(super) fn run(args: &Args) -> Result<(), RunError> {
    at_least_one(&[
        ("--batch", Some(args.batch)),
        ("--workers", args.workers),
        ("--ranks", Some(args.ranks)),
        ("--runs", Some(args.common.runs)),
    ])?;
    let job = job(args)?;
    let cores = Cores::detect();
    let workers =
        job.workers.unwrap_or_else(|| cores.default_workers(job.ranks, job.ranks > 1)) * job.ranks;
    let mut peak = Peak::new(job.isa, workers);
    sample(&mut peak);
    let measured = measure(&job)?;
    sample(&mut peak);
    let row = row(args, &job, &measured, peak.gflops());
    println!("{}: peak of {workers} core(s) {:.1} GFLOP/s", job.isa.name(), row.peak_gflops);
    println!("{}", NetRow::HEADER);
    println!("{}", row.line());
    println!("{}", row.shares.line());
    if args.layers {
        println!("{}", TaskRow::HEADER);
        for task in row.tasks.iter().filter(|task| task.share >= SMALLEST_SHARE) {
            println!("{}", task.line());
        }
    }
    write_json(args.common.json.as_deref(), &[row])
}

fn sample(peak: &mut Peak) {
    for _ in 0..PEAK_SAMPLES {
        peak.sample();
    }
}

fn job(args: &Args) -> Result<MeasureJob, RunError> {
    let run = match args.steps {
        Some(0) => return Err(bad_flag("--steps", &0, "must be at least 1")),
        Some(steps) => Stretch::Steps(steps),
        None => match Duration::try_from_secs_f64(args.seconds) {
            Ok(time) => Stretch::Time(time),
            Err(_) => {
                return Err(bad_flag("--seconds", &args.seconds, "must be a time, such as 2"));
            }
        },
    };
    Ok(MeasureJob {
        network: inputs::network(&args.net)?,
        mode: args.mode.mode(),
        minibatch: args.batch,
        ranks: args.ranks,
        workers: args.workers,
        isa: inputs::isa()?,
        strategy: Strategy::Data,
        // At least one step comes before the first timed one: a step lasts from one report to the next.
        pace: Pace { warm_up: args.warm_up.max(1), runs: args.common.runs, run },
    })
}

fn row(args: &Args, job: &MeasureJob, measured: &Measurement, peak_gflops: f64) -> NetRow {
    let rates = measured.step_seconds.iter().map(|steps| {
        // The median step: what else the machine does disturbs some steps, not all.
        args.batch as f64 / median(&mut steps.clone())
    });
    let mut rates: Vec<f64> = rates.collect();
    let per_s = median(&mut rates);
    let gflops = per_s * args.mode.passes() * weighted_flops(&job.network) / 1e9;
    let workers = measured.workers;
    let profile = &measured.profile;
    let core_peak = peak_gflops / (workers * job.ranks) as f64;
    let mut tasks = TaskRow::all(profile, measured.profiled_steps, workers, core_peak);
    if !args.layers {
        tasks.clear();
    }
    NetRow {
        net: job.network.name().to_owned(),
        mode: args.mode.name(),
        batch: args.batch,
        isa: job.isa.name(),
        workers,
        ranks: job.ranks,
        per_s,
        per_s_range: (rates[0], rates[rates.len() - 1]),
        step_ms: 1e3 * args.batch as f64 / per_s,
        gflops,
        peak_gflops,
        peak_fraction: gflops / peak_gflops,
        peak_rss_mb: measured.peak_resident as f64 / 1e6,
        shares: Shares::new(profile, &job.network, workers),
        tasks,
    }
}

/// Operations of one sample's forward pass through convolutions and linear layers: the peers count no others either.
fn weighted_flops(network: &Network) -> f64 {
    let weighted = |kind: &LayerKind| matches!(kind, LayerKind::Conv2d(_) | LayerKind::Linear(_));
    let layers = network.layers().iter().filter(|layer| weighted(&layer.kind));
    layers.map(|layer| network.forward_flops_per_sample(layer.id) as f64).sum()
}

#[cfg(test)]
mod tests {
    use lockstep::graph::zoo;

    use super::*;

    #[test]
    fn the_operations_are_those_that_the_peers_count() {
        let flops = |name| weighted_flops(&zoo::by_name(name).expect("it is there"));
        assert_eq!(flops("vgg-a"), 15_218_180_096.0);
        assert_eq!(flops("overfeat-fast"), 5_602_807_808.0);
        assert_eq!(flops("alexnet"), 1_428_376_960.0);
        assert_eq!(flops("cd-dnn"), 90_198_016.0);
        assert_eq!(flops("resnet50"), 8_178_368_512.0);
        assert_eq!(flops("lenet"), 4_586_000.0);
    }
}
