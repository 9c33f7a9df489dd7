//! What communication was hidden behind: the two overlaps that Lockstep exists for.

use std::collections::BTreeMap;

use super::busy::union_length;
use super::tables::{Exchange, Names, Role, Row, Slice, TaskRef, ThreadKey};

/// What overlapped in one step of one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepOverlap {
    /// The rank (process).
    pub rank: u64,
    /// The step.
    pub step: u64,
    /// From the submission of the first part-reduce to the end of the last backward task, in
    /// nanoseconds: above 0, they overlap. Absent where the step has not both.
    pub reduce_lead_ns: Option<i64>,
    /// The part-broadcasts of this step that were open while forward tasks of earlier layers ran in
    /// the next step. Absent where there were none.
    pub broadcast_cover: Option<BroadcastCover>,
}

/// Part-broadcasts of one step that were open while forward tasks of earlier layers ran in the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BroadcastCover {
    /// The layer of the part-broadcast that shared the most time with one forward slice.
    pub broadcast_layer: String,
    /// The layer of that slice.
    pub forward_layer: String,
    /// How long there was such a pair, whichever it was, in nanoseconds.
    pub total_ns: i64,
}

/// What the checks need of one step of one rank.
#[derive(Default)]
struct StepEvents {
    forwards: Vec<(Slice, TaskRef)>,
    broadcasts: Vec<(Exchange, TaskRef)>,
    first_reduce: Option<i64>,
    last_backward: Option<i64>,
}

/// The overlaps of all steps, by rank and step.
pub(super) fn steps(
    threads: &BTreeMap<ThreadKey, Row>,
    exchanges: &[Exchange],
    names: &Names,
) -> Vec<StepOverlap> {
    let mut steps: BTreeMap<(u64, u64), StepEvents> = BTreeMap::new();
    for (&(pid, _), row) in threads {
        for &slice in &row.slices {
            let Some(task) = slice.task else { continue };
            let events = steps.entry((pid, task.step)).or_default();
            match task.role {
                Role::Forward => events.forwards.push((slice, task)),
                Role::Backward => events.last_backward = events.last_backward.max(Some(slice.end)),
                Role::PartReduce | Role::PartBroadcast | Role::Other => {}
            }
        }
    }
    for &exchange in exchanges {
        let Some(task) = exchange.task else { continue };
        let events = steps.entry((exchange.pid, task.step)).or_default();
        match task.role {
            Role::PartBroadcast => events.broadcasts.push((exchange, task)),
            Role::PartReduce => {
                let earlier = events.first_reduce.unwrap_or(i64::MAX);
                events.first_reduce = Some(earlier.min(exchange.submitted));
            }
            Role::Forward | Role::Backward | Role::Other => {}
        }
    }
    let overlap = |(&(rank, step), events): (&(u64, u64), &StepEvents)| StepOverlap {
        rank,
        step,
        reduce_lead_ns: events
            .last_backward
            .zip(events.first_reduce)
            .map(|(end, start)| end - start),
        broadcast_cover: steps
            .get(&(rank, step + 1))
            .and_then(|next| cover(&events.broadcasts, &next.forwards, names)),
    };
    steps.iter().map(overlap).collect()
}

/// The pairs of a broadcast and a forward slice of an earlier layer that share time.
fn cover(
    broadcasts: &[(Exchange, TaskRef)],
    forwards: &[(Slice, TaskRef)],
    names: &Names,
) -> Option<BroadcastCover> {
    let mut shared: Vec<(i64, i64)> = Vec::new();
    let mut longest: Option<(i64, TaskRef, TaskRef)> = None;
    for &(slice, forward) in forwards {
        for &(exchange, broadcast) in broadcasts {
            let start = slice.start.max(exchange.submitted);
            let end = slice.end.min(exchange.completed);
            if broadcast.layer_index <= forward.layer_index || end <= start {
                continue;
            }
            shared.push((start, end));
            if longest.is_none_or(|(length, ..)| end - start > length) {
                longest = Some((end - start, broadcast, forward));
            }
        }
    }
    let (_, broadcast, forward) = longest?;
    shared.sort_unstable();
    Some(BroadcastCover {
        broadcast_layer: names.text(broadcast.layer).to_owned(),
        forward_layer: names.text(forward.layer).to_owned(),
        total_ns: union_length(shared.into_iter()),
    })
}
