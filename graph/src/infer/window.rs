//! How many windows fit on a map: PyTorch's rules for convolution and pooling.

use super::Site;
use super::size::{check_positive_pair, too_large};
use crate::error::GraphError;
use crate::layer::{HeightWidth, Window};
use crate::shape::Shape;

/// The largest size, stride or padding of a window; sums of a few stay far from overflow.
const MAX_SIZE: usize = 1 << 31;

/// How the number of windows along an axis is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    /// Windows that lie inside the padded map.
    Floor,
    /// One more that sticks out, where it starts inside the map or the padding before it.
    Ceil,
}

/// Height and width of the output.
pub(super) fn output_size(
    site: Site<'_>,
    (h, w): (usize, usize),
    window: Window,
    rounding: Rounding,
) -> Result<HeightWidth, GraphError> {
    let kernel = check_positive_pair(site.layer, "kernel", window.kernel)?;
    let stride = check_positive_pair(site.layer, "stride", window.stride)?;
    let pad = HeightWidth(window.pad.0, window.pad.1);
    let sizes = [kernel.0, kernel.1, stride.0, stride.1, pad.0, pad.1, h, w];
    if sizes.iter().any(|&size| size > MAX_SIZE) {
        return Err(too_large(
            site.layer,
            "window",
            "at most 2^31 pixels along an axis are supported",
        ));
    }
    let rows = windows(Axis { input: h, kernel: kernel.0, stride: stride.0, pad: pad.0 }, rounding);
    let columns =
        windows(Axis { input: w, kernel: kernel.1, stride: stride.1, pad: pad.1 }, rounding);
    match (rows, columns) {
        (Some(rows), Some(columns)) => Ok(HeightWidth(rows, columns)),
        _ => Err(GraphError::WindowTooLarge {
            layer: site.layer.to_owned(),
            kernel,
            padded: HeightWidth(h + 2 * pad.0, w + 2 * pad.1),
            input: site.src()?,
            pad,
        }),
    }
}

#[derive(Debug, Clone, Copy)]
struct Axis {
    input: usize,
    kernel: usize,
    stride: usize,
    pad: usize,
}

/// Windows along one axis; `None` when there would be none.
fn windows(axis: Axis, rounding: Rounding) -> Option<usize> {
    let Axis { input, kernel, stride, pad } = axis;
    let padded = input + 2 * pad;
    let slack = match rounding {
        Rounding::Floor => 0,
        Rounding::Ceil => stride - 1,
    };
    let count = (padded + slack).checked_sub(kernel)? / stride + 1;
    // The start of the last window, counted from the padding's edge, must lie before the map's end.
    let sticks_out_too_far = rounding == Rounding::Ceil && (count - 1) * stride >= input + pad;
    Some(if sticks_out_too_far { count - 1 } else { count })
}

/// The output of a window layer with `channels` channels.
pub(super) fn maps(channels: usize, size: HeightWidth) -> Shape {
    Shape::Maps { c: channels, h: size.0, w: size.1 }
}
