//! Batch normalization over the samples of every rank, with the exchange of statistics left to the caller.
//!
//! Training takes two passes in each direction, between which the ranks gather each other's small per-channel results,
//! two rows of `c` values a rank:
//!
//! ```text
//! stats           src                -> mean, sum of squared deviations      of slices of this rank's samples
//! forward         src, all stats     -> dst, saved (mean, 1/std), running (mean, variance)
//! backward_stats  src, diff_dst      -> diff_bia, diff_wei                   of slices of this rank's samples
//! backward        src, diff_dst, all -> diff_src
//! ```
//!
//! One rank hands its slices' results on as they are. Several ranks merge theirs first ([`BatchNorm::merge_stats`],
//! [`BatchNorm::merge_sums`]), so that each sends two rows, and hand on what all ranks sent. Who writes the input may
//! compute the statistics of what it has just written ([`BatchNorm::stats_of`]). How a minibatch is sliced depends on its
//! size, and on how that other op cuts it; where every number of ranks is to give the same bits, the caller slices it into
//! ranges of its own ([`BatchNorm::range_stats`], [`BatchNorm::range_sums`]) and merges those. [`BatchNorm::eval`] normalizes with the running statistics; its gradient
//! is [`BatchNorm::backward`] with no ranks, and the running mean and 1/std as `saved`.

mod affine;
mod backward;
mod backward_stats;
mod desc;
mod eval;
mod forward;
mod moments;
mod plan;
mod range;
mod slicing;
pub mod reference;
mod stats;
mod sums;
#[cfg(test)]
mod tests;

pub use backward::BatchNormBackward;
pub use backward_stats::BatchNormBackwardStats;
pub use desc::BatchNormDesc;
pub use eval::BatchNormEval;
pub use forward::BatchNormForward;
pub use plan::BatchNorm;
pub use range::BatchNormRange;
pub use stats::{BatchNormMerge, BatchNormStats};
