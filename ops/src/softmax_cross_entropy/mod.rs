//! Softmax and cross-entropy in one: the loss of a classifier and its gradient, with all classes at hand or some of them.

mod kernel;
mod plan;
pub mod reference;
mod row;
mod split;
mod split_desc;
mod split_kernel;
#[cfg(test)]
mod split_tests;
#[cfg(test)]
mod tests;

pub use plan::{
    SoftmaxCrossEntropy, SoftmaxCrossEntropyDesc, SoftmaxCrossEntropyForward,
    SoftmaxCrossEntropyForwardBackward,
};
pub use split::{
    SplitSoftmaxCrossEntropy, SplitSoftmaxCrossEntropyLoss, SplitSoftmaxCrossEntropyStatistics,
};
pub use split_desc::SplitSoftmaxCrossEntropyDesc;
