//! One layer of a network, and its index.

use serde::{Deserialize, Serialize};

use super::kind::LayerKind;
use super::param::Param;
use crate::shape::Shape;

/// Index of a [`Layer`] in its network; layers are numbered in topological order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LayerId(u32);

impl LayerId {
    pub(crate) fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("a network has fewer than 2^32 layers"))
    }

    /// The layer at a position of [`Network::layers`](crate::Network::layers).
    ///
    /// # Panics
    /// The position is 2^32 or more.
    #[must_use]
    pub fn from_index(index: usize) -> Self {
        Self::new(index)
    }

    /// Position in [`Network::layers`](crate::Network::layers).
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One layer: what the user asked for, and the shapes that follow from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// Its index.
    pub id: LayerId,
    /// Its name, unique in the network.
    pub name: String,
    /// What it computes.
    pub kind: LayerKind,
    /// The layers whose outputs it reads, in the order that matters to [`LayerKind::Concat`].
    pub inputs: Vec<LayerId>,
    /// Its output, for one sample.
    pub shape: Shape,
    /// The earlier layer whose trainable parameters it computes with, in place of its own; that one is not tied itself.
    pub tied_to: Option<LayerId>,
    /// What it keeps between iterations, in the order of PyTorch's `state_dict`: of a tied layer, running statistics alone.
    pub params: Vec<Param>,
}

impl Layer {
    /// Number of trainable values that it keeps; a tied layer keeps none.
    #[must_use]
    pub fn parameter_count(&self) -> usize {
        self.params.iter().filter(|p| p.role.is_trainable()).map(Param::elements).sum()
    }
}
