//! How ranks exchange tensors.
//!
//! Each rank has one **communication thread**, started by [`Communicator::start`]. It alone talks to the other ranks: through
//! [`LocalJob`] if they are threads of the same process, through MPI with the feature `mpi`. All other threads hand it
//! [`Exchange`]s, described once and submitted every iteration, through a lock-free ring; it calls back on completion.
//!
//! | concept | where |
//! |---|---|
//! | what is exchanged: part-reduce, part-broadcast, redistribute | [`Exchange`], over memory named by [`Region`] |
//! | asking for it | [`Communicator`], set up by [`CommConfig`] |
//! | how it travels: directly, round a ring, by halves; and which is fastest | [`Algorithm`], [`LinkModel`] |
//! | chunks, urgency, credit, order of summation | `engine/`, with a README |
//! | measuring it, alone or beside MPI's own | [`ExchangePair`], [`Communicator::isolate`] |
//! | the transports | `transport/` |
//! | what all ranks must have in common | [`agree`] |
//! | who started the ranks | [`launcher`] |
//!
//! # Example
//! Two ranks sum a tensor of four elements; each owns half of it.
//! ```
//! use std::sync::{Arc, mpsc};
//! use lockstep_comm::{Algorithm, CommConfig, Communicator, Exchange, ExchangeLabel, LocalJob, Region};
//!
//! let rank = |endpoint| {
//!     let (done, completions) = mpsc::channel();
//!     let on_complete = Box::new(move |completion| done.send(completion).expect("the rank listens"));
//!     let comm = Communicator::start(endpoint, CommConfig { on_complete, ..CommConfig::default() }).unwrap();
//!     let mut data = vec![1.0, 2.0, 3.0, 4.0_f32];
//!     // Sound, because `data` outlives the exchange and nobody touches it before the completion.
//!     let region = unsafe { Region::new(data.as_mut_ptr(), data.len()) };
//!     let label = ExchangeLabel { id: 0, priority: 0, rank: comm.rank() };
//!     let strips = [vec![0..2], vec![2..4]];
//!     let sum = Exchange::part_reduce(label, region, &[0, 1], &strips, Algorithm::Direct).unwrap();
//!     let sum = Arc::new(sum);
//!     unsafe { comm.submit(&sum, 1, 7) };
//!     assert_eq!(completions.recv().unwrap().token, 7);
//!     comm.shutdown().unwrap();
//!     data
//! };
//! let ranks: Vec<_> = LocalJob::endpoints(2).into_iter().map(|end| std::thread::spawn(move || rank(end))).collect();
//! let data: Vec<_> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
//! assert_eq!(data, [[2.0, 4.0, 3.0, 4.0], [1.0, 2.0, 6.0, 8.0]]);
//! ```

mod error;
#[expect(unsafe_code, reason = "memory of others, by the contract of Region::new")]
mod region;
mod model;
mod exchange;
mod config;
mod counters;
mod sync;
mod doorbell;
#[expect(
    unsafe_code,
    reason = "values that one thread writes and another takes, by whose turn it is"
)]
mod ring;
mod submission;
mod transport;
mod workers;
mod engine;
mod thread;
mod communicator;
mod gather;
mod measure;
mod agree;
mod launcher;

pub use agree::agree;
pub use communicator::Communicator;
pub use config::{CommConfig, Completion, Patience, ServiceOrder};
pub use counters::Counters;
pub use error::{CommError, Difference};
pub use exchange::{Exchange, ExchangeKind, ExchangeLabel, MAX_EXCHANGE_ID, Message, Receive};
pub use launcher::{Launcher, launcher};
pub use measure::ExchangePair;
pub use model::{Algorithm, LinkModel};
pub use region::Region;
pub use transport::Endpoint;
pub use transport::local::{LocalEndpoint, LocalJob};
#[cfg(feature = "mpi")]
pub use transport::mpi::MpiEndpoint;
