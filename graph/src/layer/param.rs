//! What a layer keeps between iterations: parameters and running statistics.

use serde::{Deserialize, Serialize};

/// One named array of a layer. In checkpoints it is called `{layer}.{param}`, as in PyTorch's `state_dict`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Param {
    /// `weight`, `bias`, `running_mean` or `running_var`.
    pub name: String,
    /// Sizes in PyTorch's plain order: `[oc, ic / groups, kh, kw]`, `[out, in]` or `[c]`.
    pub shape: Vec<usize>,
    /// What it is for.
    pub role: ParamRole,
}

impl Param {
    pub(crate) fn new(name: &str, shape: impl Into<Vec<usize>>, role: ParamRole) -> Self {
        Self { name: name.to_owned(), shape: shape.into(), role }
    }

    /// Number of values.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Inputs that one output sums over: the product of all sizes but the first; 1 for a vector.
    #[must_use]
    pub fn fan_in(&self) -> usize {
        self.shape.iter().skip(1).product()
    }
}

/// What a parameter is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParamRole {
    /// Weights of a convolution or a linear layer.
    Weight,
    /// What is added to each output channel.
    Bias,
    /// What batch normalization multiplies by.
    Scale,
    /// What batch normalization adds.
    Shift,
    /// Mean over past minibatches.
    RunningMean,
    /// Variance over past minibatches.
    RunningVar,
}

impl ParamRole {
    /// True for what has a gradient; false for running statistics.
    #[must_use]
    pub fn is_trainable(self) -> bool {
        !matches!(self, Self::RunningMean | Self::RunningVar)
    }

    /// True for the weights proper, which weight decay is meant for; biases and batch normalization's scales and
    /// shifts are usually left out.
    #[must_use]
    pub fn is_weight(self) -> bool {
        self == Self::Weight
    }
}
