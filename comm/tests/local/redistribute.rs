//! Redistribute: any messages, any order of ranges, sums that are the same on all ranks that hold them.

use std::ops::Range;

use lockstep_comm::{Exchange, Message, Receive};
use proptest::prelude::*;

use crate::harness::{Chunking, ROOMY, TIGHT, on_ranks, region, whole};

/// A transfer of `len` elements between ranks, possibly the same one.
#[derive(Debug, Clone)]
struct Transfer {
    from: usize,
    to: usize,
    src: Range<usize>,
    dst: Range<usize>,
}

const SRC_LEN: usize = 500;

/// Destinations are laid out one after the other on each rank, then dealt out in a shuffled order.
fn transfers() -> impl Strategy<Value = (usize, Vec<Transfer>, Chunking)> {
    let item = (any::<usize>(), any::<usize>(), 0_usize..SRC_LEN, 0_usize..120);
    let items = (2_usize..5, prop::collection::vec(item, 0..24), any::<u64>());
    let chunking = (prop::sample::select(vec![4, 64, 256, 1 << 20]), 1_usize..4);
    (items, chunking).prop_map(|((n_ranks, items, seed), (chunk_bytes, window))| {
        let mut filled = vec![0; n_ranks];
        let mut transfers: Vec<_> = items
            .into_iter()
            .map(|(from, to, start, len)| {
                let (from, to, len) = (from % n_ranks, to % n_ranks, len.min(SRC_LEN - start));
                let dst = filled[to]..filled[to] + len;
                filled[to] = dst.end;
                Transfer { from, to, src: start..start + len, dst }
            })
            .collect();
        transfers.sort_by_key(|transfer| (transfer.src.start as u64).wrapping_mul(seed | 1));
        (n_ranks, transfers, Chunking { chunk_bytes, window })
    })
}

fn check(n_ranks: usize, transfers: &[Transfer], chunking: Chunking) {
    let dst_len = transfers.iter().map(|transfer| transfer.dst.end).max().unwrap_or(0);
    let results = on_ranks(n_ranks, chunking, |rank| {
        let me = rank.comm.rank();
        let mut src: Vec<f32> = (0..SRC_LEN).map(|element| whole(me, element)).collect();
        let mut dst = vec![f32::NAN; dst_len];
        let remote = |transfer: &&Transfer| transfer.from != transfer.to;
        let sends = transfers.iter().filter(remote).filter(|transfer| transfer.from == me);
        let receives = transfers.iter().filter(remote).filter(|transfer| transfer.to == me);
        let copies = transfers.iter().filter(|transfer| transfer.from == me && transfer.to == me);
        rank.run(Exchange::redistribute(
            rank.label(9, 0),
            region(&mut src),
            region(&mut dst),
            sends
                .map(|transfer| Message { peer: transfer.to, range: transfer.src.clone() })
                .collect(),
            receives
                .map(|transfer| Receive {
                    peer: transfer.from,
                    range: transfer.dst.clone(),
                    add: false,
                })
                .collect(),
            copies.map(|transfer| (transfer.src.clone(), transfer.dst.clone())).collect(),
        ));
        dst
    });
    for (rank, dst) in results.iter().enumerate() {
        let mut expected = vec![f32::NAN; dst_len];
        for transfer in transfers.iter().filter(|transfer| transfer.to == rank) {
            for (to, from) in transfer.dst.clone().zip(transfer.src.clone()) {
                expected[to] = whole(transfer.from, from);
            }
        }
        let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
        assert!(
            dst.iter().zip(&expected).all(same),
            "rank {rank}: {dst:?} instead of {expected:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_messages_arrive_where_they_belong((n_ranks, transfers, chunking) in transfers()) {
        check(n_ranks, &transfers, chunking);
    }
}

/// Sums rank-dependent values over 3 ranks on each of them, as strided pieces, and returns the bits on every rank.
fn all_reduce(chunking: Chunking, own_through_copy: bool) -> Vec<Vec<u32>> {
    const LEN: usize = 300;
    let value = |rank: usize, element: usize| [1e8, 1.0 + element as f32, -1e8][rank];
    on_ranks(3, chunking, |rank| {
        let me = rank.comm.rank();
        let mut src: Vec<f32> = (0..LEN).map(|element| value(me, element)).collect();
        let mut dst = if own_through_copy { vec![9.0; LEN] } else { src.clone() };
        // Every other stretch of 10, backwards.
        let pieces: Vec<_> = (0..LEN / 20).rev().map(|piece| piece * 20..piece * 20 + 10).collect();
        let peers = || (0..3).filter(|&peer| peer != me);
        let with_peers =
            || pieces.iter().flat_map(|piece| peers().map(move |peer| (peer, piece.clone())));
        let copies = if own_through_copy {
            pieces.iter().map(|piece| (piece.clone(), piece.clone())).collect()
        } else {
            Vec::new()
        };
        rank.run(Exchange::redistribute(
            rank.label(1, 0),
            region(&mut src),
            region(&mut dst),
            with_peers().map(|(peer, range)| Message { peer, range }).collect(),
            with_peers().map(|(peer, range)| Receive { peer, range, add: true }).collect(),
            copies,
        ));
        dst.iter().map(|value| value.to_bits()).collect()
    })
}

#[test]
fn sums_have_the_same_bits_on_all_ranks() {
    for chunking in [TIGHT, ROOMY] {
        let results = all_reduce(chunking, true);
        // (1e8 + x) - 1e8 loses x up to rounding to 8; x + (1e8 - 1e8) would not. Of three the tree is (0 + 1) + 2.
        assert_eq!(f32::from_bits(results[0][0]), 0.0);
        assert_eq!(f32::from_bits(results[0][9]), 8.0);
        assert_eq!(f32::from_bits(results[0][10]), 9.0, "outside the pieces nothing changes");
        assert!(results.iter().all(|result| *result == results[0]));
        let in_place = all_reduce(chunking, false);
        assert_eq!(in_place[2][..10], results[0][..10]);
    }
}

#[test]
fn a_stored_contribution_takes_its_senders_place() {
    // Rank 3 holds nothing itself: rank 0's value is stored, those of 1 and 2 are added, although they may come first.
    let results = on_ranks(4, TIGHT, |rank| {
        let me = rank.comm.rank();
        let mut src = vec![[1e8, 1.0, -1e8, 0.0][me]; 100];
        let mut dst = vec![5.0; 100];
        let sends = if me < 3 { vec![Message { peer: 3, range: 0..100 }] } else { Vec::new() };
        let receives = (0..3).map(|peer| Receive { peer, range: 0..100, add: peer != 0 });
        let receives = if me == 3 { receives.rev().collect() } else { Vec::new() };
        rank.run(Exchange::redistribute(
            rank.label(1, 0),
            region(&mut src),
            region(&mut dst),
            sends,
            receives,
            Vec::new(),
        ));
        dst
    });
    assert_eq!(results[3], vec![0.0; 100]);
    assert_eq!(results[0], vec![5.0; 100]);
}

#[test]
fn a_large_local_copy_is_complete() {
    let results = on_ranks(1, ROOMY, |rank| {
        let len = 1_000_003;
        let mut src: Vec<f32> = (0..len).map(|element| whole(0, element)).collect();
        let mut dst = vec![0.0; len];
        let copies = vec![(0..len - 1, 1..len)];
        let (from, to) = (region(&mut src), region(&mut dst));
        rank.run(Exchange::redistribute(
            rank.label(0, 0),
            from,
            to,
            Vec::new(),
            Vec::new(),
            copies,
        ));
        dst[0] == 0.0 && dst[1..] == src[..len - 1]
    });
    assert_eq!(results, [true]);
}
