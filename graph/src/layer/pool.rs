//! Settings of max and average pooling.

use serde::{Deserialize, Serialize};

use super::window::{HeightWidth, Window};
use crate::shape::Shape;

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

    /// Whether windows lie side by side from the first pixel on, none cut off, given the shapes of input and output: each input has
    /// at most one.
    pub(crate) fn tiles(&self, src: Shape, dst: Shape) -> bool {
        let Window { kernel, stride, pad } = self.window;
        let ((_, h, w), (_, rows, columns)) = (src.maps(), dst.maps());
        let whole = rows * kernel.0 <= h && columns * kernel.1 <= w;
        kernel == stride && pad == (0, 0) && whole
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
