//! How computation and communication weigh against each other, and which parallelism each layer should have.
//!
//! | to | see |
//! |---|---|
//! | ask the paper's equations of one layer | [`LayerSizes`] |
//! | know how few points a node may have | [`minimum_points`], [`nodes_at`], [`system_ratio`] |
//! | choose groups and members layer by layer | [`choose_groups`] |
//!
//! # Source
//! Das et al. 2016, sections 3.1 to 3.3.

mod equations;
mod scaling;
mod movement;
mod model;
mod link;
mod overlap;
mod reason;
mod choose;
#[cfg(test)]
mod tests;

pub use choose::{LayerChoice, choose_groups};
pub use equations::{LayerSizes, Overlap};
pub use reason::{Alternative, Reason};
pub use scaling::{minimum_points, nodes_at, system_ratio};
