//! Why a command of the project did not end well.

use std::fmt;
use std::io;
use std::process::ExitStatus;

/// What went wrong, for one line on the terminal.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A program could not be started.
    Start { program: String, source: io::Error },
    /// A step ran and failed.
    Step { name: String, status: ExitStatus },
    /// A file or directory could not be read.
    Io { what: String, source: io::Error },
    /// A program's output is not what it should be.
    Output { program: String, problem: String },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start { program, source } => write!(f, "cannot start {program}: {source}"),
            Self::Step { name, status } => write!(f, "{name} failed ({status})"),
            Self::Io { what, source } => write!(f, "cannot read {what}: {source}"),
            Self::Output { program, problem } => write!(f, "{program}: {problem}"),
        }
    }
}
