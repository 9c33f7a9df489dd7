//! Exchanges measured: alone, in pairs, overtaken; and what is counted of them.

use std::sync::Arc;

use lockstep_comm::{Algorithm, Exchange, ExchangePair};

use crate::harness::{ROOMY, TIGHT, even_strips, on_ranks, region};

#[test]
fn exchanges_run_alone_one_by_one_and_do_what_they_should() {
    on_ranks(3, TIGHT, |rank| {
        let (mut first, mut second) = (vec![1.0; 1000], vec![rank.comm.rank() as f32; 300]);
        let reduce = |id, data: &mut Vec<f32>, members: &[usize]| {
            let strips = even_strips(data.len(), members.len());
            let (label, data) = (rank.label(id, 0), region(data));
            Arc::new(
                Exchange::part_reduce(label, data, members, &strips, Algorithm::Direct).unwrap(),
            )
        };
        let all = reduce(0, &mut first, &[0, 1, 2]);
        // Rank 1 takes no part in the second.
        let some = (rank.comm.rank() != 1).then(|| reduce(1, &mut second, &[0, 2]));
        // SAFETY: the tensors outlive the call.
        let times = unsafe { rank.comm.isolate(&[Some(Arc::clone(&all)), some.clone()]) }.unwrap();
        assert_eq!(times.len(), 2);
        assert!(!times[0].is_zero());
        // Neither counters nor tallies know of it.
        assert_eq!((rank.comm.counters().bytes_sent, all.served().0), (0, 0));
        drop((all, some));
        let own = even_strips(1000, 3)[rank.comm.rank()][0].clone();
        assert!(first[own].iter().all(|&sum| sum == 3.0));
        assert_eq!(second[299], [0.0, 1.0, 2.0][rank.comm.rank()]);
    });
}

#[test]
fn an_exchange_counts_how_often_it_was_served() {
    on_ranks(2, ROOMY, |rank| {
        let mut data = vec![1.0; 5000];
        let exchange = Exchange::part_broadcast(
            rank.label(0, 0),
            region(&mut data),
            &[0, 1],
            &even_strips(5000, 2),
            Algorithm::Direct,
        );
        let exchange = Arc::new(exchange.unwrap());
        for step in 0..3 {
            rank.submit(&exchange, step, 7);
            assert_eq!(rank.completed(), 7);
        }
        let (times, total) = exchange.served();
        assert!(times == 3 && !total.is_zero());
    });
}

#[test]
fn pairs_run_in_series_by_every_algorithm_while_another_is_under_way() {
    on_ranks(4, TIGHT, |rank| {
        let mut bulk = ExchangePair::new(&rank.comm, 40_000, Algorithm::Direct, (0, 9)).unwrap();
        for (id, algorithm) in (2..).step_by(2).zip(Algorithm::ALL) {
            let mut pair = ExchangePair::new(&rank.comm, 5000, algorithm, (id, 0)).unwrap();
            assert_eq!(pair.bytes_sent(), 2 * 3 * 5000);
            assert!(!pair.run(&rank.comm, 3).unwrap().is_zero());
            assert!(pair.run(&rank.comm, 0).unwrap().is_zero());
            assert_eq!(bulk.overtaken_by(&rank.comm, &mut pair, 2).unwrap().len(), 2);
        }
        assert_eq!(rank.comm.mpi_baseline(100, 1), Ok(None));
        rank.comm.barrier().unwrap();
    });
}
