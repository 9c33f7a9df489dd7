//! Many exchanges at once: any order of submission, iterations that overlap, and urgency.

use std::collections::HashSet;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};

use lockstep_comm::{
    Algorithm, CommConfig, Communicator, Completion, Exchange, ExchangeLabel, LocalJob,
    ServiceOrder,
};

use crate::harness::{
    Chunking, PATIENCE, ROOMY, Rank, TIGHT, even_strips, on_ranks, region, start, whole,
};

/// Deals out `0..n` in an order that depends on `seed`.
fn shuffled(n: usize, seed: usize) -> Vec<usize> {
    let mut order: Vec<_> = (0..n).collect();
    order.sort_by_key(|&i| (i + 1).wrapping_mul(2_654_435_761 + 2 * seed) % 1009);
    order
}

/// Every rank submits part-reduces of many sizes in an order of its own, and each again as soon as it is completed, followed by
/// part-broadcasts of the same tensors; no two ranks need be in the same iteration.
fn overlapping_iterations(n_ranks: usize, chunking: Chunking) {
    const TENSORS: usize = 20;
    const ITERATIONS: u64 = 4;
    on_ranks(n_ranks, chunking, |rank| {
        let me = rank.comm.rank();
        let members: Vec<_> = (0..n_ranks).collect();
        let len = |tensor: usize| [0, 1, 3, 100, 1000, 5000, 20_000][tensor % 7];
        let mut data: Vec<Vec<f32>> = (0..TENSORS)
            .map(|tensor| (0..len(tensor)).map(|element| whole(me, element)).collect())
            .collect();
        let exchanges: Vec<_> = data
            .iter_mut()
            .enumerate()
            .map(|(tensor, data)| {
                let strips = even_strips(data.len(), n_ranks);
                let label = |id: usize| rank.label(id as u32, (id * 7 % 11) as u32);
                let algorithm = Algorithm::ALL[tensor % Algorithm::ALL.len()];
                let (id, data) = (2 * tensor, region(data));
                let reduce = Exchange::part_reduce(label(id), data, &members, &strips, algorithm);
                let broadcast =
                    Exchange::part_broadcast(label(id + 1), data, &members, &strips, algorithm);
                [Arc::new(reduce.unwrap()), Arc::new(broadcast.unwrap())]
            })
            .collect();
        for tensor in shuffled(TENSORS, me) {
            rank.submit(&exchanges[tensor][0], 0, (tensor * 2) as u64);
        }
        let mut left = TENSORS * 2 * ITERATIONS as usize;
        while left > 0 {
            let token = rank.completed();
            left -= 1;
            let (tensor, phase, iteration) = (token as usize % 1000 / 2, token % 2, token / 1000);
            if phase == 0 {
                rank.submit(&exchanges[tensor][1], iteration, token + 1);
            } else if iteration + 1 < ITERATIONS {
                rank.submit(&exchanges[tensor][0], iteration + 1, token - 1 + 1000);
            }
        }
        drop(exchanges);
        // The sum is the same on all ranks, so each further iteration multiplies it by the number of ranks.
        let factor = (n_ranks as f32).powi(ITERATIONS as i32 - 1);
        for (tensor, data) in data.iter().enumerate() {
            for (element, &value) in data.iter().enumerate() {
                let sum: f32 = members.iter().map(|&member| whole(member, element)).sum();
                assert_eq!(value, sum * factor, "rank {me}, tensor {tensor}, element {element}");
            }
        }
    });
}

#[test]
fn ranks_submit_in_any_order_and_run_ahead_2() {
    overlapping_iterations(2, TIGHT);
}

#[test]
fn ranks_submit_in_any_order_and_run_ahead_3() {
    overlapping_iterations(3, Chunking { chunk_bytes: 1000, window: 2 });
}

#[test]
fn ranks_submit_in_any_order_and_run_ahead_4() {
    overlapping_iterations(4, ROOMY);
}

#[test]
fn ranks_submit_in_any_order_and_run_ahead_8() {
    overlapping_iterations(8, Chunking { chunk_bytes: 512, window: 1 });
}

/// A rank that runs ahead fills its window with what its peer is not ready for; what the peer waits for must still get through.
#[test]
fn an_urgent_exchange_that_the_peer_has_not_submitted_blocks_nothing() {
    on_ranks(2, TIGHT, |rank| {
        let me = rank.comm.rank();
        let (mut early, mut late) = (vec![1.0; 10_000], vec![2.0; 10_000]);
        let strips = even_strips(10_000, 2);
        let broadcast = |id, priority, data: &mut Vec<f32>| {
            Arc::new(
                Exchange::part_broadcast(
                    rank.label(id, priority),
                    region(data),
                    &[0, 1],
                    &strips,
                    Algorithm::Direct,
                )
                .unwrap(),
            )
        };
        let (urgent, patient) = (broadcast(0, 0, &mut early), broadcast(1, 9, &mut late));
        if me == 0 {
            rank.submit(&urgent, 0, 0);
            rank.submit(&patient, 0, 1);
            assert_eq!([rank.completed(), rank.completed()], [1, 0]);
        } else {
            rank.submit(&patient, 0, 1);
            assert_eq!(rank.completed(), 1);
            rank.submit(&urgent, 0, 0);
            assert_eq!(rank.completed(), 0);
        }
    });
}

/// Which of a large exchange and a small, more urgent one ends first, as seen by both ranks. Both are in the queue before either is
/// served, the large one first.
fn first_to_end(order: ServiceOrder) -> Vec<u64> {
    let run = |endpoint| {
        let (go, gate) = channel::<()>();
        let gate = Mutex::new(gate);
        let first = Mutex::new(true);
        let on_step = move |_| {
            if std::mem::replace(&mut *first.lock().unwrap(), false) {
                gate.lock().unwrap().recv().unwrap();
            }
        };
        let rank: Rank = start(
            endpoint,
            CommConfig {
                chunk_bytes: 4096,
                window: 2,
                order,
                on_step: Some(Box::new(on_step)),
                ..CommConfig::default()
            },
        );
        let (mut large, mut small) = (vec![1.0; 4 << 20], vec![1.0; 20_000]);
        let reduce = |id, priority, data: &mut Vec<f32>| {
            let (strips, data) = (even_strips(data.len(), 2), region(data));
            let label = rank.label(id, priority);
            let reduce = Exchange::part_reduce(label, data, &[0, 1], &strips, Algorithm::Direct);
            Arc::new(reduce.unwrap())
        };
        let (bulk, urgent) = (reduce(0, 5, &mut large), reduce(1, 1, &mut small));
        rank.submit(&bulk, 1, 0);
        rank.submit(&urgent, 1, 1);
        go.send(()).unwrap();
        let (first, _) = (rank.completed(), rank.completed());
        rank.comm.shutdown().unwrap();
        first
    };
    std::thread::scope(|scope| {
        let ranks = LocalJob::endpoints(2).into_iter();
        let ranks: Vec<_> = ranks.map(|endpoint| scope.spawn(move || run(endpoint))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn a_small_urgent_exchange_overtakes_a_large_one() {
    assert_eq!(first_to_end(ServiceOrder::Priority), [1, 1]);
}

#[test]
fn first_come_first_served_where_that_was_asked_for() {
    assert_eq!(first_to_end(ServiceOrder::Fifo), [0, 0]);
}

#[test]
fn several_threads_may_submit() {
    on_ranks(2, ROOMY, |rank| {
        let mut data = vec![vec![1.0_f32; 100]; 64];
        let exchanges: Vec<_> = data
            .iter_mut()
            .enumerate()
            .map(|(id, data)| {
                let strips = even_strips(100, 2);
                let label = rank.label(id as u32, 0);
                Arc::new(
                    Exchange::part_reduce(label, region(data), &[0, 1], &strips, Algorithm::Direct)
                        .unwrap(),
                )
            })
            .collect();
        let comm = &rank.comm;
        std::thread::scope(|scope| {
            for (part, exchanges) in exchanges.chunks(16).enumerate() {
                scope.spawn(move || {
                    for (i, exchange) in exchanges.iter().enumerate() {
                        // SAFETY: `data` lives until all completions have been seen below.
                        unsafe { comm.submit(exchange, 0, (part * 16 + i) as u64) };
                    }
                });
            }
        });
        let tokens: HashSet<_> = (0..64).map(|_| rank.completed()).collect();
        assert_eq!(tokens.len(), 64);
    });
}

/// More than the queue holds, from the thread that empties it: it must not wait for itself.
#[test]
fn a_callback_may_submit_more_than_the_queue_holds() {
    const N: u32 = 3000;
    let mut data = vec![1.0; N as usize];
    let strips = even_strips(1, 1);
    let exchange = |(id, data): (u32, &mut [f32])| {
        let label = ExchangeLabel { id, priority: 0, rank: 0 };
        let alone = Exchange::part_reduce(label, region(data), &[0], &strips, Algorithm::Direct);
        Arc::new(alone.unwrap())
    };
    let exchanges: Vec<_> = (0..N).zip(data.chunks_mut(1)).map(exchange).collect();
    let comm = Arc::new(OnceLock::<Communicator>::new());
    let (done, completions) = channel();
    let (handle, rest) = (Arc::clone(&comm), exchanges[1..].to_vec());
    let on_complete = move |completion: Completion| {
        if completion.token == 0 {
            let comm = handle.get().unwrap();
            // SAFETY: `data` lives until all completions have been seen below.
            rest.iter().for_each(|exchange| unsafe { comm.submit(exchange, 0, 1) });
        }
        let _ = done.send(completion.token);
    };
    let config = CommConfig { on_complete: Box::new(on_complete), ..CommConfig::default() };
    let started = Communicator::start(LocalJob::endpoints(1).remove(0), config).unwrap();
    let started = comm.get_or_init(|| started);
    // SAFETY: see above.
    unsafe { started.submit(&exchanges[0], 0, 0) };
    let tokens = (0..N).map(|_| completions.recv_timeout(PATIENCE).unwrap());
    assert_eq!(tokens.sum::<u64>(), u64::from(N) - 1);
}
