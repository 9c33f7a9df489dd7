//! Settings of max and average pooling.

use serde::{Deserialize, Serialize};

use super::window::{HeightWidth, Window};

/// Settings of max pooling, and of average pooling but for its divisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// Window, stride and padding; padding is at most half of the window.
    pub window: Window,
    /// Whether a last window that sticks out of the padded map counts; it must start inside the map or the padding
    /// before it.
    #[serde(default)]
    pub ceil: bool,
}

impl Pool {
    /// Windows side by side: the stride is the kernel, no padding, floor mode.
    #[must_use]
    pub fn new(kernel: impl Into<HeightWidth>) -> Self {
        let window = Window::new(kernel);
        Self { window: Window { stride: window.kernel, ..window }, ceil: false }
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

    /// Rounds the output size up.
    #[must_use]
    pub fn ceil(mut self) -> Self {
        self.ceil = true;
        self
    }
}

/// Settings of average pooling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AvgPool {
    /// Window and rounding.
    pub pool: Pool,
    /// Whether padding counts in the divisor (PyTorch's `count_include_pad`).
    #[serde(default = "include_pad")]
    pub include_pad: bool,
}

impl AvgPool {
    /// Windows side by side, no padding, floor mode; padding would count in the divisor.
    #[must_use]
    pub fn new(kernel: impl Into<HeightWidth>) -> Self {
        Pool::new(kernel).into()
    }

    /// Divides by the number of pixels inside the map alone.
    #[must_use]
    pub fn exclude_pad(mut self) -> Self {
        self.include_pad = false;
        self
    }
}

impl From<Pool> for AvgPool {
    fn from(pool: Pool) -> Self {
        Self { pool, include_pad: true }
    }
}

fn include_pad() -> bool {
    true
}
