//! Transposing packed weights, a square of vectors at a time.

use std::ops::Range;

use super::packing::{Group, Groups};
use crate::simd::Simd;

/// The most lanes of any vector.
const MAX_LANES: usize = 16;

/// Packed weights `[oc group][ic][oc]`.
#[derive(Clone, Copy)]
pub(super) struct PackedWeights<'a> {
    pub(super) wei: &'a [f32],
    pub(super) ic_total: usize,
    pub(super) oc: Groups,
}

impl PackedWeights<'_> {
    /// Fills `panel` with the weights of output features `oc` (from a multiple of the lanes on) and of the input features
    /// of `ic`: `[oc][ic]`, zeros where there is no such input feature.
    #[inline(always)]
    pub(super) fn transpose<S: Simd>(
        self,
        simd: S,
        oc: &Range<usize>,
        ic: &Group,
        panel: &mut [f32],
    ) {
        let squares = panel.chunks_exact_mut(S::LANES * ic.width);
        for (oc_first, panel) in oc.clone().step_by(S::LANES).zip(squares) {
            let group = self.oc.group(oc_first / self.oc.full_width());
            let weights = group.first * self.ic_total..(group.first + group.width) * self.ic_total;
            let rows = &self.wei[weights][oc_first - group.first..];
            for column in (0..ic.width).step_by(S::LANES) {
                let filled = (ic.filled - column).min(S::LANES);
                let src = &rows[(ic.first + column) * group.width..];
                let square = load_square(simd, src, group.width, filled);
                let square = transpose_square(simd, square);
                for (row, vector) in panel.chunks_exact_mut(ic.width).zip(square) {
                    simd.store(&mut row[column..], vector);
                }
            }
        }
    }
}

/// `filled` rows of one vector, `stride` apart, and zeros for the others.
#[inline(always)]
fn load_square<S: Simd>(simd: S, src: &[f32], stride: usize, filled: usize) -> [S::F32; MAX_LANES] {
    let mut square = [simd.zero(); MAX_LANES];
    if filled == S::LANES {
        for i in 0..S::LANES {
            square[i] = simd.load(&src[i * stride..]);
        }
    } else {
        for (row, vector) in src.chunks(stride).zip(&mut square[..filled]) {
            *vector = simd.load(row);
        }
    }
    square
}

/// Transposes the first LANES vectors. As cards are shuffled: interleaving the two halves log2(LANES) times turns the bits
/// of an element's place (row, column) around by as many.
#[inline(always)]
fn transpose_square<S: Simd>(simd: S, mut square: [S::F32; MAX_LANES]) -> [S::F32; MAX_LANES] {
    let half = S::LANES / 2;
    for _ in 0..S::LANES.ilog2() {
        let before = square;
        for i in 0..half {
            (square[2 * i], square[2 * i + 1]) = simd.interleave(before[i], before[i + half]);
        }
    }
    square
}
