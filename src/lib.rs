//! Lockstep trains neural networks with synchronous SGD on CPU clusters.
//!
//! A [`graph::Network`] is compiled into a [`graph::Plan`], bound to kernels, buffers and a communicator as a
//! [`scheduler::Program`], and run by a [`scheduler::Executor`]. [`train`] and [`score`] do all of it for whole data sets.
//!
//! | to | see |
//! |---|---|
//! | describe a network | [`graph::NetworkBuilder`], [`graph::zoo`] |
//! | train it | [`Job`], [`train`], [`Observer`] |
//! | score it | [`ScoreJob`], [`score`] |
//! | measure its speed | [`MeasureJob`], [`measure`] |
//! | read and write weights | [`load_weights`], [`save_weights`] |
//! | see what happened | [`traces`] |
//!
//! # Examples
//! ```no_run
//! use std::sync::Arc;
//! use lockstep::data::{Mnist, Split, bundled_mnist};
//! use lockstep::{Job, RunOptions, Silent, graph::zoo, train};
//!
//! let mnist = bundled_mnist().unwrap();
//! let job = Job {
//!     network: Arc::new(zoo::by_name("lenet").unwrap()),
//!     train: Arc::new(Mnist::open(&mnist, Split::Train).unwrap()),
//!     test: Some(Arc::new(Mnist::open(&mnist, Split::Test).unwrap())),
//!     initial: None,
//!     options: RunOptions::default(),
//! };
//! let outcome = train(&job, &mut Silent).unwrap();
//! assert!(outcome.epochs[2].test.unwrap().top1() > 0.988);
//! ```
#![forbid(unsafe_code)]

mod error;
mod schedule;
mod init;
mod checkpoint;
mod launch;
mod trainer;
#[cfg(feature = "faults")]
mod fault;

pub use lockstep_comm as comm;
pub use lockstep_data as data;
pub use lockstep_graph as graph;
pub use lockstep_ops as ops;
pub use lockstep_scheduler as scheduler;
pub use lockstep_traces as traces;

pub use checkpoint::{NamedTensor, find_tensor, load_weights, save_weights, weights_path};
pub use error::RunError;
#[cfg(feature = "faults")]
pub use fault::Fault;
pub use init::initial_values;
pub use launch::{RankChoice, choose_ranks, mpi_description, read_isa_choice};
pub use schedule::{LrSchedule, Progress};
pub use trainer::{
    Decay, EpochRecord, ExchangeTimes, Finishers, Job, Length, MeasureJob, Measurement, Observer,
    Outcome, Pace, Ranks, Reproducible, RunOptions, RunStart, Score, ScoreJob, Sgd, Silent,
    StepRecord, Stretch, TraceOptions, Traffic, check_weights, measure, merge_traces,
    peak_resident_bytes, score, train,
};

/// The code blocks of the README and of ARCHITECTURE.md, compiled and run.
#[cfg(doctest)]
mod prose {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../ARCHITECTURE.md")]
    struct Architecture;
}
