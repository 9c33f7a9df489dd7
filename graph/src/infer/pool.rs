//! Pooling.

use super::size::flops;
use super::window::{Rounding, maps, output_size};
use super::{Inferred, Site};
use crate::error::GraphError;
use crate::layer::{HeightWidth, Pool};

/// One operation a value of each window; padding is at most half of the window, as in PyTorch.
pub(super) fn pool(site: Site<'_>, pool: &Pool) -> Result<Inferred, GraphError> {
    let (c, h, w) = site.src_maps()?;
    let ((kh, kw), (ph, pw)) = (pool.window.kernel, pool.window.pad);
    // An empty window is reported as such, by `output_size`.
    if (ph > kh / 2 || pw > kw / 2) && kh > 0 && kw > 0 {
        return Err(GraphError::PaddingTooLarge {
            layer: site.layer.to_owned(),
            pad: HeightWidth(ph, pw),
            kernel: HeightWidth(kh, kw),
        });
    }
    let rounding = if pool.ceil { Rounding::Ceil } else { Rounding::Floor };
    let size = output_size(site, (h, w), pool.window, rounding)?;
    let flops = flops(site, &[c, size.0, size.1, kh, kw])?;
    Ok(Inferred::without_params(maps(c, size), flops))
}

/// One operation a value; the output has one pixel.
pub(super) fn global(site: Site<'_>) -> Result<Inferred, GraphError> {
    let (c, h, w) = site.src_maps()?;
    Ok(Inferred::without_params(maps(c, HeightWidth(1, 1)), flops(site, &[c, h, w])?))
}
