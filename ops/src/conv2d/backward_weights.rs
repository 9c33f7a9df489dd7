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
//! A block owns some kernel rows of one inner block, or all rows of several, for one pair of output blocks. It sees all
//! samples, so that the order of every sum is fixed by the plan and the number of samples.

use std::hint::black_box;
use std::ops::Range;

use super::cut::part;
use super::geometry::Geometry;
use super::register_tile::{NV, RegisterTile, with_tile};
use super::staging::{Lines, Region, Staging};
use super::taps::Taps;
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

/// Bytes of lines in a chunk: most of an L1 cache of 48 KiB; where it has 32 KiB, a part comes from L2 at less than its rate.
const CHUNK_BYTES: usize = 40 << 10;

/// Multiplications of vectors that a block should do at least: some 12 µs at two a cycle.
const BLOCK_VECTOR_FMAS: usize = 100_000;

/// Steps that a block should have if that leaves [`BLOCKS`] of them: each step uses the lines of `diff_dst` once more.
const BLOCK_STEPS: usize = 160;

/// Blocks of the pass that are enough for 8 workers.
const BLOCKS: usize = 24;

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
    in_blocks: Range<usize>,
    kernel_rows: Range<usize>,
}

/// How the inner blocks and kernel rows of a pair are shared out.
#[derive(Debug, Clone, Copy)]
struct Shares {
    /// Inner blocks with all channels, which come before one with fewer.
    full_blocks: usize,
    blocks_per_share: usize,
    rows_per_share: usize,
}

impl BackwardWeightsPlan {
    pub(super) fn new(geometry: &Geometry, isa: Isa) -> BackwardWeightsPlan {
        let (staging, taps) = (geometry.padded_src(), geometry.taps());
        let registers = isa.registers();
        let tile = |block| {
            let (_, run) = taps.natural_runs(block).next().expect("a kernel row has a run");
            RegisterTile::choose(run.len, geometry.kh, registers)
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

    fn pairs(&self) -> usize {
        self.geometry.out_blocks().div_ceil(NV)
    }

    fn shares(&self, mb: usize) -> Shares {
        let (g, taps) = (&self.geometry, &self.taps);
        let row_steps = taps.row_steps(0);
        let row_fmas = mb * g.oh * g.ow * row_steps * NV;
        let all_rows = g.groups * self.pairs() * taps.blocks() * g.kh;
        let worthwhile = BLOCK_VECTOR_FMAS.div_ceil(row_fmas.max(1));
        let reusing = BLOCK_STEPS.div_ceil(row_steps).min(all_rows / BLOCKS);
        let rows = worthwhile.max(reusing).max(1);
        // Whole register tiles, if a tile spans several rows.
        let tile_rows = self.tiles[0].rows.min(g.kh);
        Shares {
            full_blocks: taps.channels / taps.lanes,
            blocks_per_share: (rows / g.kh).clamp(1, taps.blocks()),
            rows_per_share: rows.next_multiple_of(tile_rows).min(g.kh),
        }
    }

    pub(super) fn blocks(&self, mb: usize) -> usize {
        self.geometry.groups * self.pairs() * self.shares_of_pair(self.shares(mb))
    }

    fn shares_of_pair(&self, shares: Shares) -> usize {
        let partial = self.taps.blocks() - shares.full_blocks;
        let block_parts = shares.full_blocks.div_ceil(shares.blocks_per_share) + partial;
        block_parts * self.geometry.kh.div_ceil(shares.rows_per_share)
    }

    fn share(&self, block: usize, mb: usize) -> Share {
        let shares = self.shares(mb);
        let Shares { full_blocks, blocks_per_share, rows_per_share } = shares;
        let (rest, at) = (block / self.shares_of_pair(shares), block % self.shares_of_pair(shares));
        let (group, pair) = (rest / self.pairs(), rest % self.pairs());
        let kh = self.geometry.kh;
        let row_parts = kh.div_ceil(rows_per_share);
        let (block_part, row_part) = (at / row_parts, at % row_parts);
        let in_blocks = if block_part < full_blocks.div_ceil(blocks_per_share) {
            part(block_part, blocks_per_share, full_blocks)
        } else {
            full_blocks..full_blocks + 1
        };
        Share { group, pair, in_blocks, kernel_rows: part(row_part, rows_per_share, kh) }
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
        let last = share.in_blocks.end == self.taps.blocks();
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

/// Lines of `diff_dst` that are in the cache together, and which lines of `src` belong to them.
struct Chunk<'a, const N: usize> {
    diff_dst: &'a [f32],
    /// Where the first line of each output block begins.
    diff_starts: [usize; N],
    diff_sample_step: usize,
    diff_row_step: usize,
    /// Rows of `src` from line to line.
    line_step: usize,
    /// Elements of `src` from pixel to pixel.
    pixel_step: usize,
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

        let first_step = taps.row_start(share.in_blocks.start, share.kernel_rows.start);
        let end_step = taps.row_start(share.in_blocks.end - 1, share.kernel_rows.end);
        let start = first_out * S::LANES * taps.steps();
        let [first, end] = [first_step, end_step].map(|step| start + step * N * S::LANES);
        let diff_wei = diff_wei.tile(first..end);
        diff_wei.fill(0.0);
        let owns_bias = share.in_blocks.start == 0 && share.kernel_rows.start == 0;
        let mut bias_sums = [simd.zero(); N];

        let line_len = g.ow * S::LANES;
        let block_len = g.oh * line_len;
        let sample_len = g.groups * out_blocks * block_len;
        let lines = Chunk {
            diff_dst,
            diff_starts: [0; N],
            diff_sample_step: sample_len,
            diff_row_step: line_len,
            line_step: g.sh,
            pixel_step: if PLAIN { g.sw } else { g.sw * S::LANES },
            samples: 0,
            rows: 0,
            columns: 0,
            real_lanes: g.group_oc - (share.pair * NV + N - 1) * S::LANES,
        };
        for samples in parts(mb, plan.chunk_samples) {
            for rows in parts(g.oh, plan.chunk_rows) {
                for columns in parts(g.ow, plan.chunk_columns) {
                    let start = samples.start * sample_len
                        + first_out * block_len
                        + rows.start * line_len
                        + columns.start * S::LANES;
                    let chunk = Chunk {
                        diff_starts: std::array::from_fn(|n| start + n * block_len),
                        samples: samples.len(),
                        rows: rows.len(),
                        columns: columns.len(),
                        ..lines
                    };
                    if owns_bias {
                        bias_sums = add_lines(simd, &chunk, bias_sums);
                    }
                    for in_block in share.in_blocks.clone() {
                        let from = share.group * taps.blocks() + in_block;
                        let first_row = rows.start * g.sh + share.kernel_rows.start;
                        let staged_rows = plan.staged_rows(rows.len(), share.kernel_rows.len());
                        let region = Region {
                            samples: samples.clone(),
                            blocks: from..from + 1,
                            rows: first_row..first_row + staged_rows,
                        };
                        let mut src = plan.staging.stage(src, &region, &mut *scratch);
                        src.base += columns.start * chunk.pixel_step;
                        let gradient = Gradient {
                            taps,
                            in_block,
                            kernel_rows: share.kernel_rows.clone(),
                            first_step,
                        };
                        accumulate::<S, ROWS, COLS, N>(simd, &chunk, &src, &gradient, diff_wei);
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

/// Which weights a chunk contributes to.
struct Gradient<'a> {
    taps: &'a Taps,
    in_block: usize,
    kernel_rows: Range<usize>,
    /// The first step of the block's share.
    first_step: usize,
}

/// Adds a chunk's products to the gradients of some kernel rows of an inner block.
#[inline(always)]
fn accumulate<S: Simd, const ROWS: usize, const COLS: usize, const N: usize>(
    simd: S,
    chunk: &Chunk<'_, N>,
    src: &Lines<'_>,
    gradient: &Gradient<'_>,
    diff_wei: &mut [f32],
) {
    let Gradient { taps, in_block, first_step, .. } = *gradient;
    let kernel_rows = gradient.kernel_rows.len();
    for first_row in (0..kernel_rows).step_by(ROWS) {
        for (run_start, run) in taps.natural_runs(in_block) {
            for first in (0..run.len).step_by(COLS) {
                // The last tile of a run begins earlier if need be, and then keeps only what is new.
                let column = first.min(run.len - COLS);
                let scalars = Scalars {
                    offset: run.offset + column,
                    kernel_rows: std::array::from_fn(|r| (first_row + r).min(kernel_rows - 1)),
                };
                let sums = sum_lines::<S, ROWS, COLS, N>(simd, chunk, src, &scalars);
                for r in 0..ROWS {
                    for c in 0..COLS {
                        if first_row + r < kernel_rows && column + c >= first {
                            let scalar = run_start + column + c;
                            let row = gradient.kernel_rows.start + first_row + r;
                            let step = taps.step_of_scalar(in_block, row, scalar) - first_step;
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
}

/// The sums of a register tile over the lines of a chunk.
#[inline(always)]
fn sum_lines<S: Simd, const ROWS: usize, const COLS: usize, const N: usize>(
    simd: S,
    chunk: &Chunk<'_, N>,
    src: &Lines<'_>,
    scalars: &Scalars<ROWS>,
) -> [[[S::F32; N]; COLS]; ROWS] {
    let mut sums = [[[simd.zero(); N]; COLS]; ROWS];
    for sample in 0..chunk.samples {
        for row in 0..chunk.rows {
            let from = scalars.kernel_rows.map(|kernel_row| {
                src.start(sample, 0, row * chunk.line_step + kernel_row) + scalars.offset
            });
            let steps = [1, chunk.pixel_step];
            let scalars = Broadcasts::<ROWS, COLS>::new(src.src, from, steps, chunk.columns);
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
