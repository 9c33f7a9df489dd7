//! `cargo xtask race`: Lockstep against PyTorch, run by turns, so that a busy machine slows both.

mod ddp;
mod layers;
mod mnist;
mod nets;
mod programs;
mod turns;

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};

use crate::failure::Failure;
use crate::steps::{cargo, step};

/// Arguments of `cargo xtask race`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    #[command(subcommand)]
    race: Race,
}

#[derive(Debug, Subcommand)]
enum Race {
    /// Training LeNet on MNIST: network, data, schedule and accuracy
    Mnist(mnist::Args),
    /// Throughput and memory of networks, training and scoring
    Nets(nets::Args),
    /// GFLOP/s of single layers, pass by pass
    Layers(layers::Args),
    /// Training on two hosts with a slow link between them, against DistributedDataParallel (root, Open MPI)
    Ddp(ddp::Args),
}

/// What every race takes.
#[derive(Debug, ClapArgs)]
struct Common {
    /// A Python with PyTorch (see benches/peers/README.md)
    #[arg(long, value_name = "FILE")]
    python: PathBuf,
    /// Runs of each, by turns
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Compute threads of each
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

/// Races and prints the result.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let features = if matches!(args.race, Race::Ddp(_)) { " --features mpi" } else { "" };
    step("build", &mut cargo(&format!("build --release --bin lockstep{features}")))?;
    match &args.race {
        Race::Mnist(args) => mnist::run(args),
        Race::Nets(args) => nets::run(args),
        Race::Layers(args) => layers::run(args),
        Race::Ddp(args) => ddp::run(args),
    }
}
