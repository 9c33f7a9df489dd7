//! The register tile that all three passes end in: `sums[R][N vectors] += lhs[R][depth] * rhs[depth][N vectors]`.

use crate::sgd::Rule;
use crate::simd::{Broadcasts, Simd, Vectors};

/// The operand whose elements are broadcast: element (row, k) at `src[row * row_stride + k * k_stride]`. The inner loop is
/// shortest if both strides are constants where the kernel is compiled.
#[derive(Clone, Copy)]
pub(crate) struct Lhs<'a> {
    pub(crate) src: &'a [f32],
    pub(crate) row_stride: usize,
    pub(crate) k_stride: usize,
}

/// The operand of which vectors are taken: those of one k side by side, those of the next `k_stride` behind.
#[derive(Clone, Copy)]
pub(crate) struct Rhs<'a> {
    pub(crate) src: &'a [f32],
    pub(crate) k_stride: usize,
}

/// Adds `depth` products to every sum, one by one in the order of k.
#[inline(always)]
pub(crate) fn accumulate<S: Simd, const R: usize, const N: usize>(
    simd: S,
    mut sums: [[S::F32; N]; R],
    lhs: Lhs<'_>,
    rhs: Rhs<'_>,
    depth: usize,
) -> [[S::F32; N]; R] {
    let strides = [lhs.row_stride, lhs.k_stride];
    let columns = Broadcasts::<1, R, 1>::new(lhs.src, [0], strides, depth);
    let starts = std::array::from_fn(|vector| vector * S::LANES);
    let vectors = Vectors::<S, N>::new(simd, rhs.src, starts, rhs.k_stride, depth);
    for (column, vectors) in columns.zip(vectors) {
        for row in 0..R {
            let factor = simd.splat(column.get(0, row));
            for vector in 0..N {
                sums[row][vector] = simd.mul_add(factor, vectors[vector], sums[row][vector]);
            }
        }
    }
    sums
}

/// Memory that is needed soon, asked for a few cache lines at a time while a tile computes: of lines of consecutive rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ahead<'a> {
    pub(crate) src: &'a [f32],
    /// Where the first row starts.
    pub(crate) at: usize,
    /// From one row to the next.
    pub(crate) stride: usize,
    /// Lines of a row.
    pub(crate) lines: usize,
    /// The next line, of the next row.
    pub(crate) line: usize,
}

/// Elements of a cache line.
const LINE: usize = 16;

impl Ahead<'_> {
    /// Asks for the next `count` lines.
    #[inline(always)]
    pub(crate) fn fetch<S: Simd>(&mut self, simd: S, count: usize) {
        for _ in 0..count {
            simd.prefetch(self.src, self.at + self.line * LINE);
            self.line += 1;
            if self.line == self.lines {
                self.line = 0;
                self.at += self.stride;
            }
        }
    }
}

/// Repeats a block for every row of a tile of at most 12. Where a loop's body has a branch the compiler keeps the loop, and
/// the sums, which it indexes, in memory.
macro_rules! for_each_row {
    ($rows:expr, $row:ident => $body:block) => {
        for_each_row!($rows, $row, $body, 0 1 2 3 4 5 6 7 8 9 10 11)
    };
    ($rows:expr, $row:ident, $body:block, $($index:literal)*) => {
        $(if $index < $rows {
            let $row: usize = $index;
            $body
        })*
    };
}

/// The sums that lie in `src`, rows `stride` apart; zeros for rows from `rows` on.
#[inline(always)]
pub(crate) fn load_sums<S: Simd, const R: usize, const N: usize>(
    simd: S,
    src: &[f32],
    stride: usize,
    rows: usize,
) -> [[S::F32; N]; R] {
    let mut sums = [[simd.zero(); N]; R];
    for_each_row!(R, row => {
        if row < rows {
            let src = &src[row * stride..][..N * S::LANES];
            for vector in 0..N {
                sums[row][vector] = simd.load(&src[vector * S::LANES..]);
            }
        }
    });
    sums
}

/// Writes the first `rows` rows of sums.
#[inline(always)]
pub(crate) fn store_sums<S: Simd, const R: usize, const N: usize>(
    simd: S,
    sums: [[S::F32; N]; R],
    dst: &mut [f32],
    stride: usize,
    rows: usize,
) {
    for_each_row!(R, row => {
        if row < rows {
            let dst = &mut dst[row * stride..][..N * S::LANES];
            for vector in 0..N {
                simd.store(&mut dst[vector * S::LANES..], sums[row][vector]);
            }
        }
    });
}

/// Adds sums to those in `dst`. Sums of a panel start from zero and are added when they are complete: a tile that starts from what
/// was there waits for the second-level cache first (forward: 5 to 9 % slower on two cores, 10 % at 32 samples).
#[inline(always)]
pub(super) fn add_sums<S: Simd, const R: usize, const N: usize>(
    simd: S,
    sums: [[S::F32; N]; R],
    dst: &mut [f32],
    stride: usize,
) {
    for_each_row!(R, row => {
        let dst = &mut dst[row * stride..][..N * S::LANES];
        for vector in 0..N {
            let dst = &mut dst[vector * S::LANES..];
            simd.store(dst, simd.add(simd.load(dst), sums[row][vector]));
        }
    });
}

/// The step of the weights that the first `rows` rows of sums are the gradients of.
#[inline(always)]
pub(super) fn step_sums<S: Simd, const R: usize, const N: usize>(
    simd: S,
    sums: [[S::F32; N]; R],
    rule: &Rule<S>,
    wei: &mut [f32],
    velocity: Option<&mut [f32]>,
    [stride, rows]: [usize; 2],
) {
    let Some(velocity) = velocity else {
        for_each_row!(R, row => {
            if row < rows {
                for vector in 0..N {
                    let at = row * stride + vector * S::LANES;
                    rule.step(simd, &mut wei[at..at + S::LANES], sums[row][vector]);
                }
            }
        });
        return;
    };
    for_each_row!(R, row => {
        if row < rows {
            for vector in 0..N {
                let at = row * stride + vector * S::LANES;
                let (wei, velocity) =
                    (&mut wei[at..at + S::LANES], &mut velocity[at..at + S::LANES]);
                rule.step_with_momentum(simd, wei, velocity, sums[row][vector]);
            }
        }
    });
}
