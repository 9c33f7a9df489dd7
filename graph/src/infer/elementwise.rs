//! Layers whose output value depends on one input value: activation functions, bias, dropout.

use super::size::{check_number, flops};
use super::{Inferred, Site};
use crate::error::GraphError;
use crate::layer::{Dropout, Param, ParamRole};

/// `operations` a value.
pub(super) fn function(site: Site<'_>, operations: usize) -> Result<Inferred, GraphError> {
    let shape = site.src()?;
    let flops = flops(site, &[operations, shape.elements()])?;
    Ok(Inferred::without_params(shape, flops))
}

/// One number a channel.
pub(super) fn bias(site: Site<'_>) -> Result<Inferred, GraphError> {
    let (channels, ..) = site.src()?.maps();
    let params = vec![Param::new("bias", [channels], ParamRole::Bias)];
    Ok(Inferred { params, ..function(site, 1)? })
}

/// `p` in [0, 1): with 1 nothing would be left to scale up.
pub(super) fn dropout(site: Site<'_>, dropout: Dropout) -> Result<Inferred, GraphError> {
    check_number(site, "p", dropout.p, ("in [0, 1)", |p| (0.0..1.0).contains(&p)))?;
    function(site, 1)
}
