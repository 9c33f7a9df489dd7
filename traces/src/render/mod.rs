//! Turns one rank's raw file into a Chrome trace: pure, streaming, and forgiving of a cut-off end.

mod lanes;
mod slices;

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use crate::chrome::{ChromeEvent, ChromeWriter, LocalId, OtherData, Phase};
use crate::error::TraceError;
use crate::event::{Event, Exchange};
use crate::output::WholeFile;
use crate::raw::{RawEvent, RawKind, RawReader};

use lanes::Lanes;
use slices::OpenSlices;

/// The category of exchanges; viewers can filter by it.
const EXCHANGE: &str = "exchange";

/// Makes a rank's trace of the raw file (`FILE.rank0.raw`) that a killed process left behind, and
/// gives its path (`FILE.rank0.json`). The raw file stays.
///
/// # Errors
///
/// If the raw file has not even a header, or a file could not be read or written.
pub fn recover(raw: &Path) -> Result<PathBuf, TraceError> {
    let rank_file = raw.with_extension("json");
    render_file(raw, &rank_file)?;
    Ok(rank_file)
}

/// Renders the raw file at `raw` into `rank_file`.
pub(crate) fn render_file(raw: &Path, rank_file: &Path) -> Result<(), TraceError> {
    let input = File::open(raw).map_err(TraceError::reading(raw))?;
    let (header, mut events) =
        RawReader::open(BufReader::new(input)).map_err(TraceError::parsing(raw))?;
    let out = WholeFile::create(rank_file)?;
    let mut renderer = Renderer {
        pid: header.rank as u64,
        out: ChromeWriter::begin(out).map_err(TraceError::writing(rank_file))?,
        clock_shift_ns: None,
        last_ns: 0,
        lanes: Lanes::default(),
        slices: OpenSlices::default(),
        n_exchanges: 0,
    };
    while let Some(event) = events.next_event().map_err(TraceError::reading(raw))? {
        renderer.feed(event).map_err(TraceError::writing(rank_file))?;
    }
    let process_name = header.process_name();
    let other_data = OtherData { ranks: vec![header], lost_lines: events.n_lost() };
    renderer.end(&process_name, &other_data).map_err(TraceError::writing(rank_file))?.commit()
}

struct Renderer<W> {
    pid: u64,
    out: ChromeWriter<W>,
    /// What turns tracing-chrome's times into ours, once a clock reading has been seen.
    clock_shift_ns: Option<i64>,
    /// The time of the last event.
    last_ns: i64,
    lanes: Lanes,
    slices: OpenSlices,
    n_exchanges: u64,
}

impl<W: Write> Renderer<W> {
    fn feed(&mut self, raw: RawEvent) -> io::Result<()> {
        if let Event::Clock { ns } = raw.event {
            // Each reading is late by what passed until tracing-chrome took its own: the largest
            // shift had the least delay.
            let shift = ns - raw.chrome_ns;
            self.clock_shift_ns = Some(self.clock_shift_ns.map_or(shift, |best| best.max(shift)));
            return Ok(());
        }
        let now = (raw.chrome_ns + self.clock_shift_ns.unwrap_or(0)).max(0);
        self.last_ns = self.last_ns.max(now);
        let thread = raw.thread;
        match raw.event {
            Event::Clock { .. } => {}
            Event::Enter { name } => self.lanes.enter(thread, &name),
            Event::Leave => {
                // A slice that outlives its thread's part would lie over that of its successor.
                for slice in self.slices.close_all(thread) {
                    self.out.event(&slice.finished(self.pid, now))?;
                }
                self.lanes.leave(thread);
            }
            Event::Task(task) if raw.kind == RawKind::End => {
                for slice in self.slices.close(thread, &task) {
                    self.out.event(&slice.finished(self.pid, now))?;
                }
            }
            Event::Task(task) => self.slices.open(thread, self.lanes.tid(thread), now, task),
            Event::Exchange(exchange) => self.exchange(thread, &exchange)?,
            Event::Instant { name, step } => {
                let mut event =
                    ChromeEvent::new(Phase::Instant, name, self.pid, self.lanes.tid(thread));
                event.ts = Some(now);
                event.s = Some("t".to_owned());
                event.args.insert("step".to_owned(), step.into());
                self.out.event(&event)?;
            }
        }
        Ok(())
    }

    /// An exchange overlaps tasks and other exchanges, so it becomes an asynchronous slice, and a
    /// moment on the thread that completed it.
    fn exchange(&mut self, thread: u64, exchange: &Exchange<'_>) -> io::Result<()> {
        let tid = self.lanes.tid(thread);
        let name = exchange.name.as_ref();
        let mut begin = ChromeEvent::new(Phase::AsyncBegin, name, self.pid, tid);
        begin.cat = Some(EXCHANGE.to_owned());
        begin.id2 = Some(LocalId { local: format!("0x{:x}", self.n_exchanges) });
        begin.ts = Some(exchange.submitted_ns.max(0));
        let mut end = begin.clone();
        end.ph = Phase::AsyncEnd;
        end.ts = Some(exchange.completed_ns.max(exchange.submitted_ns).max(0));
        self.last_ns = self.last_ns.max(end.ts.unwrap_or(0));
        for (key, value) in [
            ("layer", exchange.layer.as_ref().into()),
            ("layer_index", exchange.layer_index.into()),
            ("kind", exchange.kind.as_ref().into()),
            ("step", exchange.step.into()),
            ("bytes", exchange.bytes.into()),
            ("id", exchange.id.into()),
        ] {
            begin.args.insert(key.to_owned(), value);
        }
        self.n_exchanges += 1;
        self.out.event(&begin)?;
        self.out.event(&end)?;
        // Viewers leave out a thread that has nothing of its own, as the communication thread may.
        let mut done = ChromeEvent::new(Phase::Instant, format!("{name} done"), self.pid, tid);
        done.ts = end.ts;
        done.s = Some("t".to_owned());
        done.args.insert("step".to_owned(), exchange.step.into());
        self.out.event(&done)
    }

    fn end(mut self, process_name: &str, other_data: &OtherData) -> io::Result<W> {
        for slice in self.slices.drain() {
            self.out.event(&slice.unfinished(self.pid, self.last_ns))?;
        }
        let pid = self.pid;
        for (kind, property) in [
            ("process_name", ("name", process_name.into())),
            ("process_sort_index", ("sort_index", pid.into())),
        ] {
            self.out.event(&ChromeEvent::metadata(kind, pid, 0, property))?;
        }
        for lane in self.lanes.all() {
            let name = ("name", lane.name.as_str().into());
            self.out.event(&ChromeEvent::metadata("thread_name", pid, lane.tid, name))?;
            let order = ("sort_index", lane.tid.into());
            self.out.event(&ChromeEvent::metadata("thread_sort_index", pid, lane.tid, order))?;
        }
        self.out.end(other_data)
    }
}

#[cfg(test)]
mod tests;
