//! `lockstep bench`: kernels, networks and exchanges measured against this machine's own peak and MPI's own, taken in the same run.

mod accuracy;
mod comm;
mod layers;
mod net;
mod ops;
mod passes;
mod rows;
mod sched;
mod shares;
mod yardstick;

use std::path::PathBuf;

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
    /// Passes of single layers: GFLOP/s, the fraction of peak and of the roofline
    Ops(ops::Args),
    /// Whole networks: samples a second, GFLOP/s, the fraction of peak, and where the workers' time goes
    Net(net::Args),
    /// Exchanges between ranks: latency, bandwidth, the algorithms, how soon an urgent one overtakes; beside MPI's own
    Comm(comm::Args),
    /// What it costs to hand out blocks and tasks, beside rayon and a plain loop over deques
    Sched(sched::Args),
}

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
        Command::Comm(args) => comm::run(args),
        Command::Sched(args) => sched::run(args),
    }
}

/// The middle value; of an even number the lower one.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) / 2]
}
