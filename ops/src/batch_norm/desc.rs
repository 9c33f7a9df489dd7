//! What a batch normalization computes, and which descriptions make sense.

use crate::extent::{expect_maps, expect_within};
use crate::{ActivationKind, Maps, ShapeError};

/// Batch normalization of each channel of `maps`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchNormDesc {
    /// The shape of a sample.
    pub maps: Maps,
    /// Added to every variance, so that a channel without spread does not divide by zero.
    pub eps: f32,
    /// How far running statistics move to those of a minibatch in a step, 0 to 1.
    pub momentum: f32,
    /// The activation function that the source is the value of: the backward pass then returns the gradient of its input.
    pub src_activation: Option<ActivationKind>,
    /// The activation function that the forward pass applies to what it writes.
    pub dst_activation: Option<ActivationKind>,
}

impl BatchNormDesc {
    pub(super) fn validate(&self) -> Result<(), ShapeError> {
        expect_maps("batch_norm", self.maps)?;
        expect_within("batch_norm", "eps", self.eps, [0.0, f32::MAX])?;
        expect_within("batch_norm", "momentum", self.momentum, [0.0, 1.0])
    }
}
