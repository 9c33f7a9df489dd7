//! Transposing squares of vectors: gradients of the output on the way in, of the input on the way out.

use crate::simd::Simd;

/// The most lanes of any vector.
pub(super) const MAX_LANES: usize = 16;

/// `filled` rows of one vector, `stride` apart, and zeros for the others.
#[inline(always)]
pub(super) fn load_square<S: Simd>(
    simd: S,
    src: &[f32],
    stride: usize,
    filled: usize,
) -> [S::F32; MAX_LANES] {
    let mut square = [simd.zero(); MAX_LANES];
    for i in 0..S::LANES {
        if i < filled {
            square[i] = simd.load(&src[i * stride..]);
        }
    }
    square
}

/// Transposes the first LANES vectors. As cards are shuffled: interleaving the two halves log2(LANES) times turns the bits
/// of an element's place (row, column) around by as many.
#[inline(always)]
pub(super) fn transpose_square<S: Simd>(
    simd: S,
    mut square: [S::F32; MAX_LANES],
) -> [S::F32; MAX_LANES] {
    let half = S::LANES / 2;
    for _ in 0..S::LANES.ilog2() {
        let before = square;
        for i in 0..half {
            (square[2 * i], square[2 * i + 1]) = simd.interleave(before[i], before[i + half]);
        }
    }
    square
}
