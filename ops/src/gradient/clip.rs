//! How much a gradient is shortened when its norm is too large.

/// Kept from zero what the norm is divided by, as `PyTorch` does.
const EPSILON: f64 = 1e-6;

/// What to multiply gradients by so that the norm of all together, the root of `sum_of_squares`, is at most `max_norm`:
/// `max_norm / (norm + 1e-6)`, but never more than 1, which [`sgd::update_scaled`](crate::sgd::update_scaled) takes for
/// nothing to be done. NaN if the sum is.
///
/// # Source
///
/// `PyTorch`'s `clip_grad_norm_`.
///
/// # Examples
///
/// ```
/// use lockstep_ops::gradient::clip_coefficient;
///
/// assert_eq!(clip_coefficient(16.0, 5.0), 1.0);
/// assert!((clip_coefficient(16.0, 1.0) - 0.25).abs() < 1e-6);
/// ```
pub fn clip_coefficient(sum_of_squares: f64, max_norm: f32) -> f32 {
    let coefficient = f64::from(max_norm) / (sum_of_squares.sqrt() + EPSILON);
    if coefficient > 1.0 { 1.0 } else { coefficient as f32 }
}
