//! Batch normalization over the samples of every rank, with the exchange of statistics left to the caller.
//!
//! Training takes two passes in each direction, between which the ranks gather each other's small per-channel results,
//! two rows of `c` values a rank:
//!
//! ```text
//! stats           src                -> mean, sum of squared deviations      of this rank, gathered by the caller
//! forward         src, all stats     -> dst, saved (mean, 1/std), running (mean, variance)
//! backward_stats  src, diff_dst      -> diff_bia, diff_wei                   of this rank, gathered by the caller
//! backward        src, diff_dst, all -> diff_src
//! ```
//!
//! Statistics of a rank's own samples alone are the same passes with one rank. A caller that cuts its samples into
//! slices hands them over as so many ranks. [`BatchNorm::eval`] normalizes with the running statistics; its gradient
//! is [`BatchNorm::backward`] with no ranks, and the running mean and 1/std as `saved`.

mod affine;
mod backward;
mod backward_stats;
mod desc;
mod eval;
mod forward;
mod moments;
mod plan;
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
pub use stats::BatchNormStats;
