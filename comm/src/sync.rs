//! The primitives of the submit/park protocol: std's, or loom's models of them under `cfg(loom)`.

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    thread::{Thread, current, yield_now},
};
#[cfg(not(loom))]
pub(crate) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    thread::{Thread, current, yield_now},
};

use std::time::Duration;

/// std's `UnsafeCell` with the interface of loom's, which sees every access.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    /// Runs `change` on the value's address.
    pub(crate) fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
        change(self.0.get())
    }
}

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
