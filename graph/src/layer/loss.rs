//! Settings of the loss.

use serde::{Deserialize, Serialize};

/// Settings of softmax with cross-entropy: the mean over the minibatch of `-sum_c target[c] * log softmax(src)[c]`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SoftmaxCrossEntropy {
    /// The share of the target that is spread evenly over all classes, in [0, 1].
    pub label_smoothing: f64,
}

impl SoftmaxCrossEntropy {
    /// Spreads `label_smoothing` of the target over all classes.
    #[must_use]
    pub fn smoothed(label_smoothing: f64) -> Self {
        Self { label_smoothing }
    }
}
