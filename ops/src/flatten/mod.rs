//! From blocked maps to a feature vector in PyTorch's order, and back.

mod plan;
pub mod reference;
#[cfg(test)]
mod tests;

pub use plan::{Flatten, FlattenBackward, FlattenDesc, FlattenForward};
