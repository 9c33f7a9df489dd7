//! The activations as plain loops, in f64.

use super::ActivationKind;

/// The function of every element.
pub fn forward(kind: ActivationKind, src: &[f32]) -> Vec<f32> {
    src.iter().map(|&x| value(kind, f64::from(x)) as f32).collect()
}

/// The gradient of `src` for `diff_dst`.
pub fn backward(kind: ActivationKind, src: &[f32], diff_dst: &[f32]) -> Vec<f32> {
    let pairs = src.iter().zip(diff_dst);
    pairs.map(|(&x, &diff)| (f64::from(diff) * slope(kind, f64::from(x))) as f32).collect()
}

fn value(kind: ActivationKind, x: f64) -> f64 {
    match kind {
        // Not `max`, which would drop a NaN.
        ActivationKind::Relu => {
            if x < 0.0 {
                0.0
            } else {
                x
            }
        }
        ActivationKind::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        ActivationKind::Tanh => x.tanh(),
    }
}

fn slope(kind: ActivationKind, x: f64) -> f64 {
    let y = value(kind, x);
    match kind {
        ActivationKind::Relu if x.is_nan() => x,
        ActivationKind::Relu => f64::from(u8::from(x > 0.0)),
        ActivationKind::Sigmoid => y * (1.0 - y),
        ActivationKind::Tanh => 1.0 - y * y,
    }
}
