//! A plan bound to kernels, buffers and exchanges.

mod bind;
mod blocks;
mod exchange;
mod kernel;
mod links;
mod options;
mod redistribution;
mod run;
mod run_loss;
mod run_update;
mod slices;
mod store;
mod update;

pub use bind::Program;
pub use exchange::ServedExchange;
pub(crate) use exchange::priority;
pub(crate) use links::{Links, links};
pub use options::BindOptions;
pub(crate) use run::Scratch;
pub(crate) use store::Lease;
pub use store::ParameterStore;
