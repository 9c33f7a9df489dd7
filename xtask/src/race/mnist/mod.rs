//! `cargo xtask race mnist`: `lockstep train` and PyTorch train the same network on the same data by the same schedule.

mod peer;
mod own;
mod table;

use clap::Args as ClapArgs;

use super::Common;
use super::turns::by_turns;
use crate::failure::Failure;
use crate::steps::say;

/// Samples that both train on: MNIST's training images.
const SAMPLES: usize = 60_000;

/// Arguments of `cargo xtask race mnist`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
    /// Epochs a run
    #[arg(long, default_value_t = 3)]
    epochs: usize,
    /// Samples of a minibatch
    #[arg(long, default_value_t = 64)]
    batch: usize,
}

/// One epoch of one program.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Epoch {
    /// Training time, without scoring.
    seconds: f64,
    /// Accuracy on the test images after it.
    top1: f64,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let pairs = by_turns(args.common.runs, || own::run(args), || peer::run(args))?;
    for (run, (own, peer)) in pairs.iter().enumerate() {
        say(&table::run_line(run + 1, own, peer));
    }
    say(&table::summary(&pairs));
    Ok(())
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
