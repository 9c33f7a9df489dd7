//! Tells whether a trace is sound, and whether communication was hidden behind computation.

mod tables;
mod nesting;
mod overlap;
mod busy;
mod problem;
mod report;

use std::path::{Path, PathBuf};

use crate::chrome;
use crate::error::TraceError;

use tables::Tables;

pub use busy::BusyShare;
pub use overlap::{BroadcastCover, StepOverlap};
pub use problem::Problem;

/// How many problems a report lists; the rest are counted.
const MAX_LISTED: usize = 20;

/// What a trace shows. Prints as a table.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckReport {
    /// The file that was read.
    pub path: PathBuf,
    /// Processes (ranks) that have events or a name.
    pub n_processes: usize,
    /// Threads that have slices or a name.
    pub n_threads: usize,
    /// Slices on threads.
    pub n_slices: usize,
    /// Exchanges (asynchronous slices).
    pub n_exchanges: usize,
    /// From the first event to the last, in nanoseconds.
    pub span_ns: i64,
    /// The first problems found, at most twenty.
    pub problems: Vec<Problem>,
    /// How many problems there are in all.
    pub n_problems: usize,
    /// What overlapped, for each rank and step, in that order.
    pub steps: Vec<StepOverlap>,
    /// How busy each worker was, by rank and number.
    pub busy: Vec<BusyShare>,
}

impl CheckReport {
    /// Whether the trace is sound: every process and thread named, slices nested on every thread,
    /// no negative times, every exchange whole.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.n_problems == 0
    }

    /// Whether in some step of every rank the first part-reduce was submitted before the last
    /// backward task ended. False if there was no part-reduce.
    #[must_use]
    pub fn reduces_overlap_backward(&self) -> bool {
        self.in_every_rank(|step| step.reduce_lead_ns.is_some_and(|lead| lead > 0))
    }

    /// Whether in some step of every rank a part-broadcast was still open while an earlier layer's
    /// forward task of the next step ran.
    #[must_use]
    pub fn broadcasts_overlap_forward(&self) -> bool {
        self.in_every_rank(|step| step.broadcast_cover.is_some())
    }

    fn in_every_rank(&self, holds: impl Fn(&StepOverlap) -> bool) -> bool {
        let mut of_ranks = self.steps.chunk_by(|a, b| a.rank == b.rank).peekable();
        of_ranks.peek().is_some() && of_ranks.all(|steps| steps.iter().any(&holds))
    }
}

/// Reads a trace and checks it. Takes memory in proportion to the number of slices.
///
/// # Errors
///
/// If the file cannot be read or is no Chrome trace. All else that is wrong is in the report.
pub fn check(path: &Path) -> Result<CheckReport, TraceError> {
    let mut tables = Tables::default();
    chrome::read(path, |event| tables.add(&event))?;
    tables.finish();
    for (&thread, row) in &mut tables.threads {
        nesting::check(thread, &mut row.slices, &tables.names, &mut tables.problems);
    }
    let Tables { names, threads, exchanges, mut problems, processes, range, .. } = tables;
    let n_problems = problems.len();
    problems.truncate(MAX_LISTED);
    Ok(CheckReport {
        path: path.to_owned(),
        n_processes: processes.len(),
        n_threads: threads.len(),
        n_slices: threads.values().map(|row| row.slices.len()).sum(),
        n_exchanges: exchanges.len(),
        span_ns: range.map_or(0, |range| range.end - range.start),
        problems,
        n_problems,
        steps: overlap::steps(&threads, &exchanges, &names),
        busy: busy::shares(&threads),
    })
}

#[cfg(test)]
mod tests;
