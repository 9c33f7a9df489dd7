//! Building a network layer by layer, everything checked at once.

mod assembly;
mod methods;
mod ties;
mod naming;

pub use assembly::NetworkBuilder;
