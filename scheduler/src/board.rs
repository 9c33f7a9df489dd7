//! The task board: which task instances are ready, in priority order, and who gets which block.
//!
//! A task has one *instance* an iteration; three iterations can be on the board at once (the scheduler starts iteration
//! `t + 2` only when `t` is complete, and `t + 1` may already release tasks of `t + 2`). An instance is posted with its
//! number of blocks; workers claim blocks with one atomic add. Ready instances are bits in words ordered by priority, so
//! looking for the most urgent one is a scan for the first set bit, oldest iteration first: through the urgent tasks of all
//! iterations, then through those that can wait.

use std::ops::Range;

use crossbeam::utils::CachePadded;

use crate::sync::{AtomicU64, Ordering};

/// Iterations that can be on the board at once.
pub(crate) const SLOTS: usize = 3;

/// An instance's place on the board: task by priority position, iteration by slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) slot: usize,
    pub(crate) position: usize,
}

/// A block that belongs to whoever holds this.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) place: Place,
    pub(crate) block: usize,
}

/// Bits of a claim word: the high half is the instance's number of blocks, the low half the next block to claim.
/// Both in one word, so that a late claim can never mix two instances.
const BLOCKS_SHIFT: u32 = 32;
const NEXT_MASK: u64 = (1 << BLOCKS_SHIFT) - 1;

/// Words of ready bits that lie together: they are read for every block, and written but twice a task.
const WORDS_TOGETHER: usize = 16;

/// A piece of memory that threads share as a whole.
type ReadyWords = CachePadded<[AtomicU64; WORDS_TOGETHER]>;

/// Ready instances and their unclaimed blocks.
#[derive(Debug)]
pub(crate) struct Board {
    n_tasks: usize,
    /// The positions of urgent tasks, and of those that can wait.
    classes: [Range<usize>; 2],
    /// Words of ready bits of a slot.
    words: usize,
    /// All slots' words, each slot's in pieces of its own.
    ready: Vec<ReadyWords>,
    claims: Vec<CachePadded<AtomicU64>>,
}

impl Board {
    /// A board of tasks of which the first `urgent` are urgent.
    pub(crate) fn new(n_tasks: usize, urgent: usize) -> Self {
        let words = n_tasks.div_ceil(64);
        let zero = || AtomicU64::new(0);
        let pieces = SLOTS * words.div_ceil(WORDS_TOGETHER);
        let ready = |_| CachePadded::new(std::array::from_fn(|_| zero()));
        let claims = (0..SLOTS * n_tasks).map(|_| CachePadded::new(zero())).collect();
        let classes = [0..urgent, urgent..n_tasks];
        Self { n_tasks, classes, words, ready: (0..pieces).map(ready).collect(), claims }
    }

    /// Makes an instance's blocks claimable. The caller is the only one who may post this place, and posts it again only
    /// after all blocks of the last time are done.
    pub(crate) fn post(&self, place: Place, blocks: usize) {
        debug_assert!(blocks > 0 && (blocks as u64) < NEXT_MASK);
        // Subtle: the bit comes first. A worker that still looks at this place from the last time could otherwise claim
        // the last block, and take the bit away, before it is set: the bit would stand for nothing until the next time.
        let (word, bit) = self.ready_word(place);
        word.fetch_or(bit, Ordering::Relaxed);
        // Release: pairs with the Acquire in `claim_block`, so that a claimer sees all that preceded the posting.
        // A swap where a store would do: loom does not know that a late claim's addition cannot come to stand after the
        // store without having seen it.
        self.claim_word(place).swap((blocks as u64) << BLOCKS_SHIFT, Ordering::Release);
    }

    /// Takes the next block of the most urgent ready instance; `oldest` is the oldest iteration's slot.
    pub(crate) fn claim(&self, oldest: usize) -> Option<Claim> {
        for class in &self.classes {
            for age in 0..SLOTS {
                let slot = (oldest + age) % SLOTS;
                for w in words(class) {
                    // Relaxed: a bit is a hint, `claim_block` decides; who must not miss one has it from `Sleep`.
                    let mut bits = self.word(slot, w).load(Ordering::Relaxed) & mask(class, w);
                    while bits != 0 {
                        let position = w * 64 + bits.trailing_zeros() as usize;
                        bits &= bits - 1;
                        let place = Place { slot, position };
                        if let Some(block) = self.claim_block(place) {
                            return Some(Claim { place, block });
                        }
                    }
                }
            }
        }
        None
    }

    /// Takes another block of the same instance: a worker finishes what it started before it looks further.
    pub(crate) fn claim_block(&self, place: Place) -> Option<usize> {
        let word = self.claim_word(place);
        let seen = word.load(Ordering::Relaxed);
        if (seen & NEXT_MASK) >= (seen >> BLOCKS_SHIFT) {
            return None;
        }
        // Acquire: pairs with the Release in `post`.
        let claimed = word.fetch_add(1, Ordering::Acquire);
        let (blocks, block) = (claimed >> BLOCKS_SHIFT, claimed & NEXT_MASK);
        if block >= blocks {
            return None;
        }
        if block + 1 == blocks {
            // Subtle: only the claimer of the last block takes the bit away, and before it runs the block: the place
            // cannot be posted again until that block is done, so a new posting's bit is never lost. Relaxed: the
            // Acquire above orders this after the posting's `fetch_or`.
            let (word, bit) = self.ready_word(place);
            word.fetch_and(!bit, Ordering::Relaxed);
        }
        Some(block as usize)
    }

    /// True when a more urgent instance than the one at `place` is ready.
    pub(crate) fn has_more_urgent(&self, place: Place, oldest: usize) -> bool {
        let own_age = (place.slot + SLOTS - oldest) % SLOTS;
        let any = |age: usize, positions: Range<usize>| {
            let slot = (oldest + age) % SLOTS;
            words(&positions)
                .any(|w| self.word(slot, w).load(Ordering::Relaxed) & mask(&positions, w) != 0)
        };
        let [urgent, waiting] = self.classes.clone();
        let is_urgent = urgent.contains(&place.position);
        let own = if is_urgent { urgent.clone() } else { waiting };
        !is_urgent && (0..SLOTS).any(|age| any(age, urgent.clone()))
            || (0..own_age).any(|age| any(age, own.clone()))
            || any(own_age, own.start..place.position)
    }

    fn claim_word(&self, place: Place) -> &AtomicU64 {
        &self.claims[place.slot * self.n_tasks + place.position]
    }

    fn ready_word(&self, place: Place) -> (&AtomicU64, u64) {
        (self.word(place.slot, place.position / 64), 1 << (place.position % 64))
    }

    /// Ready bits of 64 positions.
    fn word(&self, slot: usize, index: usize) -> &AtomicU64 {
        let pieces = self.words.div_ceil(WORDS_TOGETHER);
        &self.ready[slot * pieces + index / WORDS_TOGETHER][index % WORDS_TOGETHER]
    }
}

/// The words with bits of some positions.
fn words(positions: &Range<usize>) -> Range<usize> {
    positions.start / 64..positions.end.div_ceil(64)
}

/// The bits of some positions in a word that has any.
fn mask(positions: &Range<usize>, word: usize) -> u64 {
    let below = |position: usize| match position.saturating_sub(word * 64) {
        0..64 => (1 << (position.saturating_sub(word * 64))) - 1,
        _ => u64::MAX,
    };
    below(positions.end) & !below(positions.start)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::sync::Mutex;

    use super::*;

    fn place(slot: usize, position: usize) -> Place {
        Place { slot, position }
    }

    #[test]
    fn the_oldest_iteration_comes_first_then_the_most_urgent_task() {
        let board = Board::new(100, 100);
        board.post(place(0, 3), 1);
        board.post(place(2, 70), 1);
        board.post(place(2, 9), 2);
        let order: Vec<_> =
            std::iter::from_fn(|| board.claim(2)).map(|c| (c.place, c.block)).collect();
        let expected = [(place(2, 9), 0), (place(2, 9), 1), (place(2, 70), 0), (place(0, 3), 0)];
        assert_eq!(order, expected);
    }

    #[test]
    fn urgency_is_seen_across_slots_and_words() {
        let board = Board::new(100, 100);
        board.post(place(1, 80), 1);
        assert!(!board.has_more_urgent(place(1, 80), 1));
        assert!(board.has_more_urgent(place(1, 90), 1));
        assert!(board.has_more_urgent(place(2, 0), 1));
        assert!(!board.has_more_urgent(place(2, 0), 2));
    }

    #[test]
    fn what_can_wait_comes_after_what_is_urgent_in_any_iteration() {
        for urgent in [1, 63, 64, 70] {
            let board = Board::new(200, urgent);
            let places = [place(0, 0), place(1, urgent - 1), place(0, urgent), place(1, 199)];
            for &place in places.iter().rev() {
                board.post(place, 1);
            }
            let order = std::iter::from_fn(|| {
                let next = board.claim(0)?.place;
                assert!(!board.has_more_urgent(next, 0), "{urgent}: {next:?}");
                Some(next)
            });
            assert_eq!(order.collect::<Vec<_>>(), places, "{urgent}");
        }
    }

    #[test]
    fn what_can_wait_gives_way_to_the_next_iteration() {
        let board = Board::new(200, 70);
        board.post(place(1, 69), 1);
        assert!(board.has_more_urgent(place(0, 70), 0));
        assert!(!board.has_more_urgent(place(0, 69), 0));
    }

    #[test]
    fn tasks_of_all_words_are_found_in_order() {
        let n_tasks = 64 * (2 * WORDS_TOGETHER + 1);
        let board = Board::new(n_tasks, n_tasks);
        let positions: Vec<usize> = (0..n_tasks).rev().step_by(61).collect();
        for slot in [2, 0] {
            positions.iter().for_each(|&position| board.post(place(slot, position), 1));
        }
        let last = place(0, n_tasks - 1);
        assert!(board.has_more_urgent(last, 2));
        let order: Vec<_> = std::iter::from_fn(|| board.claim(2)).map(|c| c.place).collect();
        let posted = |slot| positions.iter().rev().map(move |&position| place(slot, position));
        assert_eq!(order, posted(2).chain(posted(0)).collect::<Vec<_>>());
        assert!(!board.has_more_urgent(last, 2));
    }

    #[test]
    fn every_block_is_claimed_once_through_many_postings() {
        let board = Arc::new(Board::new(2, 2));
        for round in 1..300 {
            let blocks = 1 + round % 7;
            board.post(place(round % SLOTS, round % 2), blocks);
            let seen = Arc::new(Mutex::new(BTreeSet::new()));
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let (board, seen) = (Arc::clone(&board), Arc::clone(&seen));
                    std::thread::Builder::new()
                        .spawn(move || {
                            while let Some(claim) = board.claim(0) {
                                assert!(seen.lock().unwrap().insert(claim.block));
                            }
                        })
                        .unwrap()
                })
                .collect();
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(seen.lock().unwrap().len(), blocks);
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::sync::AtomicU32;

    const PLACE: Place = Place { slot: 0, position: 0 };
    const LESS_URGENT: Place = Place { slot: 0, position: 1 };

    /// What was posted: the work of block `b` of posting `p` is to be found at `p`, written before the posting.
    struct Shared {
        board: Board,
        work: [AtomicU32; 2],
        left: AtomicU32,
        taken: [[AtomicU32; 2]; 2],
    }

    impl Shared {
        fn new(blocks: u32) -> Self {
            let zero = || AtomicU32::new(0);
            Self {
                board: Board::new(2, 2),
                work: [zero(), zero()],
                left: AtomicU32::new(blocks),
                taken: [[zero(), zero()], [zero(), zero()]],
            }
        }

        /// Does one block; whoever does the last one of the first posting posts the place again, as a session would.
        fn run(&self, claim: &Claim, blocks: [u32; 2]) {
            // Relaxed: only what the board orders is to be seen.
            let posting = self.work[1].load(Ordering::Relaxed) as usize;
            assert_eq!(self.work[0].load(Ordering::Relaxed), 1, "the poster's writes are seen");
            self.taken[posting][claim.block].fetch_add(1, Ordering::Relaxed);
            if self.left.fetch_sub(1, Ordering::AcqRel) == 1 && posting == 0 && blocks[1] > 0 {
                self.work[1].store(1, Ordering::Relaxed);
                self.left.store(blocks[1], Ordering::Relaxed);
                self.board.post(PLACE, blocks[1] as usize);
            }
        }

        fn work_off(&self, blocks: [u32; 2], looks: usize) {
            for _ in 0..looks {
                if let Some(claim) = self.board.claim(0) {
                    self.run(&claim, blocks);
                }
            }
        }
    }

    /// Two workers and a poster; then whatever the workers left is taken.
    fn model(blocks: [u32; 2], looks: usize) {
        loom::model(move || {
            let shared = Arc::new(Shared::new(blocks[0]));
            let workers: Vec<_> = (0..2)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || shared.work_off(blocks, looks))
                })
                .collect();
            shared.work[0].store(1, Ordering::Relaxed);
            shared.board.post(PLACE, blocks[0] as usize);
            for worker in workers {
                worker.join().unwrap();
            }
            while let Some(claim) = shared.board.claim(0) {
                shared.run(&claim, blocks);
            }
            for (taken, &blocks) in shared.taken.iter().zip(&blocks) {
                for (block, taken) in taken.iter().enumerate() {
                    let expected = u32::from(block < blocks as usize);
                    assert_eq!(taken.load(Ordering::Relaxed), expected, "each block once");
                }
            }
            assert!(!shared.board.has_more_urgent(LESS_URGENT, 0), "no bit outlives its blocks");
        });
    }

    #[test]
    fn each_block_is_claimed_once() {
        model([2, 0], 1);
    }

    #[test]
    fn late_claims_never_mix_two_postings() {
        model([1, 1], 2);
    }

    #[test]
    fn the_second_posting_keeps_its_bit() {
        model([1, 2], 1);
    }
}
