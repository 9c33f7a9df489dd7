//! Dropout whose mask is a function of names: of seed, layer, step, sample and element, and of nothing else.

mod desc;
mod mask;
mod plan;
pub mod reference;
#[cfg(test)]
mod tests;

pub use desc::DropoutDesc;
pub use mask::DropoutKey;
pub use plan::{Dropout, DropoutBackward, DropoutForward};
