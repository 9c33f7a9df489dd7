//! What a change of placement moves, counted exactly: intersections of what ranks hold with what they need, in closed form.

use std::ops::Range;

use crate::placement::{FEATURE_GRAIN, Mesh, Region, share};

/// The sizes of what moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) samples: usize,
    /// Features before any flattening: they are split in whole groups of [`FEATURE_GRAIN`].
    pub(super) channels: usize,
    /// Values of a sample and channel.
    pub(super) pixels: usize,
}

/// Which features a reader needs of its group's samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// All of them, on every member.
    AllFeatures,
    /// Those that are the member's own.
    OwnFeatures,
}

/// The most that one rank does.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Load {
    /// Values sent or received, whichever are more.
    pub(super) values: f64,
    /// Messages sent or received, whichever are more.
    pub(super) messages: f64,
}

/// How a mesh cuts a tensor that is split over the groups by samples and over the members by features.
#[derive(Debug)]
struct Cut {
    members: usize,
    samples: Vec<Range<usize>>,
    channels: Vec<Range<usize>>,
}

/// Features of the `member`-th of `members`.
pub(super) fn channels_of(channels: usize, members: usize, member: usize) -> Range<usize> {
    let grains = share(channels.div_ceil(FEATURE_GRAIN), members, member);
    (grains.start * FEATURE_GRAIN).min(channels)..(grains.end * FEATURE_GRAIN).min(channels)
}

impl Sizes {
    fn cut(self, mesh: Mesh) -> Cut {
        let (groups, members) = (mesh.groups(), mesh.members());
        Cut {
            members,
            samples: (0..groups).map(|g| share(self.samples, groups, g)).collect(),
            channels: (0..members).map(|m| channels_of(self.channels, members, m)).collect(),
        }
    }

    /// The redistribution from how `producer` holds a tensor to what `consumer` needs, for the rank that is busiest with it.
    /// The way back, a gradient of which all members of a group hold terms, is the same with senders and receivers
    /// exchanged, so its load is the same.
    ///
    /// A producer holds every value once, and a value is needed by every member of a group or by one of them; so a rank
    /// sends what it holds as often, less what it keeps, and receives what it needs less what it has.
    pub(super) fn redistribution(self, producer: Mesh, consumer: Mesh, need: Need) -> Load {
        let (from, to) = (self.cut(producer), self.cut(consumer));
        let all = 0..self.channels;
        let wanted = match need {
            Need::AllFeatures => std::slice::from_ref(&all),
            Need::OwnFeatures => &to.channels,
        };
        let copies = if need == Need::AllFeatures { to.members } else { 1 };
        let mut load = Load::default();
        for rank in 0..producer.ranks() {
            let has = from.region(rank, &from.channels);
            let needs = to.region(rank, wanted);
            let kept = has.intersection(&needs).map_or(0, |kept| kept.elements());
            let sent = has.elements() * copies - kept;
            let received = needs.elements() - kept;
            load.values = load.values.max((sent.max(received) * self.pixels) as f64);
            let readers = count(&to.samples, &has.samples) * count(wanted, &has.features) * copies;
            let writers =
                count(&from.samples, &needs.samples) * count(&from.channels, &needs.features);
            let peers = readers.max(writers) - usize::from(kept > 0);
            load.messages = load.messages.max(peers as f64);
        }
        load
    }
}

impl Cut {
    /// A rank's samples, and its own of these lists of features.
    fn region(&self, rank: usize, features: &[Range<usize>]) -> Region {
        Region {
            samples: self.samples[rank / self.members].clone(),
            features: features[rank % self.members % features.len()].clone(),
        }
    }
}

/// How many of the ranges have something in common with one.
fn count(ranges: &[Range<usize>], one: &Range<usize>) -> usize {
    ranges.iter().filter(|range| range.start.max(one.start) < range.end.min(one.end)).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A mesh of up to 12 ranks: the number of ranks, and one of its divisors twice.
    fn meshes() -> impl Strategy<Value = (Mesh, Mesh)> {
        (1_usize..=12, any::<prop::sample::Index>(), any::<prop::sample::Index>()).prop_map(
            |(ranks, a, b)| {
                let groups: Vec<_> = (1..=ranks).filter(|g| ranks % g == 0).collect();
                let mesh = |i: prop::sample::Index| Mesh::new(ranks, groups[i.index(groups.len())]);
                (mesh(a).unwrap(), mesh(b).unwrap())
            },
        )
    }

    proptest! {
        /// Message by message.
        #[test]
        fn closed_forms_count_what_intersections_count(
            (producer, consumer) in meshes(),
            samples in 1_usize..40,
            channels in 1_usize..200,
            pixels in 1_usize..5,
            all in any::<bool>(),
        ) {
            let sizes = Sizes { samples, channels, pixels };
            let need = if all { Need::AllFeatures } else { Need::OwnFeatures };
            let ranks = producer.ranks();
            let (from, to) = (sizes.cut(producer), sizes.cut(consumer));
            let message = |sender: usize, receiver: usize| {
                let part = from.region(sender, &from.channels);
                let mut needs = to.region(receiver, &to.channels);
                if all {
                    needs.features = 0..channels;
                }
                part.intersection(&needs).map(|part| part.elements() * pixels)
            };
            let mut most = Load::default();
            for rank in 0..ranks {
                let others = || (0..ranks).filter(|&peer| peer != rank);
                let sent: Vec<_> = others().filter_map(|peer| message(rank, peer)).collect();
                let received: Vec<_> = others().filter_map(|peer| message(peer, rank)).collect();
                for messages in [sent, received] {
                    most.values = most.values.max(messages.iter().sum::<usize>() as f64);
                    most.messages = most.messages.max(messages.len() as f64);
                }
            }
            prop_assert_eq!(sizes.redistribution(producer, consumer, need), most);
        }
    }

    #[test]
    fn a_gather_within_a_group_is_the_papers_volume() {
        let sizes = Sizes { samples: 256, channels: 4096, pixels: 1 };
        let mesh = Mesh::new(64, 2).unwrap();
        let load = sizes.redistribution(mesh, mesh, Need::AllFeatures);
        // ifm * (minibatch / G) * (1 - G / N), to each of 31 others.
        assert_eq!(load, Load { values: 4096.0 * 128.0 * (1.0 - 2.0 / 64.0), messages: 31.0 });
        let all = Mesh::data_parallel(64);
        assert_eq!(sizes.redistribution(all, all, Need::AllFeatures), Load::default());
    }
}
