//! The three functions and their gradients, a vector at a time: one text for the layer of its own and for the passes of
//! other layers that take an activation along, so that both give the same bits.

use super::ActivationKind;
use crate::simd::{Simd, exp};

impl ActivationKind {
    /// The function in every lane.
    #[inline(always)]
    pub(crate) fn apply<S: Simd>(self, simd: S, x: S::F32) -> S::F32 {
        match self {
            ActivationKind::Relu => relu(simd, x),
            ActivationKind::Sigmoid => sigmoid(simd, x),
            ActivationKind::Tanh => tanh(simd, x),
        }
    }

    /// Turns gradients of the function's output `dst` into those of its input: whole vectors, in place.
    #[inline(always)]
    pub(crate) fn differentiate<S: Simd>(self, simd: S, dst: &[f32], diff: &mut [f32]) {
        for (diff, dst) in diff.chunks_exact_mut(S::LANES).zip(dst.chunks_exact(S::LANES)) {
            simd.store(diff, self.gradient(simd, simd.load(dst), simd.load(diff)));
        }
    }

    /// The gradient of the function's input, from its output `dst` and the gradient `diff` of that.
    #[inline(always)]
    pub(crate) fn gradient<S: Simd>(self, simd: S, dst: S::F32, diff: S::F32) -> S::F32 {
        match self {
            ActivationKind::Relu => relu_gradient(simd, dst, diff),
            ActivationKind::Sigmoid => sigmoid_gradient(simd, dst, diff),
            ActivationKind::Tanh => tanh_gradient(simd, dst, diff),
        }
    }
}

#[inline(always)]
fn relu<S: Simd>(simd: S, x: S::F32) -> S::F32 {
    simd.max(x, simd.zero())
}

#[inline(always)]
fn sigmoid<S: Simd>(simd: S, x: S::F32) -> S::F32 {
    let one = simd.splat(1.0);
    // Far to the left e^-x is infinite, and its inverse the zero that belongs there.
    simd.div(one, simd.add(one, exp(simd, simd.sub(simd.zero(), x))))
}

/// Up to here the hyperbolic tangent is a polynomial, beyond it an exponential: 1 - 2 / (e^2x + 1) loses digits where
/// the result is small.
const TANH_POLYNOMIAL_MAX: f32 = 0.625;

/// (tanh(x) - x) / x^3 as a polynomial in x^2, highest power first: the Chebyshev fit on 0..0.625^2, which is off by at
/// most 1.9e-8 of tanh(x).
const TANH_COEFFICIENTS: [f32; 5] =
    [-0.006_096_714, 0.020_997_18, -0.053_850_91, 0.133_327_7, -0.333_333_3];

#[inline(always)]
fn tanh<S: Simd>(simd: S, x: S::F32) -> S::F32 {
    let (one, two) = (simd.splat(1.0), simd.splat(2.0));
    let magnitude = simd.max(x, simd.sub(simd.zero(), x));

    let square = simd.mul(x, x);
    let mut polynomial = simd.zero();
    for coefficient in TANH_COEFFICIENTS {
        polynomial = simd.mul_add(polynomial, square, simd.splat(coefficient));
    }
    let small = simd.mul_add(simd.mul(polynomial, square), x, x);

    let growth = exp(simd, simd.mul(two, magnitude));
    let right = simd.sub(one, simd.div(two, simd.add(growth, one)));
    let large = simd.select_gt(simd.zero(), x, simd.sub(simd.zero(), right), right);

    // A NaN compares false and takes the polynomial, which is NaN.
    simd.select_gt(magnitude, simd.splat(TANH_POLYNOMIAL_MAX), large, small)
}

#[inline(always)]
fn relu_gradient<S: Simd>(simd: S, dst: S::F32, diff: S::F32) -> S::F32 {
    let zero = simd.zero();
    // A NaN of the forward pass compares false, and must not turn into a zero.
    simd.select_unordered(dst, dst, simd.select_gt(dst, zero, diff, zero))
}

#[inline(always)]
fn sigmoid_gradient<S: Simd>(simd: S, dst: S::F32, diff: S::F32) -> S::F32 {
    simd.mul(diff, simd.mul(dst, simd.sub(simd.splat(1.0), dst)))
}

#[inline(always)]
fn tanh_gradient<S: Simd>(simd: S, dst: S::F32, diff: S::F32) -> S::F32 {
    simd.mul(diff, simd.sub(simd.splat(1.0), simd.mul(dst, dst)))
}
