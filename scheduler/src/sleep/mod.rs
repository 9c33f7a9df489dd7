//! Falling asleep without missing work. The protocol is written down in `README.md` beside this file.

#[cfg(test)]
mod tests;

use crate::sync::{AtomicU32, AtomicUsize, Condvar, Mutex, Ordering, fence, lock};

/// Where a rank's idle workers sleep.
#[derive(Debug)]
pub(crate) struct Sleep {
    epoch: AtomicU32,
    sleepers: AtomicUsize,
    gate: Mutex<()>,
    wake: Condvar,
}

/// The epoch before a worker's last look at the board: evidence that it looked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket(u32);

impl Sleep {
    pub(crate) fn new() -> Self {
        Self {
            epoch: AtomicU32::new(0),
            sleepers: AtomicUsize::new(0),
            gate: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    /// To be taken before the last look at the board.
    pub(crate) fn ticket(&self) -> Ticket {
        // Acquire: pairs with the announcement's Release, so that whoever has its number sees its work.
        Ticket(self.epoch.load(Ordering::Acquire))
    }

    /// Sleeps until something is announced after the ticket was taken.
    pub(crate) fn sleep(&self, ticket: Ticket) {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        // SeqCst: pairs with the fence in `announce`; see README.md, first race.
        fence(Ordering::SeqCst);
        let mut guard = lock(&self.gate);
        while self.epoch.load(Ordering::Relaxed) == ticket.0 {
            guard = match self.wake.wait(guard) {
                Ok(guard) => guard,
                Err(poisoned) => poisoned.into_inner(),
            };
        }
        drop(guard);
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Says that work became visible; `pieces` of it, so that no more workers than that are woken. A worker that goes to the
    /// board next need not announce the piece that it finds there.
    pub(crate) fn announce(&self, pieces: usize) {
        self.epoch.fetch_add(1, Ordering::Release);
        // SeqCst: pairs with the fence in `sleep`; see README.md, first race.
        fence(Ordering::SeqCst);
        let sleepers = self.sleepers.load(Ordering::Relaxed);
        if sleepers == 0 {
            return;
        }
        // Subtle: the lock is what keeps the notification from falling between a worker's comparison and its wait.
        drop(lock(&self.gate));
        if pieces < sleepers {
            (0..pieces).for_each(|_| self.wake.notify_one());
        } else {
            self.wake.notify_all();
        }
    }

    /// Wakes everybody: the end of a run, or a failure.
    pub(crate) fn announce_to_all(&self) {
        self.announce(usize::MAX);
    }
}
