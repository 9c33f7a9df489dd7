//! Exponential and logarithm of vectors.

use std::f32::consts::{LOG2_E, SQRT_2};

use super::Simd;

/// The upper 9 bits of ln 2, 355/512: its product with an integer of the size of an exponent is exact.
const LN_2_HIGH: f32 = 355.0 / 512.0;
/// ln 2 - `LN_2_HIGH`.
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// 1 / k! for k = 7 down to 2. On |r| <= ln(2)/2 the first term left out is below 6e-9.
const EXP_COEFFICIENTS: [f32; 6] =
    [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5];

/// e^x in every lane, off by at most 2 units in the last place; infinite from 88.73 on, zero from -104 on, NaN for NaN.
///
/// e^x = 2^n e^r with n = round(x log2 e) and r = x - n ln 2, e^r by its series. 2^n is applied in two factors, because n
/// reaches 128 and, where the result is denormal, -150.
#[inline(always)]
pub fn exp<S: Simd>(simd: S, x: S::F32) -> S::F32 {
    let x = simd.max(simd.min(x, simd.splat(89.0)), simd.splat(-104.0));
    let n = simd.round(simd.mul(x, simd.splat(LOG2_E)));
    let r = simd.mul_add(n, simd.splat(-LN_2_HIGH), x);
    let r = simd.mul_add(n, simd.splat(-LN_2_LOW), r);

    let mut series = simd.zero();
    for coefficient in EXP_COEFFICIENTS {
        series = simd.mul_add(series, r, simd.splat(coefficient));
    }
    let power = simd.add(simd.mul_add(simd.mul(series, r), r, r), simd.splat(1.0));

    let half = simd.round(simd.mul(n, simd.splat(0.5)));
    let rest = simd.sub(n, half);
    simd.mul(simd.mul(power, simd.exp2i(half)), simd.exp2i(rest))
}

/// 2 / (2k + 1) for k = 4 down to 1: the series of 2 atanh(s) / s in s^2 after its first term. On |s| <= 0.172 the first
/// term left out is below 4e-9.
const LN_COEFFICIENTS: [f32; 4] = [2.0 / 9.0, 2.0 / 7.0, 2.0 / 5.0, 2.0 / 3.0];

/// ln x in every lane, off by at most 2 units in the last place; -inf for zeros, NaN for negative values and NaN.
///
/// x = m 2^e with m near 1, f = m - 1, s = f / (2 + f), and ln(1 + f) = f - f^2/2 + s (f^2/2 + R(s^2)).
#[inline(always)]
pub fn ln<S: Simd>(simd: S, x: S::F32) -> S::F32 {
    let (zero, one) = (simd.zero(), simd.splat(1.0));
    // Denormals have no leading one. Scaled by 2^25 they are normal.
    let normal = simd.splat(f32::MIN_POSITIVE);
    let scaled = simd.select_gt(normal, x, simd.mul(x, simd.splat(33_554_432.0)), x);
    let scale = simd.select_gt(normal, x, simd.splat(-25.0), zero);

    let (m, e) = simd.split_exponent(scaled);
    let large = simd.splat(SQRT_2);
    let e = simd.add(simd.select_gt(m, large, simd.add(e, one), e), scale);
    let m = simd.select_gt(m, large, simd.mul(m, simd.splat(0.5)), m);

    let f = simd.sub(m, one);
    let s = simd.div(f, simd.add(simd.splat(2.0), f));
    let z = simd.mul(s, s);
    let mut series = zero;
    for coefficient in LN_COEFFICIENTS {
        series = simd.mul_add(series, z, simd.splat(coefficient));
    }
    let half_square = simd.mul(simd.splat(0.5), simd.mul(f, f));
    let tail = simd.mul(s, simd.mul_add(series, z, half_square));
    let tail = simd.mul_add(e, simd.splat(LN_2_LOW), tail);
    let rest = simd.sub(simd.sub(half_square, tail), f);
    let finite = simd.mul_add(e, simd.splat(LN_2_HIGH), simd.sub(zero, rest));

    let infinity = simd.splat(f32::INFINITY);
    let result = simd.select_gt(x, simd.splat(f32::MAX), infinity, finite);
    let below = simd.select_gt(zero, x, simd.splat(f32::NAN), simd.splat(f32::NEG_INFINITY));
    let result = simd.select_gt(x, zero, result, below);
    simd.select_unordered(x, x, result)
}
