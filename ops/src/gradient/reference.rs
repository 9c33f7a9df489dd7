//! Gradients as plain loops, in f64.

/// The sum of the squares of all elements.
pub fn sum_of_squares(values: &[f32]) -> f64 {
    values.iter().map(|&x| f64::from(x) * f64::from(x)).sum()
}

/// Scales all gradients so that their common norm is at most `max_norm`.
pub fn clip(gradients: &mut [Vec<f32>], max_norm: f64) {
    let sum: f64 = gradients.iter().map(|gradient| sum_of_squares(gradient)).sum();
    let factor = (max_norm / (sum.sqrt() + 1e-6)).min(1.0);
    for x in gradients.iter_mut().flatten() {
        *x = (f64::from(*x) * factor) as f32;
    }
}
