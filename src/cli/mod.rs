//! The command line: one file a subcommand.

#[macro_use]
mod output;
mod bench;
mod console;
mod exchanges;
mod graph;
mod info;
mod inputs;
mod metrics;
mod plan;
mod reproducible;
mod resident;
mod score;
mod sharing;
mod signals;
mod steps;
mod trace;
mod train;
mod winograd;

use std::fmt::Display;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lockstep::RunError;

/// Synchronous-SGD training of neural networks on CPU clusters.
#[derive(Debug, Parser)]
#[command(name = "lockstep", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Train a network; without flags LeNet, on the bundled MNIST
    Train(Box<train::Args>),
    /// Score a checkpoint on a data set
    Score(score::Args),
    /// Print a network or its task graph
    Graph(graph::Args),
    /// Print how a network's layers will be shared and cut, and how long that should take
    Plan(plan::Args),
    /// Tell what this machine has, and what a run would choose
    Info(info::Args),
    /// Measure kernels and networks against this machine's own peak
    Bench(bench::Args),
    /// Check a trace, or merge the traces of several ranks
    Trace(trace::Args),
}

/// Runs the program; its exit code is 0, 1 for a failed run, 2 for a wrong request, 143 when it was asked to stop.
pub(crate) fn run() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Train(args) => train::run(&args),
        Command::Score(args) => score::run(&args),
        Command::Graph(args) => graph::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Trace(args) => trace::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::error(None, &error);
            ExitCode::from(error.exit_code())
        }
    }
}

/// A value of a flag that cannot work.
fn bad_flag(flag: &'static str, value: &dyn Display, reason: impl Into<String>) -> RunError {
    RunError::Flag { flag, value: value.to_string(), reason: reason.into() }
}

/// Refuses a count that was given as 0.
fn at_least_one(counts: &[(&'static str, Option<usize>)]) -> Result<(), RunError> {
    match counts.iter().find(|(_, value)| *value == Some(0)) {
        Some((flag, _)) => Err(bad_flag(flag, &0, "must be at least 1")),
        None => Ok(()),
    }
}
