//! Part-reduce and part-broadcast as stages: which strips a member sends to whom, and gets from whom, one stage after another.
//!
//! Members are named by their index. In a part-reduce what comes is added to what the member has, in a part-broadcast it is stored.
//! A stage's sends may begin when all that the stages before receive is in place. No stage writes what an earlier one sends, so
//! nobody waits for sends.

use crate::model::Algorithm;

/// The strips that travel between a member and one other in one stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parcel {
    pub(super) member: usize,
    pub(super) strips: Vec<usize>,
}

/// What one member does in one stage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Stage {
    pub(super) sends: Vec<Parcel>,
    pub(super) receives: Vec<Parcel>,
}

fn parcel(member: usize, strips: impl IntoIterator<Item = usize>) -> Parcel {
    Parcel { member, strips: strips.into_iter().collect() }
}

/// The stages of member `me` of `n` in a part-reduce.
///
/// - Direct: everybody sends everybody its strip, in one stage.
/// - Ring: strip `s` starts at member `s + 1` and goes round, each member adding its own; it ends at `s`.
/// - Halving, for a power of two: with the member at distance 1, 2, 4 .. exchange the half of the strips that the other one will
///   end up with. Strips are told apart by the same bits as members, nearest first, so that sums form the balanced tree of `sum.rs`.
pub(super) fn part_reduce(algorithm: Algorithm, me: usize, n: usize) -> Vec<Stage> {
    match algorithm.among(n) {
        Algorithm::Direct => {
            let others = || (0..n).filter(|&other| other != me);
            one_stage(
                others().map(|other| parcel(other, [other])).collect(),
                others().map(|other| parcel(other, [me])).collect(),
            )
        }
        // Counted so that the last strip to come is one's own.
        Algorithm::Ring => ring(me, n, 1),
        Algorithm::Halving => {
            let stage = |distance: usize| {
                let partner = me ^ distance;
                let half =
                    |owner: usize| (0..n).filter(move |s| (s ^ owner).is_multiple_of(2 * distance));
                Stage {
                    sends: vec![parcel(partner, half(partner))],
                    receives: vec![parcel(partner, half(me))],
                }
            };
            distances(n).map(stage).collect()
        }
    }
}

/// The stages of member `me` of `n` in a part-broadcast.
///
/// - Direct: everybody sends its strip to everybody, in one stage.
/// - Ring: every strip goes round, from its owner on.
/// - Halving (doubling, here): exchange all strips so far with the member at distance 1, 2, 4 ..; they are neighbors in memory.
pub(super) fn part_broadcast(algorithm: Algorithm, me: usize, n: usize) -> Vec<Stage> {
    match algorithm.among(n) {
        Algorithm::Direct => {
            let others = || (0..n).filter(|&other| other != me);
            one_stage(
                others().map(|other| parcel(other, [me])).collect(),
                others().map(|other| parcel(other, [other])).collect(),
            )
        }
        Algorithm::Ring => ring(me, n, 0),
        Algorithm::Halving => {
            let stage = |distance: usize| {
                let partner = me ^ distance;
                let known = |of: usize| (0..n).filter(move |s| s / distance == of / distance);
                Stage {
                    sends: vec![parcel(partner, known(me))],
                    receives: vec![parcel(partner, known(partner))],
                }
            };
            distances(n).map(stage).collect()
        }
    }
}

fn one_stage(sends: Vec<Parcel>, receives: Vec<Parcel>) -> Vec<Stage> {
    if sends.is_empty() { Vec::new() } else { vec![Stage { sends, receives }] }
}

/// Every stage passes a strip to the next member and takes another from the one before. The first to be sent is `shift` behind.
fn ring(me: usize, n: usize, shift: usize) -> Vec<Stage> {
    let back = |k: usize| (me + 2 * n - k) % n;
    let stage = |k: usize| Stage {
        sends: vec![parcel((me + 1) % n, [back(k + shift)])],
        receives: vec![parcel(back(1), [back(k + shift + 1)])],
    };
    (0..n.saturating_sub(1)).map(stage).collect()
}

/// 1, 2, 4 .. below `n`.
fn distances(n: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1), |distance| Some(distance * 2))
        .take_while(move |&distance| distance < n)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const ALL: [Algorithm; 3] = [Algorithm::Direct, Algorithm::Ring, Algorithm::Halving];

    /// Runs the stages of all members on sets of contributors, and returns what each member knows of each strip.
    fn run(
        stages: &[Vec<Stage>],
        mut known: Vec<Vec<BTreeSet<usize>>>,
    ) -> Vec<Vec<BTreeSet<usize>>> {
        let n = stages.len();
        for k in 0..stages.iter().map(Vec::len).max().unwrap_or(0) {
            let before = known.clone();
            for me in 0..n {
                for Parcel { member, strips } in &stages[me][k].receives {
                    let sent = stages[*member][k].sends.iter().find(|sent| sent.member == me);
                    assert_eq!(sent.map(|sent| &sent.strips), Some(strips), "both ends agree");
                    for &strip in strips {
                        for &term in &before[*member][strip] {
                            assert!(known[me][strip].insert(term), "{term} comes once");
                        }
                    }
                }
            }
        }
        known
    }

    #[test]
    fn every_member_ends_with_all_contributions_to_its_strip() {
        for (n, algorithm) in (1..=17).flat_map(|n| ALL.map(|algorithm| (n, algorithm))) {
            let stages: Vec<_> = (0..n).map(|me| part_reduce(algorithm, me, n)).collect();
            let own = (0..n).map(|me| vec![BTreeSet::from([me]); n]).collect();
            for (me, strips) in run(&stages, own).into_iter().enumerate() {
                assert_eq!(strips[me], (0..n).collect(), "{algorithm:?}, member {me} of {n}");
            }
        }
    }

    #[test]
    fn every_member_ends_with_all_strips() {
        for (n, algorithm) in (1..=17).flat_map(|n| ALL.map(|algorithm| (n, algorithm))) {
            let stages: Vec<_> = (0..n).map(|me| part_broadcast(algorithm, me, n)).collect();
            let own = |me: usize| {
                (0..n)
                    .map(|s| if s == me { BTreeSet::from([me]) } else { BTreeSet::new() })
                    .collect()
            };
            for strips in run(&stages, (0..n).map(own).collect()) {
                let all = strips.iter().enumerate().all(|(s, known)| *known == BTreeSet::from([s]));
                assert!(all, "{algorithm:?} of {n}");
            }
        }
    }

    #[test]
    fn halving_takes_few_stages_and_falls_back() {
        assert_eq!(part_reduce(Algorithm::Halving, 3, 8).len(), 3);
        assert_eq!(part_reduce(Algorithm::Ring, 3, 8).len(), 7);
        let direct = part_reduce(Algorithm::Direct, 3, 6);
        assert_eq!(part_reduce(Algorithm::Halving, 3, 6), direct);
    }

    #[test]
    fn no_stage_writes_what_an_earlier_one_sent() {
        for (n, algorithm) in (1..=16).flat_map(|n| ALL.map(|algorithm| (n, algorithm))) {
            for stages in [part_reduce, part_broadcast].map(|stages| stages(algorithm, n / 2, n)) {
                let mut sent = BTreeSet::new();
                for stage in stages {
                    sent.extend(stage.sends.iter().flat_map(|parcel| parcel.strips.clone()));
                    let written = stage.receives.iter().flat_map(|parcel| &parcel.strips);
                    assert!(
                        written.into_iter().all(|strip| !sent.contains(strip)),
                        "{algorithm:?}, {n}"
                    );
                }
            }
        }
    }
}
