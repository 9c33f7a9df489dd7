//! The sum of any number of tensors, for residual layers and for gradients that meet at a fan-out.

mod plan;
pub mod reference;
#[cfg(test)]
mod tests;

pub use plan::{Add, AddDesc, AddFinish, AddForward};
