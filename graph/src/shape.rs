//! The shape of one sample of a layer's output.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What one sample is at one place of the network; the minibatch is never part of it.
///
/// Written `3x224x224` or `4096`; in JSON `[3, 224, 224]` or `[4096]`.
///
/// # Examples
/// ```
/// use lockstep_graph::Shape;
///
/// let image = Shape::from((3, 224, 224));
/// assert_eq!(image.elements(), 150_528);
/// assert_eq!(image.to_string(), "3x224x224");
/// assert_eq!(Shape::from(4096).maps(), (4096, 1, 1));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<usize>", into = "Vec<usize>")]
pub enum Shape {
    /// A vector of features.
    Features(usize),
    /// Feature maps: channels, height and width.
    Maps {
        /// Channels.
        c: usize,
        /// Height, in pixels.
        h: usize,
        /// Width, in pixels.
        w: usize,
    },
}

impl Shape {
    /// Values of one sample.
    #[must_use]
    pub fn elements(self) -> usize {
        let (c, h, w) = self.maps();
        c * h * w
    }

    /// Channels, height and width; features are channels of one pixel.
    #[must_use]
    pub fn maps(self) -> (usize, usize, usize) {
        match self {
            Self::Features(features) => (features, 1, 1),
            Self::Maps { c, h, w } => (c, h, w),
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Features(features) => f.pad(&features.to_string()),
            Self::Maps { c, h, w } => f.pad(&format!("{c}x{h}x{w}")),
        }
    }
}

impl From<usize> for Shape {
    fn from(features: usize) -> Self {
        Self::Features(features)
    }
}

impl From<(usize, usize, usize)> for Shape {
    fn from((c, h, w): (usize, usize, usize)) -> Self {
        Self::Maps { c, h, w }
    }
}

impl From<Shape> for Vec<usize> {
    fn from(shape: Shape) -> Self {
        match shape {
            Shape::Features(features) => vec![features],
            Shape::Maps { c, h, w } => vec![c, h, w],
        }
    }
}

/// A list of sizes that is no shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a shape is [features] or [channels, height, width], got {sizes} sizes")]
pub struct WrongRank {
    sizes: usize,
}

impl TryFrom<Vec<usize>> for Shape {
    type Error = WrongRank;

    fn try_from(sizes: Vec<usize>) -> Result<Self, WrongRank> {
        match sizes[..] {
            [features] => Ok(Self::Features(features)),
            [c, h, w] => Ok(Self::Maps { c, h, w }),
            _ => Err(WrongRank { sizes: sizes.len() }),
        }
    }
}
