//! Failures on purpose, for tests of how a job ends (feature `faults`).
//!
//! `LOCKSTEP_FAULT=KIND@rank=R,step=S,thread=T` makes the thread `T` (`worker`, `comm` or `loader`) of rank `R` fail when it
//! comes to step `S`. Kinds: `panic`; `exit` ends the process at once, as a killed one would; `sleep:SECONDS` pauses.

use std::time::Duration;

use crate::error::RunError;

/// What happens.
#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Panic,
    Exit,
    Sleep(Duration),
}

/// A failure on purpose.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    kind: Kind,
    rank: usize,
    step: u64,
    thread: String,
}

impl Fault {
    /// The fault that `LOCKSTEP_FAULT` describes, if it is set.
    ///
    /// # Errors
    /// The description is not one.
    pub fn from_environment() -> Result<Option<Self>, RunError> {
        match std::env::var("LOCKSTEP_FAULT") {
            Ok(text) => Self::parse(&text).map(Some).ok_or_else(|| RunError::Flag {
                flag: "LOCKSTEP_FAULT",
                value: text,
                reason: "expected KIND@rank=R,step=S,thread=worker|comm|loader with KIND panic, exit or sleep:SECONDS"
                    .to_owned(),
            }),
            Err(_) => Ok(None),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (kind, place) = text.split_once('@')?;
        let kind = match kind.split_once(':') {
            None if kind == "panic" => Kind::Panic,
            None if kind == "exit" => Kind::Exit,
            Some(("sleep", seconds)) => {
                Kind::Sleep(Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?)
            }
            _ => return None,
        };
        let mut fault = Self { kind, rank: 0, step: 1, thread: "worker".to_owned() };
        for part in place.split(',') {
            match part.split_once('=')? {
                ("rank", rank) => fault.rank = rank.parse().ok()?,
                ("step", step) => fault.step = step.parse().ok()?,
                ("thread", thread @ ("worker" | "comm" | "loader")) => {
                    fault.thread = thread.to_owned();
                }
                _ => return None,
            }
        }
        Some(fault)
    }

    /// True for the threads that are to fail.
    pub(crate) fn applies(&self, rank: usize, thread: &str) -> bool {
        self.rank == rank && self.thread == thread
    }

    /// Fails, if this is the step.
    pub(crate) fn strike(&self, rank: usize, step: u64) {
        if step != self.step {
            return;
        }
        match self.kind {
            Kind::Panic => {
                panic!("fault on purpose in {} of rank {rank} at step {step}", self.thread)
            }
            Kind::Exit => std::process::abort(),
            Kind::Sleep(time) => std::thread::sleep(time),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_read() {
        let fault = Fault::parse("panic@rank=1,step=5,thread=comm").unwrap();
        assert!(fault.applies(1, "comm") && !fault.applies(0, "comm") && fault.step == 5);
        assert!(Fault::parse("sleep:0.5@rank=0,step=3").is_some());
        for text in ["", "panic", "panic@rank=x", "boom@rank=1", "panic@thread=main"] {
            assert!(Fault::parse(text).is_none(), "{text}");
        }
    }
}
