//! `cargo xtask soak`: starts a job of one step again and again; every start must end cleanly.
//!
//! Starting and leaving a job is where ranks can miss each other: one initializes late, one has left when another still
//! writes to it. One start shows nothing; hundreds do.

use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args as ClapArgs;

use crate::failure::Failure;
use crate::launchers::Launcher;
use crate::steps::{root, say};

/// Arguments of `cargo xtask soak`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Starts by each launcher
    #[arg(long, default_value_t = 200)]
    starts: usize,
    /// Ranks, by turns
    #[arg(long, value_delimiter = ',', default_value = "2,3,4,5")]
    ranks: Vec<usize>,
    /// Who starts the ranks [default: those that are installed]
    #[arg(long, value_delimiter = ',', value_enum)]
    launcher: Vec<Launcher>,
    /// A start that takes longer has failed, in seconds
    #[arg(long, default_value_t = 60)]
    limit: u64,
}

/// The job: whatever a longer one does at its start and at its end.
const JOB: [&str; 9] = [
    "train",
    "--net=lenet",
    "--data=synthetic",
    "--batch=13",
    "--steps=1",
    "--workers=1",
    "--no-eval",
    "--seed=3",
    "--lr=0.01",
];

/// Starts, and says how it went.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    Launcher::chosen(&args.launcher).into_iter().try_for_each(|launcher| soak(args, launcher))
}

fn soak(args: &Args, launcher: Launcher) -> Result<(), Failure> {
    let program = launcher.build()?;
    let mut times = Vec::new();
    for (start, &ranks) in (1..=args.starts).zip(args.ranks.iter().cycle()) {
        let time =
            one_start(args.limit, &launcher.command(&program, ranks, &JOB)).map_err(|problem| {
                Failure::Output {
                    program: format!("start {start} of {}, {ranks} ranks", launcher.name()),
                    problem,
                }
            })?;
        times.push(time);
    }
    times.sort_unstable();
    if let (Some(middle), Some(longest)) = (times.get(times.len() / 2), times.last()) {
        say(&format!(
            "{}: {} starts of {:?} ranks by turns all ended cleanly, each in {:.2} s (median; at most {:.2} s)",
            launcher.name(),
            times.len(),
            args.ranks,
            middle.as_secs_f64(),
            longest.as_secs_f64()
        ));
    }
    Ok(())
}

/// The time of one start; else what went wrong, with all that was printed.
fn one_start(limit: u64, job: &Command) -> Result<Duration, String> {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", &limit.to_string()]);
    command.arg(job.get_program()).args(job.get_args()).current_dir(root());
    let began = Instant::now();
    let output = command.output().map_err(|source| format!("cannot start timeout: {source}"))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let status = output.status;
        return Err(format!("{status} (124 is the limit of {limit} s)\n{printed}{complaints}"));
    }
    // A rank that lost its peers but not its exit code would show here.
    if complaints.contains("error") {
        return Err(format!("it complained\n{printed}{complaints}"));
    }
    Ok(began.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_that_fails_or_hangs_or_complains_is_reported() {
        let mut shell = Command::new("sh");
        assert!(one_start(60, shell.args(["-c", "true"])).is_ok());
        let problem = |script: &str, limit| {
            one_start(limit, Command::new("sh").args(["-c", script])).unwrap_err()
        };
        assert!(problem("echo rank 3 left; exit 7", 60).contains("rank 3 left"));
        assert!(problem("sleep 30", 1).contains("124"));
        assert!(problem("echo error: gone >&2", 60).contains("it complained"));
    }
}
