//! `cargo xtask agree`: every strategy on every number of ranks gives the losses of one rank.
//!
//! The tests of `tests/strategies.rs` and `tests/mpi.rs` do this for small networks; here are all networks, strategies, numbers of
//! ranks and launchers, with the largest difference of each.

use std::fs;
use std::path::Path;
use std::process::Command;

use clap::Args as ClapArgs;
use serde_json::Value;

use crate::failure::Failure;
use crate::launchers::Launcher;
use crate::steps::{root, say};

/// Networks, and the samples of a minibatch.
const NETS: [(&str, usize); 5] =
    [("lenet", 13), ("small-vgg", 13), ("small-resnet", 13), ("mlp", 130), ("alexnet", 13)];

const STRATEGIES: [&str; 4] = ["data", "model", "G=2", "auto"];

/// Losses may differ by so much of the one rank's. Rounding alone makes some 1e-8 in ten steps, and a maximum or a rectifier that falls
/// the other way by it up to 1e-5 at once, under any strategy: one seed in a few does.
const TOLERANCE: f64 = 1e-5;

/// Arguments of `cargo xtask agree`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Networks [default: all]
    #[arg(long, value_delimiter = ',', value_parser = NETS.map(|(net, _)| net))]
    net: Vec<String>,
    /// Numbers of ranks
    #[arg(long, value_delimiter = ',', default_value = "1,2,3,4,5,8")]
    ranks: Vec<usize>,
    /// Who starts the ranks [default: those that are installed]
    #[arg(long, value_delimiter = ',', value_enum)]
    launcher: Vec<Launcher>,
    /// Steps of a run
    #[arg(long, default_value_t = 10)]
    steps: usize,
    /// A run that takes longer has failed, in seconds
    #[arg(long, default_value_t = 600)]
    limit: u64,
}

/// Runs all, and says how far apart they were.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    for launcher in Launcher::chosen(&args.launcher) {
        let program = launcher.build()?;
        for (net, batch) in NETS {
            if args.net.is_empty() || args.net.iter().any(|wanted| wanted == net) {
                agree(args, launcher, &program, (net, batch))?;
            }
        }
    }
    Ok(())
}

fn agree(
    args: &Args,
    launcher: Launcher,
    program: &Path,
    (net, batch): (&str, usize),
) -> Result<(), Failure> {
    let losses = |ranks: usize, strategy: &str| {
        let (net, batch) = (format!("--net={net}"), format!("--batch={batch}"));
        let (steps, strategy) =
            (format!("--steps={}", args.steps), format!("--strategy={strategy}"));
        let job = ["train", &net, "--data=synthetic", &batch, &steps, &strategy, "--lr=0.01"];
        let run = || {
            losses(args.limit, |more| launcher.command(program, ranks, &[&job[..], &more].concat()))
        };
        run().map_err(|problem| Failure::Output {
            program: format!("{net} on {ranks} ranks ({}), {strategy}", launcher.name()),
            problem,
        })
    };
    let alone = losses(1, "data")?;
    for &ranks in &args.ranks {
        for strategy in STRATEGIES {
            let apart = difference(&losses(ranks, strategy)?, &alone);
            say(&format!(
                "{:<10} {net:<12} {ranks} ranks  {strategy:<6} largest relative difference of {} losses {apart:.1e}",
                launcher.name(),
                alone.len()
            ));
            if apart.is_nan() || apart > TOLERANCE {
                let (program, problem) = (
                    format!("{net} on {ranks} ranks ({}), {strategy}", launcher.name()),
                    format!("losses differ from one rank's by {apart:.1e}"),
                );
                return Err(Failure::Output { program, problem });
            }
        }
    }
    Ok(())
}

/// The losses of a job's steps.
fn losses(limit: u64, job: impl FnOnce([&str; 3]) -> Command) -> Result<Vec<f64>, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = folder.path().join("metrics.jsonl");
    let metrics = format!("--metrics={}", file.display());
    let job = job(["--no-eval", "--workers=1", &metrics]);
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", &limit.to_string()]);
    command.arg(job.get_program()).args(job.get_args()).current_dir(root());
    let output = command.output().map_err(|source| format!("cannot start timeout: {source}"))?;
    if !output.status.success() {
        let complaints = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} (124 is the limit of {limit} s)\n{complaints}", output.status));
    }
    let text = fs::read_to_string(&file).map_err(|error| error.to_string())?;
    let line = |line: &str| serde_json::from_str::<Value>(line).map_err(|error| error.to_string());
    let lines = text.lines().map(line).collect::<Result<Vec<_>, _>>()?;
    let steps = lines.iter().filter(|line| line["kind"] == "step");
    Ok(steps.filter_map(|step| step["loss"].as_f64()).collect())
}

/// The largest relative difference; not a number where there are not as many.
fn difference(got: &[f64], expected: &[f64]) -> f64 {
    if got.len() != expected.len() || expected.is_empty() {
        return f64::NAN;
    }
    let apart = got.iter().zip(expected).map(|(a, b)| (a - b).abs() / b.abs());
    apart.fold(0.0, |most, apart| if apart > most || apart.is_nan() { apart } else { most })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_relative_and_missing_losses_are_none() {
        assert_eq!(difference(&[2.0, 4.0], &[2.0, 5.0]), 0.2);
        assert!(difference(&[2.0], &[2.0, 5.0]).is_nan());
        assert!(difference(&[f64::NAN, 1.0], &[2.0, 1.0]).is_nan());
        assert!(difference(&[], &[]).is_nan());
    }

    #[test]
    fn the_losses_of_a_job_are_those_of_its_steps() {
        let script = |more: [&str; 3]| {
            let path = more[2].strip_prefix("--metrics=").unwrap_or_default();
            let text = r#"{"kind":"step","loss":2.5}\n{"kind":"eval","loss":9}\n{"kind":"step","loss":2}\n"#;
            let mut command = Command::new("sh");
            command.args(["-c", &format!("printf '{text}' > {path}")]);
            command
        };
        assert_eq!(losses(60, script).unwrap(), [2.5, 2.0]);
        let fails = |_: [&str; 3]| {
            let mut command = Command::new("sh");
            command.args(["-c", "echo rank 1 left >&2; exit 3"]);
            command
        };
        assert!(losses(60, fails).unwrap_err().contains("rank 1 left"));
    }
}
