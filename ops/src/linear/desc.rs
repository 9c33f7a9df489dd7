//! What a fully connected layer computes.

use crate::extent::expect_positive;
use crate::{ActivationKind, ShapeError};

/// A fully connected layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinearDesc {
    /// Features of a sample on the way in (ic).
    pub in_features: usize,
    /// Features on the way out (oc).
    pub out_features: usize,
    /// Whether a bias is added.
    pub bias: bool,
    /// The activation function that the source is the value of: backward data then returns the gradient of its input.
    pub src_activation: Option<ActivationKind>,
    /// The activation function that the forward pass applies to what it writes.
    pub dst_activation: Option<ActivationKind>,
}

impl LinearDesc {
    pub(super) fn validate(&self) -> Result<(), ShapeError> {
        let sizes = [("in_features", self.in_features), ("out_features", self.out_features)];
        expect_positive("linear", &sizes)
    }
}
