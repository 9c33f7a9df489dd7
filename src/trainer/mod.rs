//! Training and scoring whole data sets on any number of ranks.

mod exchanges;
mod facts;
mod feed;
mod finishers;
mod job;
mod measure;
mod memory;
mod observer;
mod options;
mod platform;
mod rank;
mod replicas;
mod reproducible;
mod score;
mod thread_time;
mod threads;
mod watch;

pub use exchanges::ExchangeTimes;
pub use finishers::Finishers;
pub use job::{merge_traces, train};
pub use measure::{MeasureJob, Measurement, Pace, Stretch, Traffic, measure};
pub use memory::peak_resident_bytes;
pub use observer::{EpochRecord, Observer, RunStart, Score, Silent, StepRecord};
pub use options::{Decay, Job, Length, Ranks, RunOptions, Sgd, TraceOptions};
pub use rank::Outcome;
pub use reproducible::Reproducible;
pub use score::{ScoreJob, check_weights, score};
