//! Vectors of 8 lanes in AVX2 registers, with FMA.

use std::arch::x86_64::*;

use super::{Kernel, Simd};

/// The token: it exists only where AVX2 and FMA were detected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(super) struct Avx2(());

impl Avx2 {
    pub(super) fn try_new() -> Option<Avx2> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")).then_some(Avx2(()))
    }

    pub(super) fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx2,fma")]
        fn entry<K: Kernel>(token: Avx2, kernel: K) -> K::Output {
            kernel.run(token)
        }
        // SAFETY: an `Avx2` exists only where `try_new` detected AVX2 and FMA.
        unsafe { entry(self, kernel) }
    }
}

/// Calls an intrinsic of registers alone.
macro_rules! detected {
    ($intrinsic:ident $(::<$constant:tt>)? ($($operand:expr),*)) => {
        // SAFETY: only methods of `Avx2` do this, and an `Avx2` exists only where `try_new` detected AVX2 and FMA.
        unsafe { $intrinsic $(::<$constant>)? ($($operand),*) }
    };
}

/// A mask of the first `n` lanes.
#[inline(always)]
fn first_lanes(_: Avx2, n: usize) -> __m256i {
    let count = detected!(_mm256_set1_epi32(n.min(8) as i32));
    let lane = detected!(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    detected!(_mm256_cmpgt_epi32(count, lane))
}

impl Simd for Avx2 {
    const LANES: usize = 8;
    const REGISTERS: usize = 16;
    type F32 = __m256;

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        detected!(_mm256_set1_ps(x))
    }

    #[inline(always)]
    fn splat_group<const G: usize>(self, x: &[f32; G]) -> __m256 {
        match x.as_slice() {
            [x] => self.splat(*x),
            [a, b] => {
                let pair = u64::from(a.to_bits()) | u64::from(b.to_bits()) << 32;
                let pairs = detected!(_mm256_set1_pd(f64::from_bits(pair)));
                detected!(_mm256_castpd_ps(pairs))
            }
            [a, b, c, d] => {
                let four = detected!(_mm_setr_ps(*a, *b, *c, *d));
                detected!(_mm256_set_m128(four, four))
            }
            _ => unreachable!("groups are of 1, 2 or 4"),
        }
    }

    #[inline(always)]
    fn load(self, src: &[f32]) -> __m256 {
        let src: &[f32; 8] = src.first_chunk().expect("a whole vector");
        // SAFETY: `src` has 8 elements, and the token proves AVX2.
        unsafe { _mm256_loadu_ps(src.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, dst: &mut [f32], v: __m256) {
        let dst: &mut [f32; 8] = dst.first_chunk_mut().expect("a whole vector");
        // SAFETY: `dst` has 8 elements, and the token proves AVX2.
        unsafe { _mm256_storeu_ps(dst.as_mut_ptr(), v) }
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
    fn load_partial(self, src: &[f32]) -> __m256 {
        let mask = first_lanes(self, src.len());
        // SAFETY: the mask keeps to the elements of `src`, and the token proves AVX2.
        unsafe { _mm256_maskload_ps(src.as_ptr(), mask) }
    }

    #[inline(always)]
    fn store_partial(self, dst: &mut [f32], v: __m256) {
        let mask = first_lanes(self, dst.len());
        // SAFETY: the mask keeps to the elements of `dst`, and the token proves AVX2.
        unsafe { _mm256_maskstore_ps(dst.as_mut_ptr(), mask, v) }
    }

    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        detected!(_mm256_add_ps(a, b))
    }

    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        detected!(_mm256_sub_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        detected!(_mm256_mul_ps(a, b))
    }

    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        detected!(_mm256_div_ps(a, b))
    }

    #[inline(always)]
    fn mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        detected!(_mm256_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn sqrt(self, a: __m256) -> __m256 {
        detected!(_mm256_sqrt_ps(a))
    }

    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        // The instruction takes `b` where either is NaN, so a NaN in `a` alone needs help.
        let larger = detected!(_mm256_max_ps(a, b));
        self.select_unordered(a, a, larger)
    }

    #[inline(always)]
    fn min(self, a: __m256, b: __m256) -> __m256 {
        // As for `max`.
        let smaller = detected!(_mm256_min_ps(a, b));
        self.select_unordered(a, a, smaller)
    }

    #[inline(always)]
    fn select_gt(self, a: __m256, b: __m256, x: __m256, y: __m256) -> __m256 {
        let greater = detected!(_mm256_cmp_ps::<_CMP_GT_OQ>(a, b));
        detected!(_mm256_blendv_ps(y, x, greater))
    }

    #[inline(always)]
    fn select_unordered(self, a: __m256, x: __m256, y: __m256) -> __m256 {
        let unordered = detected!(_mm256_cmp_ps::<_CMP_UNORD_Q>(a, a));
        detected!(_mm256_blendv_ps(y, x, unordered))
    }

    #[inline(always)]
    fn keep_first(self, v: __m256, n: usize) -> __m256 {
        let mask = first_lanes(self, n);
        let mask = detected!(_mm256_castsi256_ps(mask));
        detected!(_mm256_and_ps(v, mask))
    }

    #[inline(always)]
    fn reduce_add(self, v: __m256) -> f32 {
        let lower = detected!(_mm256_castps256_ps128(v));
        let upper = detected!(_mm256_extractf128_ps::<1>(v));
        let four = detected!(_mm_add_ps(lower, upper));
        let upper = detected!(_mm_movehl_ps(four, four));
        let two = detected!(_mm_add_ps(four, upper));
        let upper = detected!(_mm_movehdup_ps(two));
        let one = detected!(_mm_add_ss(two, upper));
        detected!(_mm_cvtss_f32(one))
    }

    #[inline(always)]
    fn sum_groups<const G: usize>(self, v: __m256) -> __m256 {
        // Within four lanes: 2 3 0 1, and 1 0 3 2.
        let add_halves = |v| self.add(v, detected!(_mm256_permute_ps::<0b01_00_11_10>(v)));
        let add_neighbors = |v| self.add(v, detected!(_mm256_permute_ps::<0b10_11_00_01>(v)));
        let sums = match G {
            1 => return v,
            2 => add_neighbors(v),
            4 => add_neighbors(add_halves(v)),
            _ => unreachable!("groups are of 1, 2 or 4"),
        };
        let lane = detected!(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
        let scale = detected!(_mm256_set1_epi32(G as i32));
        let first = detected!(_mm256_mullo_epi32(lane, scale));
        // An index past the last lane wraps around, and its lane becomes zero.
        self.keep_first(detected!(_mm256_permutevar8x32_ps(sums, first)), 8 / G)
    }

    #[inline(always)]
    fn round(self, a: __m256) -> __m256 {
        // 8: to nearest even, without raising inexact.
        detected!(_mm256_round_ps::<8>(a))
    }

    #[inline(always)]
    fn exp2i(self, a: __m256) -> __m256 {
        let exponent = detected!(_mm256_cvtps_epi32(a));
        let bias = detected!(_mm256_set1_epi32(127));
        let biased = detected!(_mm256_add_epi32(exponent, bias));
        let bits = detected!(_mm256_slli_epi32::<23>(biased));
        detected!(_mm256_castsi256_ps(bits))
    }

    #[inline(always)]
    fn split_exponent(self, a: __m256) -> (__m256, __m256) {
        let bits = detected!(_mm256_castps_si256(a));
        let fraction_mask = detected!(_mm256_set1_epi32(0x007f_ffff));
        let fraction = detected!(_mm256_and_si256(bits, fraction_mask));
        let one = detected!(_mm256_set1_epi32(0x3f80_0000));
        let mantissa = detected!(_mm256_or_si256(fraction, one));
        let biased = detected!(_mm256_srli_epi32::<23>(bits));
        let bias = detected!(_mm256_set1_epi32(127));
        let exponent = detected!(_mm256_sub_epi32(biased, bias));
        (detected!(_mm256_castsi256_ps(mantissa)), detected!(_mm256_cvtepi32_ps(exponent)))
    }

    #[inline(always)]
    fn interleave(self, a: __m256, b: __m256) -> (__m256, __m256) {
        // Unpacking stays within halves: a0 b0 a1 b1 | a4 b4 a5 b5 and a2 b2 a3 b3 | a6 b6 a7 b7.
        let even = detected!(_mm256_unpacklo_ps(a, b));
        let odd = detected!(_mm256_unpackhi_ps(a, b));
        let lower = detected!(_mm256_permute2f128_ps::<0x20>(even, odd));
        let upper = detected!(_mm256_permute2f128_ps::<0x31>(even, odd));
        (lower, upper)
    }
}
