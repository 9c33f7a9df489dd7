//! Tensors of a task graph: named values in one buffer, with the role they play.

use serde::Serialize;

use crate::layer::LayerId;
use crate::placement::Placement;

/// Index of a [`Tensor`] in its task graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct TensorId(u32);

impl TensorId {
    pub(crate) fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("a task graph holds fewer than 2^32 tensors"))
    }

    /// Position in [`TaskGraph::tensors`](crate::TaskGraph::tensors).
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What the values of a tensor are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub enum TensorRole {
    /// A layer's output, or a copy of it in the placement that some other layer needs.
    Activation,
    /// The loss's gradient with respect to a layer's output: one consumer's term, or the sum of all.
    ActivationGradient,
    /// All trainable parameters of a layer, flat: one exchange, one update.
    Parameters,
    /// The gradient of [`TensorRole::Parameters`], same order.
    ParameterGradient,
    /// The optimizer's momentum for the strip that this rank owns.
    Velocity,
    /// A convolution's weights as its forward pass reads them, where those are not the parameters; made anew each iteration.
    ForwardWeights,
    /// A convolution's weights in the order that its data gradient reads; made anew each iteration.
    BackwardWeights,
    /// Running mean and variance of a batch normalization.
    RunningStatistics,
    /// Mean and squared deviations of slices of a batch normalization's input on this rank.
    SliceStatistics,
    /// [`TensorRole::SliceStatistics`] merged into those of the whole rank.
    LocalStatistics,
    /// [`TensorRole::LocalStatistics`] of every rank.
    GatheredStatistics,
    /// Mean and inverse deviation over the minibatch, kept for the backward pass.
    BatchStatistics,
    /// Sums for a batch normalization's gradients over slices of this rank's samples.
    SliceGradientSums,
    /// [`TensorRole::SliceGradientSums`] added up.
    LocalGradientSums,
    /// [`TensorRole::LocalGradientSums`] of every rank.
    GatheredGradientSums,
    /// The sums of squares of the strip of a layer's gradient that this rank owns, block by block.
    GradientSquares,
    /// The sum of squares of all gradients that this rank owns.
    LocalSquares,
    /// [`TensorRole::LocalSquares`] of every rank.
    GatheredSquares,
    /// The label of each sample, as a number.
    Labels,
    /// Where the classes of the loss are split over the members of a group: what each sample's loss needs to know of this
    /// member's classes.
    LossStatistics,
    /// [`TensorRole::LossStatistics`] of every member of the group.
    GatheredLossStatistics,
    /// One loss and one hit-or-miss a sample of this rank.
    SampleLosses,
    /// This rank's sums of loss and hits.
    LocalMetrics,
    /// [`TensorRole::LocalMetrics`] of every rank.
    GatheredMetrics,
}

impl TensorRole {
    /// True for what has one value, or one map, a sample: a task that works on a part of the samples touches that part alone.
    #[must_use]
    pub fn has_samples(self) -> bool {
        matches!(self, Self::Activation | Self::ActivationGradient)
    }

    /// True for what outlives an iteration, so that its memory is never shared with another tensor.
    #[must_use]
    pub fn is_persistent(self) -> bool {
        matches!(self, Self::Parameters | Self::Velocity | Self::RunningStatistics)
    }
}

/// A named value in one buffer.
#[derive(Debug, Clone, Serialize)]
pub struct Tensor {
    /// Its index.
    pub id: TensorId,
    /// Readable name: layer and role, `conv1.activation`.
    pub name: String,
    /// What its values are.
    pub role: TensorRole,
    /// The layer it belongs to.
    pub layer: LayerId,
    /// Which part every rank holds.
    pub placement: Placement,
}
