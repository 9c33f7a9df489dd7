//! What a dropout layer computes, and which descriptions make sense.

use crate::extent::{expect_maps, expect_within};
use crate::{Maps, ShapeError};

/// Dropout of the elements of `maps`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DropoutDesc {
    /// The shape of a sample, or of this rank's channels of it.
    pub maps: Maps,
    /// The channel of the whole layer that is channel 0 here: 0, unless ranks share the layer's channels.
    pub first_channel: usize,
    /// The probability with which an element is zeroed, 0 to 1.
    pub p: f32,
    /// Whether the source is the value of a ReLU: backward then returns the gradient of its input. What is kept has the
    /// sign that it had before, so the output is what the slope is told from.
    pub follows_relu: bool,
}

impl DropoutDesc {
    pub(super) fn validate(&self) -> Result<(), ShapeError> {
        expect_maps("dropout", self.maps)?;
        expect_within("dropout", "p", self.p, [0.0, 1.0])?;
        let Maps { c, h, w } = self.maps;
        let channels = self.first_channel.saturating_add(c);
        let elements = channels.saturating_mul(h).saturating_mul(w);
        if elements > u32::MAX as usize {
            return Err(ShapeError::TooManyElements { op: "dropout", elements, limit: u32::MAX });
        }
        Ok(())
    }
}
