//! Merges the files of all ranks into one trace on one clock.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::chrome::{self, ChromeWriter, OtherData, Phase};
use crate::error::TraceError;
use crate::header::Header;
use crate::output::WholeFile;

/// What a merge has put together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeSummary {
    /// The ranks in the merged file, in order.
    pub ranks: Vec<usize>,
    /// Ranks of the job whose file was not given.
    pub missing: Vec<usize>,
    /// Events in the merged file, names included.
    pub n_events: u64,
    /// Recorded lines that were damaged, and so are missing.
    pub lost_lines: u64,
    /// From the first event of any rank to the last, in nanoseconds.
    pub span_ns: i64,
}

/// One rank's file, looked through once.
struct RankFile<'a> {
    path: &'a Path,
    header: Header,
}

/// Merges the files that ranks wrote into `out`, on the clock of rank 0.
///
/// Each rank becomes a process (pid = rank, named `rank 0 (host)`). The earliest event of all is
/// time 0. Reads each file twice, and holds one event in memory at a time.
///
/// # Errors
///
/// If there is no file; if one cannot be read, is no trace or not that of one rank; if a rank comes
/// twice; if `out` cannot be written.
pub fn merge(rank_files: &[PathBuf], out: &Path) -> Result<MergeSummary, TraceError> {
    let mut files: BTreeMap<usize, RankFile<'_>> = BTreeMap::new();
    let mut range: Option<(i64, i64)> = None;
    let mut lost_lines = 0;
    for path in rank_files {
        let mut own: Option<(i64, i64)> = None;
        let other_data = chrome::read(path, |event| {
            if let Some(start) = event.ts {
                own = Some(cover(own, start, start + event.dur.unwrap_or(0)));
            }
        })?;
        lost_lines += other_data.lost_lines;
        let header = one_rank(path, other_data)?;
        if let Some((start, end)) = own {
            let origin = header.origin_on_rank_0();
            range = Some(cover(range, origin + start, origin + end));
        }
        let rank = header.rank;
        if let Some(first) = files.insert(rank, RankFile { path, header }) {
            let (first, second) = (first.path.to_owned(), path.clone());
            return Err(TraceError::DuplicateRank { rank, first, second });
        }
    }
    let Some(n_ranks) = files.values().map(|file| file.header.n_ranks).max() else {
        return Err(TraceError::NothingToMerge { out: out.to_owned() });
    };
    let (start, end) = range.unwrap_or_default();
    let n_events = write(&files, start, lost_lines, out)?;
    Ok(MergeSummary {
        ranks: files.keys().copied().collect(),
        missing: (0..n_ranks).filter(|rank| !files.contains_key(rank)).collect(),
        n_events,
        lost_lines,
        span_ns: end - start,
    })
}

/// Writes all files' events, with times relative to `start_ns` of rank 0's clock.
fn write(
    files: &BTreeMap<usize, RankFile<'_>>,
    start_ns: i64,
    lost_lines: u64,
    out: &Path,
) -> Result<u64, TraceError> {
    let whole = WholeFile::create(out)?;
    let mut writer = ChromeWriter::begin(whole).map_err(TraceError::writing(out))?;
    let mut n_events = 0;
    for file in files.values() {
        let shift = file.header.origin_on_rank_0() - start_ns;
        // The reader goes on to the end of the file after a failed write; only the first matters.
        let mut written = Ok(());
        chrome::read(file.path, |mut event| {
            if written.is_err() || event.ph == Phase::Foreign {
                return;
            }
            event.pid = file.header.rank as u64;
            event.ts = event.ts.map(|ts| ts + shift);
            n_events += 1;
            written = writer.event(&event);
        })?;
        written.map_err(TraceError::writing(out))?;
    }
    let ranks = files.values().map(|file| file.header.clone()).collect();
    let mut whole =
        writer.end(&OtherData { ranks, lost_lines }).map_err(TraceError::writing(out))?;
    whole.flush().map_err(TraceError::writing(out))?;
    whole.commit()?;
    Ok(n_events)
}

/// The header of a file that must hold one rank.
fn one_rank(path: &Path, mut other_data: OtherData) -> Result<Header, TraceError> {
    match (other_data.ranks.pop(), other_data.ranks.len()) {
        (Some(header), 0) => Ok(header),
        (last, before) => Err(TraceError::NotOneRank {
            path: path.to_owned(),
            n_ranks: before + usize::from(last.is_some()),
        }),
    }
}

/// The range that covers another one too.
fn cover(range: Option<(i64, i64)>, start: i64, end: i64) -> (i64, i64) {
    range.map_or((start, end), |(from, to)| (from.min(start), to.max(end)))
}

#[cfg(test)]
mod tests;
