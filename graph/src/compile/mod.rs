//! From a network to a plan: batch, ranks and strategy chosen, tasks priced, dependencies derived.

mod backward;
mod bundles;
mod forward;
mod fusion;
mod lowering;
mod meshes;
mod mesh_classes;
mod operands;
mod parts;
mod plan;
mod strategy;
mod updates;
mod winograd;

pub use fusion::Fusion;
pub(crate) use mesh_classes::{MeshClasses, MeshSource};
pub use meshes::Meshes;
pub(crate) use meshes::is_splittable;
pub use plan::{Mode, Plan, PlanOptions, REPRODUCIBLE_SLICES};
pub use strategy::{PerLayer, Strategy};
pub use winograd::{WinogradLayers, WinogradTile};

#[cfg(test)]
mod tests;
