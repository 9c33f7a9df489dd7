//! Settings of the layers that have weights: convolution and linear.

use serde::{Deserialize, Serialize};

use super::window::{HeightWidth, Window};

/// Settings of a 2-D convolution.
///
/// # Examples
/// ```
/// use lockstep_graph::Conv2d;
///
/// let conv = Conv2d::new(64, 3).stride(2).pad(1).no_bias();
/// assert_eq!(conv.window.stride, (2, 2));
/// assert!(!conv.bias);
/// assert_eq!(Conv2d::new(6, (3, 5)).window.kernel, (3, 5));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conv2d {
    /// Output channels.
    pub oc: usize,
    /// Kernel, stride and padding.
    pub window: Window,
    /// Groups: output channels of one group see the input channels of that group alone.
    #[serde(default = "one")]
    pub groups: usize,
    /// Whether a bias is added.
    #[serde(default = "yes")]
    pub bias: bool,
}

impl Conv2d {
    /// `oc` output channels, stride 1, no padding, one group, with bias.
    #[must_use]
    pub fn new(oc: usize, kernel: impl Into<HeightWidth>) -> Self {
        Self { oc, window: Window::new(kernel), groups: 1, bias: true }
    }

    /// Sets the stride.
    #[must_use]
    pub fn stride(mut self, stride: impl Into<HeightWidth>) -> Self {
        self.window.stride = stride.into().into();
        self
    }

    /// Sets the padding.
    #[must_use]
    pub fn pad(mut self, pad: impl Into<HeightWidth>) -> Self {
        self.window.pad = pad.into().into();
        self
    }

    /// Sets the number of groups.
    #[must_use]
    pub fn groups(mut self, groups: usize) -> Self {
        self.groups = groups;
        self
    }

    /// Leaves the bias out.
    #[must_use]
    pub fn no_bias(mut self) -> Self {
        self.bias = false;
        self
    }
}

/// Settings of a linear (fully connected) layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Output features.
    pub out_features: usize,
    /// Whether a bias is added.
    #[serde(default = "yes")]
    pub bias: bool,
}

impl Linear {
    /// `out_features` output features, with bias.
    #[must_use]
    pub fn new(out_features: usize) -> Self {
        Self { out_features, bias: true }
    }

    /// Leaves the bias out.
    #[must_use]
    pub fn no_bias(mut self) -> Self {
        self.bias = false;
        self
    }
}

fn one() -> usize {
    1
}

fn yes() -> bool {
    true
}
