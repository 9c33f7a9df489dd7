//! The update of weights from their gradient: stochastic gradient descent as PyTorch does it.

pub mod reference;
mod sink;
#[cfg(test)]
mod tests;
mod update;

pub use sink::{GradientSink, SgdStep};
pub(crate) use update::Rule;
pub use update::{SgdHyper, update, update_scaled};
