//! Local response normalization and batch normalization.

use super::elementwise::function;
use super::size::{check_number, check_positive, flops};
use super::{Inferred, Site};
use crate::error::GraphError;
use crate::layer::{BatchNorm, Lrn, Param, ParamRole};

/// Two operations a channel of the window and ten for the power.
pub(super) fn lrn(site: Site<'_>, lrn: &Lrn) -> Result<Inferred, GraphError> {
    let (c, h, w) = site.src_maps()?;
    check_positive(site.layer, "size", lrn.size)?;
    check_number(site, "alpha", lrn.alpha, ("a number >= 0", |alpha| alpha >= 0.0))?;
    check_number(site, "beta", lrn.beta, ("a finite number", |_| true))?;
    check_number(site, "k", lrn.k, ("a number > 0", |k| k > 0.0))?;
    let window = flops(site, &[2, lrn.size.min(c), c, h, w])?;
    let power = flops(site, &[10, c, h, w])?;
    Ok(Inferred::without_params(site.src()?, window.saturating_add(power)))
}

/// A multiplication and an addition a value; statistics are priced by the pass that takes them.
pub(super) fn batch_norm(site: Site<'_>, norm: &BatchNorm) -> Result<Inferred, GraphError> {
    check_number(site, "eps", norm.eps, ("a number > 0", |eps| eps > 0.0))?;
    check_number(site, "momentum", norm.momentum, ("in [0, 1]", |m| (0.0..=1.0).contains(&m)))?;
    let (channels, ..) = site.src()?.maps();
    let params = [
        ("weight", ParamRole::Scale),
        ("bias", ParamRole::Shift),
        ("running_mean", ParamRole::RunningMean),
        ("running_var", ParamRole::RunningVar),
    ];
    let params = params.map(|(name, role)| Param::new(name, [channels], role)).into();
    Ok(Inferred { params, ..function(site, 2)? })
}
