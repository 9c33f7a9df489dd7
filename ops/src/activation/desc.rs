//! What an activation layer computes.

use crate::extent::expect_maps;
use crate::{Maps, ShapeError};

/// An activation function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ActivationKind {
    /// max(x, 0).
    Relu,
    /// 1 / (1 + e^-x).
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
}

/// An activation layer: every element of a tensor goes through one function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ActivationDesc {
    /// The function.
    pub kind: ActivationKind,
    /// The shape of a sample.
    pub maps: Maps,
}

impl ActivationDesc {
    pub(super) fn validate(&self) -> Result<(), ShapeError> {
        expect_maps("activation", self.maps)
    }
}
