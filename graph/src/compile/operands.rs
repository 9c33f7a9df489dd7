//! The tensors of a task that is about to be emitted.

use crate::task::{InPlace, TensorId};

/// The tensors of a task.
#[derive(Debug, Clone)]
pub(super) struct Operands {
    pub(super) reads: Vec<TensorId>,
    pub(super) writes: Vec<TensorId>,
    pub(super) in_place: Option<InPlace>,
}

impl Operands {
    pub(super) fn new(
        reads: impl IntoIterator<Item = TensorId>,
        writes: impl IntoIterator<Item = TensorId>,
    ) -> Self {
        Self {
            reads: reads.into_iter().collect(),
            writes: writes.into_iter().collect(),
            in_place: None,
        }
    }

    /// The first result may take the place of an operand.
    pub(super) fn in_place_of(mut self, source: TensorId) -> Self {
        self.in_place = Some(InPlace { source, result: self.writes[0] });
        self
    }

    /// The first result may take the place of the first operand.
    pub(super) fn in_place(self) -> Self {
        let first = self.reads[0];
        self.in_place_of(first)
    }
}
