//! What the rank's workers say of themselves, so that the communication thread knows when it has their core to itself.
//!
//! Where it has no core of its own, polling takes time from a worker that computes, and nobody wants the core while the workers rest. So
//! it polls eagerly while one of them rests, and seldom while all compute. A completed exchange releases tasks: until a worker rests
//! again, all are taken to compute.

use crate::doorbell::Doorbell;
use crate::sync::{AtomicUsize, Ordering};

/// Counts of a rank's workers. Numbers that lag behind cost time, never more; so no order between them is asked for, but with the bell.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    present: AtomicUsize,
    resting: AtomicUsize,
    /// How often one began to rest.
    rests: AtomicUsize,
}

/// How often workers had begun to rest at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rests(usize);

impl Workers {
    pub(crate) fn join(&self) {
        self.present.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self) {
        self.present.fetch_sub(1, Ordering::Relaxed);
    }

    /// Runs `rest`, in which a worker has nothing to compute.
    pub(crate) fn rest<R>(&self, bell: &Doorbell, rest: impl FnOnce() -> R) -> R {
        self.rests.fetch_add(1, Ordering::Relaxed);
        self.resting.fetch_add(1, Ordering::Relaxed);
        // The thread may sleep, having left the core to this worker.
        bell.ring();
        let result = rest();
        self.resting.fetch_sub(1, Ordering::Relaxed);
        result
    }

    pub(crate) fn rests(&self) -> Rests {
        Rests(self.rests.load(Ordering::Relaxed))
    }

    /// Whether all workers compute, as far as is known, tasks having been released when there were so many rests.
    pub(crate) fn all_compute(&self, released: Rests) -> bool {
        let present = self.present.load(Ordering::Relaxed);
        let resting = self.resting.load(Ordering::Relaxed);
        present > 0 && (resting == 0 || self.rests() == released)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_core_is_free_while_a_worker_rests() {
        let (workers, bell) = (Workers::default(), Doorbell::for_this_thread());
        let none = workers.rests();
        assert!(!workers.all_compute(none), "where nobody computes the core is free");
        workers.join();
        workers.join();
        assert!(workers.all_compute(none));
        workers.rest(&bell, || {
            assert!(!workers.all_compute(none));
            // A task was released since the worker began to rest.
            assert!(workers.all_compute(workers.rests()));
        });
        assert!(workers.all_compute(none));
        workers.leave();
        workers.leave();
        assert!(!workers.all_compute(none));
    }
}
