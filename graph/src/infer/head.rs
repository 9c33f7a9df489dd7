//! The end of a classifier: flatten and the loss.

use super::size::{check_number, flops};
use super::{Inferred, Site};
use crate::error::GraphError;
use crate::layer::SoftmaxCrossEntropy;
use crate::shape::Shape;

/// The same values as features.
pub(super) fn flatten(site: Site<'_>) -> Result<Inferred, GraphError> {
    Ok(Inferred::without_params(Shape::Features(site.src()?.elements()), 0))
}

/// Ten operations a class: maximum, exponential, sum, division, difference. The output is one number.
pub(super) fn softmax_cross_entropy(
    site: Site<'_>,
    loss: SoftmaxCrossEntropy,
) -> Result<Inferred, GraphError> {
    let classes = site.src_features()?;
    let smoothing = loss.label_smoothing;
    check_number(site, "label_smoothing", smoothing, ("in [0, 1]", |s| (0.0..=1.0).contains(&s)))?;
    Ok(Inferred::without_params(Shape::Features(1), flops(site, &[10, classes])?))
}
