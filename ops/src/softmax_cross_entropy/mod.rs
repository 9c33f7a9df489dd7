//! Softmax and cross-entropy in one: the loss of a classifier and its gradient.

mod kernel;
mod plan;
pub mod reference;
#[cfg(test)]
mod tests;

pub use plan::{
    SoftmaxCrossEntropy, SoftmaxCrossEntropyDesc, SoftmaxCrossEntropyForward,
    SoftmaxCrossEntropyForwardBackward,
};
