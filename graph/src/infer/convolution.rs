//! Convolution.

use super::size::{check_positive, elements, flops};
use super::window::{Rounding, maps, output_size};
use super::{Inferred, Site};
use crate::error::GraphError;
use crate::layer::{Conv2d, Param, ParamRole};

/// `2 * oc * oh * ow * ic / groups * kh * kw` operations; weights `[oc, ic / groups, kh, kw]`.
pub(super) fn conv2d(site: Site<'_>, conv: &Conv2d) -> Result<Inferred, GraphError> {
    let (ic, ih, iw) = site.src_maps()?;
    check_positive(site.layer, "oc", conv.oc)?;
    check_positive(site.layer, "groups", conv.groups)?;
    for (side, channels) in [("input", ic), ("output", conv.oc)] {
        if !channels.is_multiple_of(conv.groups) {
            return Err(GraphError::IndivisibleChannels {
                layer: site.layer.to_owned(),
                side,
                channels,
                groups: conv.groups,
            });
        }
    }
    let size = output_size(site, (ih, iw), conv.window, Rounding::Floor)?;
    let (kh, kw) = conv.window.kernel;
    let wei = [conv.oc, ic / conv.groups, kh, kw];
    elements(site.layer, "weight", &wei)?;
    let mut params = vec![Param::new("weight", wei, ParamRole::Weight)];
    if conv.bias {
        params.push(Param::new("bias", [conv.oc], ParamRole::Bias));
    }
    Ok(Inferred {
        shape: maps(conv.oc, size),
        params,
        flops: flops(site, &[2, wei[0], wei[1], wei[2], wei[3], size.0, size.1])?,
    })
}
