//! Memory lent to another rank's communication thread for one copy, and taken back safely if its owner fails meanwhile.
//!
//! A loan is `OFFERED`; the receiver turns it to `READING`, copies, and turns it to `DONE`. The owner may turn an offered loan to
//! `REVOKED`; one that is being read it waits for, which takes one copy of a chunk. So after [`Loan::revoke`] nobody reads.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::region::Span;

const OFFERED: u8 = 0;
const READING: u8 = 1;
const DONE: u8 = 2;
const REVOKED: u8 = 3;

/// One message's bytes, where the sender has them.
#[derive(Debug)]
pub(super) struct Loan {
    bytes: Span,
    state: AtomicU8,
}

// SAFETY: the span is dereferenced in `read_into` alone, by the one thread that turned the state from `OFFERED` to `READING`;
// until that thread sets `DONE`, the sender leaves the bytes alone (they belong to a ticket in flight, or `revoke` waits).
unsafe impl Send for Loan {}
// SAFETY: as for `Send`.
unsafe impl Sync for Loan {}

impl Loan {
    pub(super) fn new(bytes: Span) -> Loan {
        Loan { bytes, state: AtomicU8::new(OFFERED) }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Copies the bytes into `dst`, of the same length. False if the owner took them back.
    pub(super) fn read_into(&self, dst: Span) -> bool {
        debug_assert_eq!(dst.len(), self.len(), "lengths are compared before");
        // Acquire: the bytes were written before the loan was offered. Release is `DONE`'s, for the waiting owner.
        let taken =
            self.state.compare_exchange(OFFERED, READING, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            return false;
        }
        dst.copy_from(self.bytes);
        self.state.store(DONE, Ordering::Release);
        true
    }

    /// Takes the bytes back; when this returns, nobody reads them or ever will.
    pub(super) fn revoke(&self) {
        let revoked =
            self.state.compare_exchange(OFFERED, REVOKED, Ordering::Relaxed, Ordering::Acquire);
        if revoked == Err(READING) {
            while self.state.load(Ordering::Acquire) == READING {
                std::thread::yield_now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loan_is_read_once() {
        let (mut src, mut dst) = ([1_u8, 2, 3], [0_u8; 3]);
        let loan = Loan::new(Span::of_buffer(&mut src, 3));
        let target = Span::of_buffer(&mut dst, 3);
        assert!(loan.read_into(target));
        assert!(!loan.read_into(target));
        loan.revoke();
        assert_eq!(dst, [1, 2, 3]);
    }

    #[test]
    fn a_revoked_loan_is_not_read() {
        let (mut src, mut dst) = ([1_u8, 2, 3], [0_u8; 3]);
        let loan = Loan::new(Span::of_buffer(&mut src, 3));
        loan.revoke();
        assert!(!loan.read_into(Span::of_buffer(&mut dst, 3)));
        assert_eq!(dst, [0; 3]);
    }
}
