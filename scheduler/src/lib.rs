//! When and where tasks run: a plan is bound to kernels, buffers and exchanges, and run by workers.
//!
//! | concept | item |
//! |---|---|
//! | memory that outlives iterations | [`ParameterStore`] |
//! | a plan bound to kernels, buffers, exchanges | [`Program`] |
//! | one rank's threads | [`Executor`], [`WorkerConfig`] |
//! | what handing out work costs | [`Executor::drill`] |
//! | what an iteration will take, without running it | [`simulator`] |
//! | what a rank will send | [`Traffic`] |
//! | where minibatches come from | [`Feed`], [`Iteration`] |
//!
//! A compute task is a number of blocks. Ready tasks stand on a board in priority order; workers claim blocks with one
//! atomic add; whoever finishes a task's last block counts its successors down. Communication tasks go to the communication
//! thread, whose completions count successors down the same way. Results do not depend on the number of workers.

mod sync;
mod sleep;
mod board;
mod cpus;
mod caches;
mod error;
mod drill;
mod iteration;
#[cfg(debug_assertions)]
mod ledger;
mod program;
mod session;
pub mod simulator;
mod workers;
mod executor;
#[cfg(all(test, not(loom)))]
mod rehearsal;

pub use caches::{CacheLevel, cache_levels, detect_caches};
pub use cpus::{Cores, pin_current_thread};
pub use drill::Drill;
pub use error::{ScheduleError, panic_message};
pub use executor::{Executor, Feed, Router};
pub use iteration::{Iteration, IterationReport, LocalSamples};
pub use lockstep_ops::flush_denormals;
pub use program::{
    BindOptions, ParameterStore, Program, ServedExchange, Traffic, price_exchanges, winograd_tile,
};
pub use workers::{StepHook, WorkerConfig};
