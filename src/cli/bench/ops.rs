//! `lockstep bench ops`: each pass of convolutions and linear layers, on one core or on several that share its blocks.

use std::thread;
use std::time::{Duration, Instant};

use clap::Args as ClapArgs;
use lockstep::RunError;
use lockstep::ops::{Arena, Conv2d, Isa, Pass, Rounds, Turn, WinogradTile, flush_denormals};
use lockstep::scheduler::detect_caches;

use super::accuracy::Operands;
use super::layers::{Conv, Kind, LAYERS, Layer};
use super::passes::{self, Cost};
use super::rows::{OpRow, write_json};
use super::yardstick::{Peak, fed_fraction, triad_gbytes};
use super::{Common, median};
use crate::cli::winograd::Winograd;
use crate::cli::{at_least_one, bad_flag, inputs};

/// Arguments of `lockstep bench ops`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Samples of a convolution; several, with commas, one after another
    #[arg(long, default_value = "8", value_delimiter = ',', value_name = "B")]
    batch: Vec<usize>,
    /// Samples of a linear layer
    #[arg(long, default_value = "256", value_delimiter = ',', value_name = "B")]
    linear_batch: Vec<usize>,
    /// Threads that share the blocks of a pass
    #[arg(long, default_value_t = 1, value_name = "W")]
    workers: usize,
    /// Only layers whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Only this layer
    #[arg(long, value_name = "NAME", conflicts_with = "only")]
    layer: Option<String>,
    /// Print the layers' names and measure nothing
    #[arg(long)]
    list: bool,
    /// Milliseconds of one run of a pass
    #[arg(long, default_value_t = 100, value_name = "MS")]
    run_ms: u64,
    #[command(flatten)]
    winograd: Winograd,
    #[command(flatten)]
    common: Common,
}

impl Args {
    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|part| name.contains(part.as_str()))
            && self.layer.as_ref().is_none_or(|layer| layer == name)
    }
}

/// Measures.
pub(super) fn run(args: &Args) -> Result<(), RunError> {
    at_least_one(&[
        ("--batch", args.batch.iter().copied().min()),
        ("--linear-batch", args.linear_batch.iter().copied().min()),
        ("--workers", Some(args.workers)),
        ("--runs", Some(args.common.runs)),
    ])?;
    let layers: Vec<Layer> = LAYERS.into_iter().filter(|layer| args.wants(layer.name)).collect();
    if let (Some(name), true) = (&args.layer, layers.is_empty()) {
        return Err(bad_flag("--layer", name, "--list prints those that there are"));
    }
    if args.list {
        layers.iter().for_each(|layer| say!("{}", layer.name));
        return Ok(());
    }
    flush_denormals();
    let isa = inputs::isa()?;
    let tile = args.winograd.of_layer();
    let mut bench = Bench {
        isa,
        workers: args.workers,
        runs: args.common.runs,
        run_time: Duration::from_millis(args.run_ms),
        triad_gbytes: triad_gbytes(isa, args.workers),
        rows: vec![],
    };
    say!(
        "{}: {} core(s), triad {:.1} GB/s; a register tile fed from L1 reaches {:.0} % of peak",
        isa.name(),
        args.workers,
        bench.triad_gbytes,
        100.0 * fed_fraction(isa, args.workers)
    );
    say!("{}", OpRow::HEADER);
    for layer in layers {
        let batches = match layer.kind {
            Kind::Conv(_) => &args.batch,
            Kind::Linear { .. } => &args.linear_batch,
        };
        for &mb in batches {
            let first = bench.rows.len();
            passes::each(layer, isa, (mb, tile, args.workers), &mut |name, cost, pass| {
                let row = bench.row(layer.name, name, mb, cost, pass);
                say!("{}", row.line());
                bench.rows.push(row);
            })?;
            if let (Kind::Conv(conv), Some(tile)) = (layer.kind, tile) {
                add_errors(conv, isa, (mb, tile), &mut bench.rows[first..]);
            }
        }
    }
    write_json(args.common.json.as_deref(), &bench.rows)
}

/// Adds to the rows of a layer that was computed by Winograd's method how exact it is, beside the direct method, and prints it.
fn add_errors(conv: Conv, isa: Isa, (mb, tile): (usize, WinogradTile), rows: &mut [OpRow]) {
    let desc = conv.inner_desc(isa);
    let Ok(winograd) = Conv2d::winograd(desc, tile, isa, detect_caches()) else { return };
    let Ok(direct) = Conv2d::for_caches(desc, isa, detect_caches()) else { return };
    let mut operands = Operands::new(&direct, mb);
    let (errors, direct) = (operands.errors(&winograd), operands.errors(&direct));
    for ((row, error), direct) in rows.iter_mut().zip(errors).zip(direct) {
        row.error = Some(error);
        row.direct_error = Some(direct);
        say!("{}", row.error_line(error, direct));
    }
}

struct Bench {
    isa: Isa,
    workers: usize,
    runs: usize,
    run_time: Duration,
    triad_gbytes: f64,
    rows: Vec<OpRow>,
}

impl Bench {
    /// Measures a pass.
    fn row(
        &self,
        layer: &str,
        name: &'static str,
        batch: usize,
        cost: Cost,
        pass: Pass<'_>,
    ) -> OpRow {
        let blocks = pass.blocks();
        let mut rounds = Rounds::new(pass);
        // The first rounds fault memory in and tell how many rounds fill a run.
        self.seconds_of_rounds(&mut rounds, 1);
        let once = median(&mut self.seconds_of_rounds(&mut rounds, 2));
        let per_run = (self.run_time.as_secs_f64() / once).ceil().clamp(1.0, 1e6) as usize;
        let mut peak = Peak::new(self.isa, self.workers);
        let (mut rates, mut fractions, mut best) = (Vec::new(), Vec::new(), 0.0_f64);
        for _ in 0..self.runs {
            // Clocks drift: each run is judged by a peak taken just before it.
            let peak = peak.sample();
            let mut seconds = self.seconds_of_rounds(&mut rounds, per_run);
            let rate = cost.flops / median(&mut seconds) / 1e9;
            best = best.max(cost.flops / seconds[0] / 1e9);
            rates.push(rate);
            fractions.push(rate / peak);
        }
        let gflops = median(&mut rates);
        let gbytes_per_s = gflops * cost.bytes / cost.flops;
        let peak_gflops = peak.gflops();
        let roofline = peak_gflops.min(self.triad_gbytes * cost.flops / cost.bytes);
        OpRow {
            layer: layer.to_owned(),
            pass: name,
            batch,
            isa: self.isa.name(),
            workers: self.workers,
            blocks,
            gflops,
            gflops_range: (rates[0], rates[rates.len() - 1]),
            gflops_best: best,
            peak_gflops,
            peak_fraction: median(&mut fractions),
            roofline_fraction: gflops / roofline,
            gbytes_per_s,
            bandwidth_fraction: gbytes_per_s / self.triad_gbytes,
            error: None,
            direct_error: None,
        }
    }

    /// The seconds of each of `n` rounds, one after another, by all workers.
    fn seconds_of_rounds(&self, rounds: &mut Rounds<'_>, n: usize) -> Vec<f64> {
        rounds.begin(n);
        let rounds = &*rounds;
        let work = || {
            flush_denormals();
            let mut scratch = Arena::new(rounds.scratch_len());
            let mut ends = Vec::new();
            loop {
                match rounds.turn(scratch.as_slice_mut()) {
                    Turn::Block => (),
                    Turn::EndOfRound => ends.push(Instant::now()),
                    Turn::Over => return ends,
                }
            }
        };
        let began = Instant::now();
        let mut ends: Vec<Instant> = thread::scope(|scope| {
            let others: Vec<_> = (1..self.workers).map(|_| scope.spawn(work)).collect();
            let mut ends = work();
            for other in others {
                ends.extend(other.join().expect("a kernel accepts the operands it asks for"));
            }
            ends
        });
        ends.sort_unstable();
        let begins = std::iter::once(began).chain(ends.iter().copied());
        begins.zip(&ends).map(|(from, to)| (*to - from).as_secs_f64()).collect()
    }
}
