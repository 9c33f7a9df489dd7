//! Linear layers.

use super::size::{check_positive, elements, flops};
use super::{Inferred, Site};
use crate::error::GraphError;
use crate::layer::{Linear, Param, ParamRole};
use crate::shape::Shape;

/// `2 * in * out` operations; weights `[out, in]`.
pub(super) fn linear(site: Site<'_>, linear: Linear) -> Result<Inferred, GraphError> {
    let in_features = site.src_features()?;
    check_positive(site.layer, "out_features", linear.out_features)?;
    let wei = [linear.out_features, in_features];
    elements(site.layer, "weight", &wei)?;
    let mut params = vec![Param::new("weight", wei, ParamRole::Weight)];
    if linear.bias {
        params.push(Param::new("bias", [linear.out_features], ParamRole::Bias));
    }
    Ok(Inferred {
        shape: Shape::Features(linear.out_features),
        params,
        flops: flops(site, &[2, wei[0], wei[1]])?,
    })
}
