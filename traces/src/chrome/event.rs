//! One event of a Chrome trace, with times in whole nanoseconds.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::header::Header;

/// What an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    /// A slice with a duration, on a thread.
    #[serde(rename = "X")]
    Complete,
    /// The start of a slice whose end comes as an event of its own.
    #[serde(rename = "B")]
    Begin,
    /// The end of the thread's slice that began last.
    #[serde(rename = "E")]
    End,
    /// The start of an asynchronous slice, which belongs to a process and not to a thread.
    #[serde(rename = "b")]
    AsyncBegin,
    /// The end of an asynchronous slice.
    #[serde(rename = "e")]
    AsyncEnd,
    /// A moment.
    #[serde(rename = "i")]
    Instant,
    /// A name or an order of a process or a thread.
    #[serde(rename = "M")]
    Metadata,
    /// Any other, such as a counter, of a trace that another program wrote.
    #[serde(other)]
    Foreign,
}

/// An event. Fields that its phase has no use for are `None` or empty, and not written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ChromeEvent {
    pub(crate) ph: Phase,
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cat: Option<String>,
    #[serde(default)]
    pub(crate) pid: u64,
    #[serde(default)]
    pub(crate) tid: u64,
    /// When, in nanoseconds; the file has microseconds.
    #[serde(default, with = "microseconds", skip_serializing_if = "Option::is_none")]
    pub(crate) ts: Option<i64>,
    /// For how long, as `ts`.
    #[serde(default, with = "microseconds", skip_serializing_if = "Option::is_none")]
    pub(crate) dur: Option<i64>,
    /// Ties the two ends of an asynchronous slice together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id2: Option<LocalId>,
    /// The width at which a viewer draws an instant: `t` is its thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) s: Option<String>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(crate) args: Map<String, Value>,
}

/// An identity within one process: every rank can number its exchanges from 0.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct LocalId {
    pub(crate) local: String,
}

/// What our files say about themselves, in the place that the format leaves for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OtherData {
    /// The headers of the ranks in the file; none in a trace of another program.
    #[serde(default)]
    pub(crate) ranks: Vec<Header>,
    /// How many recorded lines were damaged, and so are missing here.
    #[serde(default)]
    pub(crate) lost_lines: u64,
}

impl ChromeEvent {
    /// An event of this phase and name on a thread, with all else empty.
    pub(crate) fn new(ph: Phase, name: impl Into<String>, pid: u64, tid: u64) -> ChromeEvent {
        ChromeEvent {
            ph,
            name: name.into(),
            cat: None,
            pid,
            tid,
            ts: None,
            dur: None,
            id2: None,
            s: None,
            args: Map::new(),
        }
    }

    /// A piece of metadata, such as `thread_name` with its `name`.
    pub(crate) fn metadata(
        kind: &str,
        pid: u64,
        tid: u64,
        (key, value): (&str, Value),
    ) -> ChromeEvent {
        let mut event = ChromeEvent::new(Phase::Metadata, kind, pid, tid);
        event.args.insert(key.to_owned(), value);
        event
    }
}

/// Nanoseconds in memory, microseconds with a fraction in the file.
mod microseconds {
    use super::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "the signature is serde's")]
    pub(super) fn serialize<S: Serializer>(ns: &Option<i64>, out: S) -> Result<S::Ok, S::Error> {
        // Exact to the nanosecond for 104 days: 53 bits of nanoseconds.
        ns.map(|ns| ns as f64 / 1000.0).serialize(out)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
        let us = Option::<f64>::deserialize(from)?;
        Ok(us.map(|us| (us * 1000.0).round() as i64))
    }
}
