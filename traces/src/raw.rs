//! Reads a raw file: the header, then tracing-chrome's lines, the last of which may be cut short.

use std::io::{self, BufRead};

use serde::Deserialize;

use crate::event::Event;
use crate::header::Header;

/// What a line of a raw file says.
#[derive(Debug, PartialEq)]
pub(crate) struct RawEvent {
    pub(crate) kind: RawKind,
    /// tracing-chrome's time, in nanoseconds since its start.
    pub(crate) chrome_ns: i64,
    /// tracing-chrome's number of the thread, unique in the process.
    pub(crate) thread: u64,
    pub(crate) event: Event<'static>,
}

/// How the line's event came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum RawKind {
    /// A span was entered.
    #[serde(rename = "B")]
    Begin,
    /// A span was left.
    #[serde(rename = "E")]
    End,
    /// An event was emitted.
    #[serde(rename = "i")]
    Event,
}

#[derive(Deserialize)]
struct Line {
    ph: RawKind,
    ts: f64,
    tid: u64,
    args: Args,
}

#[derive(Deserialize)]
struct Args {
    event: String,
}

/// A raw file being read.
pub(crate) struct RawReader<R> {
    input: R,
    line: Vec<u8>,
    n_lost: u64,
}

impl<R: BufRead> RawReader<R> {
    /// Reads the header.
    pub(crate) fn open(mut input: R) -> Result<(Header, RawReader<R>), serde_json::Error> {
        let mut line = Vec::new();
        input.read_until(b'\n', &mut line).map_err(serde_json::Error::io)?;
        let header = serde_json::from_slice(&line)?;
        Ok((header, RawReader { input, line, n_lost: 0 }))
    }

    /// The next event; `None` at the end. Lines that cannot be read are passed over and counted.
    pub(crate) fn next_event(&mut self) -> io::Result<Option<RawEvent>> {
        loop {
            self.line.clear();
            if self.input.read_until(b'\n', &mut self.line)? == 0 {
                return Ok(None);
            }
            if let Some(event) = parse(&self.line) {
                return Ok(Some(event));
            }
            self.n_lost += 1;
        }
    }

    /// How many lines could not be read so far.
    pub(crate) fn n_lost(&self) -> u64 {
        self.n_lost
    }
}

fn parse(line: &[u8]) -> Option<RawEvent> {
    let line: Line = serde_json::from_slice(line).ok()?;
    let event = serde_json::from_str(&line.args.event).ok()?;
    Some(RawEvent {
        kind: line.ph,
        chrome_ns: (line.ts * 1000.0).round() as i64,
        thread: line.tid,
        event,
    })
}
