//! How one layer pass is computed: layouts, SIMD and blocked kernels.
//!
//! Every op is a *descriptor* (what), a *plan* made from it once (how: tiles, layouts, instruction set), and methods of
//! the plan that compute **one block** of a pass from slices. The crate starts no thread: blocks write disjoint parts of
//! their output, in any order, on any thread, with the same bits.
//!
//! Activations lie in groups of [`Isa::lanes`] channels (nChw8c, nChw16c), and the padded lanes of the last group are
//! zero in every activation and gradient: each op relies on it and keeps it.
//!
//! | To learn about | read |
//! |---|---|
//! | shapes and layouts | [`Maps`], [`Layout`], [`TensorLayout`] |
//! | memory that blocks share | [`Arena`], [`Tiles`] |
//! | vectors | [`simd`], [`Isa`] |
//! | a pass on several threads, measured | [`Rounds`] |
//! | what an op means | [`reference`](mod@reference): plain loops |

mod error;
mod layout;
#[expect(unsafe_code, reason = "hands disjoint parts of one buffer to several threads")]
mod tile;
mod touch_log;
pub mod simd;
pub mod peak;
mod extent;
mod grain;
mod region;
pub mod blocking;
mod conv2d;
mod pool;
mod batch_norm;
mod lrn;
mod dropout;
mod add;
mod concat;
mod flatten;
mod activation;
mod bias;
mod linear;
pub mod gradient;
pub mod sgd;
mod softmax_cross_entropy;
mod rounds;
mod slices;
#[cfg(test)]
mod trial;

pub use activation::{
    Activation, ActivationBackward, ActivationDesc, ActivationForward, ActivationKind,
};
pub use add::{Add, AddDesc, AddFinish, AddForward};
pub use batch_norm::{
    BatchNorm, BatchNormBackward, BatchNormBackwardStats, BatchNormDesc, BatchNormEval,
    BatchNormForward, BatchNormMerge, BatchNormRange, BatchNormStats,
};
pub use bias::{Bias, BiasBackwardData, BiasBackwardWeights, BiasDesc, BiasForward};
pub use concat::{Concat, ConcatBackward, ConcatDesc, ConcatForward};
pub use conv2d::{
    Conv2d, Conv2dBackwardData, Conv2dBackwardWeights, Conv2dDesc, Conv2dForward, WinogradTile,
};
pub use dropout::{Dropout, DropoutBackward, DropoutDesc, DropoutForward, DropoutKey};
pub use error::{IsaError, ShapeError};
pub use flatten::{Flatten, FlattenBackward, FlattenDesc, FlattenForward};
pub use layout::{Layout, Maps, TensorLayout, block_samples, unblock_samples};
pub use linear::{Linear, LinearBackwardData, LinearBackwardWeights, LinearDesc, LinearForward};
pub use lrn::{Lrn, LrnBackward, LrnDesc, LrnForward};
pub use pool::{Pool, PoolBackward, PoolDesc, PoolForward, PoolKind};
pub use region::TensorRegion;
pub use rounds::{Pass, Rounds, Turn};
pub use simd::{Isa, denormals_flushed, flush_denormals};
pub use slices::{MAX_SLICES, SampleSlices};
pub use softmax_cross_entropy::{
    SoftmaxCrossEntropy, SoftmaxCrossEntropyDesc, SoftmaxCrossEntropyForward,
    SoftmaxCrossEntropyForwardBackward, SplitSoftmaxCrossEntropy, SplitSoftmaxCrossEntropyDesc,
    SplitSoftmaxCrossEntropyLoss, SplitSoftmaxCrossEntropyStatistics,
};
pub use tile::{Arena, Tiles};
pub use touch_log::TouchLog;

pub mod reference {
    //! Every op as plain loops over plain layouts with f64 accumulation: what the kernels are tested against.

    pub use crate::activation::reference as activation;
    pub use crate::add::reference as add;
    pub use crate::batch_norm::reference as batch_norm;
    pub use crate::bias::reference as bias;
    pub use crate::concat::reference as concat;
    pub use crate::conv2d::reference as conv2d;
    pub use crate::dropout::reference as dropout;
    pub use crate::flatten::reference as flatten;
    pub use crate::gradient::reference as gradient;
    pub use crate::linear::reference as linear;
    pub use crate::lrn::reference as lrn;
    pub use crate::pool::reference as pool;
    pub use crate::sgd::reference as sgd;
    pub use crate::softmax_cross_entropy::reference as softmax_cross_entropy;
}
