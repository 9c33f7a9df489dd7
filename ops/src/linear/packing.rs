//! Feature groups, and the layout of packed weights that follows from them.
//!
//! Output features are taken in groups of [`VECTORS`] vectors, the width of a register tile. A group's weights lie
//! together, input feature by input feature, so that the forward pass reads them from first to last:
//!
//! ```text
//! packed[first oc of the group * ic_total + ic * width + oc - first oc]
//! ```
//!
//! The last group is as narrow as its features allow in whole vectors, and zeros fill up its last vector.

use super::blocking::VECTORS;

/// Features cut into groups of vectors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Groups {
    features: usize,
    lanes: usize,
}

/// One group of features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group {
    /// The first feature.
    pub(super) first: usize,
    /// Vectors, 1 to [`VECTORS`].
    pub(super) vectors: usize,
    /// Elements, padding included.
    pub(super) width: usize,
    /// Features: `width` less the padding.
    pub(super) filled: usize,
}

impl Groups {
    pub(super) fn new(features: usize, lanes: usize) -> Groups {
        Groups { features, lanes }
    }

    /// Features with padding: the elements of a sample.
    pub(super) fn padded(self) -> usize {
        self.features.next_multiple_of(self.lanes)
    }

    /// Features of a full group.
    pub(super) fn full_width(self) -> usize {
        VECTORS * self.lanes
    }

    pub(super) fn count(self) -> usize {
        self.features.div_ceil(self.full_width())
    }

    pub(super) fn group(self, group: usize) -> Group {
        let first = group * self.full_width();
        let filled = (self.features - first).min(self.full_width());
        let vectors = filled.div_ceil(self.lanes);
        Group { first, vectors, width: vectors * self.lanes, filled }
    }
}

/// Calls `f` with the place of every weight in plain (oc, ic) order and in packed order.
pub(super) fn for_each_weight(oc: Groups, ic_total: usize, mut f: impl FnMut(usize, usize)) {
    for group in (0..oc.count()).map(|group| oc.group(group)) {
        for lane in 0..group.filled {
            for ic in 0..ic_total {
                let packed = group.first * ic_total + ic * group.width + lane;
                f((group.first + lane) * ic_total + ic, packed);
            }
        }
    }
}
