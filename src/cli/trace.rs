//! `lockstep trace`: merge the ranks' traces, check a trace.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use lockstep::RunError;
use lockstep::traces::{check, merge, recover};

/// Arguments of `lockstep trace`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check a trace: whole, nested, and whether communication overlaps computation
    Check {
        /// A merged trace, or one rank's
        file: PathBuf,
        /// Fail unless part-reduces overlap the backward pass and part-broadcasts the next forward pass
        #[arg(long)]
        overlap: bool,
    },
    /// Merge the files of several ranks into one, on one clock
    Merge {
        /// The merged file
        #[arg(long, short)]
        output: PathBuf,
        /// The ranks' files; of a rank that was killed, the .raw file that it left
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

/// Merges or checks.
pub(super) fn run(args: &Args) -> Result<(), RunError> {
    match &args.command {
        Command::Check { file, overlap } => {
            let report = check(file)?;
            say!("{report}");
            let overlaps = report.reduces_overlap_backward() && report.broadcasts_overlap_forward();
            if !report.ok() || (*overlap && !overlaps) {
                return Err(RunError::TraceCheck { path: file.clone() });
            }
        }
        Command::Merge { output, files } => {
            let mut whole = Vec::new();
            for file in files {
                let raw = file.extension().is_some_and(|extension| extension == "raw");
                whole.push(if raw { recover(file)? } else { file.clone() });
            }
            merge(&whole, output)?;
            say!("merged {} file(s) into {}", files.len(), output.display());
        }
    }
    Ok(())
}
