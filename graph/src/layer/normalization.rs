//! Settings of local response normalization and batch normalization.

use serde::{Deserialize, Serialize};

/// Settings of local response normalization across channels.
///
/// ```text
/// dst[c] = src[c] / (k + alpha / size * sum of src[j]^2 over the `size` channels j around c)^beta
/// ```
///
/// # Source
/// Krizhevsky et al. 2012, section 3.3, with `alpha` divided by `size` as PyTorch and Caffe do.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lrn {
    /// Channels in the window.
    pub size: usize,
    /// Factor of the mean square.
    pub alpha: f64,
    /// Exponent.
    pub beta: f64,
    /// What is added to the mean square.
    pub k: f64,
}

impl Lrn {
    /// PyTorch's defaults: alpha 1e-4, beta 0.75, k 1.
    #[must_use]
    pub fn new(size: usize) -> Self {
        Self { size, alpha: 1e-4, beta: 0.75, k: 1.0 }
    }
}

/// Settings of batch normalization, per channel over samples and pixels.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BatchNorm {
    /// What is added to the variance.
    pub eps: f64,
    /// Weight of the newest minibatch in the running statistics.
    pub momentum: f64,
    /// What mean and variance are taken over.
    pub statistics: Statistics,
}

impl Default for BatchNorm {
    /// PyTorch's eps 1e-5 and momentum 0.1; statistics of the whole minibatch.
    fn default() -> Self {
        Self { eps: 1e-5, momentum: 0.1, statistics: Statistics::Minibatch }
    }
}

impl BatchNorm {
    /// Takes statistics over each rank's own samples: no exchange, but results depend on the number of ranks.
    #[must_use]
    pub fn per_rank(mut self) -> Self {
        self.statistics = Statistics::PerRank;
        self
    }
}

/// What batch normalization's mean and variance are taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistics {
    /// The whole minibatch, on any number of ranks.
    #[default]
    Minibatch,
    /// The samples of each rank alone.
    PerRank,
}
