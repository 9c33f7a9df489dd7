//! `cargo xtask soak`: starts a job of one step again and again; every start must end cleanly.
//!
//! Starting and leaving a job is where ranks can miss each other: one initializes late, one has left when another still
//! writes to it. One start shows nothing; hundreds do.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::{Args as ClapArgs, ValueEnum};

use crate::failure::Failure;
use crate::steps::{cargo, root, say, step, target_directory};

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

/// What starts ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Launcher {
    /// One process whose threads are the ranks
    InProcess,
    /// Open MPI's mpirun
    Openmpi,
    /// MPICH's mpirun
    Mpich,
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

impl Launcher {
    const ALL: [Self; 3] = [Self::InProcess, Self::Openmpi, Self::Mpich];

    fn name(self) -> &'static str {
        match self {
            Self::InProcess => "in process",
            Self::Openmpi => "Open MPI",
            Self::Mpich => "MPICH",
        }
    }

    /// What Debian calls this MPI; none for in-process ranks.
    fn suffix(self) -> Option<&'static str> {
        match self {
            Self::InProcess => None,
            Self::Openmpi => Some("openmpi"),
            Self::Mpich => Some("mpich"),
        }
    }

    fn is_installed(self) -> bool {
        let Some(suffix) = self.suffix() else { return true };
        let there = |program: String| Command::new(program).arg("--version").output().is_ok();
        there(format!("mpirun.{suffix}")) && there(format!("mpicc.{suffix}"))
    }

    /// Builds for this launcher, in a directory of its own: the bindings are to one MPI.
    fn build(self) -> Result<PathBuf, Failure> {
        let mut directory = target_directory();
        let mut build = cargo("build --release --bin lockstep");
        if let Some(suffix) = self.suffix() {
            directory.push(suffix);
            build.args(["--features", "mpi"]).env("MPICC", format!("mpicc.{suffix}"));
        }
        build.env("CARGO_TARGET_DIR", &directory);
        step(&format!("build for {}", self.name()), &mut build)?;
        Ok(directory.join("release/lockstep"))
    }

    /// The job on some ranks.
    fn command(self, program: &Path, ranks: usize) -> Command {
        match self.suffix() {
            None => {
                let mut command = Command::new(program);
                command.args(JOB).arg(format!("--ranks={ranks}"));
                command
            }
            Some(suffix) => {
                let mut command = Command::new(format!("mpirun.{suffix}"));
                if self == Self::Openmpi {
                    command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
                }
                command.args(["-n", &ranks.to_string()]).arg(program).args(JOB);
                command
            }
        }
    }
}

/// Starts, and says how it went.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let asked = !args.launcher.is_empty();
    for launcher in Launcher::ALL {
        if asked && !args.launcher.contains(&launcher) {
            continue;
        }
        if !asked && !launcher.is_installed() {
            say(&format!("-- {}: left out, it is not installed", launcher.name()));
            continue;
        }
        soak(args, launcher)?;
    }
    Ok(())
}

fn soak(args: &Args, launcher: Launcher) -> Result<(), Failure> {
    let program = launcher.build()?;
    let mut times = Vec::new();
    for (start, &ranks) in (1..=args.starts).zip(args.ranks.iter().cycle()) {
        let time =
            one_start(args.limit, &launcher.command(&program, ranks)).map_err(|problem| {
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

    #[test]
    fn ranks_are_started_by_their_launcher() {
        let words = |launcher: Launcher| {
            let command = launcher.command(Path::new("lockstep"), 3);
            let program = command.get_program().to_string_lossy().into_owned();
            let arguments = command.get_args().map(|word| word.to_string_lossy().into_owned());
            (program, arguments.collect::<Vec<_>>().join(" "))
        };
        let (program, arguments) = words(Launcher::InProcess);
        assert_eq!(program, "lockstep");
        assert!(arguments.ends_with("--ranks=3"), "{arguments}");
        let (program, arguments) = words(Launcher::Mpich);
        assert_eq!(program, "mpirun.mpich");
        assert!(arguments.starts_with("-n 3 lockstep train"), "{arguments}");
    }
}
