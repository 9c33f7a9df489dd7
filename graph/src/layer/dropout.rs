//! Settings of dropout.

use serde::{Deserialize, Serialize};

/// Settings of dropout: in training each value is zero with probability `p`, else divided by `1 - p`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dropout {
    /// Probability of a zero, in [0, 1).
    pub p: f64,
}

impl Dropout {
    /// Drops with probability `p`.
    #[must_use]
    pub fn new(p: f64) -> Self {
        Self { p }
    }
}
