//! `lockstep bench net`: whole networks on a synthetic minibatch, training or scoring, on any number of ranks.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use lockstep::graph::{LayerKind, Mode, Network, Strategy};
use lockstep::{
    MeasureJob, Measurement, Pace, RankChoice, Ranks, RunError, Stretch, Traffic, choose_ranks,
    measure,
};

use super::rows::{ExchangeRow, NetRow, write_json};
use super::shares::{Shares, TaskRow};
use super::yardstick::Peak;
use super::{Common, median};
use crate::cli::console::{self, Console};
use crate::cli::exchanges::ExchangeSum;
use crate::cli::reproducible::ReproducibleArgs;
use crate::cli::train::{ExchangeOrder, Switch};
use crate::cli::winograd::Winograd;
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
    /// Samples of a minibatch, over all ranks
    #[arg(long, default_value_t = 64, value_name = "B")]
    batch: usize,
    /// Samples of a minibatch for each rank, instead: the minibatch grows with the ranks
    #[arg(long, value_name = "B", conflicts_with = "batch")]
    batch_per_rank: Option<usize>,
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
    /// Ranks, as threads of this process; leave it out under mpirun [default: 1]
    #[arg(long, value_name = "R")]
    ranks: Option<usize>,
    /// How ranks share the work, as for `lockstep train`
    #[arg(long, default_value = "data", value_name = "S")]
    strategy: String,
    #[command(flatten)]
    reproducible: ReproducibleArgs,
    /// Which exchange goes first, as for `lockstep train`
    #[arg(long, value_enum, default_value = "priority", value_name = "ORDER")]
    exchange_order: ExchangeOrder,
    /// The link between ranks, as `lockstep bench comm --json FILE` measured it: algorithms and the strategy auto are chosen by
    /// it [default: 1 Gbit/s, 50 us]
    #[arg(long, value_name = "FILE")]
    link: Option<PathBuf>,
    /// Exchange small gradients together with those of the layers next to them, as for `lockstep train`
    #[arg(long, value_enum, default_value = "on", value_name = "SWITCH")]
    fuse_exchanges: Switch,
    #[command(flatten)]
    winograd: Winograd,
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
        ("--batch-per-rank", args.batch_per_rank),
        ("--workers", args.workers),
        ("--ranks", args.ranks),
        ("--runs", Some(args.common.runs)),
    ])?;
    let job = job(args)?;
    // Each process takes the peak of its own workers, all at the same time; rank 0's stands for all.
    let processes = match job.ranks {
        Ranks::Mpi => job.n_ranks(),
        _ => 1,
    };
    let all_workers = job.workers() * job.n_ranks();
    let mut peak = Peak::new(job.isa, all_workers / processes);
    sample(&mut peak);
    let measured = measure(&job, &mut Console::new(None))?;
    sample(&mut peak);
    let Some(measured) = measured else { return Ok(()) };
    measured.warnings.iter().for_each(|warning| console::warning(warning));
    let row = row(args, &job, &measured, peak.gflops() * processes as f64);
    say!("{}: peak of {all_workers} core(s) {:.1} GFLOP/s", job.isa.name(), row.peak_gflops);
    say!("{}", NetRow::HEADER);
    say!("{}", row.line());
    say!("{}", row.shares.line());
    if let Some(exchanges) = &row.exchanges {
        say!("{}", exchanges.line());
    }
    if args.layers {
        say!("{}", TaskRow::HEADER);
        for task in row.tasks.iter().filter(|task| task.share >= SMALLEST_SHARE) {
            say!("{}", task.line());
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
    let ranks = choose_ranks(RankChoice { asked: args.ranks })?;
    let strategy: Strategy = args.strategy.parse()?;
    Ok(MeasureJob {
        network: inputs::network(&args.net)?,
        mode: args.mode.mode(),
        minibatch: args.batch_per_rank.map_or(args.batch, |batch| batch * ranks.count()),
        ranks,
        workers: args.workers,
        isa: inputs::isa()?,
        strategy,
        reproducible: args.reproducible.into(),
        bundle: args.fuse_exchanges.into(),
        winograd: args.winograd.of_plan(),
        exchange_order: args.exchange_order.into(),
        link: inputs::link(args.link.as_deref())?,
        // At least one step comes before the first timed one: a step lasts from one report to the next.
        pace: Pace { warm_up: args.warm_up.max(1), runs: args.common.runs, run },
    })
}

fn row(args: &Args, job: &MeasureJob, measured: &Measurement, peak_gflops: f64) -> NetRow {
    let minibatch = job.minibatch as f64;
    let rates = measured.step_seconds.iter().map(|steps| {
        // The median step: what else the machine does disturbs some steps, not all.
        minibatch / median(&mut steps.clone())
    });
    let mut rates: Vec<f64> = rates.collect();
    let per_s = median(&mut rates);
    let gflops = per_s * args.mode.passes() * weighted_flops(&job.network) / 1e9;
    let workers = measured.workers;
    let profile = &measured.profile;
    let core_peak = peak_gflops / (workers * measured.ranks) as f64;
    let mut tasks = TaskRow::all(profile, measured.profiled_steps, workers, core_peak);
    if !args.layers {
        tasks.clear();
    }
    let step_ms = 1e3 * minibatch / per_s;
    let shares = Shares::new(profile, &job.network, workers);
    NetRow {
        net: job.network.name().to_owned(),
        mode: args.mode.name(),
        batch: job.minibatch,
        isa: job.isa.name(),
        workers,
        ranks: measured.ranks,
        transport: measured.transport.clone(),
        strategy: job.strategy.to_string(),
        per_s,
        per_s_range: (rates[0], rates[rates.len() - 1]),
        step_ms,
        gflops,
        peak_gflops,
        peak_fraction: gflops / peak_gflops,
        peak_rss_mb: measured.peak_resident as f64 / 1e6,
        shares,
        exchanges: (measured.ranks > 1)
            .then(|| exchanges(measured, shares.exposed_communication * step_ms)),
        tasks,
    }
}

/// What the ranks sent, a step of the whole job.
fn exchanges(measured: &Measurement, exposed_ms: f64) -> ExchangeRow {
    let a_step = |number: f64| number / measured.steps as f64;
    let most = |number: &dyn Fn(&Traffic) -> f64| {
        a_step(measured.traffic.iter().map(number).fold(0.0, f64::max))
    };
    let all = measured.traffic.iter().map(|traffic| traffic.bytes_sent as f64).sum();
    ExchangeRow {
        exposed_ms,
        bytes_sent: a_step(all),
        most_bytes_sent: most(&|traffic| traffic.bytes_sent as f64),
        most_messages_sent: most(&|traffic| traffic.messages_sent as f64),
        first: ExchangeSum::of(&measured.exchanges),
        most_comm_cpu_ms: most(&|traffic| 1e3 * traffic.comm_cpu.as_secs_f64()),
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
