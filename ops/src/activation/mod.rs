//! Element-wise activations: ReLU, sigmoid and tanh.

mod backward;
mod desc;
mod function;
mod forward;
mod plan;
pub mod reference;
mod slope;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod along;

pub use desc::{ActivationDesc, ActivationKind};
pub use plan::{Activation, ActivationBackward, ActivationForward};
pub(crate) use slope::Slope;
