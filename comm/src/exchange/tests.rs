//! Descriptions of exchanges: what is refused, and what is counted.

use std::slice::from_ref;

use super::*;

const LABEL: ExchangeLabel = ExchangeLabel { id: 1, priority: 0, rank: 1 };

fn region(data: &mut [f32]) -> Region {
    Region::owned_by_caller(data)
}

/// Strips of one range each.
fn one_each(strips: &[Range<usize>]) -> Vec<Vec<Range<usize>>> {
    strips.iter().map(|strip| vec![strip.clone()]).collect()
}

#[track_caller]
fn refuses_strips(members: &[usize], strips: &[Range<usize>], message: &str) {
    let mut data = [0.0; 10];
    let (data, strips): (_, Vec<_>) = (region(&mut data), one_each(strips));
    let reduce = Exchange::part_reduce(LABEL, data, members, &strips, Algorithm::Ring);
    let broadcast = Exchange::part_broadcast(LABEL, data, members, &strips, Algorithm::Direct);
    assert_eq!(reduce.expect_err("refused").to_string(), message);
    assert_eq!(broadcast.expect_err("refused").to_string(), message);
}

#[test]
fn inconsistent_strips_are_refused() {
    refuses_strips(
        &[1, 0],
        &[0..1, 1..2],
        "exchange 1: members must be strictly ascending ranks, got [1, 0]",
    );
    refuses_strips(
        &[1, 1],
        &[0..1, 1..2],
        "exchange 1: members must be strictly ascending ranks, got [1, 1]",
    );
    refuses_strips(&[0, 2], &[0..1, 1..2], "exchange 1: rank 1 is not one of its members [0, 2]");
    refuses_strips(&[0, 1], from_ref(&(0..10)), "exchange 1: 2 members but 1 strips");
    refuses_strips(
        &[0, 1],
        &[0..5, 5..11],
        "exchange 1: elements 5..11 lie outside a tensor of 10 elements",
    );
    refuses_strips(
        &[0, 1],
        &[0..6, 5..10],
        "exchange 1: elements from 5 on are written twice; make the ranges disjoint",
    );
}

#[test]
fn ids_that_are_no_tags_are_refused() {
    let label = ExchangeLabel { id: MAX_EXCHANGE_ID + 1, ..LABEL };
    let error = Exchange::part_reduce(
        label,
        region(&mut [0.0]),
        &[1],
        &one_each(from_ref(&(0..1))),
        Algorithm::Direct,
    );
    assert_eq!(error.expect_err("refused"), CommError::IdTooLarge { id: 32_001, max: 32_000 });
}

#[test]
fn bytes_are_those_of_other_ranks() {
    let mut data = [0.0; 10];
    // Five, two and three elements.
    let (members, strips) = ([0, 1, 3], [vec![0..2, 3..6], vec![6..7, 7..8], vec![2..3, 8..10]]);
    let mut bytes = |algorithm| {
        let data = region(&mut data);
        let reduce = Exchange::part_reduce(LABEL, data, &members, &strips, algorithm);
        let broadcast = Exchange::part_broadcast(LABEL, data, &members, &strips, algorithm);
        [reduce, broadcast].map(|exchange| {
            let exchange = exchange.expect("valid");
            (exchange.kind(), exchange.bytes_sent(), exchange.bytes_received())
        })
    };
    let (reduce, broadcast) = (ExchangeKind::PartReduce, ExchangeKind::PartBroadcast);
    assert_eq!(bytes(Algorithm::Direct), [(reduce, 32, 16), (broadcast, 16, 32)]);
    // The ring passes on what rank 0 has, so what comes is rank 3's strip and rank 1's.
    assert_eq!(bytes(Algorithm::Ring), [(reduce, 32, 20), (broadcast, 28, 32)]);
}

#[test]
fn chunks_beyond_two_to_the_31_elements_are_counted_in_full() {
    // Nothing is allocated: a description holds ranges alone.
    let huge = 3_usize << 31;
    let data = Region::described(huge);
    let strips = one_each(&[0..huge / 2, huge / 2..huge]);
    let exchange = Exchange::part_broadcast(LABEL, data, &[0, 1], &strips, Algorithm::Direct);
    let exchange = exchange.expect("valid");
    assert_eq!(exchange.bytes_sent(), 3 << 32);
    let stream = &exchange.outgoing[0].stream;
    assert_eq!(stream.contiguous(3_000_000_000..3_000_000_004), Some(6_221_225_472..6_221_225_476));
}

#[test]
fn tensors_that_lie_anywhere_in_a_region_travel_in_one_message_a_peer() {
    // Two tensors of 8 and 4 elements, each cut in halves.
    let strips = [vec![40..44, 10..12], vec![44..48, 12..14]];
    let data = Region::described(50).part(0..48);
    assert_eq!(data.len(), 48);
    for algorithm in Algorithm::ALL {
        let exchange = Exchange::part_reduce(LABEL, data, &[0, 1], &strips, algorithm);
        let exchange = exchange.expect("valid");
        assert_eq!((exchange.bytes_sent(), exchange.messages_sent()), (24, 1), "{algorithm:?}");
        assert_eq!(exchange.outgoing[0].stream.ranges(), [40..44, 10..12]);
    }
}

fn receive(peer: usize, range: Range<usize>, add: bool) -> Receive {
    Receive { peer, range, add }
}

/// Describes a redistribution from a tensor of 10 elements into another.
fn redistribute(
    sends: &[(usize, Range<usize>)],
    receives: Vec<Receive>,
    copies: Vec<(Range<usize>, Range<usize>)>,
) -> Result<Exchange, CommError> {
    let (mut src, mut dst) = ([0.0; 10], [0.0; 10]);
    let sends =
        sends.iter().map(|(peer, range)| Message { peer: *peer, range: range.clone() }).collect();
    Exchange::redistribute(LABEL, region(&mut src), region(&mut dst), sends, receives, copies)
}

#[test]
fn ambiguous_redistributions_are_refused() {
    let refused = |result: Result<Exchange, CommError>| result.expect_err("refused");
    assert_eq!(
        refused(redistribute(&[(1, 0..1)], Vec::new(), Vec::new())),
        CommError::SelfMessage { id: 1, rank: 1 }
    );
    assert_eq!(
        refused(redistribute(&[], vec![receive(0, 0..3, false)], vec![(0..3, 2..5)])),
        CommError::WrittenTwice { id: 1, start: 2 }
    );
    assert_eq!(
        refused(redistribute(&[], Vec::new(), vec![(0..3, 2..4)])),
        CommError::CopyLength { id: 1, src: 3, dst: 2 }
    );
    assert_eq!(
        refused(redistribute(
            &[],
            vec![receive(0, 0..5, true), receive(2, 4..8, true)],
            Vec::new()
        )),
        CommError::UnevenAdds { id: 1, first: 0, second: 2 }
    );
    assert_eq!(
        refused(redistribute(
            &[],
            vec![receive(0, 0..5, true), receive(0, 5..8, false)],
            Vec::new()
        )),
        CommError::MixedReceive { id: 1, peer: 0 }
    );
}

#[test]
fn what_is_sent_must_not_be_overwritten() {
    let mut data = [0.0; 10];
    let same = region(&mut data);
    let sends = vec![Message { peer: 0, range: 2..6 }];
    let receives = vec![receive(0, 5..7, false)];
    let error = Exchange::redistribute(LABEL, same, same, sends, receives, Vec::new());
    assert_eq!(error.expect_err("refused"), CommError::ReadAndWritten { id: 1, start: 5 });
}

#[test]
fn adds_of_the_same_ranges_are_one_sum() {
    let receives = [(2, 0..3), (0, 0..3), (2, 5..6), (0, 5..6), (3, 7..9)];
    let receives = receives.into_iter().map(|(peer, range)| receive(peer, range, true)).collect();
    let exchange = redistribute(&[], receives, vec![(0..3, 0..3)]).expect("valid");
    let peers = |sum: &Sum| {
        sum.routes.iter().map(|&at| exchange.incoming[at].route.peer).collect::<Vec<_>>()
    };
    let mut sums: Vec<_> = exchange.sums.iter().map(|sum| (peers(sum), sum.before)).collect();
    sums.sort();
    assert_eq!(sums, [(vec![0, 2], 1), (vec![3], 0)]);
}
