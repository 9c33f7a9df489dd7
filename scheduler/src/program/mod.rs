//! A plan bound to kernels, buffers and exchanges.

mod bind;
mod blocks;
mod description;
mod exchange;
mod kernel;
mod links;
mod places;
mod redistribution;
mod run;
mod run_loss;
mod run_update;
mod run_weights;
mod slices;
mod store;
mod traffic;
mod update;

pub use bind::{BindOptions, Program};
pub(crate) use description::priority;
pub use exchange::ServedExchange;
pub use kernel::winograd_tile;
pub(crate) use links::{Links, links};
pub(crate) use run::Scratch;
pub(crate) use store::Lease;
pub use store::ParameterStore;
pub use traffic::{Traffic, price_exchanges};
