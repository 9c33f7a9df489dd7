//! Concatenation along the channels, and the split of a gradient that leads back.

mod desc;
mod plan;
pub mod reference;
mod runs;
#[cfg(test)]
mod tests;

pub use desc::ConcatDesc;
pub use plan::{Concat, ConcatBackward, ConcatForward};
