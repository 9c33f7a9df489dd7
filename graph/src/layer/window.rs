//! The window that a convolution or a pooling layer slides over a map.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A size along the height and one along the width; one number stands for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HeightWidth(pub usize, pub usize);

impl From<usize> for HeightWidth {
    fn from(size: usize) -> Self {
        Self(size, size)
    }
}

impl From<(usize, usize)> for HeightWidth {
    fn from((h, w): (usize, usize)) -> Self {
        Self(h, w)
    }
}

impl From<HeightWidth> for (usize, usize) {
    fn from(size: HeightWidth) -> Self {
        (size.0, size.1)
    }
}

impl fmt::Display for HeightWidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.0, self.1)
    }
}

/// Window size, stride and padding, each (height, width) in pixels.
///
/// Padding is on all four sides. Convolution and average pooling read it as zeros, max pooling never chooses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Size.
    pub kernel: (usize, usize),
    /// Distance between neighboring windows.
    pub stride: (usize, usize),
    /// Padding.
    #[serde(default)]
    pub pad: (usize, usize),
}

impl Window {
    /// A window with stride 1 and no padding.
    #[must_use]
    pub fn new(kernel: impl Into<HeightWidth>) -> Self {
        Self { kernel: kernel.into().into(), stride: (1, 1), pad: (0, 0) }
    }

    /// A `k` x `k` window with stride 1 and no padding.
    #[must_use]
    pub fn square(k: usize) -> Self {
        Self::new(k)
    }
}

impl fmt::Display for Window {
    /// `5x5`, then what differs from stride 1 and no padding: `3x3 stride 2x2 pad 1x1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", HeightWidth::from(self.kernel))?;
        if self.stride != (1, 1) {
            write!(f, " stride {}", HeightWidth::from(self.stride))?;
        }
        if self.pad != (0, 0) {
            write!(f, " pad {}", HeightWidth::from(self.pad))?;
        }
        Ok(())
    }
}
