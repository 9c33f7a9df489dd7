//! Runs a task graph in virtual time: what an iteration will take, and how much of the exchange the computation hides.
//!
//! One rank of a symmetric job is simulated: all others do the same at the same time, so an exchange begins when this rank
//! submits it. The policy is the scheduler's own: the same dependency counts, at most two incomplete iterations, urgent
//! tasks before those that can wait, each by the oldest iteration and then the longest critical path, exchanges by the same urgency as the
//! communication thread is told.
//!
//! What is simpler than in a run:
//! - The workers of a rank are one server that works at the platform's speed. A more urgent task interrupts at once, where
//!   workers would first finish their blocks.
//! - The link carries one exchange at a time, both directions alike; a more urgent one waits until a chunk has left.
//! - A task takes the time of its [`Price`](lockstep_graph::Price); the communication thread costs the workers nothing.

mod counts;
mod link;
mod machine;
mod outcome;
mod refine;
#[cfg(test)]
mod tests;

use lockstep_graph::{Platform, TaskGraph};

use machine::Machine;
pub use outcome::{LayerTimes, SimulatedStep};
pub use refine::{Candidate, compare_strategies, resolve_auto};

/// In which order exchanges that wait for the link are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ServiceOrder {
    /// As submitted, each to its end.
    Fifo,
    /// By the consumer's place in the next forward pass; a more urgent exchange goes first as soon as a chunk has left.
    #[default]
    Priority,
}

/// What a task graph is simulated on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimulatorOptions {
    /// The machine of every rank and its link.
    pub platform: Platform,
    /// The order of exchanges.
    pub order: ServiceOrder,
    /// Bytes after which a more urgent exchange may take the link.
    pub chunk_bytes: f64,
}

impl SimulatorOptions {
    /// Exchanges by priority, in chunks of 1 MiB.
    #[must_use]
    pub fn new(platform: Platform) -> Self {
        Self { platform, order: ServiceOrder::Priority, chunk_bytes: (1 << 20) as f64 }
    }
}

/// Simulates iterations of a task graph until they all take the same time, and returns what one takes.
///
/// # Cost
/// Some passes over tasks and edges, and one event a chunk: milliseconds.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use lockstep_graph::{Mode, Plan, PlanOptions, Platform, Strategy, zoo};
/// use lockstep_scheduler::simulator::{SimulatorOptions, simulate};
///
/// let platform = Platform::default();
/// let plan = Plan::compile(Arc::new(zoo::by_name("alexnet").unwrap()), PlanOptions {
///     minibatch: 64,
///     ranks: 2,
///     mode: Mode::Train { momentum: true },
///     strategy: Strategy::Data,
///     platform,
///     fuse: true,
///     ..PlanOptions::default()
/// }).unwrap();
/// let step = simulate(plan.tasks(), &SimulatorOptions::new(platform));
/// // Two gigabits a second carry most of 61 million gradients and weights while the rank computes.
/// assert!(step.step_s < step.compute_s + step.exchange_s);
/// assert!(step.overlap() > 0.5 && step.efficiency() < 1.0);
/// ```
#[must_use]
pub fn simulate(graph: &TaskGraph, options: &SimulatorOptions) -> SimulatedStep {
    Machine::new(graph, options).run()
}
