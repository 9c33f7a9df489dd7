//! One rank's recording, from the check of its path to its finished file.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::clock;
use crate::error::TraceError;
use crate::event::Event;
use crate::header::Header;
use crate::recorder::{Recorder, Tap};
use crate::render;
use crate::sink::Sink;

/// How many readings tie tracing-chrome's clock to ours; the one with the least delay counts.
const CLOCK_READINGS: usize = 8;

/// What one rank is to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceConfig {
    /// The merged file, FILE. The rank's own file is named after it: see [`rank_file`].
    pub path: PathBuf,
    /// This rank.
    pub rank: usize,
    /// The number of ranks of the job.
    pub n_ranks: usize,
    /// The name of the host that the rank runs on.
    pub host: String,
    /// The steps to record. It bounds the size of the trace.
    pub steps: Range<u64>,
    /// This rank's [`clock_ns`](crate::clock_ns) minus rank 0's, at one moment. 0 where it was not
    /// measured: right within a host, and as good as the wall clocks agree across hosts.
    pub clock_offset_ns: i64,
}

/// One rank's recording. Dropping it (on an error, on a panic) finishes it.
#[derive(Debug)]
pub struct RankTrace {
    finisher: Finisher,
}

/// Ends a recording from another thread, such as the one that handles SIGTERM. Holding one does not
/// keep the recording open.
#[derive(Debug, Clone)]
pub struct Finisher {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    tap: Arc<Tap>,
    raw: PathBuf,
    rank_file: PathBuf,
    /// How finishing went, once it has been done.
    outcome: Mutex<Option<Result<PathBuf, TraceError>>>,
}

impl RankTrace {
    /// Checks that the trace can be written, makes missing folders, and starts to record.
    ///
    /// # Errors
    ///
    /// If the path is a folder or names no file, or if a file beside it cannot be created.
    pub fn start(config: TraceConfig) -> Result<RankTrace, TraceError> {
        let rank_file = rank_file(&config.path, config.rank);
        check_writable(&config.path)?;
        check_writable(&rank_file)?;
        let raw = raw_file(&config.path, config.rank);
        let mut file = File::create(&raw).map_err(TraceError::writing(&raw))?;
        let header = Header {
            rank: config.rank,
            n_ranks: config.n_ranks,
            host: config.host,
            steps: config.steps.clone(),
            origin_unix_ns: clock::origin_unix_ns(),
            clock_offset_ns: config.clock_offset_ns,
        };
        let line = serde_json::to_string(&header).map_err(io::Error::from);
        line.and_then(|line| writeln!(file, "{line}")).map_err(TraceError::writing(&raw))?;

        let sink = Sink::get();
        let tap = Arc::new(Tap {
            recording: sink.open(file),
            steps: config.steps,
            open: AtomicBool::new(true),
            dispatch: sink.dispatch.clone(),
            backlog: Arc::clone(&sink.backlog),
        });
        for _ in 0..CLOCK_READINGS {
            tap.emit(&Event::Clock { ns: clock::since_origin(Instant::now()) });
        }
        let outcome = Mutex::new(None);
        let shared = Arc::new(Shared { tap, raw, rank_file, outcome });
        Ok(RankTrace { finisher: Finisher { shared } })
    }

    /// The handle that the rank's threads record with.
    #[must_use]
    pub fn recorder(&self) -> Recorder {
        Recorder::new(Arc::clone(&self.finisher.shared.tap))
    }

    /// A handle that ends this recording from elsewhere.
    #[must_use]
    pub fn finisher(&self) -> Finisher {
        self.finisher.clone()
    }

    /// Ends the recording and writes the rank's file; gives its path. Finishing again gives the
    /// same answer and does nothing.
    ///
    /// # Errors
    ///
    /// If a file could not be written, for want of space say.
    pub fn finish(&self) -> Result<PathBuf, TraceError> {
        self.finisher.finish()
    }
}

impl Drop for RankTrace {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            // Whoever wants to handle it calls `finish`; here it may be unwinding.
            tracing::error!("{error}");
        }
    }
}

impl Finisher {
    /// As [`RankTrace::finish`]. Slices that threads have under way at this moment are closed at the
    /// time of the last event and marked `unfinished`.
    ///
    /// # Errors
    ///
    /// As [`RankTrace::finish`].
    pub fn finish(&self) -> Result<PathBuf, TraceError> {
        let mut outcome = self.shared.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.get_or_insert_with(|| self.shared.write()).clone()
    }
}

impl Shared {
    fn write(&self) -> Result<PathBuf, TraceError> {
        self.tap.open.store(false, Ordering::Relaxed);
        let closed = Sink::get().close(self.tap.recording, &self.raw);
        // Even if some events were lost, those that reached the file make a valid trace.
        render::render_file(&self.raw, &self.rank_file)?;
        closed?;
        fs::remove_file(&self.raw).map_err(TraceError::writing(&self.raw))?;
        Ok(self.rank_file.clone())
    }
}

/// The file of one rank, beside the merged file: `trace.json` gives `trace.rank0.json`.
#[must_use]
pub fn rank_file(path: &Path, rank: usize) -> PathBuf {
    let extension = path.extension().map_or_else(OsString::new, |extension| {
        let mut dotted = OsString::from(".");
        dotted.push(extension);
        dotted
    });
    beside(path, rank, extension)
}

/// The file that a rank's events go to while it records: `trace.json` gives `trace.rank0.raw`.
///
/// It outlives only a process that was killed; [`recover`](crate::recover) makes a trace of it.
#[must_use]
pub fn raw_file(path: &Path, rank: usize) -> PathBuf {
    beside(path, rank, OsString::from(".raw"))
}

fn beside(path: &Path, rank: usize, ending: OsString) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".rank{rank}"));
    name.push(ending);
    path.with_file_name(name)
}

/// Refuses what cannot become a file, before a run spends hours on it. Leaves no file behind.
fn check_writable(path: &Path) -> Result<(), TraceError> {
    if path.is_dir() {
        return Err(TraceError::IsFolder { path: path.to_owned() });
    }
    if path.file_name().is_none() || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(TraceError::NoFileName { path: path.to_owned() });
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(TraceError::writing(folder))?;
    }
    if path.exists() {
        // Opening for appending checks the rights and leaves the contents alone.
        File::options().append(true).open(path).map_err(TraceError::writing(path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
