//! `lockstep bench`: kernels and networks measured against this machine's own peak, taken in the same run.

mod net;
mod ops;
mod rows;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};
use lockstep::RunError;

/// Arguments of `lockstep bench`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Passes of single layers on one core: GFLOP/s and the fraction of the core's peak
    Ops(ops::Args),
    /// Whole networks on all workers: samples a second, GFLOP/s and the fraction of the cores' peak
    Net(net::Args),
}

/// How long the peak is measured.
const PEAK_TIME: Duration = Duration::from_millis(300);

/// Options of every benchmark.
#[derive(Debug, ClapArgs)]
struct Common {
    /// Timed repetitions; the median counts
    #[arg(long, default_value_t = 5, value_name = "N")]
    runs: usize,
    /// Write the rows as JSON too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Measures.
pub(super) fn run(args: &Args) -> Result<(), RunError> {
    match &args.command {
        Command::Ops(args) => ops::run(args),
        Command::Net(args) => net::run(args),
    }
}

/// The middle value; of an even number the lower one.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) / 2]
}
