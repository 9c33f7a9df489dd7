//! The submission queue: a bounded ring into which any thread puts and from which one thread takes, without a lock.
//!
//! **Places.** Positions count up for ever; position `p` is in slot `p mod capacity`, a power of two of two or more. `tail` is the
//! next position to be put, `head` the next to be taken. Each slot has a `turn` that says whose turn it is:
//!
//! | `turn` of the slot of position `p` | the slot is |
//! |---|---|
//! | `p` | free: whoever claims `p` may write |
//! | `p + 1` | full: the consumer may take `p` |
//! | `p + capacity` | free again, for the position one round later |
//!
//! **Putting.** A producer reads `tail`, and the turn of that slot. If it is free, the producer claims the position by moving `tail`
//! on with a compare-and-swap; only one can. Then the slot's value is its alone; it writes the value and then sets the turn to
//! `p + 1`. If the turn is still that of the round before, the ring is full; if it is a later one, `tail` was stale.
//!
//! **Taking.** The consumer alone knows `head`. If the turn says that the position is full, it takes the value and sets the turn
//! to `p + capacity`.
//!
//! **Memory orders.** Storing a turn releases what was done to the value before; loading it acquires that. So a producer's write
//! comes before the consumer's take, and the take before the next producer's write to the same slot. `tail` hands out numbers and
//! orders nothing: relaxed.
//!
//! **Order.** Values come out in the order of their positions. Where a producer has claimed a position and not written yet, the
//! consumer finds the ring empty, even if later positions are full: the producer will write and ring the bell after that.
//!
//! **Full.** [`Producer::try_put`] gives the value back; [`Producer::put`] spins a little and then yields until the consumer
//! has taken something. The consumer's own thread must not wait for itself (`submission.rs` has what it does instead).
//!
//! `cargo xtask loom` runs the models below, in which every access to a value is checked.

use std::sync::Arc;

use crossbeam::utils::CachePadded;

use crate::sync::{AtomicUsize, Ordering, UnsafeCell, spin_loop, yield_now};

/// Tries of a producer at a full ring before it yields between them.
const SPINS: u32 = 64;

struct Slot<T> {
    turn: AtomicUsize,
    value: UnsafeCell<Option<T>>,
}

struct Ring<T> {
    slots: Box<[Slot<T>]>,
    tail: CachePadded<AtomicUsize>,
}

// SAFETY: a value is touched by the one thread whose turn it is (see the file's header), and goes from one thread to another.
unsafe impl<T: Send> Sync for Ring<T> {}
// SAFETY: as for `Sync`.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T> Ring<T> {
    fn slot(&self, position: usize) -> &Slot<T> {
        &self.slots[position & (self.slots.len() - 1)]
    }
}

/// The end into which values are put.
pub(crate) struct Producer<T>(Arc<Ring<T>>);

/// The end from which values are taken: there is one.
pub(crate) struct Consumer<T> {
    ring: Arc<Ring<T>>,
    head: usize,
}

/// A ring of `capacity` values, rounded up to a power of two of two or more.
pub(crate) fn ring<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let slot = |turn| Slot { turn: AtomicUsize::new(turn), value: UnsafeCell::new(None) };
    let slots = (0..capacity.max(2).next_power_of_two()).map(slot).collect();
    let ring = Arc::new(Ring { slots, tail: CachePadded::new(AtomicUsize::new(0)) });
    (Producer(Arc::clone(&ring)), Consumer { ring, head: 0 })
}

impl<T> Producer<T> {
    /// Puts a value, or gives it back if the ring is full.
    pub(crate) fn try_put(&self, value: T) -> Result<(), T> {
        let ring = &*self.0;
        let mut position = ring.tail.load(Ordering::Relaxed);
        loop {
            let slot = ring.slot(position);
            let turn = slot.turn.load(Ordering::Acquire);
            if turn == position {
                let next = position.wrapping_add(1);
                let claimed = ring.tail.compare_exchange_weak(
                    position,
                    next,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                match claimed {
                    Ok(_) => {
                        // SAFETY: the slot was free, and this thread alone has claimed its position.
                        slot.value.with_mut(|place| unsafe { *place = Some(value) });
                        slot.turn.store(next, Ordering::Release);
                        return Ok(());
                    }
                    Err(tail) => position = tail,
                }
            } else if turn.wrapping_sub(position).cast_signed() < 0 {
                return Err(value);
            } else {
                position = ring.tail.load(Ordering::Relaxed);
            }
        }
    }

    /// Puts a value, waiting for room if there is none.
    pub(crate) fn put(&self, mut value: T) {
        for attempt in 0_u32.. {
            match self.try_put(value) {
                Ok(()) => return,
                Err(back) => value = back,
            }
            if attempt < SPINS {
                spin_loop();
            } else {
                yield_now();
            }
        }
    }
}

impl<T> Consumer<T> {
    /// Whether there is nothing to take now.
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.slot(self.head).turn.load(Ordering::Acquire) != self.head.wrapping_add(1)
    }

    /// Takes the oldest value.
    pub(crate) fn take(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let slot = self.ring.slot(self.head);
        // SAFETY: the slot is full, so its producer is done with it, and there is one consumer.
        let value = slot.value.with_mut(|place| unsafe { (*place).take() });
        slot.turn.store(self.head.wrapping_add(self.ring.slots.len()), Ordering::Release);
        self.head = self.head.wrapping_add(1);
        value
    }
}

impl<T> std::fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer").field("capacity", &self.0.slots.len()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn values_come_in_order_and_a_full_ring_gives_back() {
        let (producer, mut consumer) = ring(3);
        for round in 0..3 {
            for value in 0..4 {
                assert_eq!(producer.try_put(round * 10 + value), Ok(()));
            }
            assert_eq!(producer.try_put(99), Err(99));
            assert!(!consumer.is_empty());
            let taken: Vec<_> = std::iter::from_fn(|| consumer.take()).collect();
            assert_eq!(taken, [0, 1, 2, 3].map(|value| round * 10 + value));
            assert!(consumer.is_empty());
        }
    }

    #[test]
    fn what_was_not_taken_is_dropped() {
        let value = Arc::new(());
        let (producer, consumer) = ring(2);
        producer.put(Arc::clone(&value));
        drop((producer, consumer));
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn producers_that_outrun_the_consumer_wait_and_lose_nothing() {
        const EACH: usize = 5000;
        let (producer, mut consumer) = ring(4);
        let mut seen = [0; 3];
        std::thread::scope(|scope| {
            for thread in 0..seen.len() {
                let producer = &producer;
                scope.spawn(move || (0..EACH).for_each(|value| producer.put((thread, value))));
            }
            while seen.iter().sum::<usize>() < 3 * EACH {
                match consumer.take() {
                    Some((thread, value)) => {
                        assert_eq!(value, seen[thread], "each producer's values come in order");
                        seen[thread] += 1;
                    }
                    None => yield_now(),
                }
            }
        });
        assert!(consumer.is_empty());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::thread;

    use super::*;
    use crate::doorbell::Doorbell;

    fn take(consumer: &mut Consumer<Box<usize>>) -> usize {
        loop {
            match consumer.take() {
                Some(value) => return *value,
                None => yield_now(),
            }
        }
    }

    #[test]
    fn two_producers_and_a_consumer_at_a_ring_of_two() {
        loom::model(|| {
            let (producer, mut consumer) = ring(2);
            let producer = Arc::new(producer);
            let threads: Vec<_> = (1..=2)
                .map(|value| {
                    let producer = Arc::clone(&producer);
                    thread::spawn(move || producer.put(Box::new(value)))
                })
                .collect();
            assert_eq!(take(&mut consumer) + take(&mut consumer), 3);
            assert!(consumer.take().is_none());
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    #[test]
    fn a_slot_is_used_again_after_it_was_taken() {
        loom::model(|| {
            let (producer, mut consumer) = ring(2);
            producer.put(Box::new(0));
            producer.put(Box::new(1));
            let thread = thread::spawn(move || producer.put(Box::new(2)));
            assert_eq!([(); 3].map(|()| take(&mut consumer)), [0, 1, 2]);
            thread.join().unwrap();
        });
    }

    #[test]
    fn a_value_that_was_put_before_the_bell_wakes_the_sleeper() {
        loom::model(|| {
            let (producer, mut consumer) = ring(2);
            let producer = Arc::new(producer);
            let bell = Arc::new(Doorbell::for_this_thread());
            let threads: Vec<_> = (0..2)
                .map(|value| {
                    let (producer, bell) = (Arc::clone(&producer), Arc::clone(&bell));
                    thread::spawn(move || {
                        producer.put(Box::new(value));
                        bell.ring();
                    })
                })
                .collect();
            let mut taken = 0;
            // A lost wake-up leaves this thread parked for ever, which loom reports as a deadlock.
            while taken < 2 {
                match consumer.take() {
                    Some(_) => taken += 1,
                    None => bell.sleep(None, || !consumer.is_empty()),
                }
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}
