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
//! A block owns some kernel rows, perhaps of several inner blocks, for one pair of output blocks. It sees all samples, so
//! that the order of every sum is fixed by the plan and the number of samples.

use std::hint::black_box;
use std::ops::Range;

use super::cut::part;
use super::geometry::Geometry;
use super::register_tile::{BLOCKED_TAPS, NV, PLAIN_TAPS, RegisterTile, with_tile};
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

/// Steps that a block should have if that leaves [`BLOCKS`] of them: each step uses the lines of `diff_dst` once more.
const BLOCK_STEPS: usize = 160;

/// Steps that a block should have at least: with fewer it would wait for the lines of `diff_dst`.
const MIN_BLOCK_STEPS: usize = 9;

/// Blocks of the pass that are enough for 8 workers.
const BLOCKS: usize = 24;

/// How the pass is computed.
#[derive(Debug, Clone)]
pub(super) struct BackwardWeightsPlan {
    isa: Isa,
    geometry: Geometry,
    staging: Staging,
    taps: Taps,
    /// The tile of inner blocks with all channels, and of the one with fewer, if there is one.
    tiles: [RegisterTile; 2],
    /// Kernel rows of a block.
    share_rows: usize,
    chunk_samples: usize,
    chunk_rows: usize,
    chunk_columns: usize,
}

/// What a block computes.
#[derive(Debug, Clone)]
struct Share {
    group: usize,
    pair: usize,
    /// Kernel rows, counted through all inner blocks.
    rows: Range<usize>,
}

impl BackwardWeightsPlan {
    pub(super) fn new(geometry: &Geometry, isa: Isa) -> BackwardWeightsPlan {
        let (staging, taps) = (geometry.padded_src(), geometry.taps());
        let row_steps = taps.row_steps(0);
        let pairs = geometry.out_blocks().div_ceil(NV);
        let all_rows = geometry.groups * pairs * taps.blocks() * geometry.kh;
        let fewest = MIN_BLOCK_STEPS.div_ceil(row_steps);
        let share_rows = BLOCK_STEPS.div_ceil(row_steps).min((all_rows / BLOCKS).max(fewest));
        let full_rows = (taps.full_blocks() * geometry.kh).min(share_rows);
        let last_rows = geometry.kh.min(share_rows);
        let set = if geometry.plain { PLAIN_TAPS } else { BLOCKED_TAPS };
        let tile = |block, rows| {
            let (_, run) = taps.natural_runs(block).next().expect("a kernel row has a run");
            set.choose(run.len, rows, isa.registers())
        };
        let tiles = [tile(0, full_rows.max(1)), tile(taps.blocks() - 1, last_rows)];
        let src_pixels = geometry.sh * geometry.sw * geometry.src_lanes();
        let pixel_bytes = size_of::<f32>() * (NV * geometry.lanes + src_pixels);
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
            share_rows,
            chunk_samples,
            chunk_rows,
            chunk_columns,
        }
    }

    fn pairs(&self) -> usize {
        self.geometry.out_blocks().div_ceil(NV)
    }

    /// Kernel rows of inner blocks with all channels; those of a block with fewer follow.
    fn full_rows(&self) -> usize {
        self.taps.full_blocks() * self.geometry.kh
    }

    /// Shares of the full blocks of a pair, and of the last if it is not full.
    fn shares(&self) -> [usize; 2] {
        let all = self.taps.blocks() * self.geometry.kh;
        [self.full_rows(), all - self.full_rows()].map(|rows| rows.div_ceil(self.share_rows))
    }

    pub(super) fn blocks(&self) -> usize {
        let [full, last] = self.shares();
        self.geometry.groups * self.pairs() * (full + last)
    }

    fn share(&self, block: usize) -> Share {
        let [full, last] = self.shares();
        let (rest, at) = (block / (full + last), block % (full + last));
        let full_rows = self.full_rows();
        let rows = if at < full {
            part(at, self.share_rows, full_rows)
        } else {
            let rows = part(at - full, self.share_rows, self.geometry.kh);
            full_rows + rows.start..full_rows + rows.end
        };
        Share { group: rest / self.pairs(), pair: rest % self.pairs(), rows }
    }

    pub(super) fn scratch_len(&self) -> usize {
        // Rows that begin in the middle of an inner block may reach into one more.
        let kh = self.geometry.kh;
        let blocks = (self.share_rows.div_ceil(kh) + 1).min(self.taps.blocks());
        let rows = (self.chunk_rows - 1) * self.geometry.sh + kh;
        self.staging.scratch_len(self.chunk_samples, blocks, rows)
    }

    pub(super) fn run(&self, block: usize, io: Conv2dBackwardWeights<'_>) {
        let share = self.share(block);
        let tile = self.tiles[usize::from(share.rows.start >= self.full_rows())];
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
        let compiled = const {
            let set = if PLAIN { PLAIN_TAPS } else { BLOCKED_TAPS };
            set.has(ROWS, COLS, S::REGISTERS)
        };
        if !compiled {
            unreachable!("the plan chose a register tile of its set");
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

        let kh = g.kh;
        let rows = share.rows.clone();
        let first_step = taps.row_start(rows.start / kh, rows.start % kh);
        let end_step = taps.row_start((rows.end - 1) / kh, (rows.end - 1) % kh + 1);
        let start = first_out * S::LANES * taps.steps();
        let [first, end] = [first_step, end_step].map(|step| start + step * N * S::LANES);
        let diff_wei = diff_wei.tile(first..end);
        diff_wei.fill(0.0);
        let owns_bias = rows.start == 0;
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
        let first_block = rows.start / kh;
        let gradient = Gradient { taps, rows, first_block, first_step };
        let first_region_block = share.group * taps.blocks() + first_block;
        let blocks = (share.rows.end - 1) / kh + 1 - first_block;
        // Of a single inner block not all kernel rows may be needed.
        let first_row = if blocks == 1 { share.rows.start % kh } else { 0 };
        let end_row = if blocks == 1 { (share.rows.end - 1) % kh + 1 } else { kh };
        for samples in parts(mb, plan.chunk_samples) {
            for rows in parts(g.oh, plan.chunk_rows) {
                let region = Region {
                    samples: samples.clone(),
                    blocks: first_region_block..first_region_block + blocks,
                    rows: rows.start * g.sh + first_row..(rows.end - 1) * g.sh + end_row,
                };
                let staged = plan.staging.stage(src, &region, &mut *scratch);
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
                    // Kernel row 0 may lie before the region: a base that wraps around comes back with the row added.
                    let base = (staged.base + columns.start * chunk.pixel_step)
                        .wrapping_sub(first_row * staged.row_step);
                    let src = Lines { base, ..staged };
                    accumulate::<S, ROWS, COLS, N>(simd, &chunk, &src, &gradient, diff_wei);
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
    /// Kernel rows, counted through all inner blocks.
    rows: Range<usize>,
    /// The inner block of the first row.
    first_block: usize,
    /// The step of the first row.
    first_step: usize,
}

/// Adds a chunk's products to the gradients of some kernel rows.
#[inline(always)]
fn accumulate<S: Simd, const ROWS: usize, const COLS: usize, const N: usize>(
    simd: S,
    chunk: &Chunk<'_, N>,
    src: &Lines<'_>,
    gradient: &Gradient<'_>,
    diff_wei: &mut [f32],
) {
    let Gradient { taps, ref rows, first_block, first_step } = *gradient;
    let kh = taps.rows;
    for first_row in rows.clone().step_by(ROWS) {
        // The last row may be there several times, of which one counts.
        let tile_rows: [usize; ROWS] = std::array::from_fn(|r| (first_row + r).min(rows.end - 1));
        let row_starts = tile_rows.map(|row| taps.row_start(row / kh, row % kh) - first_step);
        let steps = taps.natural_steps(first_row / kh);
        // A tile never spans blocks of different runs.
        for (run_start, run) in taps.natural_runs(first_row / kh) {
            for first in (0..run.len).step_by(COLS) {
                // The last tile of a run begins earlier if need be, and then keeps only what is new.
                let column = first.min(run.len - COLS);
                let starts = tile_rows.map(|row| {
                    let block = row / kh - first_block;
                    src.base
                        .wrapping_add(block * src.block_step + row % kh * src.row_step)
                        .wrapping_add(run.offset + column)
                });
                let sums = sum_lines::<S, ROWS, COLS, N>(simd, chunk, src, starts);
                for r in 0..ROWS {
                    for c in 0..COLS {
                        if first_row + r < rows.end && column + c >= first {
                            let mut sums = sums[r][c];
                            // Zeros of diff_dst do not make a padded lane zero where the source is infinite.
                            if chunk.real_lanes < S::LANES {
                                sums[N - 1] = simd.keep_first(sums[N - 1], chunk.real_lanes);
                            }
                            let step = row_starts[r] + steps[run_start + column + c];
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

/// The sums of a register tile over the lines of a chunk; `starts` are its scalars of the first.
#[inline(always)]
fn sum_lines<S: Simd, const ROWS: usize, const COLS: usize, const N: usize>(
    simd: S,
    chunk: &Chunk<'_, N>,
    src: &Lines<'_>,
    starts: [usize; ROWS],
) -> [[[S::F32; N]; COLS]; ROWS] {
    let mut sums = [[[simd.zero(); N]; COLS]; ROWS];
    for sample in 0..chunk.samples {
        for row in 0..chunk.rows {
            let line = sample * src.sample_step + row * chunk.line_step * src.row_step;
            let from = starts.map(|start| start + line);
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
