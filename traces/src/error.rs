//! Why a trace could not be recorded, merged or checked.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a trace could not be recorded, merged or checked.
///
/// Cloneable, because a recording that failed to finish gives the same answer to everyone who asks
/// it to finish again.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The trace is to be written to a path that is a folder. Name a file in it.
    #[error(
        "cannot write the trace to {path}: it is a folder; name a file, such as {path}/trace.json"
    )]
    IsFolder {
        /// The path as given.
        path: PathBuf,
    },
    /// A path without a file name, such as `/` or `..`. Name a file.
    #[error("cannot write the trace to {path}: the path names no file")]
    NoFileName {
        /// The path as given.
        path: PathBuf,
    },
    /// The operating system refused to create or write a file. Check its folder's rights and space.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file that could not be written.
        path: PathBuf,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// The operating system refused to open or read a file.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file that could not be read.
        path: PathBuf,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// The file is no Chrome trace: no JSON, cut short, or of another shape.
    #[error("{path} is not a valid trace: {source}")]
    Invalid {
        /// The file that was read.
        path: PathBuf,
        /// Where and why parsing stopped.
        source: Arc<serde_json::Error>,
    },
    /// A valid trace that carries no single rank's header, so it cannot be placed on the common clock.
    #[error(
        "{path} holds {n_ranks} ranks, expected one: merge takes the files that each rank wrote (FILE.rank0.json ..)"
    )]
    NotOneRank {
        /// The file that was read.
        path: PathBuf,
        /// How many ranks its header lists (0 for a trace of another program).
        n_ranks: usize,
    },
    /// Two files to be merged come from the same rank. Pass each rank's file once, of one run.
    #[error("rank {rank} comes twice: in {first} and in {second}")]
    DuplicateRank {
        /// The rank that came twice.
        rank: usize,
        /// The file it came from first.
        first: PathBuf,
        /// The file it came from again.
        second: PathBuf,
    },
    /// There was no file to merge.
    #[error("no rank files to merge into {out}")]
    NothingToMerge {
        /// The file that was to be written.
        out: PathBuf,
    },
    /// The thread that writes recorded events has made no progress for a while. What it had written
    /// so far is in the raw file; `recover` turns that into a trace.
    #[error("the trace writer is stuck; what it has written so far is in {raw}")]
    Stalled {
        /// The raw file with what was written.
        raw: PathBuf,
    },
}

impl TraceError {
    /// Binds an error of the operating system to the file that was being written.
    pub(crate) fn writing(path: &Path) -> impl FnOnce(io::Error) -> TraceError {
        move |source| TraceError::Write { path: path.to_owned(), source: Arc::new(source) }
    }

    /// Binds an error of the operating system to the file that was being read.
    pub(crate) fn reading(path: &Path) -> impl FnOnce(io::Error) -> TraceError {
        move |source| TraceError::Read { path: path.to_owned(), source: Arc::new(source) }
    }

    /// Binds a parser's error to its file. A failing disk is reported as such, not as bad JSON.
    pub(crate) fn parsing(path: &Path) -> impl FnOnce(serde_json::Error) -> TraceError {
        move |source| {
            if source.is_io() {
                return TraceError::reading(path)(source.into());
            }
            TraceError::Invalid { path: path.to_owned(), source: Arc::new(source) }
        }
    }
}
