//! A plan bound to kernels, buffers and exchanges.

mod bind;
mod blocks;
mod exchange;
mod kernel;
mod links;
mod redistribution;
mod run;
mod run_loss;
mod run_update;
mod run_weights;
mod slices;
mod store;
mod update;

pub use bind::{BindOptions, Program};
pub(crate) use exchange::priority;
pub(crate) use links::{Links, links};
pub(crate) use run::Scratch;
pub(crate) use store::Lease;
pub use store::ParameterStore;
