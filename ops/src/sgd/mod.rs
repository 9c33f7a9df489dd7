//! The update of weights from their gradient: stochastic gradient descent as PyTorch does it.

pub mod reference;
#[cfg(test)]
mod tests;
mod update;

pub use update::{SgdHyper, update, update_scaled};
