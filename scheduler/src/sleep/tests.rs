//! No announcement is missed, in every interleaving (loom) and under load.

use std::sync::Arc;

use super::Sleep;
use crate::sync::{AtomicUsize, Ordering};

/// One worker takes `pieces` pieces of work that announcers put on a counter, sleeping in between.
fn take(board: &AtomicUsize, sleep: &Sleep, pieces: usize) {
    let mut taken = 0;
    while taken < pieces {
        let ticket = sleep.ticket();
        if board.load(Ordering::Acquire) > taken {
            taken += 1;
        } else {
            sleep.sleep(ticket);
        }
    }
}

#[cfg(loom)]
fn model(announcers: usize, workers: usize) {
    loom::model(move || {
        let shared = Arc::new((AtomicUsize::new(0), Sleep::new()));
        let mut threads = Vec::new();
        for _ in 0..announcers {
            let shared = Arc::clone(&shared);
            threads.push(loom::thread::spawn(move || {
                shared.0.fetch_add(1, Ordering::Release);
                shared.1.announce(if workers == 1 { 1 } else { 2 });
            }));
        }
        for _ in 1..workers {
            let shared = Arc::clone(&shared);
            threads.push(loom::thread::spawn(move || take(&shared.0, &shared.1, announcers)));
        }
        take(&shared.0, &shared.1, announcers);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[cfg(loom)]
#[test]
fn one_worker_misses_nothing_of_one_announcer() {
    model(1, 1);
}

#[cfg(loom)]
#[test]
fn one_worker_misses_nothing_of_two_announcers() {
    model(2, 1);
}

/// Two workers share the pieces: each takes one and leaves, and each announcement wakes one worker only.
#[cfg(loom)]
#[test]
fn two_workers_share_two_announcements_of_one_piece() {
    loom::model(|| {
        let shared = Arc::new((AtomicUsize::new(0), Sleep::new()));
        let other = Arc::clone(&shared);
        let threads = [loom::thread::spawn(move || take_one(&other)), {
            let shared = Arc::clone(&shared);
            loom::thread::spawn(move || {
                for _ in 0..2 {
                    shared.0.fetch_add(1, Ordering::Release);
                    shared.1.announce(1);
                }
            })
        }];
        take_one(&shared);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// Takes one piece off the counter, sleeping while there is none.
#[cfg(loom)]
fn take_one(shared: &(AtomicUsize, Sleep)) {
    loop {
        let ticket = shared.1.ticket();
        let take = |left: usize| left.checked_sub(1);
        if shared.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).is_ok() {
            break;
        }
        shared.1.sleep(ticket);
    }
}

/// A worker that posts pieces announces all but the one that it takes itself.
#[cfg(loom)]
#[test]
fn a_poster_takes_one_piece_and_announces_the_others() {
    loom::model(|| {
        let shared = Arc::new((AtomicUsize::new(0), Sleep::new()));
        let other = Arc::clone(&shared);
        let thread = loom::thread::spawn(move || take_one(&other));
        shared.0.fetch_add(2, Ordering::Release);
        shared.1.announce(1);
        take_one(&shared);
        thread.join().unwrap();
    });
}

#[cfg(loom)]
#[test]
fn two_workers_miss_nothing_of_one_announcer() {
    model(1, 2);
}

#[cfg(not(loom))]
#[test]
fn workers_miss_nothing_under_load() {
    const PIECES: usize = 20_000;
    let shared = Arc::new((AtomicUsize::new(0), Sleep::new()));
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().spawn(move || take(&shared.0, &shared.1, PIECES)).unwrap()
        })
        .collect();
    for _ in 0..PIECES {
        shared.0.fetch_add(1, Ordering::Release);
        shared.1.announce(3);
    }
    for worker in workers {
        worker.join().unwrap();
    }
    assert_eq!(shared.0.load(Ordering::Acquire), PIECES);
}
