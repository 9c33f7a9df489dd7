//! `cargo xtask race`: `lockstep train` against PyTorch, run by turns, so that a busy machine slows both.

mod peer;
mod own;
mod table;

use std::path::PathBuf;

use clap::Args as ClapArgs;
use serde_json::Value;

use crate::failure::Failure;
use crate::steps::{cargo, say, step};

/// Samples that both train on: MNIST's training images.
const SAMPLES: usize = 60_000;

/// Arguments of `cargo xtask race`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// A Python with PyTorch (see benches/peers/README.md)
    #[arg(long, value_name = "FILE")]
    python: PathBuf,
    /// Runs of each, by turns
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Epochs a run
    #[arg(long, default_value_t = 3)]
    epochs: usize,
    /// Samples of a minibatch
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Compute threads of each
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

/// One epoch of one program.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Epoch {
    /// Training time, without scoring.
    seconds: f64,
    /// Accuracy on the test images after it.
    top1: f64,
}

/// Races and prints the result.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    step("build", &mut cargo("build --release --bin lockstep"))?;
    let mut pairs = Vec::new();
    for run in 1..=args.runs {
        // Who begins changes, so that neither always finds the machine as the other left it.
        let (own, peer) = if run % 2 == 1 {
            let own = own::run(args)?;
            (own, peer::run(args)?)
        } else {
            let peer = peer::run(args)?;
            (own::run(args)?, peer)
        };
        say(&table::run_line(run, &own, &peer));
        pairs.push((own, peer));
    }
    say(&table::summary(&pairs));
    Ok(())
}

/// The JSON lines of a text; other lines are for people.
fn json_lines(text: &str) -> impl Iterator<Item = Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok())
}

/// A number of a JSON object.
fn number(object: &Value, key: &str, program: &str) -> Result<f64, Failure> {
    object[key].as_f64().ok_or_else(|| Failure::Output {
        program: program.to_owned(),
        problem: format!("no number {key} in {object}"),
    })
}

/// The wanted number of epochs, or what is wrong.
fn complete(epochs: Vec<Epoch>, args: &Args, program: &str) -> Result<Vec<Epoch>, Failure> {
    if epochs.len() == args.epochs {
        return Ok(epochs);
    }
    Err(Failure::Output {
        program: program.to_owned(),
        problem: format!("reported {} epochs of {}", epochs.len(), args.epochs),
    })
}
