//! The part of an activation that one block of a pass writes.

use std::ops::Range;

/// Some rows, whole, of some samples of some channel blocks.
///
/// The regions of a task's blocks make up the tensor: each is one *slice* of it, some rows of some samples, as far as a
/// few channel blocks go. Slices are numbered from 0, and every channel block is cut into the same slices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorRegion {
    /// The number of the slice.
    pub slice: usize,
    /// Samples.
    pub samples: Range<usize>,
    /// Rows of the maps.
    pub rows: Range<usize>,
    /// Groups of channels that lie together.
    pub channel_blocks: Range<usize>,
}
