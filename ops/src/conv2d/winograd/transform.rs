//! The linear maps of Winograd's minimal filtering along one axis, for 2 and for 4 outputs of a kernel of 3.
//!
//! ```text
//! y = A' [(G g) * (B' d)]        y: M outputs, g: 3 weights, d: M + 2 inputs, * element by element, ' transposed
//! ```
//!
//! A polynomial with the inputs as coefficients is evaluated, multiplied and interpolated at M + 1 points and infinity.
//! F(2, 3) takes the points 0, 1 and -1. F(4, 3) takes 0, the two roots of 1/2 and the two of 2: no constant is larger
//! than 2.8 or smaller than 0.17, where the usual 0, 1, -1, 2, -2 have 8 and 0.04, and rounding errors grow with them.
//!
//! Lavin and Gray 2015, "Fast Algorithms for Convolutional Neural Networks"; the points' influence: Barabasz et al. 2018,
//! "Error Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural Networks".

use std::f32::consts::{FRAC_1_SQRT_2, SQRT_2};

use crate::simd::Simd;

/// The maps from and to `N` frequencies of tiles of `M` outputs.
pub(super) trait Transform<const N: usize, const M: usize>: Copy {
    /// B': inputs to frequencies.
    fn input<S: Simd>(simd: S, d: [S::F32; N]) -> [S::F32; N];

    /// A': frequencies to outputs.
    fn output<S: Simd>(simd: S, m: [S::F32; N]) -> [S::F32; M];

    /// G: weights to frequencies.
    fn weights<S: Simd>(simd: S, g: [S::F32; 3]) -> [S::F32; N];

    /// A: gradients of outputs to frequencies.
    fn output_gradient<S: Simd>(simd: S, y: [S::F32; M]) -> [S::F32; N];

    /// G': gradients of frequencies to those of weights.
    fn weights_gradient<S: Simd>(simd: S, u: [S::F32; N]) -> [S::F32; 3];
}

/// F(2, 3).
#[derive(Debug, Clone, Copy)]
pub(super) struct F2;

/// F(4, 3).
#[derive(Debug, Clone, Copy)]
pub(super) struct F4;

impl Transform<4, 2> for F2 {
    #[inline(always)]
    fn input<S: Simd>(simd: S, [d0, d1, d2, d3]: [S::F32; 4]) -> [S::F32; 4] {
        [simd.sub(d2, d0), simd.add(d2, d1), simd.sub(d2, d1), simd.sub(d3, d1)]
    }

    #[inline(always)]
    fn output<S: Simd>(simd: S, [m0, m1, m2, m3]: [S::F32; 4]) -> [S::F32; 2] {
        [simd.add(m0, simd.add(m1, m2)), simd.add(simd.sub(m1, m2), m3)]
    }

    #[inline(always)]
    fn weights<S: Simd>(simd: S, [g0, g1, g2]: [S::F32; 3]) -> [S::F32; 4] {
        let half = simd.splat(0.5);
        let even = simd.mul(half, simd.add(g0, g2));
        let odd = simd.mul(half, g1);
        [simd.sub(simd.zero(), g0), simd.add(even, odd), simd.sub(even, odd), g2]
    }

    #[inline(always)]
    fn output_gradient<S: Simd>(simd: S, [y0, y1]: [S::F32; 2]) -> [S::F32; 4] {
        [y0, simd.add(y0, y1), simd.sub(y0, y1), y1]
    }

    #[inline(always)]
    fn weights_gradient<S: Simd>(simd: S, [u0, u1, u2, u3]: [S::F32; 4]) -> [S::F32; 3] {
        let half = simd.splat(0.5);
        let even = simd.mul(half, simd.add(u1, u2));
        let odd = simd.mul(half, simd.sub(u1, u2));
        [simd.sub(even, u0), odd, simd.add(even, u3)]
    }
}

impl Transform<6, 4> for F4 {
    #[inline(always)]
    fn input<S: Simd>(simd: S, [d0, d1, d2, d3, d4, d5]: [S::F32; 6]) -> [S::F32; 6] {
        let [small, large] = [FRAC_1_SQRT_2, SQRT_2];
        let middle = simd.splat(-2.5);
        let first = simd.mul_add(middle, d2, simd.add(d0, d4));
        let last = simd.mul_add(middle, d3, simd.add(d1, d5));
        let (two, half) = (simd.splat(-2.0), simd.splat(-0.5));
        let (even, odd) = (simd.mul_add(two, d2, d4), simd.mul_add(two, d1, d3));
        let [plus, minus] = at_both(simd, small, [even, odd]);
        let (even, odd) = (simd.mul_add(half, d2, d4), simd.mul_add(half, d1, d3));
        let [plus_large, minus_large] = at_both(simd, large, [even, odd]);
        [first, plus, minus, plus_large, minus_large, last]
    }

    #[inline(always)]
    fn output<S: Simd>(simd: S, [m0, m1, m2, m3, m4, m5]: [S::F32; 6]) -> [S::F32; 4] {
        let (sum, difference) = (simd.add(m1, m2), simd.sub(m1, m2));
        let (sum_large, difference_large) = (simd.add(m3, m4), simd.sub(m3, m4));
        let [small, large] = [FRAC_1_SQRT_2, SQRT_2];
        let y0 = simd.add(m0, simd.add(sum, sum_large));
        let y1 = simd.mul(simd.splat(large), difference_large);
        let y1 = simd.mul_add(simd.splat(small), difference, y1);
        let y2 = simd.mul_add(simd.splat(0.5), sum, simd.add(sum_large, sum_large));
        let y3 = simd.mul_add(simd.splat(2.0 * large), difference_large, m5);
        let y3 = simd.mul_add(simd.splat(0.5 * small), difference, y3);
        [y0, y1, y2, y3]
    }

    #[inline(always)]
    fn weights<S: Simd>(simd: S, [g0, g1, g2]: [S::F32; 3]) -> [S::F32; 6] {
        // At a point p: (g0 + p g1 + p^2 g2) / (the product of its distances from the other points).
        let [small, large] = [-2.0 / 3.0, 1.0 / 6.0];
        let even = simd.mul(simd.splat(small), simd.mul_add(simd.splat(0.5), g2, g0));
        let odd = simd.mul(simd.splat(small * FRAC_1_SQRT_2), g1);
        let even_large = simd.mul(simd.splat(large), simd.mul_add(simd.splat(2.0), g2, g0));
        let odd_large = simd.mul(simd.splat(large * SQRT_2), g1);
        let (plus, minus) = (simd.add(even, odd), simd.sub(even, odd));
        let plus_large = simd.add(even_large, odd_large);
        let minus_large = simd.sub(even_large, odd_large);
        [g0, plus, minus, plus_large, minus_large, g2]
    }

    #[inline(always)]
    fn output_gradient<S: Simd>(simd: S, [y0, y1, y2, y3]: [S::F32; 4]) -> [S::F32; 6] {
        let [small, large] = [FRAC_1_SQRT_2, SQRT_2];
        let (half, two) = (simd.splat(0.5), simd.splat(2.0));
        let (even, odd) = (simd.mul_add(half, y2, y0), simd.mul_add(half, y3, y1));
        let [plus, minus] = at_both(simd, small, [even, odd]);
        let (even, odd) = (simd.mul_add(two, y2, y0), simd.mul_add(two, y3, y1));
        let [plus_large, minus_large] = at_both(simd, large, [even, odd]);
        [y0, plus, minus, plus_large, minus_large, y3]
    }

    #[inline(always)]
    fn weights_gradient<S: Simd>(simd: S, [u0, u1, u2, u3, u4, u5]: [S::F32; 6]) -> [S::F32; 3] {
        let [small, large] = [-2.0 / 3.0, 1.0 / 6.0];
        let even = simd.mul(simd.splat(small), simd.add(u1, u2));
        let odd = simd.mul(simd.splat(small * FRAC_1_SQRT_2), simd.sub(u1, u2));
        let even_large = simd.mul(simd.splat(large), simd.add(u3, u4));
        let g0 = simd.add(u0, simd.add(even, even_large));
        let g1 = simd.mul_add(simd.splat(large * SQRT_2), simd.sub(u3, u4), odd);
        let g2 = simd.mul_add(simd.splat(2.0), even_large, u5);
        [g0, g1, simd.mul_add(simd.splat(0.5), even, g2)]
    }
}

/// A polynomial at a point and at its negative, from the sums of its even and of its odd terms, the latter over the point.
#[inline(always)]
fn at_both<S: Simd>(simd: S, point: f32, [even, odd]: [S::F32; 2]) -> [S::F32; 2] {
    [simd.mul_add(simd.splat(point), odd, even), simd.mul_add(simd.splat(-point), odd, even)]
}

/// Maps both axes of a tile of `A` x `A` vectors to `B` x `B`: `map(simd, column)` along its columns, then along its rows. A
/// macro, because a closure that is called in so many places is not inlined, and every vector operation becomes a call.
macro_rules! both_axes {
    ($simd:expr, $tile:expr, $map:path, $A:expr => $B:expr) => {{
        let (simd, tile) = ($simd, $tile);
        let mut columns = [[simd.zero(); $A]; $B];
        for x in 0..$A {
            let mut column = [simd.zero(); $A];
            for y in 0..$A {
                column[y] = tile[y][x];
            }
            let mapped = $map(simd, column);
            for y in 0..$B {
                columns[y][x] = mapped[y];
            }
        }
        let mut both = [[simd.zero(); $B]; $B];
        for y in 0..$B {
            both[y] = $map(simd, columns[y]);
        }
        both
    }};
}
pub(super) use both_axes;
