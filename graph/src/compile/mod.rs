//! From a network to a plan: batch, ranks and strategy chosen, tasks priced, dependencies derived.

mod backward;
mod forward;
mod fusion;
mod lowering;
mod plan;
mod strategy;

pub use fusion::Fusion;
pub use plan::{Mode, Plan, PlanOptions};
pub use strategy::Strategy;

#[cfg(test)]
mod tests;
