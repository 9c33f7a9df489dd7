//! Feature groups, and the layout of packed weights that follows from them.
//!
//! Output features are taken in groups of [`GROUP`]. A group's weights lie together, input feature by input feature, so
//! that the forward pass reads them from first to last:
//!
//! ```text
//! packed[first oc of the group * ic_total + ic * width + oc - first oc]
//! ```
//!
//! The last group is as narrow as its features allow in whole vectors, and zeros fill up its last vector.

use std::ops::Range;

use super::blocking::VECTORS;

/// Features of a full group: the vectors of one register tile of 16 lanes, or of two of 8. Narrower ones would be fewer
/// turns of the inner loop of backward data, which ends with each group.
pub(super) const GROUP: usize = 32;

/// Features cut into groups.
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
    /// Elements, padding included: whole vectors.
    pub(super) width: usize,
    /// Features: `width` less the padding.
    pub(super) filled: usize,
}

impl Group {
    /// The end of its elements, padding included.
    pub(super) fn end(&self) -> usize {
        self.first + self.width
    }

    /// Its elements, counted from its first, in as many as a register tile takes.
    pub(super) fn tiles(&self, lanes: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let width = self.width;
        let step = VECTORS * lanes;
        (0..width).step_by(step).map(move |first| first..(first + step).min(width))
    }
}

impl Groups {
    pub(super) fn new(features: usize, lanes: usize) -> Groups {
        Groups { features, lanes }
    }

    /// Features with padding: the elements of a sample.
    pub(super) fn padded(self) -> usize {
        self.features.next_multiple_of(self.lanes)
    }

    pub(super) fn count(self) -> usize {
        self.features.div_ceil(GROUP)
    }

    /// The groups of features from the first of one group to the end of another, or to the last.
    pub(super) fn groups(self, features: &Range<usize>) -> impl Iterator<Item = Group> + use<> {
        (features.start / GROUP..features.end.div_ceil(GROUP)).map(move |group| self.group(group))
    }

    pub(super) fn group(self, group: usize) -> Group {
        let first = group * GROUP;
        let filled = (self.features - first).min(GROUP);
        Group { first, width: filled.next_multiple_of(self.lanes), filled }
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
