//! Part-reduce and part-broadcast: every value, in every size, to the bit.

use lockstep_comm::{Algorithm, Exchange};
use proptest::prelude::*;

use crate::harness::{Chunking, ROOMY, Strips, TIGHT, even_strips, on_ranks, region, whole};

/// Part-reduces and then part-broadcasts whole numbers over `members`, and checks every element on every rank.
fn check(
    n_ranks: usize,
    len: usize,
    members: &[usize],
    strips: &Strips,
    algorithm: Algorithm,
    chunking: Chunking,
) {
    let results = on_ranks(n_ranks, chunking, |rank| {
        let me = rank.comm.rank();
        let mut data: Vec<f32> = (0..len).map(|element| whole(me, element)).collect();
        if members.contains(&me) {
            let before = rank.comm.counters();
            let reduce = Exchange::part_reduce(
                rank.label(3, 0),
                region(&mut data),
                members,
                strips,
                algorithm,
            )
            .unwrap();
            let broadcast = Exchange::part_broadcast(
                rank.label(4, 0),
                region(&mut data),
                members,
                strips,
                algorithm,
            )
            .unwrap();
            let (sent, received) = (
                reduce.bytes_sent() + broadcast.bytes_sent(),
                reduce.bytes_received() + broadcast.bytes_received(),
            );
            rank.run(Ok(reduce));
            rank.run(Ok(broadcast));
            let counters = rank.comm.counters();
            assert_eq!(counters.bytes_sent - before.bytes_sent, sent);
            assert_eq!(counters.bytes_received - before.bytes_received, received);
        }
        data
    });
    for (rank, data) in results.iter().enumerate() {
        for (element, &value) in data.iter().enumerate() {
            let summed = members.contains(&rank)
                && strips.iter().flatten().any(|range| range.contains(&element));
            let expected = if summed {
                members.iter().map(|&member| whole(member, element)).sum()
            } else {
                whole(rank, element)
            };
            assert_eq!(value, expected, "rank {rank}, element {element} of {len}");
        }
    }
}

fn check_all(n_ranks: usize, len: usize, algorithm: Algorithm, chunking: Chunking) {
    let members: Vec<_> = (0..n_ranks).collect();
    check(n_ranks, len, &members, &even_strips(len, n_ranks), algorithm, chunking);
}

#[test]
fn every_rank_count_and_odd_length_sums() {
    for algorithm in Algorithm::ALL {
        for n_ranks in [1, 2, 3, 4, 5, 8] {
            for len in [0, 1, 2, 7, 64, 1001, 20_000] {
                check_all(n_ranks, len, algorithm, TIGHT);
            }
        }
    }
}

#[test]
fn a_kilobyte_to_64_megabytes_sum() {
    for (n_ranks, bytes) in
        [(2, 1 << 10), (4, 64 << 10), (3, 4 << 20), (2, 64 << 20), (3, 64 << 20)]
    {
        for algorithm in Algorithm::ALL {
            check_all(n_ranks, bytes / 4 + 1, algorithm, ROOMY);
        }
    }
}

/// A part of the ranks, with strips of any number of ranges of any lengths, in any order in memory, leaving gaps.
fn problem() -> impl Strategy<Value = (usize, usize, Vec<usize>, Strips, Algorithm, Chunking)> {
    let sizes = (1_usize..6, 0_usize..3000);
    let choices =
        (prop::collection::vec(any::<bool>(), 6), prop::collection::vec(any::<u16>(), 0..40));
    let chunking = (prop::sample::select(vec![4, 60, 64, 1024, 1 << 20]), 1_usize..5);
    let algorithm = prop::sample::select(Algorithm::ALL.to_vec());
    (sizes, choices, algorithm, chunking).prop_map(
        |((n_ranks, len), (chosen, cuts), algorithm, (chunk_bytes, window))| {
            let members: Vec<_> = (0..n_ranks).filter(|&rank| chosen[rank]).collect();
            let mut bounds: Vec<_> = cuts.iter().map(|&cut| usize::from(cut) % (len + 1)).collect();
            bounds.sort_unstable();
            let mut strips = vec![Vec::new(); members.len()];
            for (at, pair) in bounds.chunks_exact(2).rev().enumerate() {
                if let Some(strip) = strips.get_mut(usize::from(cuts[at]) % members.len().max(1)) {
                    strip.push(pair[0]..pair[1]);
                }
            }
            (n_ranks, len, members, strips, algorithm, Chunking { chunk_bytes, window })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_members_and_strips_sum((n_ranks, len, members, strips, algorithm, chunking) in problem()) {
        check(n_ranks, len, &members, &strips, algorithm, chunking);
    }
}

/// Values with all mantissa bits in use and exponents from -8 to 7: addition of these is anything but associative.
fn wild(rank: usize, element: usize) -> f32 {
    let mixed = ((rank as u32).wrapping_mul(0x9e37_79b1)
        ^ (element as u32).wrapping_mul(0x85eb_ca77))
    .wrapping_mul(0xc2b2_ae35);
    f32::from_bits((mixed & 0x8000_0000) | (119 + (mixed >> 27) % 16) << 23 | (mixed & 0x007f_ffff))
}

/// The balanced tree over members `lo..hi` that direct exchanges and halving add in.
fn tree(lo: usize, hi: usize, element: usize) -> f32 {
    if hi - lo == 1 {
        return wild(lo, element);
    }
    let mid = lo + (hi - lo).next_power_of_two() / 2;
    tree(lo, mid, element) + tree(mid, hi, element)
}

/// The order in which a ring of `n` adds the strip of member `owner`.
fn round(n: usize, owner: usize, element: usize) -> f32 {
    let order = |k: usize| (owner + k) % n;
    (2..=n).fold(wild(order(1), element), |sum, k| sum + wild(order(k), element))
}

/// The bits of every member's strip, one after another, after a part-reduce of wild values.
fn bits(n_ranks: usize, len: usize, algorithm: Algorithm, chunking: Chunking) -> Vec<u32> {
    let (members, strips): (Vec<_>, _) = ((0..n_ranks).collect(), even_strips(len, n_ranks));
    let sums = on_ranks(n_ranks, chunking, |rank| {
        let me = rank.comm.rank();
        let mut data: Vec<f32> = (0..len).map(|element| wild(me, element)).collect();
        let label = rank.label(0, 0);
        rank.run(Exchange::part_reduce(label, region(&mut data), &members, &strips, algorithm));
        data[strips[me][0].clone()].iter().map(|value| value.to_bits()).collect::<Vec<_>>()
    });
    sums.concat()
}

#[test]
fn direct_and_halving_sum_in_the_same_balanced_tree_to_the_bit() {
    let len = 999;
    for n_ranks in [2, 3, 4, 5, 8] {
        let expected: Vec<u32> =
            (0..len).map(|element| tree(0, n_ranks, element).to_bits()).collect();
        for algorithm in [Algorithm::Direct, Algorithm::Halving] {
            for chunking in [TIGHT, ROOMY, TIGHT] {
                let found = bits(n_ranks, len, algorithm, chunking);
                assert!(found == expected, "{algorithm:?} of {n_ranks} added in another order");
            }
        }
    }
}

#[test]
fn a_ring_sums_in_an_order_of_its_own_the_same_every_time() {
    let (n_ranks, len) = (5, 999);
    let strips = even_strips(len, n_ranks);
    let expected: Vec<u32> = strips
        .iter()
        .enumerate()
        .flat_map(|(owner, strip)| {
            strip[0].clone().map(move |element| round(n_ranks, owner, element).to_bits())
        })
        .collect();
    let tree: Vec<u32> = (0..len).map(|element| tree(0, n_ranks, element).to_bits()).collect();
    assert!(expected != tree, "the order shows in these values");
    for chunking in [TIGHT, ROOMY, TIGHT] {
        let found = bits(n_ranks, len, Algorithm::Ring, chunking);
        assert!(found == expected, "the order of summation changed");
    }
}

#[test]
fn nan_and_infinity_reach_the_owner_and_then_everybody() {
    let results = on_ranks(3, TIGHT, |rank| {
        let mut data = vec![1.0; 6];
        if rank.comm.rank() == 1 {
            data[0] = f32::NAN;
            data[5] = f32::INFINITY;
        }
        let strips = even_strips(6, 3);
        rank.run(Exchange::part_reduce(
            rank.label(0, 0),
            region(&mut data),
            &[0, 1, 2],
            &strips,
            Algorithm::Direct,
        ));
        rank.run(Exchange::part_broadcast(
            rank.label(1, 0),
            region(&mut data),
            &[0, 1, 2],
            &strips,
            Algorithm::Direct,
        ));
        data
    });
    for data in results {
        assert!(data[0].is_nan());
        assert_eq!(data[1..], [3.0, 3.0, 3.0, 3.0, f32::INFINITY]);
    }
}
