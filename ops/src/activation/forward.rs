//! The three functions, a vector at a time.

use crate::simd::{Kernel, Simd, exp};

/// Consecutive elements of a block.
pub(super) struct Values<'a> {
    /// The input, or `None` where `dst` holds it.
    pub(super) src: Option<&'a [f32]>,
    pub(super) dst: &'a mut [f32],
}

impl Values<'_> {
    #[inline(always)]
    fn map<S: Simd>(self, simd: S, f: impl Fn(S::F32) -> S::F32) {
        let dst = self.dst.chunks_exact_mut(S::LANES);
        match self.src {
            Some(src) => {
                for (dst, src) in dst.zip(src.chunks_exact(S::LANES)) {
                    simd.store(dst, f(simd.load(src)));
                }
            }
            None => {
                for dst in dst {
                    simd.store(dst, f(simd.load(dst)));
                }
            }
        }
    }
}

pub(super) struct Relu<'a>(pub(super) Values<'a>);

impl Kernel for Relu<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let zero = simd.zero();
        self.0.map(simd, |x| simd.max(x, zero));
    }
}

pub(super) struct Sigmoid<'a>(pub(super) Values<'a>);

impl Kernel for Sigmoid<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let one = simd.splat(1.0);
        // Far to the left e^-x is infinite, and its inverse the zero that belongs there.
        self.0.map(simd, |x| simd.div(one, simd.add(one, exp(simd, simd.sub(simd.zero(), x)))));
    }
}

pub(super) struct Tanh<'a>(pub(super) Values<'a>);

impl Kernel for Tanh<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        self.0.map(simd, |x| tanh(simd, x));
    }
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
