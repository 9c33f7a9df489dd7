//! Vectors of f32 behind one trait, so that a kernel is written once, without unsafe code, for every instruction set.
//!
//! A *token* (a value of a type that implements [`Simd`]) is proof that this CPU has the instructions. A [`Kernel`] is a
//! computation generic over the token, and [`Isa::dispatch`] compiles it once an instruction set. Every step from
//! [`Kernel::run`] to the token's methods must be `#[inline(always)]`: what is not inlined into the entry of its
//! instruction set is compiled without it, and each vector operation becomes a call.

mod denormals;
mod exp;
mod isa;
#[expect(unsafe_code, reason = "checks bounds once a view instead of once an element")]
mod operands;
mod portable;
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "calls AVX2 intrinsics behind a token that proves detection")]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "calls AVX-512 intrinsics behind a token that proves detection")]
mod avx512;
#[cfg(test)]
mod tests;

pub use denormals::{denormals_flushed, flush_denormals};
pub use exp::{exp, ln};
pub use isa::Isa;
pub use operands::{BroadcastLines, Broadcasts, Column, Outputs, Pairs, VectorLines, Vectors};

/// Vectors of `LANES` f32 values and what can be done with them.
///
/// Results are the same bits on every instruction set of the same number of lanes.
pub trait Simd: Copy + Send + Sync + 'static {
    /// f32 values in a vector, a power of two.
    const LANES: usize;
    /// Vectors that the CPU holds in registers, as far as kernels may count on them.
    const REGISTERS: usize;
    /// A vector.
    type F32: Copy;

    /// `x` in every lane.
    fn splat(self, x: f32) -> Self::F32;

    /// The elements of `x` again and again: lane `i` is `x[i % G]`. `G` is 1, 2 or 4.
    fn splat_group<const G: usize>(self, x: &[f32; G]) -> Self::F32;

    /// Reads the first `LANES` elements.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    fn load(self, src: &[f32]) -> Self::F32;

    /// Writes the first `LANES` elements.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    fn store(self, dst: &mut [f32], v: Self::F32);

    /// Reads at most `LANES` elements; the lanes that `src` does not reach are zero.
    fn load_partial(self, src: &[f32]) -> Self::F32;

    /// Writes as many lanes as `dst` takes, at most `LANES`.
    fn store_partial(self, dst: &mut [f32], v: Self::F32);

    /// `a + b`.
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32;

    /// `a - b`.
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32;

    /// `a * b`.
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32;

    /// `a / b`.
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32;

    /// `a * b + c`, rounded once.
    fn mul_add(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;

    /// The square root, correctly rounded.
    fn sqrt(self, a: Self::F32) -> Self::F32;

    /// The larger of each pair; NaN where either is NaN. Of zeros of both signs it takes `b`.
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32;

    /// The smaller of each pair; NaN where either is NaN. Of zeros of both signs it takes `b`.
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32;

    /// Lanes where `a > b` take `x`, the others `y`. A NaN compares false.
    fn select_gt(self, a: Self::F32, b: Self::F32, x: Self::F32, y: Self::F32) -> Self::F32;

    /// Lanes where `a` is NaN take `x`, the others `y`.
    fn select_unordered(self, a: Self::F32, x: Self::F32, y: Self::F32) -> Self::F32;

    /// The first `n` lanes; the others become zero.
    fn keep_first(self, v: Self::F32, n: usize) -> Self::F32;

    /// The sum of all lanes, in a fixed order: the upper half is added to the lower, lane by lane, until one is left.
    fn reduce_add(self, v: Self::F32) -> f32;

    /// Lane `i` is the sum of the lanes `i * G..(i + 1) * G`, in the order of [`Simd::reduce_add`], and zero where there are
    /// none. `G` is 1, 2 or 4.
    fn sum_groups<const G: usize>(self, v: Self::F32) -> Self::F32;

    /// The nearest integer, ties to even.
    fn round(self, a: Self::F32) -> Self::F32;

    /// 2^a for integral `a` in -126..=127; unspecified otherwise.
    fn exp2i(self, a: Self::F32) -> Self::F32;

    /// `a = m * 2^e` as (m, e) with 1 <= m < 2, for positive normal `a`; unspecified otherwise.
    fn split_exponent(self, a: Self::F32) -> (Self::F32, Self::F32);

    /// The lanes of both vectors in turn, `a[0] b[0] a[1] b[1] ..`, in two vectors.
    fn interleave(self, a: Self::F32, b: Self::F32) -> (Self::F32, Self::F32);

    /// Asks for the cache line `at` elements from the start of `src`, inside of it or beyond, to be read soon from the L2
    /// cache.
    #[inline(always)]
    fn prefetch(self, src: &[f32], at: usize) {
        let _ = (src, at);
    }

    /// Asks for the cache line `at` elements from the start of `src`, inside of it or beyond, to be read in tens of cycles
    /// from the L1 cache.
    #[inline(always)]
    fn prefetch_near(self, src: &[f32], at: usize) {
        let _ = (src, at);
    }

    /// Zero in every lane.
    #[inline(always)]
    fn zero(self) -> Self::F32 {
        self.splat(0.0)
    }
}

/// A computation that is compiled once an instruction set.
pub trait Kernel {
    /// What it returns.
    type Output;

    /// Computes with the vectors of `simd`. Must be `#[inline(always)]`, and all that it calls with `simd` too.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}
