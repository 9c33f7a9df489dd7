//! What a batch normalization computes, and which descriptions make sense.

use crate::extent::{expect_maps, expect_within};
use crate::{Maps, ShapeError};

/// Batch normalization of each channel of `maps`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchNormDesc {
    /// The shape of a sample.
    pub maps: Maps,
    /// Added to every variance, so that a channel without spread does not divide by zero.
    pub eps: f32,
    /// How far running statistics move to those of a minibatch in a step, 0 to 1.
    pub momentum: f32,
}

impl BatchNormDesc {
    pub(super) fn validate(&self) -> Result<(), ShapeError> {
        expect_maps("batch_norm", self.maps)?;
        expect_within("batch_norm", "eps", self.eps, [0.0, f32::MAX])?;
        expect_within("batch_norm", "momentum", self.momentum, [0.0, 1.0])
    }
}
