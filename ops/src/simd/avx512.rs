//! Vectors of 16 lanes in AVX-512 registers.

use std::arch::x86_64::*;

use super::{Kernel, Simd};

/// The token: it exists only where AVX-512F was detected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(super) struct Avx512(());

impl Avx512 {
    pub(super) fn try_new() -> Option<Avx512> {
        is_x86_feature_detected!("avx512f").then_some(Avx512(()))
    }

    pub(super) fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx512f")]
        fn entry<K: Kernel>(token: Avx512, kernel: K) -> K::Output {
            kernel.run(token)
        }
        // SAFETY: an `Avx512` exists only where `try_new` detected AVX-512F.
        unsafe { entry(self, kernel) }
    }
}

/// Calls an intrinsic of registers alone.
macro_rules! detected {
    ($intrinsic:ident $(::<$constant:tt>)? ($($operand:expr),*)) => {
        // SAFETY: only methods of `Avx512` do this, and an `Avx512` exists only where `try_new` detected AVX-512F.
        unsafe { $intrinsic $(::<$constant>)? ($($operand),*) }
    };
}

/// A mask of the first `n` lanes.
#[inline(always)]
fn first_lanes(n: usize) -> __mmask16 {
    if n >= 16 { u16::MAX } else { (1 << n) - 1 }
}

impl Simd for Avx512 {
    const LANES: usize = 16;
    const REGISTERS: usize = 32;
    type F32 = __m512;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        detected!(_mm512_set1_ps(x))
    }

    #[inline(always)]
    fn splat_group<const G: usize>(self, x: &[f32; G]) -> __m512 {
        match x.as_slice() {
            [x] => self.splat(*x),
            [a, b] => {
                let pair = u64::from(a.to_bits()) | u64::from(b.to_bits()) << 32;
                let pairs = detected!(_mm512_set1_pd(f64::from_bits(pair)));
                detected!(_mm512_castpd_ps(pairs))
            }
            [a, b, c, d] => {
                let four = detected!(_mm_setr_ps(*a, *b, *c, *d));
                detected!(_mm512_broadcast_f32x4(four))
            }
            _ => unreachable!("groups are of 1, 2 or 4"),
        }
    }

    #[inline(always)]
    fn load(self, src: &[f32]) -> __m512 {
        let src: &[f32; 16] = src.first_chunk().expect("a whole vector");
        // SAFETY: `src` has 16 elements, and the token proves AVX-512F.
        unsafe { _mm512_loadu_ps(src.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, dst: &mut [f32], v: __m512) {
        let dst: &mut [f32; 16] = dst.first_chunk_mut().expect("a whole vector");
        // SAFETY: `dst` has 16 elements, and the token proves AVX-512F.
        unsafe { _mm512_storeu_ps(dst.as_mut_ptr(), v) }
    }

    #[inline(always)]
    fn prefetch(self, src: &[f32], at: usize) {
        // SAFETY: a prefetch may name any address, and SSE is part of every x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(src.as_ptr().wrapping_add(at).cast()) }
    }

    #[inline(always)]
    fn prefetch_near(self, src: &[f32], at: usize) {
        // SAFETY: a prefetch may name any address, and SSE is part of every x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(src.as_ptr().wrapping_add(at).cast()) }
    }

    #[inline(always)]
    fn load_partial(self, src: &[f32]) -> __m512 {
        let mask = first_lanes(src.len());
        // SAFETY: the mask keeps to the elements of `src`, and the token proves AVX-512F.
        unsafe { _mm512_maskz_loadu_ps(mask, src.as_ptr()) }
    }

    #[inline(always)]
    fn store_partial(self, dst: &mut [f32], v: __m512) {
        let mask = first_lanes(dst.len());
        // SAFETY: the mask keeps to the elements of `dst`, and the token proves AVX-512F.
        unsafe { _mm512_mask_storeu_ps(dst.as_mut_ptr(), mask, v) }
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        detected!(_mm512_add_ps(a, b))
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        detected!(_mm512_sub_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        detected!(_mm512_mul_ps(a, b))
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        detected!(_mm512_div_ps(a, b))
    }

    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        detected!(_mm512_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn sqrt(self, a: __m512) -> __m512 {
        detected!(_mm512_sqrt_ps(a))
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        // The instruction takes `b` where either is NaN, so a NaN in `a` alone needs help.
        let larger = detected!(_mm512_max_ps(a, b));
        self.select_unordered(a, a, larger)
    }

    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        // As for `max`.
        let smaller = detected!(_mm512_min_ps(a, b));
        self.select_unordered(a, a, smaller)
    }

    #[inline(always)]
    fn select_gt(self, a: __m512, b: __m512, x: __m512, y: __m512) -> __m512 {
        let greater = detected!(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b));
        detected!(_mm512_mask_blend_ps(greater, y, x))
    }

    #[inline(always)]
    fn select_unordered(self, a: __m512, x: __m512, y: __m512) -> __m512 {
        let unordered = detected!(_mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a));
        detected!(_mm512_mask_blend_ps(unordered, y, x))
    }

    #[inline(always)]
    fn keep_first(self, v: __m512, n: usize) -> __m512 {
        detected!(_mm512_maskz_mov_ps(first_lanes(n), v))
    }

    #[inline(always)]
    fn reduce_add(self, v: __m512) -> f32 {
        let halves = detected!(_mm512_castps_pd(v));
        let upper = detected!(_mm512_extractf64x4_pd::<1>(halves));
        let upper = detected!(_mm256_castpd_ps(upper));
        let lower = detected!(_mm512_castps512_ps256(v));
        let eight = detected!(_mm256_add_ps(lower, upper));
        let lower = detected!(_mm256_castps256_ps128(eight));
        let upper = detected!(_mm256_extractf128_ps::<1>(eight));
        let four = detected!(_mm_add_ps(lower, upper));
        let upper = detected!(_mm_movehl_ps(four, four));
        let two = detected!(_mm_add_ps(four, upper));
        let upper = detected!(_mm_movehdup_ps(two));
        let one = detected!(_mm_add_ss(two, upper));
        detected!(_mm_cvtss_f32(one))
    }

    #[inline(always)]
    fn sum_groups<const G: usize>(self, v: __m512) -> __m512 {
        // Within four lanes: 2 3 0 1, and 1 0 3 2.
        let add_halves = |v| self.add(v, detected!(_mm512_permute_ps::<0b01_00_11_10>(v)));
        let add_neighbors = |v| self.add(v, detected!(_mm512_permute_ps::<0b10_11_00_01>(v)));
        let sums = match G {
            1 => return v,
            2 => add_neighbors(v),
            4 => add_neighbors(add_halves(v)),
            _ => unreachable!("groups are of 1, 2 or 4"),
        };
        let lane =
            detected!(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
        let scale = detected!(_mm512_set1_epi32(G as i32));
        let first = detected!(_mm512_mullo_epi32(lane, scale));
        detected!(_mm512_maskz_permutexvar_ps(first_lanes(16 / G), first, sums))
    }

    #[inline(always)]
    fn round(self, a: __m512) -> __m512 {
        // 8: to nearest even, without raising inexact.
        detected!(_mm512_roundscale_ps::<8>(a))
    }

    #[inline(always)]
    fn exp2i(self, a: __m512) -> __m512 {
        let exponent = detected!(_mm512_cvtps_epi32(a));
        let bias = detected!(_mm512_set1_epi32(127));
        let biased = detected!(_mm512_add_epi32(exponent, bias));
        let bits = detected!(_mm512_slli_epi32::<23>(biased));
        detected!(_mm512_castsi512_ps(bits))
    }

    #[inline(always)]
    fn split_exponent(self, a: __m512) -> (__m512, __m512) {
        let bits = detected!(_mm512_castps_si512(a));
        let fraction_mask = detected!(_mm512_set1_epi32(0x007f_ffff));
        let fraction = detected!(_mm512_and_si512(bits, fraction_mask));
        let one = detected!(_mm512_set1_epi32(0x3f80_0000));
        let mantissa = detected!(_mm512_or_si512(fraction, one));
        let biased = detected!(_mm512_srli_epi32::<23>(bits));
        let bias = detected!(_mm512_set1_epi32(127));
        let exponent = detected!(_mm512_sub_epi32(biased, bias));
        (detected!(_mm512_castsi512_ps(mantissa)), detected!(_mm512_cvtepi32_ps(exponent)))
    }

    #[inline(always)]
    fn interleave(self, a: __m512, b: __m512) -> (__m512, __m512) {
        // Lanes of `a` count from 0, those of `b` from 16.
        let lower =
            detected!(_mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
        let upper = detected!(_mm512_setr_epi32(
            8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
        ));
        let lower = detected!(_mm512_permutex2var_ps(a, lower, b));
        let upper = detected!(_mm512_permutex2var_ps(a, upper, b));
        (lower, upper)
    }
}
