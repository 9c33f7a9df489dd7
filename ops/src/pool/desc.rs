//! What a pooling layer computes, and which descriptions make sense.

use super::window::Span;
use crate::extent::expect_positive;
use crate::{ActivationKind, Maps, ShapeError};

/// What becomes of the values in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PoolKind {
    /// The largest. Padding never wins, a NaN in the window does.
    Max,
    /// The mean.
    Average {
        /// Whether the divisor counts the padding in the window (PyTorch's `count_include_pad`). What a window of
        /// ceil mode covers beyond the padding is never counted.
        include_pad: bool,
    },
}

/// A pooling layer over `c` maps of `ih` x `iw` pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PoolDesc {
    /// Maximum or average.
    pub kind: PoolKind,
    /// Channels.
    pub c: usize,
    /// Input height.
    pub ih: usize,
    /// Input width.
    pub iw: usize,
    /// Window height.
    pub kh: usize,
    /// Window width.
    pub kw: usize,
    /// Vertical stride.
    pub sh: usize,
    /// Horizontal stride.
    pub sw: usize,
    /// Padding above and below, at most half of `kh`.
    pub ph: usize,
    /// Padding on the left and on the right, at most half of `kw`.
    pub pw: usize,
    /// Whether the output size is rounded up: a last window that sticks out of the padded input counts too, provided
    /// that it starts inside the input or the left padding (PyTorch's `ceil_mode`).
    pub ceil: bool,
    /// The activation function that the source is the value of: backward then returns the gradient of its input.
    pub src_activation: Option<ActivationKind>,
}

impl PoolDesc {
    /// The mean of each whole map: `(c, h, w)` to `(c, 1, 1)`, which is a feature vector of `c` features.
    pub fn global_average(src: Maps) -> PoolDesc {
        PoolDesc {
            kind: PoolKind::Average { include_pad: true },
            c: src.c,
            ih: src.h,
            iw: src.w,
            kh: src.h,
            kw: src.w,
            sh: 1,
            sw: 1,
            ph: 0,
            pw: 0,
            ceil: false,
            src_activation: None,
        }
    }

    /// The shape of the input.
    pub fn src(&self) -> Maps {
        Maps { c: self.c, h: self.ih, w: self.iw }
    }

    /// The shape of the output.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] if a size or stride is zero, a padding is more than half of its window, or no window fits.
    pub fn dst(&self) -> Result<Maps, ShapeError> {
        expect_positive("pool", &[("c", self.c)])?;
        Ok(Maps {
            c: self.c,
            h: axis_size("height", self.vertical(), self.ceil)?,
            w: axis_size("width", self.horizontal(), self.ceil)?,
        })
    }

    pub(super) fn vertical(&self) -> Span {
        Span { input: self.ih, kernel: self.kh, stride: self.sh, pad: self.ph }
    }

    pub(super) fn horizontal(&self) -> Span {
        Span { input: self.iw, kernel: self.kw, stride: self.sw, pad: self.pw }
    }
}

fn axis_size(axis: &'static str, span: Span, ceil: bool) -> Result<usize, ShapeError> {
    let Span { input, kernel, stride, pad } = span;
    let fields = match axis {
        "height" => [("ih", input), ("kh", kernel), ("sh", stride)],
        _ => [("iw", input), ("kw", kernel), ("sw", stride)],
    };
    expect_positive("pool", &fields)?;
    if 2 * pad > kernel {
        return Err(ShapeError::PaddingTooLarge { op: "pool", axis, padding: pad, window: kernel });
    }
    let padded = input + 2 * pad;
    span.windows(ceil).ok_or(ShapeError::WindowTooLarge {
        op: "pool",
        axis,
        window: kernel,
        padded,
    })
}
