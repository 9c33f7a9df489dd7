//! Changes of placement as messages: which elements of its buffers a rank sends, receives and copies.
//!
//! What two ranks hold of a tensor overlaps in some samples and some features. Features are cut on whole groups of channels
//! (`FEATURE_GRAIN`), so for each sample such a part is one run of elements in either rank's buffer, in the same order.

use std::ops::Range;

use lockstep_comm::{Message, Receive};
use lockstep_graph::{
    Extent, Plan, Region, SamplePart, Task, Tensor, TensorRole, Transfer, redistribution,
};
use lockstep_ops::{Layout, TensorLayout};

use super::places::held_layout;
use super::store::StoreLayout;

/// What a rank does in an exchange.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Messages {
    pub(super) sends: Vec<Message>,
    pub(super) receives: Vec<Receive>,
    /// From elements of the source to elements of the destination.
    pub(super) copies: Vec<(Range<usize>, Range<usize>)>,
}

/// Every peer's `len` elements to every peer, one after another in the order of `peers`, `rank` among them.
pub(super) fn gather(rank: usize, peers: &[usize], len: usize) -> Messages {
    let mut messages = Messages::default();
    for (place, &peer) in peers.iter().enumerate() {
        let range = place * len..(place + 1) * len;
        if peer == rank {
            messages.copies.push((0..len, range));
        } else {
            messages.sends.push(Message { peer, range: 0..len });
            messages.receives.push(Receive { peer, range, add: false });
        }
    }
    messages
}

/// What the rank of a store does in a `Redistribute` task between two placements of activations, gradients or labels.
pub(super) fn redistribute(
    plan: &Plan,
    store: &StoreLayout,
    task: &Task,
    minibatch: usize,
) -> Messages {
    let rank = store.rank();
    let tensor = |id| plan.tasks().tensor(id);
    let (source, target) = (tensor(task.reads[0]), tensor(task.writes[0]));
    let (features, ..) = plan.network().layer(source.layer).shape.maps();
    let features = if source.role == TensorRole::Labels { 1 } else { features };
    let extent = Extent { samples: minibatch, features };
    let from = Held::new(plan, store, source, extent);
    let to = Held::new(plan, store, target, extent);
    let mut transfers = redistribution(&source.placement, &target.placement, extent);
    if let Some(part) = task.part {
        transfers =
            (transfers.iter()).flat_map(|transfer| within(transfer, part, minibatch)).collect();
    }
    let mut messages = Messages::default();
    for Transfer { from: sender, to: receiver, region, add } in &transfers {
        match (*sender == rank, *receiver == rank) {
            (true, true) => {
                messages.copies.extend(from.runs(region).into_iter().zip(to.runs(region)));
            }
            (true, false) => {
                let send = |range| Message { peer: *receiver, range };
                messages.sends.extend(from.runs(region).into_iter().map(send));
            }
            (false, true) => {
                // The first term is stored, where this rank has none of its own.
                let is_first = || {
                    let terms = transfers.iter().filter(|t| t.to == rank && t.region == *region);
                    let mut senders = terms.map(|t| t.from);
                    let own = senders.clone().any(|from| from == rank);
                    !own && senders.next() == Some(*sender)
                };
                let add = *add && !is_first();
                let receive = |range| Receive { peer: *sender, range, add };
                messages.receives.extend(to.runs(region).into_iter().map(receive));
            }
            (false, false) => {}
        }
    }
    messages
}

/// The pieces of a transfer that belong to a part of the samples.
fn within(
    transfer: &Transfer,
    part: SamplePart,
    minibatch: usize,
) -> impl Iterator<Item = Transfer> {
    (0..part.groups).filter_map(move |group| {
        let samples = part.samples(minibatch, group);
        let region = Region { samples, ..transfer.region.clone() };
        let region = transfer.region.intersection(&region)?;
        Some(Transfer { region, ..*transfer })
    })
}

/// What a rank holds of a tensor, and how it lies there.
struct Held {
    region: Region,
    layout: TensorLayout,
}

impl Held {
    fn new(plan: &Plan, store: &StoreLayout, tensor: &Tensor, extent: Extent) -> Self {
        let region = tensor.placement.region(store.rank(), extent);
        let mut layout = held_layout(plan, store, tensor);
        if tensor.role == TensorRole::Labels {
            // One value a sample.
            layout.maps = lockstep_ops::Maps { c: 1, h: 1, w: 1 };
            layout.layout = Layout::Plain;
        }
        Self { region, layout }
    }

    /// The elements of a part of what is held, one run a sample.
    fn runs(&self, part: &Region) -> Vec<Range<usize>> {
        let first = part.features.start - self.region.features.start;
        let last = part.features.end - self.region.features.start;
        let sample = self.layout.sample_len();
        let groups = |channel: usize| match self.layout.layout {
            Layout::Plain => channel,
            Layout::Blocked(lanes) => channel.div_ceil(lanes) * lanes,
        };
        let pixels = self.layout.maps.h * self.layout.maps.w;
        let (start, end) = (groups(first) * pixels, groups(last) * pixels);
        let at = |position: usize| (position - self.region.samples.start) * sample;
        part.samples.clone().map(|n| at(n) + start..at(n) + end).collect()
    }
}
