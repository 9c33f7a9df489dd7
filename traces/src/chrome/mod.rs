//! The Chrome trace format: its events, and reading and writing files of them one event at a time.
//!
//! Source: "Trace Event Format", the Chromium project's document; JSON object form.

mod event;
mod read;
mod write;

pub(crate) use event::{ChromeEvent, LocalId, OtherData, Phase};
pub(crate) use read::read;
pub(crate) use write::ChromeWriter;
