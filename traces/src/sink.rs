//! The one tracing-chrome layer of the process, and the router that parts its output by recording.
//!
//! tracing-chrome keeps its output channel and its thread number in thread-locals that every layer
//! of the process shares, so with one layer a rank, a thread that had recorded for one rank would
//! go on writing to that rank's file for the rest of its life. Hence one layer for all ranks and
//! runs. It writes its array into [`Router`], which appends each line to the raw file of the
//! recording that the line names.
//!
//! tracing-chrome's writer thread unwraps write errors, and dies of them; so the router never
//! reports one there, but keeps it for whoever closes the recording.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use tracing::Dispatch;
use tracing_chrome::{ChromeLayerBuilder, FlushGuard};
use tracing_subscriber::layer::SubscriberExt;

use crate::backlog::Backlog;
use crate::error::TraceError;

/// How long the writer thread may stand still before it counts as stuck.
const STALL: Duration = Duration::from_secs(10);

/// The process-wide sink of recorded events.
pub(crate) struct Sink {
    /// The subscriber through which events are emitted.
    pub(crate) dispatch: Dispatch,
    /// How much the writer thread has yet to pass on.
    pub(crate) backlog: Arc<Backlog>,
    guard: Mutex<FlushGuard>,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Signaled after every flush of the router.
    flushed: Condvar,
}

#[derive(Default)]
struct State {
    recordings: HashMap<u64, RawFile>,
    next_recording: u64,
    n_flushes: u64,
    n_bytes: u64,
}

/// The raw file of one open recording.
struct RawFile {
    out: BufWriter<File>,
    /// The first error; nothing is written after it.
    failed: Option<io::Error>,
}

impl Sink {
    /// The sink, started on first use.
    pub(crate) fn get() -> &'static Sink {
        static SINK: OnceLock<Sink> = OnceLock::new();
        SINK.get_or_init(|| {
            let shared =
                Arc::new(Shared { state: Mutex::new(State::default()), flushed: Condvar::new() });
            let backlog = Arc::new(Backlog::default());
            let router = Router::new(Arc::clone(&shared), Arc::clone(&backlog));
            let (layer, guard) = ChromeLayerBuilder::new()
                .writer(router)
                .include_args(true)
                .include_locations(false)
                .build();
            let dispatch = Dispatch::new(tracing_subscriber::registry().with(layer));
            Sink { dispatch, backlog, guard: Mutex::new(guard), shared }
        })
    }

    /// Opens a recording whose lines go to `file`, and gives its number.
    pub(crate) fn open(&self, file: File) -> u64 {
        let mut state = self.shared.lock();
        let recording = state.next_recording;
        state.next_recording += 1;
        state.recordings.insert(recording, RawFile { out: BufWriter::new(file), failed: None });
        recording
    }

    /// Closes a recording: whatever was emitted before this call is in its file, and whatever is
    /// emitted later is dropped.
    pub(crate) fn close(&self, recording: u64, raw: &Path) -> Result<(), TraceError> {
        let drained = self.drain();
        let Some(mut file) = self.shared.lock().recordings.remove(&recording) else {
            return Ok(());
        };
        let written = match file.failed.take() {
            Some(error) => Err(error),
            None => file.out.flush(),
        };
        written.map_err(TraceError::writing(raw))?;
        if drained { Ok(()) } else { Err(TraceError::Stalled { raw: raw.to_owned() }) }
    }

    /// Waits until the writer thread has passed on all that was emitted so far. False if it is stuck.
    fn drain(&self) -> bool {
        // One flush in flight at a time, so that the next one counted is ours.
        let guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.shared.lock();
        let target = state.n_flushes + 1;
        guard.flush();
        while state.n_flushes < target {
            let n_bytes = state.n_bytes;
            let (woken, timeout) = self
                .shared
                .flushed
                .wait_timeout(state, STALL)
                .unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if timeout.timed_out() && state.n_flushes < target && state.n_bytes == n_bytes {
                return false;
            }
        }
        true
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that holds the lock leaves the state half-changed, so a poisoned lock is usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Parts tracing-chrome's output, one JSON object a line, by the recording that each names.
struct Router {
    shared: Arc<Shared>,
    backlog: Arc<Backlog>,
    /// The line under way: what came after the last line break.
    line: Vec<u8>,
}

/// The part of a line that says where it belongs. Arguments are strings, whatever their type was.
#[derive(Deserialize)]
struct Addressed {
    args: Address,
}

#[derive(Deserialize)]
struct Address {
    recording: String,
}

impl Router {
    fn new(shared: Arc<Shared>, backlog: Arc<Backlog>) -> Router {
        Router { shared, backlog, line: Vec::new() }
    }

    /// Sends the line under way to its recording.
    fn route(&mut self, state: &mut State) {
        let line = self.line.trim_ascii();
        let line = line.strip_suffix(b",").unwrap_or(line);
        // The array's brackets, tracing-chrome's own thread names and lines of other users of the
        // layer have no address.
        if let Ok(addressed) = serde_json::from_slice::<Addressed>(line)
            && let Ok(recording) = addressed.args.recording.parse()
        {
            self.backlog.pass(1);
            if let Some(file) = state.recordings.get_mut(&recording) {
                file.write(line);
            }
        }
        self.line.clear();
    }
}

impl Write for Router {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        state.n_bytes += bytes.len() as u64;
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.route(&mut state);
            }
        }
        Ok(bytes.len())
    }

    /// Called between two events only, so the line under way is whole, though its break is to come.
    fn flush(&mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        self.route(&mut state);
        state.n_flushes += 1;
        shared.flushed.notify_all();
        Ok(())
    }
}

impl RawFile {
    fn write(&mut self, line: &[u8]) {
        if self.failed.is_none() {
            let written = self.out.write_all(line).and_then(|()| self.out.write_all(b"\n"));
            self.failed = written.err();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router() -> (Router, Arc<Shared>) {
        let shared =
            Arc::new(Shared { state: Mutex::new(State::default()), flushed: Condvar::new() });
        (Router::new(Arc::clone(&shared), Arc::default()), shared)
    }

    #[test]
    fn lines_reach_their_recording_however_the_bytes_are_cut() {
        let folder = tempfile::tempdir().unwrap();
        let paths = [folder.path().join("0"), folder.path().join("1")];
        let text = concat!(
            "[\n{\"args\":{\"name\":\"main\"},\"ph\":\"M\"},\n",
            "{\"args\":{\"recording\":\"0\"},\"ph\":\"B\"},\n",
            "{\"args\":{\"recording\":\"1\"},\"ph\":\"i\"},\n",
            "{\"args\":{\"recording\":\"9\"},\"ph\":\"i\"},\n",
            "{\"args\":{\"recording\":\"0\"},\"ph\":\"E\"}",
        );
        for cut in 1..40 {
            let (mut router, shared) = router();
            for (recording, path) in paths.iter().enumerate() {
                let out = BufWriter::new(File::create(path).unwrap());
                let file = RawFile { out, failed: None };
                shared.lock().recordings.insert(recording as u64, file);
            }
            for piece in text.as_bytes().chunks(cut) {
                router.write_all(piece).unwrap();
            }
            router.flush().unwrap();
            router.write_all(b",\n{\"args\":{\"recording\":\"1\"},\"ph\":\"C\"}").unwrap();
            router.flush().unwrap();
            shared.lock().recordings.clear();
            let read = |path| std::fs::read_to_string(path).unwrap();
            assert_eq!(
                read(&paths[0]),
                "{\"args\":{\"recording\":\"0\"},\"ph\":\"B\"}\n{\"args\":{\"recording\":\"0\"},\"ph\":\"E\"}\n"
            );
            assert_eq!(
                read(&paths[1]),
                "{\"args\":{\"recording\":\"1\"},\"ph\":\"i\"}\n{\"args\":{\"recording\":\"1\"},\"ph\":\"C\"}\n"
            );
        }
    }

    #[test]
    fn a_full_disk_is_remembered_and_does_not_stop_the_writer() {
        let (mut router, shared) = router();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let file = RawFile { out: BufWriter::with_capacity(8, full), failed: None };
        shared.lock().recordings.insert(0, file);
        router.write_all(b"{\"args\":{\"recording\":\"0\"},\"ph\":\"B\"},\n").unwrap();
        router.flush().unwrap();
        let file = shared.lock().recordings.remove(&0).unwrap();
        assert_eq!(file.failed.unwrap().kind(), io::ErrorKind::StorageFull);
    }
}
