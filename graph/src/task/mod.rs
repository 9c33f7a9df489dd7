//! The task graph: what happens in one iteration on one rank, and in which order it must.
//!
//! All ranks run the same graph. Nodes are [`Task`]s, edges are [`Dependency`]s within the iteration or
//! carried into the next one; tasks say which [`Tensor`]s they read and write, and the dependencies are
//! derived from that ([`derive`]), so a graph cannot forget one.

mod access;
mod derive;
mod export;
mod graph;
mod priority;

pub use access::{Tensor, TensorId, TensorRole};
pub use graph::{Dependency, Hazard, InPlace, SamplePart, Task, TaskGraph, TaskId, TaskKind};
pub(crate) use graph::{NewTask, TaskGraphBuilder};
pub use priority::ServiceOrder;
