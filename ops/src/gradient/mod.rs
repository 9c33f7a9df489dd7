//! Arithmetic on whole gradients, whatever they are of: sums, and the norm that clipping needs.

mod arithmetic;
mod clip;
pub mod reference;
mod squares;
#[cfg(test)]
mod tests;

pub use arithmetic::add;
pub use clip::clip_coefficient;
pub use squares::{SquareSum, sum_of_squares};
