//! What can be wrong with a trace.

use std::fmt;

/// Something that makes a viewer draw a trace wrongly, or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// A process has events but no name.
    UnnamedProcess {
        /// The process.
        pid: u64,
    },
    /// A thread has events but no name.
    UnnamedThread {
        /// Its process.
        pid: u64,
        /// The thread.
        tid: u64,
    },
    /// A slice starts within another one of its thread and ends after it.
    Overlap {
        /// The process.
        pid: u64,
        /// The thread.
        tid: u64,
        /// The slice that starts first.
        first: String,
        /// The slice that starts within it.
        second: String,
        /// When the first ends, in nanoseconds.
        first_end_ns: i64,
        /// When the second ends.
        second_end_ns: i64,
    },
    /// An event at a negative time, or of a negative duration.
    NegativeTime {
        /// The process.
        pid: u64,
        /// The thread.
        tid: u64,
        /// The event.
        name: String,
    },
    /// A name or an order that carries a time, which makes some viewers drop it.
    TimedMetadata {
        /// The process.
        pid: u64,
        /// The thread.
        tid: u64,
        /// Its kind, such as `thread_name`.
        kind: String,
    },
    /// An event of the timeline without a time.
    Timeless {
        /// The process.
        pid: u64,
        /// The thread.
        tid: u64,
        /// The event.
        name: String,
    },
    /// A slice or an exchange without its beginning or without its end.
    Unpaired {
        /// The process.
        pid: u64,
        /// The thread.
        tid: u64,
        /// The slice or exchange.
        name: String,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::UnnamedProcess { pid } => write!(f, "process {pid} has no name"),
            Problem::UnnamedThread { pid, tid } => {
                write!(f, "process {pid} thread {tid} has no name")
            }
            Problem::Overlap { pid, tid, first, second, first_end_ns, second_end_ns } => write!(
                f,
                "process {pid} thread {tid}: {second} (ends at {second_end_ns} ns) starts within \
                 {first} and outlasts it (ends at {first_end_ns} ns)"
            ),
            Problem::NegativeTime { pid, tid, name } => {
                write!(f, "process {pid} thread {tid}: {name} has a negative time or duration")
            }
            Problem::TimedMetadata { pid, tid, kind } => {
                write!(f, "process {pid} thread {tid}: its {kind} carries a time")
            }
            Problem::Timeless { pid, tid, name } => {
                write!(f, "process {pid} thread {tid}: {name} has no time")
            }
            Problem::Unpaired { pid, tid, name } => {
                write!(f, "process {pid} thread {tid}: {name} lacks its beginning or its end")
            }
        }
    }
}
