//! Element-wise activations: ReLU, sigmoid and tanh.

mod backward;
mod desc;
mod forward;
mod plan;
pub mod reference;
#[cfg(test)]
mod tests;

pub use desc::{ActivationDesc, ActivationKind};
pub use plan::{Activation, ActivationBackward, ActivationForward};
