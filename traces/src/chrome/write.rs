//! Writes a Chrome trace one event at a time, one event a line.

use std::io::{self, Write};

use super::event::{ChromeEvent, OtherData};

/// A trace under way. Without [`end`](ChromeWriter::end) it is not valid.
pub(crate) struct ChromeWriter<W> {
    out: W,
    n_events: u64,
}

impl<W: Write> ChromeWriter<W> {
    /// Starts a trace.
    pub(crate) fn begin(mut out: W) -> io::Result<ChromeWriter<W>> {
        out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
        Ok(ChromeWriter { out, n_events: 0 })
    }

    /// Adds an event.
    pub(crate) fn event(&mut self, event: &ChromeEvent) -> io::Result<()> {
        self.out.write_all(if self.n_events == 0 { b"\n" } else { b",\n" })?;
        self.n_events += 1;
        serde_json::to_writer(&mut self.out, event)?;
        Ok(())
    }

    /// Ends the trace with what it says about itself, and hands the output back.
    pub(crate) fn end(mut self, other_data: &OtherData) -> io::Result<W> {
        self.out.write_all(b"\n],\"otherData\":")?;
        serde_json::to_writer(&mut self.out, other_data)?;
        self.out.write_all(b"}\n")?;
        Ok(self.out)
    }
}
