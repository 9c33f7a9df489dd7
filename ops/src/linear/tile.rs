//! The register tile that all three passes end in: `out[R][N vectors] (+)= lhs[R][depth] * rhs[depth][N vectors]`.

use std::ops::Range;

use super::blocking::{VECTORS, tile_rows};
use super::packing::Group;
use crate::Tiles;
use crate::simd::{Broadcasts, Simd, Vectors};

/// The operand whose elements are broadcast: element (row, k) at `src[row * row_stride + k * k_stride]`.
#[derive(Clone, Copy)]
pub(super) struct Lhs<'a> {
    pub(super) src: &'a [f32],
    pub(super) row_stride: usize,
    pub(super) k_stride: usize,
}

/// The operand of which vectors are taken.
#[derive(Clone, Copy)]
pub(super) struct Rhs<'a> {
    pub(super) src: &'a [f32],
    /// From one `k` to the next.
    pub(super) stride: usize,
    /// Terms of each sum.
    pub(super) depth: usize,
}

/// What the sums start with.
#[derive(Clone, Copy)]
pub(super) enum Start<'a> {
    Zero,
    /// The same vectors in every row.
    Bias(&'a [f32]),
    /// What the previous panel left in the output.
    Output,
}

/// Where the sums of a strip go.
pub(super) struct Output<'a, 't> {
    pub(super) tiles: &'a mut Tiles<'t>,
    /// The first element of row 0.
    pub(super) at: usize,
    /// From one row to the next.
    pub(super) stride: usize,
    /// The features that a row consists of.
    pub(super) columns: Group,
    pub(super) start: Start<'a>,
}

/// All rows of one panel.
pub(super) struct Strip<'a, 't> {
    pub(super) lhs: Lhs<'a>,
    pub(super) rhs: Rhs<'a>,
    pub(super) out: Output<'a, 't>,
}

impl Strip<'_, '_> {
    /// Multiplies `rows`, in tiles as high as the registers allow, and lower ones for the rest.
    #[inline(always)]
    pub(super) fn multiply<S: Simd>(&mut self, simd: S, rows: Range<usize>) {
        match self.out.columns.vectors {
            1 => self.multiply_vectors::<S, 1>(simd, rows),
            2 => self.multiply_vectors::<S, 2>(simd, rows),
            _ => self.multiply_vectors::<S, VECTORS>(simd, rows),
        }
    }

    #[inline(always)]
    fn multiply_vectors<S: Simd, const N: usize>(&mut self, simd: S, rows: Range<usize>) {
        let mut row = rows.start;
        while row < rows.end {
            let left = rows.end - row;
            // The first comparison is known at compile time, so a tile that does not fit is not even compiled.
            row += if tile_rows(S::LANES) == 6 && left >= 6 {
                self.tile::<S, 6, N>(simd, row);
                6
            } else if left >= 4 {
                self.tile::<S, 4, N>(simd, row);
                4
            } else if left >= 2 {
                self.tile::<S, 2, N>(simd, row);
                2
            } else {
                self.tile::<S, 1, N>(simd, row);
                1
            };
        }
        if self.out.columns.filled < N * S::LANES {
            self.clear_padding(rows);
        }
    }

    /// Multiplies R rows and N vectors from `row` on. Terms are added one by one in the order of k.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const N: usize>(&mut self, simd: S, row: usize) {
        let Lhs { src, row_stride, k_stride } = self.lhs;
        let depth = self.rhs.depth;
        let columns =
            Broadcasts::<1, R>::new(src, [row * row_stride], [row_stride, k_stride], depth);
        let starts = std::array::from_fn(|vector| vector * S::LANES);
        let vectors = Vectors::<S, N>::new(simd, self.rhs.src, starts, self.rhs.stride, depth);

        let mut sums = self.out.start::<S, R, N>(simd, row);
        for (column, vectors) in columns.zip(vectors) {
            for row in 0..R {
                let factor = simd.splat(column.get(0, row));
                for vector in 0..N {
                    sums[row][vector] = simd.mul_add(factor, vectors[vector], sums[row][vector]);
                }
            }
        }
        for (i, sums) in sums.into_iter().enumerate() {
            let out = self.out.tiles.tile(self.out.row::<S, N>(row + i));
            for (out, sum) in out.chunks_exact_mut(S::LANES).zip(sums) {
                simd.store(out, sum);
            }
        }
    }

    /// Padding must stay zero, which a product of a zero and an infinity would not be.
    fn clear_padding(&mut self, rows: Range<usize>) {
        let Group { width, filled, .. } = self.out.columns;
        for row in rows {
            let at = self.out.at + row * self.out.stride;
            self.out.tiles.tile(at + filled..at + width).fill(0.0);
        }
    }
}

impl Output<'_, '_> {
    #[inline(always)]
    fn row<S: Simd, const N: usize>(&self, row: usize) -> Range<usize> {
        let at = self.at + row * self.stride;
        at..at + N * S::LANES
    }

    /// The sums before the first term.
    #[inline(always)]
    fn start<S: Simd, const R: usize, const N: usize>(
        &self,
        simd: S,
        row: usize,
    ) -> [[S::F32; N]; R] {
        match self.start {
            Start::Zero => [[simd.zero(); N]; R],
            Start::Bias(bia) => [load_row(simd, &bia[..N * S::LANES]); R],
            Start::Output => {
                std::array::from_fn(|i| load_row(simd, self.tiles.read(self.row::<S, N>(row + i))))
            }
        }
    }
}

#[inline(always)]
fn load_row<S: Simd, const N: usize>(simd: S, row: &[f32]) -> [S::F32; N] {
    std::array::from_fn(|vector| simd.load(&row[vector * S::LANES..]))
}
