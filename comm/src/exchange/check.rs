//! What makes a description of an exchange consistent; checked once, so that serving it cannot fail on it.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::error::CommError;
use crate::region::Region;

use super::{ExchangeLabel, IncomingRoute, MAX_EXCHANGE_ID, Message, Receive, Route, Sum};

/// Checks id, members and strips and returns this rank's index among the members.
pub(super) fn own_index(
    label: ExchangeLabel,
    data: Region,
    members: &[usize],
    strips: &[Vec<Range<usize>>],
) -> Result<usize, CommError> {
    let ExchangeLabel { id, rank, .. } = label;
    if id > MAX_EXCHANGE_ID {
        return Err(CommError::IdTooLarge { id, max: MAX_EXCHANGE_ID });
    }
    if !members.is_sorted_by(|a, b| a < b) {
        return Err(CommError::MembersNotAscending { id, members: members.to_vec() });
    }
    if members.len() != strips.len() {
        return Err(CommError::StripCount { id, members: members.len(), strips: strips.len() });
    }
    strips.iter().flatten().try_for_each(|range| in_bounds(id, data, range))?;
    if let Some(start) = first_overlap(&strips.concat()) {
        return Err(CommError::WrittenTwice { id, start });
    }
    let me = members.iter().position(|&member| member == rank);
    me.ok_or_else(|| CommError::NotAMember { id, rank, members: members.to_vec() })
}

fn in_bounds(id: u32, region: Region, range: &Range<usize>) -> Result<(), CommError> {
    if range.start <= range.end && range.end <= region.len() {
        return Ok(());
    }
    Err(CommError::OutOfBounds { id, start: range.start, end: range.end, len: region.len() })
}

/// Every range lies in its region, and copies are as long as what they overwrite.
pub(super) fn bounds(
    id: u32,
    src: Region,
    dst: Region,
    sends: &[Message],
    receives: &[Receive],
    copies: &[(Range<usize>, Range<usize>)],
) -> Result<(), CommError> {
    sends.iter().try_for_each(|send| in_bounds(id, src, &send.range))?;
    receives.iter().try_for_each(|receive| in_bounds(id, dst, &receive.range))?;
    for (from, to) in copies {
        in_bounds(id, src, from)?;
        in_bounds(id, dst, to)?;
        if from.len() != to.len() {
            return Err(CommError::CopyLength { id, src: from.len(), dst: to.len() });
        }
    }
    Ok(())
}

/// Nobody talks to itself, no element is stored twice, and nothing that is read is written.
pub(super) fn writes(
    label: ExchangeLabel,
    src: Region,
    dst: Region,
    sends: &[Message],
    receives: &[Receive],
    copies: &[(Range<usize>, Range<usize>)],
) -> Result<(), CommError> {
    let ExchangeLabel { id, rank, .. } = label;
    let peers =
        sends.iter().map(|send| send.peer).chain(receives.iter().map(|receive| receive.peer));
    if peers.into_iter().any(|peer| peer == rank) {
        return Err(CommError::SelfMessage { id, rank });
    }
    let stores =
        receives.iter().filter(|receive| !receive.add).map(|receive| receive.range.clone());
    let stored: Vec<_> = stores.chain(copies.iter().map(|(_, to)| to.clone())).collect();
    if let Some(start) = first_overlap(&stored) {
        return Err(CommError::WrittenTwice { id, start });
    }
    let reads = sends.iter().map(|send| &send.range).chain(copies.iter().map(|(from, _)| from));
    let mut reads: Vec<_> =
        reads.filter(|range| !range.is_empty()).map(|range| src.addresses(range)).collect();
    let written =
        receives.iter().map(|receive| &receive.range).chain(copies.iter().map(|(_, to)| to));
    let mut written: Vec<_> =
        written.filter(|range| !range.is_empty()).map(|range| dst.addresses(range)).collect();
    union(&mut reads);
    union(&mut written);
    match first_common(&reads, &written) {
        Some(address) => {
            let base = src.addresses(&(0..0)).start;
            Err(CommError::ReadAndWritten { id, start: (address - base) / size_of::<f32>() })
        }
        None => Ok(()),
    }
}

/// The peers whose receives add.
pub(super) fn adding_peers(id: u32, receives: &[Receive]) -> Result<BTreeSet<usize>, CommError> {
    let of_kind = |add: bool| -> BTreeSet<usize> {
        let kind =
            receives.iter().filter(|receive| receive.add == add && !receive.range.is_empty());
        kind.map(|receive| receive.peer).collect()
    };
    let adding = of_kind(true);
    match adding.intersection(&of_kind(false)).next() {
        Some(&peer) => Err(CommError::MixedReceive { id, peer }),
        None => Ok(adding),
    }
}

/// Groups adding routes that cover the same elements into sums; sums must not overlap each other.
pub(super) fn sums(
    label: ExchangeLabel,
    incoming: Vec<(bool, Route)>,
) -> Result<(Vec<IncomingRoute>, Vec<Sum>), CommError> {
    let mut sums: Vec<Sum> = Vec::new();
    let mut routes: Vec<IncomingRoute> = Vec::new();
    for (at, (adds, route)) in incoming.into_iter().enumerate() {
        let sum = adds.then(|| {
            let same = |sum: &Sum| {
                let known = &routes[sum.routes[0]].route;
                known.stage == route.stage && known.stream == route.stream
            };
            let known = sums.iter().position(same);
            known.unwrap_or_else(|| {
                sums.push(Sum { routes: Vec::new(), before: 0, after: Vec::new() });
                sums.len() - 1
            })
        });
        if let Some(sum) = sum {
            sums[sum].routes.push(at);
        }
        routes.push(IncomingRoute { route, sum });
    }
    check_apart(label.id, &routes, &sums)?;
    for sum in &mut sums {
        sum.routes.sort_by_key(|&at| routes[at].route.peer);
        let covered = sorted(routes[sum.routes[0]].route.stream.ranges());
        let meets = |at: &usize| {
            routes[*at].sum.is_none()
                && first_common(&sorted(routes[*at].route.stream.ranges()), &covered).is_some()
        };
        sum.after = (0..routes.len()).filter(meets).collect();
        let base = sum.after.iter().map(|&at| routes[at].route.peer).min().unwrap_or(label.rank);
        sum.before = sum.routes.iter().filter(|&&at| routes[at].route.peer < base).count();
    }
    Ok((routes, sums))
}

/// Refuses sums of one stage that overlap one another or themselves.
fn check_apart(id: u32, routes: &[IncomingRoute], sums: &[Sum]) -> Result<(), CommError> {
    let mut covered: Vec<(usize, Range<usize>, usize)> = Vec::new();
    for sum in sums {
        let Route { peer, stage, stream, .. } = &routes[sum.routes[0]].route;
        covered.extend(stream.ranges().iter().map(|range| (*stage, range.clone(), *peer)));
    }
    covered.sort_by_key(|(stage, range, _)| (*stage, range.start));
    let clash =
        covered.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[1].1.start < pair[0].1.end);
    clash.map_or(Ok(()), |pair| {
        Err(CommError::UnevenAdds {
            id,
            first: pair[0].2.min(pair[1].2),
            second: pair[0].2.max(pair[1].2),
        })
    })
}

fn sorted(ranges: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut ranges = ranges.to_vec();
    ranges.sort_by_key(|range| range.start);
    ranges
}

/// First element that two of the ranges share. O(n log n).
fn first_overlap(ranges: &[Range<usize>]) -> Option<usize> {
    let mut ranges = sorted(ranges);
    ranges.retain(|range| !range.is_empty());
    ranges.windows(2).find(|pair| pair[1].start < pair[0].end).map(|pair| pair[1].start)
}

/// Sorts ranges and merges those that overlap or touch.
fn union(ranges: &mut Vec<Range<usize>>) {
    ranges.sort_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let joins = next.start <= last.end;
        if joins {
            last.end = last.end.max(next.end);
        }
        joins
    });
}

/// First element in both of two sorted lists of disjoint, non-empty ranges. O(n).
fn first_common(a: &[Range<usize>], b: &[Range<usize>]) -> Option<usize> {
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let start = a[i].start.max(b[j].start);
        if start < a[i].end.min(b[j].end) {
            return Some(start);
        }
        if a[i].end <= b[j].end {
            i += 1;
        } else {
            j += 1;
        }
    }
    None
}
