//! `lockstep score`.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use lockstep::data::Split;
use lockstep::{RunError, ScoreJob, load_weights, score};

use super::winograd::Winograd;
use super::{at_least_one, inputs};

/// Arguments of `lockstep score`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Checkpoint: a directory, or a .safetensors file
    #[arg(long, value_name = "PATH")]
    checkpoint: PathBuf,
    /// Network that was trained: a name (see `lockstep graph --list`) or a .json file
    #[arg(long, default_value = "lenet", value_name = "NAME|FILE.json")]
    net: String,
    /// Data: mnist (bundled), mnist:DIRECTORY or synthetic
    #[arg(long, default_value = "mnist")]
    data: String,
    /// Score the training samples instead of the test samples
    #[arg(long)]
    on_train: bool,
    /// Samples scored at once
    #[arg(long, default_value_t = 64, value_name = "B")]
    batch: usize,
    /// Compute threads [default: by cores]
    #[arg(long, value_name = "W")]
    workers: Option<usize>,
    #[command(flatten)]
    winograd: Winograd,
    /// Seed of synthetic data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object instead of a sentence
    #[arg(long)]
    json: bool,
}

/// Scores a checkpoint.
pub(super) fn run(args: &Args) -> Result<(), RunError> {
    at_least_one(&[("--batch", Some(args.batch)), ("--workers", args.workers)])?;
    let network = inputs::network(&args.net)?;
    let split = if args.on_train { Split::Train } else { Split::Test };
    let score = score(&ScoreJob {
        data: inputs::dataset(&args.data, split, &network, args.seed)?,
        weights: load_weights(&args.checkpoint)?,
        weights_path: args.checkpoint.clone(),
        network,
        minibatch: args.batch,
        workers: args.workers,
        isa: inputs::isa()?,
        winograd: args.winograd.of_plan(),
    })?;
    if args.json {
        let object = serde_json::json!({
            "kind": "eval",
            "loss": score.loss,
            "top1": score.top1(),
            "correct": score.correct,
            "samples": score.samples,
            "samples_per_s": score.samples_per_s,
        });
        say!("{object}");
    } else {
        say!(
            "loss {:.4}, accuracy {:.2} % ({} of {}), {:.0} samples/s",
            score.loss,
            100.0 * score.top1(),
            score.correct,
            score.samples,
            score.samples_per_s
        );
    }
    Ok(())
}
