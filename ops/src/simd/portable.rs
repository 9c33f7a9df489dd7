//! Vectors as arrays: for CPUs without a module of their own, and to test 16-lane logic anywhere.

use super::{Kernel, Simd};

/// The token of `N` portable lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(super) struct Portable<const N: usize>;

impl<const N: usize> Portable<N> {
    pub(super) fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }
}

impl<const N: usize> Simd for Portable<N> {
    const LANES: usize = N;
    // Unknown: few, so that a build need not compile large tiles that such CPUs could not hold. This crate's tests take
    // AVX-512's number at 16 lanes: there every tile of AVX-512 is tested, whatever the CPU.
    const REGISTERS: usize = if cfg!(test) && N == 16 { 32 } else { 8 };
    type F32 = [f32; N];

    #[inline(always)]
    fn splat(self, x: f32) -> [f32; N] {
        [x; N]
    }

    #[inline(always)]
    fn splat_group<const G: usize>(self, x: &[f32; G]) -> [f32; N] {
        lanes(|i| x[i % G])
    }

    #[inline(always)]
    fn load(self, src: &[f32]) -> [f32; N] {
        *src.first_chunk().expect("a whole vector")
    }

    #[inline(always)]
    fn store(self, dst: &mut [f32], v: [f32; N]) {
        *dst.first_chunk_mut().expect("a whole vector") = v;
    }

    #[inline(always)]
    fn load_partial(self, src: &[f32]) -> [f32; N] {
        let mut v = [0.0; N];
        let n = src.len().min(N);
        v[..n].copy_from_slice(&src[..n]);
        v
    }

    #[inline(always)]
    fn store_partial(self, dst: &mut [f32], v: [f32; N]) {
        let n = dst.len().min(N);
        dst[..n].copy_from_slice(&v[..n]);
    }

    #[inline(always)]
    fn add(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        lanes(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn sub(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        lanes(|i| a[i] - b[i])
    }

    #[inline(always)]
    fn mul(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        lanes(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn div(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        lanes(|i| a[i] / b[i])
    }

    #[inline(always)]
    fn mul_add(self, a: [f32; N], b: [f32; N], c: [f32; N]) -> [f32; N] {
        lanes(|i| a[i].mul_add(b[i], c[i]))
    }

    #[inline(always)]
    fn sqrt(self, a: [f32; N]) -> [f32; N] {
        lanes(|i| a[i].sqrt())
    }

    #[inline(always)]
    fn max(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        lanes(|i| if a[i].is_nan() || a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn min(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        lanes(|i| if a[i].is_nan() || a[i] < b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn select_gt(self, a: [f32; N], b: [f32; N], x: [f32; N], y: [f32; N]) -> [f32; N] {
        lanes(|i| if a[i] > b[i] { x[i] } else { y[i] })
    }

    #[inline(always)]
    fn select_unordered(self, a: [f32; N], x: [f32; N], y: [f32; N]) -> [f32; N] {
        lanes(|i| if a[i].is_nan() { x[i] } else { y[i] })
    }

    #[inline(always)]
    fn keep_first(self, v: [f32; N], n: usize) -> [f32; N] {
        lanes(|i| if i < n { v[i] } else { 0.0 })
    }

    #[inline(always)]
    fn reduce_add(self, mut v: [f32; N]) -> f32 {
        let mut width = N;
        while width > 1 {
            width /= 2;
            for i in 0..width {
                v[i] += v[i + width];
            }
        }
        v[0]
    }

    #[inline(always)]
    fn sum_groups<const G: usize>(self, v: [f32; N]) -> [f32; N] {
        lanes(|i| match v[(i * G).min(N)..].first_chunk::<G>().map(<[f32; G]>::as_slice) {
            Some([a]) => *a,
            Some([a, b]) => a + b,
            Some([a, b, c, d]) => (a + c) + (b + d),
            _ => 0.0,
        })
    }

    #[inline(always)]
    fn round(self, a: [f32; N]) -> [f32; N] {
        lanes(|i| a[i].round_ties_even())
    }

    #[inline(always)]
    fn exp2i(self, a: [f32; N]) -> [f32; N] {
        lanes(|i| f32::from_bits(((a[i] as i32).wrapping_add(127) as u32) << 23))
    }

    #[inline(always)]
    fn split_exponent(self, a: [f32; N]) -> ([f32; N], [f32; N]) {
        let mantissa = lanes(|i| f32::from_bits(a[i].to_bits() & 0x007f_ffff | 0x3f80_0000));
        let exponent = lanes(|i| ((a[i].to_bits() >> 23) as i32 - 127) as f32);
        (mantissa, exponent)
    }

    #[inline(always)]
    fn interleave(self, a: [f32; N], b: [f32; N]) -> ([f32; N], [f32; N]) {
        let turn = |i: usize| if i.is_multiple_of(2) { a[i / 2] } else { b[i / 2] };
        (lanes(turn), lanes(|i| turn(N + i)))
    }
}

#[inline(always)]
fn lanes<const N: usize>(lane: impl FnMut(usize) -> f32) -> [f32; N] {
    std::array::from_fn(lane)
}
