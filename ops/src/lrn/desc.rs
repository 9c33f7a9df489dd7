//! What a local response normalization computes, and which descriptions make sense.

use crate::extent::{expect_maps, expect_positive};
use crate::{ActivationKind, Maps, ShapeError};

/// Local response normalization across `size` neighboring channels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LrnDesc {
    /// The shape of a sample.
    pub maps: Maps,
    /// Channels in a window: `size / 2` before the channel, itself, and the rest after it.
    pub size: usize,
    /// The weight of a window's mean square.
    pub alpha: f32,
    /// The power of the divisor.
    pub beta: f32,
    /// What the divisor is where all is zero.
    pub k: f32,
    /// The activation function that the source is the value of: backward then returns the gradient of its input.
    pub src_activation: Option<ActivationKind>,
}

impl LrnDesc {
    pub(super) fn validate(&self) -> Result<(), ShapeError> {
        expect_maps("lrn", self.maps)?;
        expect_positive("lrn", &[("size", self.size)])
    }
}
