//! What happened in a run: typed events of every task and exchange, as Chrome traces, and checks of
//! what the traces show.
//!
//! Each rank records into a file of its own ([`RankTrace`], [`Recorder`]); [`merge`] puts all ranks
//! on one clock in one file; [`check`] tells whether that file is sound and whether communication
//! was hidden behind computation. Open a trace by dropping it on <https://ui.perfetto.dev>, or with
//! the load button of `chrome://tracing`. Each rank is a process, each thread a row; exchanges are
//! drawn from submission to completion on rows of their own. A slice's layer, pass, flops, bytes and
//! GFLOP/s appear below when it is selected.
//!
//! | To .. | use |
//! |---|---|
//! | record a rank | [`RankTrace::start`], [`RankTrace::finish`] |
//! | record on a thread | [`Recorder::enter_thread`], [`Recorder::task`], [`Recorder::exchange`] |
//! | sum up where time goes, without a file | [`Tally`] |
//! | end a recording from a signal handler's thread | [`RankTrace::finisher`] |
//! | save what a killed process had recorded | [`recover`] |
//! | put ranks together | [`merge`], [`rank_file`], [`clock_ns`] |
//! | judge a trace | [`check`], [`CheckReport`] |
//!
//! ```
//! use lockstep_traces::{RankTrace, TaskSlice, TraceConfig, check, merge, pass};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! let path = folder.path().join("trace.json");
//! let trace = RankTrace::start(TraceConfig {
//!     path: path.clone(),
//!     rank: 0,
//!     n_ranks: 1,
//!     host: "localhost".to_owned(),
//!     steps: 0..10,
//!     clock_offset_ns: 0,
//! })?;
//! let recorder = trace.recorder();
//! std::thread::spawn(move || {
//!     let _thread = recorder.enter_thread("worker 0");
//!     let _slice = recorder.task(&TaskSlice {
//!         name: "conv1 forward",
//!         layer: "conv1",
//!         layer_index: 0,
//!         pass: pass::FORWARD,
//!         step: 3,
//!         flops: 2e6,
//!         bytes: 3e4,
//!         blocks: 0..4,
//!     });
//! })
//! .join()
//! .expect("the thread only records");
//! merge(&[trace.finish()?], &path)?;
//! let report = check(&path)?;
//! assert!(report.ok());
//! assert_eq!(report.n_slices, 1);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod event;
mod vocabulary;
mod recorder;
mod tally;
mod recording;
mod clock;
mod sink;
mod backlog;
mod header;
mod raw;
mod render;
mod chrome;
mod output;
mod merge;
mod check;
mod error;

pub use check::{BroadcastCover, BusyShare, CheckReport, Problem, StepOverlap, check};
pub use clock::clock_ns;
pub use error::TraceError;
pub use merge::{MergeSummary, merge};
pub use recorder::{ExchangeSpan, Recorder, TaskGuard, TaskSlice, ThreadGuard};
pub use recording::{Finisher, RankTrace, TraceConfig, rank_file, raw_file};
pub use render::recover;
pub use tally::{Tally, TallyReport, TaskTime};
pub use vocabulary::{exchange, pass};
