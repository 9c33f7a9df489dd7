//! Descriptions of exchanges: which elements go from which rank to which, checked once, submitted every iteration.
//!
//! All three kinds are one thing inside: routes (a peer and a [`stream::Stream`] of elements) out and in, local copies, and
//! sums. The routes of part-reduce and part-broadcast come in stages (`stages.rs`), by the algorithm that was asked for.

mod check;
mod stages;
mod stream;
mod tally;

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use crate::error::CommError;
use crate::model::Algorithm;
use crate::region::Region;

use stages::{Parcel, Stage};

pub(crate) use stream::Stream;
pub(crate) use tally::Tally;

/// Largest id of an exchange. Ids serve as message tags, of which MPI guarantees 0 to 32767; the rest is ours.
pub const MAX_EXCHANGE_ID: u32 = 32_000;

/// What an exchange does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExchangeKind {
    /// Sums partial tensors; each member ends owning its strip of the sum (reduce-scatter).
    PartReduce,
    /// Each member's strip goes to all members (all-gather).
    PartBroadcast,
    /// Any messages between any ranks.
    Redistribute,
}

/// What an exchange is called, how urgent it is, and which rank describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExchangeLabel {
    /// The same on all ranks, different for every exchange of the job; up to [`MAX_EXCHANGE_ID`].
    pub id: u32,
    /// Lower goes first. Among equals, the one submitted first.
    pub priority: u32,
    /// The rank that describes and will submit the exchange.
    pub rank: usize,
}

/// Elements of `src` to send to a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The receiver.
    pub peer: usize,
    /// Elements of `src`.
    pub range: Range<usize>,
}

/// Elements of `dst` to receive from a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receive {
    /// The sender.
    pub peer: usize,
    /// Elements of `dst`.
    pub range: Range<usize>,
    /// Whether to add to `dst` instead of storing.
    pub add: bool,
}

/// One direction between this rank and a peer in one stage.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) peer: usize,
    pub(crate) stream: Stream,
    /// What this stage sends may depend on what earlier ones receive.
    pub(crate) stage: usize,
    /// The route in the same direction, with the same peer, of the last stage before: messages follow in this order.
    pub(crate) follows: Option<usize>,
}

impl Route {
    fn bytes(&self) -> u64 {
        (self.stream.len() * size_of::<f32>()) as u64
    }
}

/// What to do with what arrives on a route.
#[derive(Debug, Clone)]
pub(crate) struct IncomingRoute {
    pub(crate) route: Route,
    /// The sum that it contributes to, as an index into [`Exchange::sums`]; `None`: it is stored.
    pub(crate) sum: Option<usize>,
}

/// A sum of contributions that cover the same elements.
#[derive(Debug, Clone)]
pub(crate) struct Sum {
    /// Incoming routes in ascending order of their ranks. All have the same stream.
    pub(crate) routes: Vec<usize>,
    /// How many of `routes` come before the value that `dst` holds when summing starts.
    pub(crate) before: usize,
    /// Incoming routes that store into the same elements: they must be complete before summing starts.
    pub(crate) after: Vec<usize>,
}

/// An immutable description of what one rank sends, receives, copies and adds. Build it once, submit it every iteration.
#[derive(Debug)]
pub struct Exchange {
    pub(crate) label: ExchangeLabel,
    pub(crate) src: Region,
    pub(crate) dst: Region,
    pub(crate) outgoing: Vec<Route>,
    pub(crate) incoming: Vec<IncomingRoute>,
    pub(crate) sums: Vec<Sum>,
    pub(crate) copies: Vec<(Range<usize>, Range<usize>)>,
    pub(crate) n_stages: usize,
    /// How often it was served, and for how long.
    pub(crate) tally: Tally,
    kind: ExchangeKind,
}

impl Exchange {
    /// Describes a part-reduce: `strips[i]` of `data` belongs to `members[i]`, and at the end each member's own strip holds the
    /// sum of all members' values, added in an order that depends on the algorithm and nothing else: for direct and halving
    ///
    ///   tree(lo..hi) = tree(lo..mid) + tree(mid..hi),   mid = lo + the largest power of two below hi - lo
    ///
    /// over the members' indices, so of five ((m0 + m1) + (m2 + m3)) + m4; for ring, of strip `s` of `n`,
    /// ((m\[s+1\] + m\[s+2\]) + ..) + m\[s\]. The other strips hold partial sums of any number of members.
    ///
    /// # Shapes
    /// `data`: the region of one or more flat tensors, the same length on all members. A strip is any number of ranges in elements,
    /// laid end to end; all strips are disjoint, possibly empty.
    ///
    /// # Cost
    /// Sends every element of the strips but the own strip's once, whatever the algorithm. Staging memory: see
    /// [`crate::CommConfig::window`], for each peer of a stage.
    ///
    /// # Errors
    /// `id` too large; members not ascending or without `rank`; strips too many or few, out of bounds, overlapping.
    pub fn part_reduce(
        label: ExchangeLabel,
        data: Region,
        members: &[usize],
        strips: &[Vec<Range<usize>>],
        algorithm: Algorithm,
    ) -> Result<Exchange, CommError> {
        let me = check::own_index(label, data, members, strips)?;
        let stages = stages::part_reduce(algorithm, me, members.len());
        Exchange::staged(ExchangeKind::PartReduce, label, data, (members, strips), &stages)
    }

    /// Describes a part-broadcast: this rank's strip of `data` goes to all members, theirs arrive in place.
    ///
    /// # Shapes
    /// As for [`Exchange::part_reduce`].
    ///
    /// # Cost
    /// Receives every element of the strips but the own strip's once, whatever the algorithm. No staging memory, except where a
    /// chunk spans several ranges.
    ///
    /// # Errors
    /// As for [`Exchange::part_reduce`].
    pub fn part_broadcast(
        label: ExchangeLabel,
        data: Region,
        members: &[usize],
        strips: &[Vec<Range<usize>>],
        algorithm: Algorithm,
    ) -> Result<Exchange, CommError> {
        let me = check::own_index(label, data, members, strips)?;
        let stages = stages::part_broadcast(algorithm, me, members.len());
        Exchange::staged(ExchangeKind::PartBroadcast, label, data, (members, strips), &stages)
    }

    /// Turns stages over members and strips into routes over ranks and elements. What is received is added by a part-reduce.
    fn staged(
        kind: ExchangeKind,
        label: ExchangeLabel,
        data: Region,
        (members, strips): (&[usize], &[Vec<Range<usize>>]),
        stages: &[Stage],
    ) -> Result<Exchange, CommError> {
        let routes = |parcels: fn(&Stage) -> &Vec<Parcel>| -> Vec<Route> {
            let of_stage = |(stage, parcels): (usize, &Vec<Parcel>)| {
                let ranges = parcels.iter().flat_map(|Parcel { member, strips: named }| {
                    let ranges = named.iter().flat_map(|&strip| &strips[strip]);
                    ranges.map(|range| (members[*member], range.clone()))
                });
                routes(label.rank, stage, ranges)
            };
            linked(stages.iter().map(parcels).enumerate().flat_map(of_stage).collect())
        };
        let adds = kind == ExchangeKind::PartReduce;
        let incoming = routes(|stage| &stage.receives).into_iter().map(|route| (adds, route));
        let (incoming, sums) = check::sums(label, incoming.collect())?;
        Ok(Exchange {
            label,
            src: data,
            dst: data,
            outgoing: routes(|stage| &stage.sends),
            incoming,
            sums,
            copies: Vec::new(),
            n_stages: stages.len().max(1),
            tally: Tally::default(),
            kind,
        })
    }

    /// Describes an exchange of any messages. `local_copies` are (range of `src`, range of `dst`).
    ///
    /// What a rank sends to a peer travels as one stream, its ranges in the order given, and fills the ranges that the peer
    /// receives from this rank in the order given there; only the totals must agree.
    ///
    /// Where receives with `add` cover elements of `dst`, these end as the sum of all contributions, added in the balanced tree of
    /// [`Exchange::part_reduce`] over **the contributing ranks in ascending order**. What `dst` already holds (through a local copy, or from before) counts as this rank's
    /// contribution; where a receive without `add` covers the same elements, it is that peer's. So all ranks that sum the
    /// same contributions get the same bits.
    ///
    /// # Errors
    /// `id` too large; a range out of bounds; a message to itself; elements stored twice; elements that are sent or copied
    /// and also written (where the regions share memory); adds that overlap without covering the same ranges in the same
    /// order; adds and stores from the same peer.
    pub fn redistribute(
        label: ExchangeLabel,
        src: Region,
        dst: Region,
        sends: Vec<Message>,
        receives: Vec<Receive>,
        local_copies: Vec<(Range<usize>, Range<usize>)>,
    ) -> Result<Exchange, CommError> {
        Exchange::checked(
            ExchangeKind::Redistribute,
            label,
            (src, dst),
            (sends, receives),
            local_copies,
        )
    }

    fn checked(
        kind: ExchangeKind,
        label: ExchangeLabel,
        (src, dst): (Region, Region),
        (sends, receives): (Vec<Message>, Vec<Receive>),
        copies: Vec<(Range<usize>, Range<usize>)>,
    ) -> Result<Exchange, CommError> {
        if label.id > MAX_EXCHANGE_ID {
            return Err(CommError::IdTooLarge { id: label.id, max: MAX_EXCHANGE_ID });
        }
        Exchange::reserved(kind, label, (src, dst), (sends, receives), copies)
    }

    /// As the public constructors, but ids above [`MAX_EXCHANGE_ID`] are allowed: the crate's own exchanges.
    pub(crate) fn reserved(
        kind: ExchangeKind,
        label: ExchangeLabel,
        (src, dst): (Region, Region),
        (sends, receives): (Vec<Message>, Vec<Receive>),
        copies: Vec<(Range<usize>, Range<usize>)>,
    ) -> Result<Exchange, CommError> {
        check::bounds(label.id, src, dst, &sends, &receives, &copies)?;
        check::writes(label, src, dst, &sends, &receives, &copies)?;
        let outgoing = routes(label.rank, 0, sends.into_iter().map(|send| (send.peer, send.range)));
        let adds = check::adding_peers(label.id, &receives)?;
        let incoming: Vec<_> = routes(
            label.rank,
            0,
            receives.into_iter().map(|receive| (receive.peer, receive.range)),
        )
        .into_iter()
        .map(|route| (adds.contains(&route.peer), route))
        .collect();
        let (incoming, sums) = check::sums(label, incoming)?;
        let copies = copies.into_iter().filter(|(src, _)| !src.is_empty()).collect();
        let (n_stages, tally) = (1, Tally::default());
        Ok(Exchange { label, src, dst, outgoing, incoming, sums, copies, n_stages, tally, kind })
    }

    /// What it does.
    #[must_use]
    pub fn kind(&self) -> ExchangeKind {
        self.kind
    }

    /// Its id, priority and rank.
    #[must_use]
    pub fn label(&self) -> ExchangeLabel {
        self.label
    }

    /// How often it was completed, and the time from each submission's start on the communication thread to its completion, added
    /// up. Waiting for other ranks counts, waiting in the queue does not.
    #[must_use]
    pub fn served(&self) -> (u64, Duration) {
        self.tally.read()
    }

    /// Payload bytes that one submission sends to other ranks.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        self.outgoing.iter().map(Route::bytes).sum()
    }

    /// Messages that one submission sends to other ranks, before they are cut into chunks.
    #[must_use]
    pub fn messages_sent(&self) -> usize {
        self.outgoing.len()
    }

    /// Payload bytes that one submission receives from other ranks.
    #[must_use]
    pub fn bytes_received(&self) -> u64 {
        self.incoming.iter().map(|incoming| incoming.route.bytes()).sum()
    }
}

/// Gathers the ranges of a stage by peer. The peer after `rank` comes first, so that not all ranks start by sending to rank 0.
fn routes(
    rank: usize,
    stage: usize,
    ranges: impl Iterator<Item = (usize, Range<usize>)>,
) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::new();
    for (peer, range) in ranges {
        if range.is_empty() {
            continue;
        }
        let known = routes.iter().position(|route| route.peer == peer);
        let at = known.unwrap_or_else(|| {
            routes.push(Route { peer, stream: Stream::default(), stage, follows: None });
            routes.len() - 1
        });
        routes[at].stream.push(range);
    }
    routes.sort_by_key(|route| (route.peer < rank, route.peer));
    routes
}

/// Says of each route, given in the order of stages, which one it follows.
fn linked(mut routes: Vec<Route>) -> Vec<Route> {
    let mut last: HashMap<usize, usize> = HashMap::new();
    for (at, route) in routes.iter_mut().enumerate() {
        route.follows = last.insert(route.peer, at);
    }
    routes
}

#[cfg(test)]
mod tests;
