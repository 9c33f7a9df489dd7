//! Which part of a tensor every rank holds: data, model and hybrid parallelism as one idea.
//!
//! `N` ranks form a mesh of `G` groups x `M` members (`N = G * M`), chosen per layer. Group `g` holds
//! its share of the minibatch, member `m` its share of the features. `G = N` is data parallel, `G = 1`
//! model parallel, anything between is hybrid.
//!
//! # Source
//! Das et al. 2016, sections 3.1 to 3.3.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::GraphError;

/// The mesh of one layer: `groups` x `members` ranks; consecutive ranks form a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mesh {
    groups: usize,
    members: usize,
}

impl Mesh {
    /// The mesh of `ranks` ranks in `groups` groups.
    ///
    /// # Errors
    /// `groups` does not divide `ranks`, or one of them is zero.
    pub fn new(ranks: usize, groups: usize) -> Result<Self, GraphError> {
        if ranks == 0 || groups == 0 || !ranks.is_multiple_of(groups) {
            return Err(GraphError::UnevenMesh { ranks, groups });
        }
        Ok(Self { groups, members: ranks / groups })
    }

    /// Every rank holds its own samples and all features.
    #[must_use]
    pub fn data_parallel(ranks: usize) -> Self {
        Self { groups: ranks.max(1), members: 1 }
    }

    /// Number of groups, `G`.
    #[must_use]
    pub fn groups(self) -> usize {
        self.groups
    }

    /// Ranks in one group, `M`.
    #[must_use]
    pub fn members(self) -> usize {
        self.members
    }

    /// All ranks, `N = G * M`.
    #[must_use]
    pub fn ranks(self) -> usize {
        self.groups * self.members
    }

    /// The members of a rank's group, ascending. They exchange activations and their gradients with each other.
    pub fn group_of(self, rank: usize) -> Range<usize> {
        let first = rank - rank % self.members;
        first..first + self.members
    }

    /// The ranks that hold the same features as `rank`: one of each group, ascending. They exchange
    /// weight gradients with each other.
    pub fn same_features(self, rank: usize) -> impl Iterator<Item = usize> {
        (0..self.groups).map(move |group| group * self.members + rank % self.members)
    }
}

/// Features that stay together where a tensor is split by features: one cache line of values, and a multiple of every
/// vector's lanes, so that what a rank holds of a blocked tensor is whole vectors wherever it is cut.
pub const FEATURE_GRAIN: usize = 16;

/// How the feature axis of a tensor lies on the members of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum FeatureAxis {
    /// Every member holds all features.
    Replicated,
    /// Member `m` holds the `m`-th share of the features, cut on multiples of `grain` features.
    Split {
        /// Features that stay together: [`FEATURE_GRAIN`], or as many flattened features as such a group of channels makes.
        grain: usize,
    },
}

/// How the sample axis of a tensor lies on the groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SampleAxis {
    /// Group `g` holds the `g`-th share of the minibatch.
    Split,
    /// The tensor has no samples, or every rank holds them all.
    Replicated,
}

/// Where the values of one tensor are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Placement {
    /// The ranks that hold it.
    pub mesh: Mesh,
    /// The sample axis.
    pub samples: SampleAxis,
    /// The feature axis.
    pub features: FeatureAxis,
    /// True where each rank's values are one term of a sum that still has to be made: over the ranks that hold the same
    /// region.
    pub partial: bool,
}

/// A rectangle of a tensor: some samples, some features.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// Positions within the minibatch.
    pub samples: Range<usize>,
    /// Feature (channel) indices.
    pub features: Range<usize>,
}

impl Region {
    /// The part that lies in both; `None` when that is empty.
    #[must_use]
    pub fn intersection(&self, other: &Region) -> Option<Region> {
        let cut = |a: &Range<usize>, b: &Range<usize>| a.start.max(b.start)..a.end.min(b.end);
        let (samples, features) =
            (cut(&self.samples, &other.samples), cut(&self.features, &other.features));
        (!samples.is_empty() && !features.is_empty()).then_some(Region { samples, features })
    }

    /// Values in the region, for one value a feature.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.samples.len() * self.features.len()
    }
}

/// The sizes a placement is applied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Samples of the minibatch.
    pub samples: usize,
    /// Features (channels) of the tensor.
    pub features: usize,
}

impl Placement {
    /// Samples split over the groups, features over the members of each, no sums pending.
    #[must_use]
    pub fn activation(mesh: Mesh, grain: usize) -> Self {
        let split = mesh.members() > 1;
        let features = if split { FeatureAxis::Split { grain } } else { FeatureAxis::Replicated };
        Self { mesh, samples: SampleAxis::Split, features, partial: false }
    }

    /// What a layer that reads all features needs: samples split over the groups, every member with all features.
    #[must_use]
    pub fn gathered(mesh: Mesh) -> Self {
        let (samples, features) = (SampleAxis::Split, FeatureAxis::Replicated);
        Self { mesh, samples, features, partial: false }
    }

    /// The gradient of what was [`gathered`](Self::gathered): every member holds the term of its own output features.
    #[must_use]
    pub fn gathered_gradient(mesh: Mesh) -> Self {
        Self { partial: mesh.members() > 1, ..Self::gathered(mesh) }
    }

    /// No sample axis; every rank that holds a feature holds all of it.
    #[must_use]
    pub fn parameter(mesh: Mesh, grain: usize) -> Self {
        Self { samples: SampleAxis::Replicated, ..Self::activation(mesh, grain) }
    }

    /// A parameter's gradient before its part-reduce: every group holds a term of the sum.
    #[must_use]
    pub fn parameter_gradient(mesh: Mesh, grain: usize) -> Self {
        Self { partial: mesh.groups() > 1, ..Self::parameter(mesh, grain) }
    }

    /// True where every rank holds the same of a tensor of this extent under both, and no sums are pending.
    #[must_use]
    pub fn is_same(&self, other: &Placement, extent: Extent) -> bool {
        let same = |rank| self.region(rank, extent) == other.region(rank, extent);
        !self.partial && !other.partial && (0..self.mesh.ranks()).all(same)
    }

    /// What `rank` holds of a tensor of this extent.
    #[must_use]
    pub fn region(&self, rank: usize, extent: Extent) -> Region {
        let (group, member) = (rank / self.mesh.members, rank % self.mesh.members);
        let samples = match self.samples {
            SampleAxis::Split => share(extent.samples, self.mesh.groups, group),
            SampleAxis::Replicated => 0..extent.samples,
        };
        let features = match self.features {
            FeatureAxis::Split { grain } => {
                let grains = share(extent.features.div_ceil(grain), self.mesh.members, member);
                let end = extent.features.min(grains.end * grain);
                (grains.start * grain).min(end)..end
            }
            FeatureAxis::Replicated => 0..extent.features,
        };
        Region { samples, features }
    }
}

/// One message of a redistribution: `region` goes from rank `from` to rank `to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// Sending rank.
    pub from: usize,
    /// Receiving rank; equal to `from` for a local copy.
    pub to: usize,
    /// What is sent, in coordinates of the whole tensor.
    pub region: Region,
    /// True when the receiver adds it to the other terms of a partial sum.
    pub add: bool,
}

/// The messages that turn one placement into another: intersections of what ranks hold with what ranks need.
///
/// A value that several ranks hold is taken from the receiver itself where possible, else from the
/// lowest rank that holds it, so every value arrives exactly once (once per term where sums are pending).
///
/// # Cost
/// O(N^2) in the number of ranks.
#[must_use]
pub fn redistribution(from: &Placement, to: &Placement, extent: Extent) -> Vec<Transfer> {
    let ranks = from.mesh.ranks();
    let mut transfers = Vec::new();
    for receiver in 0..ranks {
        let need = to.region(receiver, extent);
        let own = from.region(receiver, extent);
        let mut taken: Vec<Region> = Vec::new();
        // The receiver first, then ascending: the order in which terms are added is fixed by rank, below.
        let senders = std::iter::once(receiver).chain((0..ranks).filter(|&r| r != receiver));
        for sender in senders {
            let have = if sender == receiver { own.clone() } else { from.region(sender, extent) };
            let Some(region) = have.intersection(&need) else { continue };
            if !from.partial && taken.contains(&region) {
                continue;
            }
            taken.push(region.clone());
            transfers.push(Transfer { from: sender, to: receiver, region, add: from.partial });
        }
    }
    transfers.sort_by_key(|t| (t.to, t.from));
    transfers
}

/// The `part`-th of `parts` contiguous shares of `0..n`; no two shares differ by more than one, and the first is one of the
/// longest.
///
/// Shares nest: where `parts` is a multiple of `wholes`, each of `wholes` shares is a number of whole shares of `parts`. So a
/// fixed cut of the minibatch into slices serves any number of ranks that divides it.
///
/// # Panics
/// `parts` is zero.
#[must_use]
pub fn share(n: usize, parts: usize, part: usize) -> Range<usize> {
    let cut = |part: usize| {
        // Exact in 128 bits whatever the sizes; the quotient is at most `n`.
        let cut = (n as u128 * part as u128).div_ceil(parts as u128);
        usize::try_from(cut).expect("at most n")
    };
    cut(part)..cut(part + 1)
}

/// The strips in which the members of an exchange own a flat tensor of `len` elements: contiguous, in
/// member order, cut on multiples of `align` so that no cache line has two owners. Late strips may be empty.
#[must_use]
pub fn strips(len: usize, members: usize, align: usize) -> Vec<Range<usize>> {
    let lines = len.div_ceil(align);
    (0..members)
        .map(|m| {
            let lines = share(lines, members, m);
            (lines.start * align).min(len)..(lines.end * align).min(len)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENT: Extent = Extent { samples: 13, features: 10 };
    const GRAIN: usize = 2;

    #[test]
    fn shares_cover_everything_and_differ_by_at_most_one() {
        for (n, parts) in [(13, 4), (3, 8), (0, 3), (64, 2)] {
            let shares: Vec<_> = (0..parts).map(|p| share(n, parts, p)).collect();
            assert_eq!(shares.iter().map(Range::len).sum::<usize>(), n);
            assert!(shares.windows(2).all(|w| w[0].end == w[1].start));
            let least = shares.iter().map(Range::len).min().unwrap();
            assert!(shares.iter().all(|s| s.len() <= shares[0].len()));
            assert!(shares[0].len() - least <= 1);
        }
    }

    #[test]
    fn shares_nest() {
        for n in [0, 1, 13, 64, 1000] {
            for (wholes, parts) in [(1, 8), (2, 8), (4, 8), (3, 12)] {
                for whole in 0..wholes {
                    let each = parts / wholes;
                    let first = share(n, parts, whole * each).start;
                    let last = share(n, parts, (whole + 1) * each - 1).end;
                    assert_eq!(share(n, wholes, whole), first..last);
                }
            }
        }
    }

    #[test]
    fn strips_are_cut_on_whole_lines() {
        assert_eq!(strips(100, 3, 16), vec![0..48, 48..80, 80..100]);
        assert_eq!(strips(5, 4, 16), vec![0..5, 5..5, 5..5, 5..5]);
    }

    #[test]
    fn a_mesh_that_does_not_divide_is_refused() {
        assert_eq!(Mesh::new(6, 4), Err(GraphError::UnevenMesh { ranks: 6, groups: 4 }));
        assert_eq!(Mesh::new(6, 2).map(Mesh::members), Ok(3));
    }

    #[test]
    fn model_parallel_members_hold_disjoint_features() {
        let placement = Placement::activation(Mesh::new(4, 2).unwrap(), GRAIN);
        assert_eq!(placement.region(0, EXTENT), Region { samples: 0..7, features: 0..6 });
        assert_eq!(placement.region(3, EXTENT), Region { samples: 7..13, features: 6..10 });
    }

    /// Every value a rank needs arrives exactly once, or once per group where sums are pending.
    #[test]
    fn redistribution_delivers_every_needed_value() {
        for ranks in [1, 2, 3, 4, 6, 8] {
            let meshes: Vec<_> = (1..=ranks).filter_map(|g| Mesh::new(ranks, g).ok()).collect();
            for (&from, &to) in meshes.iter().flat_map(|a| meshes.iter().map(move |b| (a, b))) {
                let from = Placement::activation(from, GRAIN);
                let to = [Placement::activation(to, GRAIN), Placement::gathered(to)];
                for to in to {
                    let transfers = redistribution(&from, &to, EXTENT);
                    for rank in 0..ranks {
                        let need = to.region(rank, EXTENT);
                        let mut seen = vec![0; EXTENT.samples * EXTENT.features];
                        for t in transfers.iter().filter(|t| t.to == rank) {
                            for s in t.region.samples.clone() {
                                for f in t.region.features.clone() {
                                    seen[s * EXTENT.features + f] += 1;
                                }
                            }
                        }
                        for s in 0..EXTENT.samples {
                            for f in 0..EXTENT.features {
                                let wanted =
                                    need.samples.contains(&s) && need.features.contains(&f);
                                assert_eq!(seen[s * EXTENT.features + f], usize::from(wanted));
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn partial_sums_are_collected_from_every_group() {
        let mesh = Mesh::data_parallel(3);
        let from = Placement::parameter_gradient(mesh, GRAIN);
        let transfers = redistribution(&from, &Placement::parameter(mesh, GRAIN), EXTENT);
        assert_eq!(transfers.len(), 9);
        assert!(transfers.iter().all(|t| t.add));
    }
}
