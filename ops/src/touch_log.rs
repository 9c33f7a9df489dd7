//! A record of what each block of a task touched, for tests.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Notes which elements each block touches through recording [`Tiles`](crate::Tiles).
///
/// ```
/// use lockstep_ops::{Tiles, TouchLog};
///
/// let (mut dst, log) = ([0.0; 4], TouchLog::new());
/// for block in 0..2 {
///     log.begin(block);
///     Tiles::recording(&mut dst, &log).tile(2 * block..2 * block + 2).fill(1.0);
/// }
/// log.assert_partition(4);
/// ```
#[derive(Debug, Default)]
pub struct TouchLog {
    touches: Mutex<Touches>,
}

#[derive(Debug, Default)]
struct Touches {
    block: usize,
    ranges: Vec<(usize, Range<usize>)>,
}

impl TouchLog {
    /// A log without entries.
    pub fn new() -> TouchLog {
        TouchLog::default()
    }

    /// What is touched from now on is touched by `block`.
    pub fn begin(&self, block: usize) {
        self.with(|touches| touches.block = block);
    }

    /// Checks that no two blocks touched the same element, and that `0..len` was touched as a whole.
    ///
    /// # Panics
    ///
    /// If it is not so, naming the element and the blocks.
    #[track_caller]
    pub fn assert_partition(&self, len: usize) {
        let mut owners = vec![None; len];
        for (block, range) in self.with(|touches| touches.ranges.clone()) {
            for at in range {
                let owner = owners[at].get_or_insert(block);
                assert!(*owner == block, "blocks {owner} and {block} both touch element {at}");
            }
        }
        let missing = owners.iter().position(Option::is_none);
        assert!(missing.is_none(), "no block touches element {missing:?} of {len}");
    }

    pub(crate) fn record(&self, range: Range<usize>) {
        self.with(|touches| touches.ranges.push((touches.block, range)));
    }

    fn with<T>(&self, act: impl FnOnce(&mut Touches) -> T) -> T {
        act(&mut self.touches.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "blocks 0 and 1 both touch element 2")]
    fn an_overlap_is_reported() {
        let log = TouchLog::new();
        log.record(0..3);
        log.begin(1);
        log.record(2..4);
        log.assert_partition(4);
    }

    #[test]
    #[should_panic(expected = "no block touches element Some(3) of 4")]
    fn a_gap_is_reported() {
        let log = TouchLog::new();
        log.record(0..3);
        log.assert_partition(4);
    }
}
