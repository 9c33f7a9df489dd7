//! The primitives of the submit/park protocol: std's, or loom's models of them under `cfg(loom)`.

#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicBool, Ordering, fence},
    thread::{Thread, current},
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, Ordering, fence},
    thread::{Thread, current},
};

use std::time::Duration;

/// Parks the thread, for `timeout` at most. Loom knows no time: there it must be unparked.
pub(crate) fn park(timeout: Option<Duration>) {
    #[cfg(loom)]
    {
        let _ = timeout;
        loom::thread::park();
    }
    #[cfg(not(loom))]
    match timeout {
        Some(timeout) => std::thread::park_timeout(timeout),
        None => std::thread::park(),
    }
}
