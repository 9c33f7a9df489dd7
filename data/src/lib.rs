//! Where samples come from: data sets, the order they are visited in, and loader threads that prepare minibatches ahead.
//!
//! A [`Dataset`] gives any sample by its global index. An [`Order`] says which sample stands at which position of an
//! epoch, a [`Schedule`] which positions a step covers, and [`share`] which of those are one rank's. All three are plain
//! functions of (seed, epoch, step, rank), so every rank reads just its part, nobody has to talk about it, and a run can
//! begin at any step. A [`Loader`] calls them on threads of its own and hands out [`Batch`]es in step order.
//!
//! | To find out about | read |
//! |---|---|
//! | what a data set must offer | [`Dataset`] |
//! | MNIST and other IDX files | [`Mnist`], [`bundled_mnist`] |
//! | data for measurements, without files | [`Synthetic`] |
//! | shuffling | [`Order`], [`Permutation`] |
//! | uneven sample counts | [`Schedule`], [`share`] |
//! | prefetching, threads, memory | [`Loader`], [`LoaderConfig`] |
//!
//! This crate knows no network, kernel, rank transport or trace; words are those of `docs/glossary.md`.
//!
//! # Examples
//! ```
//! use std::sync::Arc;
//!
//! use lockstep_data::{Loader, LoaderConfig, Order, SampleShape, Schedule, Synthetic};
//!
//! let dataset = Arc::new(Synthetic::new(SampleShape { c: 1, h: 4, w: 4 }, 10, 101, 7));
//! let schedule = Schedule { n_samples: 101, minibatch: 8 };
//! // The second of three ranks, for the 13 steps of the first epoch.
//! let config = LoaderConfig { rank: 1, n_ranks: 3, last_step: Some(13), ..LoaderConfig::default() };
//! let mut loader = Loader::start(dataset, schedule, Order::shuffled(1), config)?;
//! let mut seen = 0;
//! while let Some(batch) = loader.next() {
//!     let batch = batch?;
//!     assert_eq!(batch.samples.len(), batch.labels.len() * 16);
//!     seen += batch.labels.len();
//!     loader.recycle(batch);
//! }
//! // 12 steps of 8 samples (3 + 3 + 2) and one of 5 (2 + 2 + 1).
//! assert_eq!(seen, 12 * 3 + 2);
//! # Ok::<(), lockstep_data::DataError>(())
//! ```

#![forbid(unsafe_code)]

mod error;

mod dataset;
mod idx;
mod mnist;
mod bundled;
mod synthetic;

mod random;
mod order;
mod schedule;

mod loader;

pub use bundled::bundled_mnist;
pub use dataset::{Dataset, SampleShape};
pub use error::DataError;
pub use loader::{Batch, Loader, LoaderConfig, StepHook, ThreadHook};
pub use mnist::{Mnist, Split};
pub use order::{Order, Permutation};
pub use schedule::{Schedule, share};
pub use synthetic::Synthetic;
