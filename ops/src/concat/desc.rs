//! What a concatenation joins, and which descriptions make sense.

use crate::extent::expect_positive;
use crate::{Maps, ShapeError};

/// A concatenation along the channels of tensors whose maps have one size.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConcatDesc {
    /// The channels of each input, in order.
    pub channels: Vec<usize>,
    /// Map height.
    pub h: usize,
    /// Map width.
    pub w: usize,
}

impl ConcatDesc {
    /// The shape of one input.
    ///
    /// # Panics
    ///
    /// If there is no such input.
    pub fn src(&self, input: usize) -> Maps {
        Maps { c: self.channels[input], h: self.h, w: self.w }
    }

    /// The shape of the result.
    pub fn dst(&self) -> Maps {
        Maps { c: self.channels.iter().sum(), h: self.h, w: self.w }
    }

    pub(super) fn validate(&self) -> Result<(), ShapeError> {
        expect_positive(
            "concat",
            &[("inputs", self.channels.len()), ("h", self.h), ("w", self.w)],
        )?;
        self.channels.iter().try_for_each(|&c| expect_positive("concat", &[("channels", c)]))
    }

    /// The first channel of the result that comes from this input.
    pub(super) fn first_channel(&self, input: usize) -> usize {
        self.channels[..input].iter().sum()
    }
}
