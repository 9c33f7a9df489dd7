//! A bias per channel as a layer of its own; convolution and linear layers add theirs themselves.

mod kernels;
mod plan;
pub mod reference;
#[cfg(test)]
mod tests;

pub use plan::{Bias, BiasBackwardData, BiasBackwardWeights, BiasDesc, BiasForward};
