//! Arithmetic on sizes that cannot overflow, and the limits it keeps.

use super::Site;
use crate::error::GraphError;
use crate::layer::HeightWidth;
use crate::shape::Shape;

/// The most values of one tensor: far beyond any machine, and small enough that a minibatch of them still has a
/// size in bytes.
const MAX_ELEMENTS: usize = 1 << 40;

const ELEMENTS_LIMIT: &str = "at most 2^40 values are supported";

/// Sizes are not zero and their product is within the limit.
pub(crate) fn check_shape(layer: &str, shape: Shape) -> Result<(), GraphError> {
    let (c, h, w) = shape.maps();
    let field = match shape {
        Shape::Features(_) => "features",
        Shape::Maps { .. } => "channels",
    };
    for (field, size) in [(field, c), ("height", h), ("width", w)] {
        check_positive(layer, field, size)?;
    }
    elements(layer, "output", &[c, h, w]).map(drop)
}

/// The size is not zero.
pub(super) fn check_positive(
    layer: &str,
    field: &'static str,
    size: usize,
) -> Result<(), GraphError> {
    if size == 0 {
        return Err(GraphError::ZeroSize { layer: layer.to_owned(), field });
    }
    Ok(())
}

/// Both sizes are not zero.
pub(super) fn check_positive_pair(
    layer: &str,
    field: &'static str,
    size: (usize, usize),
) -> Result<HeightWidth, GraphError> {
    check_positive(layer, field, size.0)?;
    check_positive(layer, field, size.1)?;
    Ok(HeightWidth(size.0, size.1))
}

/// The product of a tensor's sizes.
pub(super) fn elements(
    layer: &str,
    what: &'static str,
    sizes: &[usize],
) -> Result<usize, GraphError> {
    let product = sizes.iter().try_fold(1_usize, |product, &size| product.checked_mul(size));
    product
        .filter(|&product| product <= MAX_ELEMENTS)
        .ok_or_else(|| too_large(layer, what, ELEMENTS_LIMIT))
}

/// The sum of sizes along the axis that is joined, or of the parameters of several layers.
pub(crate) fn checked_sum(
    layer: &str,
    what: &'static str,
    sizes: impl IntoIterator<Item = usize>,
) -> Result<usize, GraphError> {
    let mut sizes = sizes.into_iter();
    let sum = sizes.try_fold(0_usize, usize::checked_add);
    sum.filter(|&sum| sum <= MAX_ELEMENTS).ok_or_else(|| too_large(layer, what, ELEMENTS_LIMIT))
}

/// The product of factors, as a number of operations.
pub(super) fn flops(site: Site<'_>, factors: &[usize]) -> Result<u64, GraphError> {
    let product = factors
        .iter()
        .try_fold(1_u64, |product, &factor| product.checked_mul(u64::try_from(factor).ok()?));
    product.ok_or_else(|| {
        too_large(site.layer, "work", "at most 2^64 operations a sample are supported")
    })
}

pub(super) fn too_large(layer: &str, what: &'static str, limit: &'static str) -> GraphError {
    GraphError::TooLarge { layer: layer.to_owned(), what, limit }
}

/// The number is what a setting may be. Kernels compute in single precision, so it is checked as such.
pub(super) fn check_number(
    site: Site<'_>,
    field: &'static str,
    value: f64,
    allowed: (&'static str, fn(f32) -> bool),
) -> Result<(), GraphError> {
    let (allowed, is_allowed) = allowed;
    if (value as f32).is_finite() && is_allowed(value as f32) {
        return Ok(());
    }
    Err(GraphError::OutOfRange { layer: site.layer.to_owned(), field, value, allowed })
}
