//! What is recorded: the typed events that travel through `tracing` to the raw file.
//!
//! tracing-chrome turns every argument into a debug-formatted string, so an event travels as one
//! argument that holds its JSON; rendering reads it back as the same type.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// One recorded happening. Times that it carries are nanoseconds since the process's origin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Event<'a> {
    /// The trace clock at the moment of emission: ties tracing-chrome's clock to ours.
    Clock {
        /// The time just before the event was emitted.
        ns: i64,
    },
    /// The emitting thread takes part from now on, under this name.
    Enter {
        /// The thread's name.
        name: Cow<'a, str>,
    },
    /// The emitting thread takes part no longer.
    Leave,
    /// A slice of a task; the span it is attached to says from when to when.
    Task(Task<'a>),
    /// An exchange that has completed.
    Exchange(Exchange<'a>),
    /// A moment on the emitting thread.
    Instant {
        /// What happened.
        name: Cow<'a, str>,
        /// The step in which it happened.
        step: u64,
    },
}

/// The recorded form of a task slice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Task<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) layer: Cow<'a, str>,
    pub(crate) layer_index: usize,
    pub(crate) pass: Cow<'a, str>,
    pub(crate) step: u64,
    /// `None` where the recorded value was not finite, which JSON cannot hold.
    pub(crate) flops: Option<f64>,
    /// As `flops`.
    pub(crate) bytes: Option<f64>,
    pub(crate) blocks: Range<usize>,
}

/// The recorded form of an exchange.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Exchange<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) layer: Cow<'a, str>,
    pub(crate) layer_index: usize,
    pub(crate) kind: Cow<'a, str>,
    pub(crate) step: u64,
    pub(crate) bytes: u64,
    pub(crate) id: u64,
    pub(crate) submitted_ns: i64,
    pub(crate) completed_ns: i64,
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_reads_back_as_written() {
        let event = Event::Task(Task {
            name: "conv \"1\"\n".into(),
            layer: "conv1".into(),
            layer_index: 3,
            pass: "forward".into(),
            step: 7,
            flops: Some(0.1 + 0.2),
            bytes: Some(1e300),
            blocks: 4..9,
        });
        assert_eq!(serde_json::from_str::<Event<'_>>(&event.to_string()).unwrap(), event);
    }

    #[test]
    fn a_value_that_json_cannot_hold_reads_back_as_unknown() {
        let text = Event::Clock { ns: 5 }.to_string();
        assert_eq!(text, r#"{"Clock":{"ns":5}}"#);
        assert_eq!(serde_json::to_string(&Some(f64::NAN)).unwrap(), "null");
        assert_eq!(serde_json::from_str::<Option<f64>>("null").unwrap(), None);
    }
}
