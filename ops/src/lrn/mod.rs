//! Local response normalization across neighboring channels.

mod backward;
mod desc;
mod forward;
mod lines;
mod plan;
mod power;
pub mod reference;
#[cfg(test)]
mod tests;

pub use backward::LrnBackward;
pub use desc::LrnDesc;
pub use forward::LrnForward;
pub use plan::Lrn;
