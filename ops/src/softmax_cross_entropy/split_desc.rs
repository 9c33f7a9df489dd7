//! The classes of one member.

/// The part of a classifier's loss that one of several members computes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SplitSoftmaxCrossEntropyDesc {
    /// Classes whose logits are here; 0 for a member that has none.
    pub classes_here: usize,
    /// The first of them, among all.
    pub first_class: usize,
    /// Classes of all members.
    pub classes: usize,
    /// How much of the target is spread evenly over all classes, from 0 (none) to 1.
    pub label_smoothing: f32,
}
