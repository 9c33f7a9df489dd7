//! The products of a kernel row: what the innermost loop of a [sweep](super::sweep) adds to the sums of a register tile.

use std::hint::black_box;

use super::edges::Edges;
use crate::simd::{Broadcasts, Simd};

/// How many steps before they are read weights are fetched into the L1 cache: 8 steps of 12 scalars are 96 cycles, several
/// times what the L2 cache takes. Without, tiles of 12 scalars lose 5 %, smaller ones more.
const STEPS_AHEAD: usize = 8;

/// What the steps of a tile fetch into the L1 cache.
#[derive(Clone, Copy)]
pub(super) struct Fetch<'a> {
    pub(super) src: &'a [f32],
    /// What the next step fetches.
    pub(super) at: usize,
    /// Elements from step to step.
    pub(super) step: usize,
}

/// Adds products step by step: those of `WIDTH` columns of a tile, beginning with column `FIRST`. Says what is fetched next.
#[inline(always)]
pub(super) fn add_steps<
    'a,
    S: Simd,
    const ROWS: usize,
    const COLS: usize,
    const N: usize,
    const G: usize,
    const FIRST: usize,
    const WIDTH: usize,
>(
    simd: S,
    sums: &mut [[[S::F32; N]; COLS]; ROWS],
    scalars: Broadcasts<'_, ROWS, WIDTH, G>,
    wei: &[f32],
    mut fetch: Fetch<'a>,
) -> Fetch<'a> {
    for (scalars, wei) in scalars.zip(wei.chunks_exact(N * S::LANES)) {
        let mut vectors = [simd.zero(); N];
        for n in 0..N {
            vectors[n] = simd.load(&wei[n * S::LANES..]);
            simd.prefetch_near(wei, (STEPS_AHEAD * N + n) * S::LANES);
        }
        if const { G == 1 } {
            simd.prefetch_near(fetch.src, fetch.at);
            fetch.at = fetch.at.wrapping_add(fetch.step);
        }
        for r in 0..ROWS {
            for c in 0..WIDTH {
                let scalar = simd.splat_group(scalars.group(r, c));
                for n in 0..N {
                    sums[r][FIRST + c][n] = simd.mul_add(scalar, vectors[n], sums[r][FIRST + c][n]);
                }
            }
        }
    }
    fetch
}

/// The taps of a kernel row, by the channels of an inner block, that are still to be multiplied.
pub(super) struct KernelRow<'a, const ROWS: usize> {
    pub(super) src: &'a [f32],
    /// The scalars of the tile's first column in each line, for the first tap.
    pub(super) starts: [usize; ROWS],
    /// Elements from pixel to pixel, and from tap to tap.
    pub(super) steps: [usize; 2],
    /// Channels of a tap.
    pub(super) groups: usize,
    /// The weights, step by step.
    pub(super) wei: &'a [f32],
    pub(super) fetch: Fetch<'a>,
}

impl<const ROWS: usize> KernelRow<'_, ROWS> {
    /// Adds the products of all taps, but for the columns that they leave out.
    #[inline(always)]
    pub(super) fn add_to<S: Simd, const COLS: usize, const N: usize>(
        mut self,
        simd: S,
        sums: &mut [[[S::F32; N]; COLS]; ROWS],
        taps: usize,
        edges: Edges,
    ) {
        // Loops over the columns that are left, for each number that a tile may leave out.
        macro_rules! add {
            ([$($left:literal, $left_rest:literal);*], $all:literal, [$($right:literal, $right_rest:literal);*]) => {{
                if edges.left > 0 {
                    $(if edges.taps_left($left) > 0 {
                        self.add::<S, COLS, N, $left, $left_rest>(simd, sums, 1);
                    })*
                }
                self.add::<S, COLS, N, 0, $all>(simd, sums, edges.taps_right(0, taps));
                if edges.right > 0 {
                    $(if edges.taps_right($right, taps) > 0 {
                        let taps = edges.taps_right($right, taps);
                        self.add::<S, COLS, N, 0, $right_rest>(simd, sums, taps);
                    })*
                }
            }};
        }
        if const { COLS == 14 } {
            add!([4, 10; 3, 11; 2, 12; 1, 13], 14, [1, 13; 2, 12; 3, 11; 4, 10]);
        } else if const { COLS == 13 } {
            add!([1, 12], 13, [1, 12]);
        } else if const { COLS == 12 } {
            add!([1, 11], 12, [1, 11]);
        } else if const { COLS == 7 } {
            add!([1, 6], 7, [1, 6]);
        } else {
            unreachable!("the tiles that leave out columns are those above");
        }
    }

    /// Adds the products of the next taps with `WIDTH` columns, beginning with column `FIRST`.
    #[inline(always)]
    fn add<S: Simd, const COLS: usize, const N: usize, const FIRST: usize, const WIDTH: usize>(
        &mut self,
        simd: S,
        sums: &mut [[[S::F32; N]; COLS]; ROWS],
        taps: usize,
    ) {
        let [pixel_step, tap_step] = self.steps;
        // Where all channels of a block are real, taps follow each other without a gap.
        let (runs, run_taps) = if self.groups == tap_step { (1, taps) } else { (taps, 1) };
        let len = run_taps * self.groups;
        for _ in 0..runs {
            let (wei, rest) = self.wei.split_at(len * N * S::LANES);
            self.wei = rest;
            let starts = self.starts.map(|start| start + FIRST * pixel_step);
            self.starts = self.starts.map(|start| start + run_taps * tap_step);
            let scalars = Broadcasts::<ROWS, WIDTH, 1>::new(self.src, starts, [pixel_step, 1], len);
            self.fetch = add_steps::<S, ROWS, COLS, N, 1, FIRST, WIDTH>(
                simd, sums, scalars, wei, self.fetch,
            );
        }
    }
}

/// The same sums, through memory where registers are few: with the branches before and after in sight, the compiler spills
/// sums inside of the innermost loop (AVX2, tile 1 x 6: half of the speed).
#[inline(always)]
pub(super) fn isolate<S: Simd, const ROWS: usize, const COLS: usize, const N: usize>(
    simd: S,
    sums: [[[S::F32; N]; COLS]; ROWS],
) -> [[[S::F32; N]; COLS]; ROWS] {
    if S::REGISTERS >= 32 {
        return sums;
    }
    let mut held = [[[simd.zero(); N]; COLS]; ROWS];
    let mut restored = held;
    for r in 0..ROWS {
        for c in 0..COLS {
            held[r][c] = sums[r][c];
        }
    }
    black_box(&mut held);
    for r in 0..ROWS {
        for c in 0..COLS {
            restored[r][c] = held[r][c];
        }
    }
    restored
}
