//! Sums over many pixels whose rounding error does not grow with their number.

use crate::simd::Simd;

/// Pixels that are added up before their sum joins the total.
const RUN: usize = 128;
/// Independent accumulators, so that the adds of a run do not wait for each other.
const WAYS: usize = 4;

/// What is summed: `N` values of each pixel of two tensors.
pub(super) trait Terms<V, const N: usize>: Copy {
    /// The terms of one pixel, whose values are `a` and `b`.
    fn terms<S: Simd<F32 = V>>(self, simd: S, a: V, b: V) -> [V; N];
}

/// Sums over the pixels of a plane of two tensors, run by run, always in the same order.
#[inline(always)]
pub(super) fn sums<S: Simd, T: Terms<S::F32, N>, const N: usize>(
    simd: S,
    terms: T,
    a: &[f32],
    b: &[f32],
) -> [S::F32; N] {
    let mut total = [simd.zero(); N];
    for (a, b) in a.chunks(RUN * S::LANES).zip(b.chunks(RUN * S::LANES)) {
        let mut ways = [[simd.zero(); N]; WAYS];
        let step = WAYS * S::LANES;
        let (whole_a, whole_b) = (a.chunks_exact(step), b.chunks_exact(step));
        let (rest_a, rest_b) = (whole_a.remainder(), whole_b.remainder());
        for (a, b) in whole_a.zip(whole_b) {
            for way in 0..WAYS {
                let at = way * S::LANES;
                let terms = terms.terms(simd, simd.load(&a[at..]), simd.load(&b[at..]));
                ways[way] = add(simd, ways[way], terms);
            }
        }
        let rest = rest_a.chunks_exact(S::LANES).zip(rest_b.chunks_exact(S::LANES));
        for ((a, b), way) in rest.zip(&mut ways) {
            *way = add(simd, *way, terms.terms(simd, simd.load(a), simd.load(b)));
        }
        let pairs = (add(simd, ways[0], ways[1]), add(simd, ways[2], ways[3]));
        total = add(simd, total, add(simd, pairs.0, pairs.1));
    }
    total
}

/// `a + b`, each of `N` vectors.
#[inline(always)]
pub(super) fn add<S: Simd, const N: usize>(simd: S, a: [S::F32; N], b: [S::F32; N]) -> [S::F32; N] {
    let mut sum = a;
    for (sum, b) in sum.iter_mut().zip(b) {
        *sum = simd.add(*sum, b);
    }
    sum
}
