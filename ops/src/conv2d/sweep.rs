//! The kernel of the forward and the backward data pass: output vectors from staged lines and packed weights.
//!
//! ```text
//! dst[o, y, x] = bia[o] + sum over (c, j, i) of line[c, y * line_step + j][x + i] * wei[o, c, j, i]
//!
//! for a pair of output blocks           weights of the pair stay in the cache (L2, or L1 if they fit)
//!   for ROWS lines of the region
//!     for COLS pixels of the lines      ROWS x COLS x NV accumulators in registers
//!       for a kernel row of an inner block, for a run, for a step      NV loads, ROWS x COLS broadcasts, and the FMAs
//! ```
//!
//! All sums of a pixel stay in registers until they are complete, so `dst` is written once and never read.

use std::hint::black_box;
use std::ops::Range;

use super::register_tile::{BLOCKED_PIXELS, NV, PLAIN_PIXELS};
use super::staging::Lines;
use super::taps::Taps;
use crate::Tiles;
use crate::simd::{Broadcasts, Kernel, Simd};

/// Where output vectors go: all steps in elements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    pub(super) base: usize,
    pub(super) sample_step: usize,
    pub(super) block_step: usize,
    pub(super) row_step: usize,
    pub(super) column_step: usize,
    /// Real output channels; padded lanes become zero.
    pub(super) channels: usize,
}

/// One region of output, and all that it is computed from.
pub(super) struct Sweep<'a> {
    pub(super) taps: &'a Taps,
    pub(super) lines: Lines<'a>,
    /// Elements from a line's start to the scalars of the region's first column.
    pub(super) first_column: usize,
    /// The staged row that kernel row 0 of the region's first output row reads.
    pub(super) first_row: usize,
    /// Staged rows from output row to output row.
    pub(super) line_step: usize,
    /// Staged rows that are not padding.
    pub(super) data_rows: Range<usize>,
    pub(super) samples: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Pairs of output blocks.
    pub(super) pairs: Range<usize>,
    /// The weights of all pairs.
    pub(super) wei: &'a [f32],
    /// The biases of all output channels, padded with zeros.
    pub(super) bia: Option<&'a [f32]>,
    pub(super) dst: Tiles<'a>,
    pub(super) target: Target,
}

/// The sweep with its register tile, for a plain source (pixels 1 element apart) or a blocked one (a vector apart).
pub(super) struct TiledSweep<'a, const ROWS: usize, const COLS: usize, const PLAIN: bool>(
    pub(super) Sweep<'a>,
);

impl<const ROWS: usize, const COLS: usize, const PLAIN: bool> Kernel
    for TiledSweep<'_, ROWS, COLS, PLAIN>
{
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let compiled = const {
            let set = if PLAIN { PLAIN_PIXELS } else { BLOCKED_PIXELS };
            set.has(ROWS, COLS, S::REGISTERS)
        };
        if !compiled {
            unreachable!("the plan chose a register tile of its set");
        }
        let out_blocks = self.0.target.channels.div_ceil(S::LANES);
        for pair in self.0.pairs.clone() {
            if out_blocks - pair * NV >= NV {
                self.sweep_blocks::<S, NV>(simd, pair);
            } else {
                self.sweep_blocks::<S, 1>(simd, pair);
            }
        }
    }
}

impl<const ROWS: usize, const COLS: usize, const PLAIN: bool> TiledSweep<'_, ROWS, COLS, PLAIN> {
    /// Computes `N` output blocks, the first ones of a pair, for the whole region.
    #[inline(always)]
    fn sweep_blocks<S: Simd, const N: usize>(&mut self, simd: S, pair: usize) {
        let pixel_step = if PLAIN { 1 } else { S::LANES };
        let sweep = &mut self.0;
        let first_block = pair * NV;
        let steps = sweep.taps.steps();
        let wei = &sweep.wei[first_block * S::LANES * steps..][..N * S::LANES * steps];
        let mut bias = [simd.zero(); N];
        if let Some(bia) = sweep.bia {
            for n in 0..N {
                bias[n] = simd.load(&bia[(first_block + n) * S::LANES..]);
            }
        }

        let lines = sweep.samples * sweep.rows;
        for first in (0..lines).step_by(ROWS) {
            // Where the rows do not divide the lines, the last line is computed several times.
            let at: [_; ROWS] = std::array::from_fn(|r| {
                let line = (first + r).min(lines - 1);
                (line / sweep.rows, line % sweep.rows)
            });
            let staged_rows = at.map(|(_, row)| sweep.first_row + row * sweep.line_step);
            let kernel_rows = sweep.kernel_rows(staged_rows);
            let line_starts: [_; ROWS] = std::array::from_fn(|r| {
                sweep.lines.start(at[r].0, 0, staged_rows[r]) + sweep.first_column
            });
            for column in (0..sweep.columns).step_by(COLS) {
                // The last tile of a line overlaps its neighbor.
                let column = column.min(sweep.columns - COLS);
                let starts = line_starts.map(|start| start + column * pixel_step);
                let scalars = Scalars { starts, pixel_step, kernel_rows: kernel_rows.clone() };
                let sums = sum_taps::<S, ROWS, COLS, N>(simd, sweep, &scalars, wei, bias);
                for (r, (sample, row)) in at.into_iter().enumerate() {
                    for (n, block) in (first_block..first_block + N).enumerate() {
                        let pixels: [_; COLS] = std::array::from_fn(|c| sums[r][c][n]);
                        store_pixels(simd, sweep, [sample, block, row, column], &pixels);
                    }
                }
            }
        }
    }
}

impl Sweep<'_> {
    /// The kernel rows that meet more than padding on any of the lines whose staged rows begin at `staged_rows`.
    #[inline(always)]
    fn kernel_rows<const ROWS: usize>(&self, staged_rows: [usize; ROWS]) -> Range<usize> {
        let (mut first, mut end) = (self.taps.rows, 0);
        for row in staged_rows {
            first = first.min(self.data_rows.start.saturating_sub(row));
            end = end.max(self.data_rows.end.saturating_sub(row).min(self.taps.rows));
        }
        first..end
    }
}

/// The scalars of a register tile.
struct Scalars<const ROWS: usize> {
    /// Where each line begins for inner block 0 and kernel row 0.
    starts: [usize; ROWS],
    /// Elements from pixel to pixel.
    pixel_step: usize,
    kernel_rows: Range<usize>,
}

/// The sums of a register tile over all taps.
///
/// They leave through `black_box`: whoever indexes them in a loop would otherwise make the compiler keep the array in memory
/// from the start, with a store after every FMA (tile 1 x 14, AVX-512 on a
/// Zen 5 core, 2026-11-29, `cargo bench --bench conv2d vgg`: 78 GFLOP/s instead of 225).
#[inline(always)]
fn sum_taps<S: Simd, const ROWS: usize, const COLS: usize, const N: usize>(
    simd: S,
    sweep: &Sweep<'_>,
    scalars: &Scalars<ROWS>,
    wei: &[f32],
    bias: [S::F32; N],
) -> [[[S::F32; N]; COLS]; ROWS] {
    let mut sums = [[bias; COLS]; ROWS];
    let Scalars { starts, pixel_step, ref kernel_rows } = *scalars;
    for block in 0..sweep.taps.blocks() {
        let mut rest = &wei[sweep.taps.row_start(block, kernel_rows.start) * N * S::LANES..];
        for kernel_row in kernel_rows.clone() {
            let row = block * sweep.lines.block_step + kernel_row * sweep.lines.row_step;
            for run in sweep.taps.runs(block) {
                let (factors, after) = rest.split_at(run.len * N * S::LANES);
                rest = after;
                let from = starts.map(|start| start + row + run.offset);
                let scalars =
                    Broadcasts::<ROWS, COLS>::new(sweep.lines.src, from, [pixel_step, 1], run.len);
                for (scalars, factors) in scalars.zip(factors.chunks_exact(N * S::LANES)) {
                    let mut vectors = [simd.zero(); N];
                    for n in 0..N {
                        vectors[n] = simd.load(&factors[n * S::LANES..]);
                    }
                    for r in 0..ROWS {
                        for c in 0..COLS {
                            let scalar = simd.splat(scalars.get(r, c));
                            for n in 0..N {
                                sums[r][c][n] = simd.mul_add(scalar, vectors[n], sums[r][c][n]);
                            }
                        }
                    }
                }
            }
        }
    }
    black_box(sums)
}

/// Writes vectors of neighboring pixels of one output block.
#[inline(always)]
fn store_pixels<S: Simd, const COLS: usize>(
    simd: S,
    sweep: &mut Sweep<'_>,
    [sample, block, row, column]: [usize; 4],
    pixels: &[S::F32; COLS],
) {
    let Target { base, sample_step, block_step, row_step, column_step, channels } = sweep.target;
    let start =
        base + sample * sample_step + block * block_step + row * row_step + column * column_step;
    let real = channels - block * S::LANES;
    let dst = sweep.dst.tile(start..start + (COLS - 1) * column_step + S::LANES);
    for (c, pixel) in pixels.iter().enumerate() {
        // Zero weights do not make a padded lane zero where the source is infinite.
        let pixel = if real < S::LANES { simd.keep_first(*pixel, real) } else { *pixel };
        simd.store(&mut dst[c * column_step..], pixel);
    }
}
