//! Backward weights pass: the gradients of the weights and the bias.
//!
//! ```text
//! diff_wei[oc,ic,kh,kw] = sum_{n,oh,ow} src[n,ic,oh*sh+kh-ph,ow*sw+kw-pw] * diff_dst[n,oc,oh,ow]
//! diff_bia[oc]          = sum_{n,oh,ow} diff_dst[n,oc,oh,ow]
//!
//! for a chunk of lines (of diff_dst, and what of src they touch: they stay in the L1 cache)
//!   for ROWS kernel rows, for COLS steps of a run      ROWS x COLS x NV accumulators, loaded from diff_wei
//!     for a line of the chunk
//!       for a pixel of the line                        NV loads, ROWS x COLS broadcasts, and the FMAs
//!     accumulators stored to diff_wei
//! ```
//!
//! A block owns some kernel rows of one inner block for one pair of output blocks and sees all samples, so that the order
//! of every sum is fixed by the plan and the number of samples.

use std::hint::black_box;
use std::ops::Range;

use super::cut::part;
use super::geometry::Geometry;
use super::register_tile::{NV, RegisterTile, with_tile};
use super::staging::{Lines, Region, Staging};
use super::taps::{Run, Taps};
use crate::simd::{Broadcasts, Kernel, Simd, Vectors};
use crate::{Isa, Tiles};

/// The tensors of a backward weights block.
#[derive(Debug)]
pub struct Conv2dBackwardWeights<'a> {
    /// Samples.
    pub mb: usize,
    /// The input of the forward pass.
    pub src: &'a [f32],
    /// The gradient of the output.
    pub diff_dst: &'a [f32],
    /// The gradient of the weights, packed as they are.
    pub diff_wei: Tiles<'a>,
    /// The gradient of the bias, if the layer has one.
    pub diff_bia: Option<Tiles<'a>>,
    /// At least [`backward_weights_scratch_len`](super::Conv2d::backward_weights_scratch_len) elements of any value.
    pub scratch: &'a mut [f32],
}

/// Bytes of lines in a chunk: half of an L1 cache of 48 KiB, or most of one of 32 KiB.
const CHUNK_BYTES: usize = 24 << 10;

/// Multiplications of vectors that a block should do at least: some 12 µs at two a cycle.
const BLOCK_VECTOR_FMAS: usize = 100_000;

/// How the pass is computed.
#[derive(Debug, Clone)]
pub(super) struct BackwardWeightsPlan {
    isa: Isa,
    geometry: Geometry,
    staging: Staging,
    taps: Taps,
    /// The tile of all inner blocks but the last, and of the last.
    tiles: [RegisterTile; 2],
    chunk_samples: usize,
    chunk_rows: usize,
    chunk_columns: usize,
}

/// What a block computes.
#[derive(Debug, Clone)]
struct Share {
    group: usize,
    pair: usize,
    in_block: usize,
    kernel_rows: Range<usize>,
}

impl BackwardWeightsPlan {
    pub(super) fn new(geometry: &Geometry, isa: Isa) -> BackwardWeightsPlan {
        let (staging, taps) = (geometry.src_staging(), geometry.taps());
        let registers = isa.registers();
        let tile = |block| {
            let shortest = taps.runs(block).iter().map(|run| run.len).min();
            let len = shortest.expect("a kernel row has a run");
            RegisterTile::choose(len, geometry.kh, registers)
        };
        let tiles = [tile(0), tile(taps.blocks() - 1)];
        let pixel_bytes = size_of::<f32>() * geometry.lanes * (NV + geometry.sh * geometry.sw);
        let pixels = CHUNK_BYTES / pixel_bytes;
        let chunk_columns = geometry.ow.div_ceil(geometry.ow.div_ceil(pixels));
        let chunk_rows = (pixels / geometry.ow).clamp(1, geometry.oh);
        let chunk_samples = (pixels / (geometry.ow * geometry.oh)).max(1);
        BackwardWeightsPlan {
            isa,
            geometry: *geometry,
            staging,
            taps,
            tiles,
            chunk_samples,
            chunk_rows,
            chunk_columns,
        }
    }

    /// Kernel rows of a block.
    fn rows_per_block(&self, mb: usize) -> usize {
        let g = &self.geometry;
        let row = mb * g.oh * g.ow * self.taps.row_steps(0) * NV;
        let fewest = BLOCK_VECTOR_FMAS.div_ceil(row.max(1)).clamp(1, g.kh);
        // Whole register tiles, if a tile spans several rows.
        fewest.next_multiple_of(self.tiles[0].rows.min(g.kh)).min(g.kh)
    }

    fn pairs(&self) -> usize {
        self.geometry.out_blocks().div_ceil(NV)
    }

    pub(super) fn blocks(&self, mb: usize) -> usize {
        let row_parts = self.geometry.kh.div_ceil(self.rows_per_block(mb));
        self.geometry.groups * self.pairs() * self.taps.blocks() * row_parts
    }

    fn share(&self, block: usize, mb: usize) -> Share {
        let g = &self.geometry;
        let rows = self.rows_per_block(mb);
        let row_parts = g.kh.div_ceil(rows);
        let (rest, row_part) = (block / row_parts, block % row_parts);
        let (rest, in_block) = (rest / self.taps.blocks(), rest % self.taps.blocks());
        let (group, pair) = (rest / self.pairs(), rest % self.pairs());
        Share { group, pair, in_block, kernel_rows: part(row_part, rows, g.kh) }
    }

    /// Staged rows that the lines of a chunk read.
    fn staged_rows(&self, rows: usize, kernel_rows: usize) -> usize {
        (rows - 1) * self.geometry.sh + kernel_rows
    }

    pub(super) fn scratch_len(&self) -> usize {
        let rows = self.staged_rows(self.chunk_rows, self.geometry.kh);
        self.staging.scratch_len(self.chunk_samples, 1, rows)
    }

    pub(super) fn run(&self, block: usize, io: Conv2dBackwardWeights<'_>) {
        let share = self.share(block, io.mb);
        let last = share.in_block + 1 == self.taps.blocks();
        let tile = self.tiles[usize::from(last)];
        let pass = Pass { plan: self, share, io };
        if self.geometry.plain {
            with_tile!(tile, |R, C| self.isa.dispatch(TiledPass::<R, C, true>(pass)));
        } else {
            with_tile!(tile, |R, C| self.isa.dispatch(TiledPass::<R, C, false>(pass)));
        }
    }
}

struct Pass<'a> {
    plan: &'a BackwardWeightsPlan,
    share: Share,
    io: Conv2dBackwardWeights<'a>,
}

struct TiledPass<'a, const ROWS: usize, const COLS: usize, const PLAIN: bool>(Pass<'a>);

impl<const ROWS: usize, const COLS: usize, const PLAIN: bool> Kernel
    for TiledPass<'_, ROWS, COLS, PLAIN>
{
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        if !RegisterTile::fits(ROWS, COLS, S::REGISTERS) {
            unreachable!("the plan chose a register tile that does not fit");
        }
        let g = &self.0.plan.geometry;
        if g.out_blocks() - self.0.share.pair * NV >= NV {
            self.accumulate_pair::<S, NV>(simd);
        } else {
            self.accumulate_pair::<S, 1>(simd);
        }
    }
}

/// Lines of both tensors that are in the cache together.
struct Chunk<'a, const N: usize> {
    src: Lines<'a>,
    diff_dst: &'a [f32],
    /// Where the first line of each output block begins.
    diff_starts: [usize; N],
    diff_sample_step: usize,
    diff_row_step: usize,
    line_step: usize,
    samples: usize,
    rows: usize,
    columns: usize,
    /// Real lanes of the last output block.
    real_lanes: usize,
}

impl<const ROWS: usize, const COLS: usize, const PLAIN: bool> TiledPass<'_, ROWS, COLS, PLAIN> {
    #[inline(always)]
    fn accumulate_pair<S: Simd, const N: usize>(self, simd: S) {
        let Pass { plan, share, io } = self.0;
        let Conv2dBackwardWeights { mb, src, diff_dst, mut diff_wei, diff_bia, scratch } = io;
        let (g, taps) = (&plan.geometry, &plan.taps);
        let out_blocks = g.out_blocks();
        let first_out = share.group * out_blocks + share.pair * NV;

        let row_steps = taps.row_steps(share.in_block);
        let first_step = taps.row_start(share.in_block, share.kernel_rows.start);
        let start = first_out * S::LANES * taps.steps() + first_step * N * S::LANES;
        let len = share.kernel_rows.len() * row_steps * N * S::LANES;
        let diff_wei = diff_wei.tile(start..start + len);
        diff_wei.fill(0.0);
        let owns_bias = share.in_block == 0 && share.kernel_rows.start == 0;
        let mut bias_sums = [simd.zero(); N];

        let line_len = g.ow * S::LANES;
        let block_len = g.oh * line_len;
        let sample_len = g.groups * out_blocks * block_len;
        let in_block = share.group * taps.blocks() + share.in_block;
        for samples in parts(mb, plan.chunk_samples) {
            for rows in parts(g.oh, plan.chunk_rows) {
                let first_row = rows.start * g.sh + share.kernel_rows.start;
                let staged_rows = plan.staged_rows(rows.len(), share.kernel_rows.len());
                let region = Region {
                    samples: samples.clone(),
                    blocks: in_block..in_block + 1,
                    rows: first_row..first_row + staged_rows,
                };
                let lines = plan.staging.stage(src, &region, &mut *scratch);
                for columns in parts(g.ow, plan.chunk_columns) {
                    let pixel_step = if PLAIN { 1 } else { S::LANES };
                    let base = lines.base + columns.start * pixel_step;
                    let chunk = Chunk {
                        src: Lines { base, ..lines },
                        diff_dst,
                        diff_starts: std::array::from_fn(|n| {
                            samples.start * sample_len
                                + (first_out + n) * block_len
                                + rows.start * line_len
                                + columns.start * S::LANES
                        }),
                        diff_sample_step: sample_len,
                        diff_row_step: line_len,
                        line_step: g.sh,
                        samples: samples.len(),
                        rows: rows.len(),
                        columns: columns.len(),
                        real_lanes: g.group_oc - (share.pair * NV + N - 1) * S::LANES,
                    };
                    let runs = taps.runs(share.in_block);
                    accumulate_chunk::<S, ROWS, COLS, N>(
                        simd,
                        &chunk,
                        (runs, pixel_step),
                        share.kernel_rows.len(),
                        diff_wei,
                    );
                    if owns_bias {
                        bias_sums = add_lines(simd, &chunk, bias_sums);
                    }
                }
            }
        }
        if let Some(mut diff_bia) = diff_bia
            && owns_bias
        {
            for (n, sum) in bias_sums.into_iter().enumerate() {
                let start = (first_out + n) * S::LANES;
                simd.store(diff_bia.tile(start..start + S::LANES), sum);
            }
        }
    }
}

/// Adds a chunk's products to the gradients of all steps of some kernel rows.
#[inline(always)]
fn accumulate_chunk<S: Simd, const ROWS: usize, const COLS: usize, const N: usize>(
    simd: S,
    chunk: &Chunk<'_, N>,
    (runs, pixel_step): (&[Run], usize),
    kernel_rows: usize,
    diff_wei: &mut [f32],
) {
    let row_steps: usize = runs.iter().map(|run| run.len).sum();
    for first_row in (0..kernel_rows).step_by(ROWS) {
        let mut run_start = 0;
        for run in runs {
            for first in (0..run.len).step_by(COLS) {
                // The last tile of a run begins earlier if need be, and then keeps only what is new.
                let column = first.min(run.len - COLS);
                let scalars = Scalars {
                    offset: run.offset + column,
                    kernel_rows: std::array::from_fn(|r| (first_row + r).min(kernel_rows - 1)),
                    pixel_step,
                };
                let sums = sum_lines::<S, ROWS, COLS, N>(simd, chunk, &scalars);
                for r in 0..ROWS {
                    for c in 0..COLS {
                        if first_row + r < kernel_rows && column + c >= first {
                            let step = (first_row + r) * row_steps + run_start + column + c;
                            let mut sums = sums[r][c];
                            // Zeros of diff_dst do not make a padded lane zero where the source is infinite.
                            if chunk.real_lanes < S::LANES {
                                sums[N - 1] = simd.keep_first(sums[N - 1], chunk.real_lanes);
                            }
                            add_to(simd, &mut diff_wei[step * N * S::LANES..], sums);
                        }
                    }
                }
            }
            run_start += run.len;
        }
    }
}

/// Adds vectors to the gradients of a step.
#[inline(always)]
fn add_to<S: Simd, const N: usize>(simd: S, diff_wei: &mut [f32], sums: [S::F32; N]) {
    let diff_wei = &mut diff_wei[..N * S::LANES];
    for n in 0..N {
        let element = &mut diff_wei[n * S::LANES..];
        simd.store(element, simd.add(simd.load(element), sums[n]));
    }
}

/// The scalars of a register tile, relative to a line.
struct Scalars<const ROWS: usize> {
    offset: usize,
    kernel_rows: [usize; ROWS],
    pixel_step: usize,
}

/// The sums of a register tile over the lines of a chunk.
#[inline(always)]
fn sum_lines<S: Simd, const ROWS: usize, const COLS: usize, const N: usize>(
    simd: S,
    chunk: &Chunk<'_, N>,
    scalars: &Scalars<ROWS>,
) -> [[[S::F32; N]; COLS]; ROWS] {
    let mut sums = [[[simd.zero(); N]; COLS]; ROWS];
    for sample in 0..chunk.samples {
        for row in 0..chunk.rows {
            let from = scalars.kernel_rows.map(|kernel_row| {
                chunk.src.start(sample, 0, row * chunk.line_step + kernel_row) + scalars.offset
            });
            let steps = [1, scalars.pixel_step];
            let scalars = Broadcasts::<ROWS, COLS>::new(chunk.src.src, from, steps, chunk.columns);
            for (scalars, vectors) in scalars.zip(chunk.diff_line(simd, sample, row)) {
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
    // As in the sweep: what follows must not keep the sums in memory.
    black_box(sums)
}

impl<'a, const N: usize> Chunk<'a, N> {
    /// The vectors of a line of `diff_dst`.
    #[inline(always)]
    fn diff_line<S: Simd>(&self, simd: S, sample: usize, row: usize) -> Vectors<'a, S, N> {
        let line = sample * self.diff_sample_step + row * self.diff_row_step;
        let starts = self.diff_starts.map(|start| start + line);
        Vectors::new(simd, self.diff_dst, starts, S::LANES, self.columns)
    }
}

/// Adds the vectors of a chunk's lines to `sums`.
#[inline(always)]
fn add_lines<S: Simd, const N: usize>(
    simd: S,
    chunk: &Chunk<'_, N>,
    mut sums: [S::F32; N],
) -> [S::F32; N] {
    for sample in 0..chunk.samples {
        for row in 0..chunk.rows {
            for vectors in chunk.diff_line(simd, sample, row) {
                for n in 0..N {
                    sums[n] = simd.add(sums[n], vectors[n]);
                }
            }
        }
    }
    sums
}

/// Cuts `0..len` into parts of `size`.
fn parts(len: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len.div_ceil(size)).map(move |index| part(index, size, len))
}
