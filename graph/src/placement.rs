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

    /// The ranks that hold the same features as `rank`: one of each group, ascending. They exchange
    /// weight gradients with each other.
    pub fn same_features(self, rank: usize) -> impl Iterator<Item = usize> {
        (0..self.groups).map(move |group| group * self.members + rank % self.members)
    }
}

/// How the feature axis of a tensor lies on the members of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum FeatureAxis {
    /// Every member holds all features.
    Replicated,
    /// Member `m` holds the `m`-th share of the features.
    Split,
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
    /// True where each rank's values are one term of a sum over the groups that still has to be made.
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
    /// Samples split over the groups, features as the mesh says, no sums pending.
    #[must_use]
    pub fn activation(mesh: Mesh) -> Self {
        let features =
            if mesh.members() > 1 { FeatureAxis::Split } else { FeatureAxis::Replicated };
        Self { mesh, samples: SampleAxis::Split, features, partial: false }
    }

    /// No sample axis; every rank that holds a feature holds all of it.
    #[must_use]
    pub fn parameter(mesh: Mesh) -> Self {
        Self { samples: SampleAxis::Replicated, ..Self::activation(mesh) }
    }

    /// A parameter's gradient before its part-reduce: every group holds a term of the sum.
    #[must_use]
    pub fn parameter_gradient(mesh: Mesh) -> Self {
        Self { partial: mesh.groups() > 1, ..Self::parameter(mesh) }
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
            FeatureAxis::Split => share(extent.features, self.mesh.members, member),
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

/// The `part`-th of `parts` contiguous shares of `0..n`; no two shares differ by more than one, the longer ones first.
#[must_use]
pub fn share(n: usize, parts: usize, part: usize) -> Range<usize> {
    let (each, longer) = (n / parts, n % parts);
    let start = part * each + part.min(longer);
    start..start + each + usize::from(part < longer)
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

    #[test]
    fn shares_cover_everything_and_differ_by_at_most_one() {
        for (n, parts) in [(13, 4), (3, 8), (0, 3), (64, 2)] {
            let shares: Vec<_> = (0..parts).map(|p| share(n, parts, p)).collect();
            assert_eq!(shares.iter().map(Range::len).sum::<usize>(), n);
            assert!(shares.windows(2).all(|w| w[0].end == w[1].start && w[0].len() >= w[1].len()));
            assert!(shares[0].len() - shares[parts - 1].len() <= 1);
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
        let placement = Placement::activation(Mesh::new(4, 2).unwrap());
        assert_eq!(placement.region(0, EXTENT), Region { samples: 0..7, features: 0..5 });
        assert_eq!(placement.region(3, EXTENT), Region { samples: 7..13, features: 5..10 });
    }

    /// Every value a rank needs arrives exactly once, or once per group where sums are pending.
    #[test]
    fn redistribution_delivers_every_needed_value() {
        for ranks in [1, 2, 3, 4, 6, 8] {
            let meshes: Vec<_> = (1..=ranks).filter_map(|g| Mesh::new(ranks, g).ok()).collect();
            for (&from, &to) in meshes.iter().flat_map(|a| meshes.iter().map(move |b| (a, b))) {
                let (from, to) = (Placement::activation(from), Placement::activation(to));
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
                            let wanted = need.samples.contains(&s) && need.features.contains(&f);
                            assert_eq!(seen[s * EXTENT.features + f], usize::from(wanted));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn partial_sums_are_collected_from_every_group() {
        let mesh = Mesh::data_parallel(3);
        let from = Placement::parameter_gradient(mesh);
        let transfers = redistribution(&from, &Placement::parameter(mesh), EXTENT);
        assert_eq!(transfers.len(), 9);
        assert!(transfers.iter().all(|t| t.add));
    }
}
