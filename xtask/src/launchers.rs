//! What starts the ranks of a job, and the build that each of them needs.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;

use crate::failure::Failure;
use crate::steps::{cargo, say, step, target_directory};

/// What starts ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Launcher {
    /// One process whose threads are the ranks
    InProcess,
    /// Open MPI's mpirun
    Openmpi,
    /// MPICH's mpirun
    Mpich,
}

impl Launcher {
    pub(crate) const ALL: [Self; 3] = [Self::InProcess, Self::Openmpi, Self::Mpich];

    pub(crate) fn name(self) -> &'static str {
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
    pub(crate) fn build(self) -> Result<PathBuf, Failure> {
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

    /// A job on some ranks: arguments of the program.
    pub(crate) fn command(self, program: &Path, ranks: usize, job: &[&str]) -> Command {
        match self.suffix() {
            None => {
                let mut command = Command::new(program);
                command.args(job).arg(format!("--ranks={ranks}"));
                command
            }
            Some(suffix) => {
                let mut command = Command::new(format!("mpirun.{suffix}"));
                if self == Self::Openmpi {
                    command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
                }
                command.args(["-n", &ranks.to_string()]).arg(program).args(job);
                command
            }
        }
    }

    /// Those that were asked for, or all that are installed; says which are left out.
    pub(crate) fn chosen(asked: &[Self]) -> Vec<Self> {
        let chosen = |launcher: &Self| {
            if !asked.is_empty() {
                return asked.contains(launcher);
            }
            let installed = launcher.is_installed();
            if !installed {
                say(&format!("-- {}: left out, it is not installed", launcher.name()));
            }
            installed
        };
        Self::ALL.into_iter().filter(chosen).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_started_by_their_launcher() {
        let words = |launcher: Launcher| {
            let command = launcher.command(Path::new("lockstep"), 3, &["train", "--steps=1"]);
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
