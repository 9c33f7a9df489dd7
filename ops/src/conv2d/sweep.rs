//! The kernel of the forward and the backward data pass: output vectors from staged lines and packed weights.
//!
//! ```text
//! dst[o, y, x] = bia[o] + sum over (c, j, i) of line[c, y * line_step + j][x * column_step + i] * wei[o, c, j, i]
//!
//! for a strip of output blocks
//!   for a chunk of inner blocks         its weights for the strip stay in the L2 cache; those that follow are prefetched
//!     for ROWS lines of the region
//!       for COLS pixels of the lines    ROWS x COLS x NV accumulators in registers
//!         for a kernel row of an inner block, for a run, for a step      NV loads, ROWS x COLS broadcasts, and the FMAs
//! ```
//!
//! All sums of a pixel stay in registers for a chunk. Most layers have one chunk, and then `dst` is written once and never
//! read; with several the sums pass through `dst` between them, which changes no bit. A [narrow strip](super::strips) has
//! one chunk: its sums are complete only when the lanes of each output channel are summed.

use std::ops::Range;

use super::ahead::{Ahead, OutputsAhead, WeightsAhead};
use super::cut::part;
use super::dispatch::{ANY_TAPS, EDGES, POINTWISE};
use super::edges::{Edges, most_left_out};
use super::gaps::Gaps;
use super::kernel_row::{Fetch, KernelRow, add_steps, isolate};
use super::register_tile::{NV, RegisterTile, column_step, fits, pixel_tiles};
use super::staging::Lines;
use super::strips::Strip;
use crate::simd::{Broadcasts, Kernel, Outputs, Simd};
use crate::{Isa, Tiles};

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
    /// The output blocks.
    pub(super) strip: Strip,
    /// The strip that is swept next.
    pub(super) next_strip: Strip,
    pub(super) lines: Lines<'a>,
    /// The staged column that tap 0 of the region's first output column reads.
    pub(super) first_column: usize,
    /// The staged row that kernel row 0 of the region's first output row reads.
    pub(super) first_row: usize,
    /// Staged rows from output row to output row.
    pub(super) line_step: usize,
    /// Staged columns from output pixel to output pixel.
    pub(super) column_step: usize,
    /// Staged rows that are not padding.
    pub(super) data_rows: Range<usize>,
    /// Staged columns that are not padding.
    pub(super) data_columns: Range<usize>,
    pub(super) samples: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Inner blocks whose weights stay in the L2 cache while all lines are swept; the sums of the others wait in `dst`.
    pub(super) chunk: usize,
    /// The weights of all strips.
    pub(super) wei: &'a [f32],
    /// The biases of all output channels, padded with zeros.
    pub(super) bia: Option<&'a [f32]>,
    /// Whether the lines are read for the first time, from far, and a tile should prefetch those of the next.
    pub(super) far: bool,
    /// Whether sums below zero become zero.
    pub(super) relu: bool,
    pub(super) dst: Tiles<'a>,
    pub(super) target: Target,
    /// What lies between the pixels, unless other sweeps write it.
    pub(super) gaps: Option<Gaps>,
}

/// The register tile that suits a strip, over so many pixels of so many lines.
pub(super) fn tile(
    isa: Isa,
    strip: &Strip,
    plain: bool,
    step: usize,
    [pixels, lines]: [usize; 2],
) -> RegisterTile {
    let step = column_step(plain, step, isa.registers());
    let tiles = pixel_tiles(plain, step, strip.taps.together);
    tiles.choose(pixels, lines, strip.blocks, isa.registers())
}

/// The sweep with its register tile, for a plain source (columns 1 element apart) or a blocked one (a vector apart), and
/// `STEP` columns from pixel to pixel; 0 stands for any. `G` inner channels are multiplied together.
pub(super) struct TiledSweep<
    'a,
    const ROWS: usize,
    const COLS: usize,
    const STEP: usize,
    const PLAIN: bool,
    const G: usize,
    const TAPS: u8,
>(pub(super) Sweep<'a>);

impl<
    const ROWS: usize,
    const COLS: usize,
    const STEP: usize,
    const PLAIN: bool,
    const G: usize,
    const TAPS: u8,
> Kernel for TiledSweep<'_, ROWS, COLS, STEP, PLAIN, G, TAPS>
{
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        if !const { pixel_tiles(PLAIN, STEP, G).has(ROWS, COLS, S::REGISTERS) } {
            unreachable!("the plan chose a register tile of its set");
        }
        if const { TAPS != ANY_TAPS && S::REGISTERS < 32 } {
            unreachable!("only tiles of 32 registers have loops of their own");
        }
        if TAPS == EDGES || self.0.strip.blocks == NV {
            if const { G > 1 || !fits(ROWS, COLS, NV, S::REGISTERS) } {
                unreachable!("the plan chose a register tile for a single block");
            }
            self.sweep_strip::<S, NV>(simd);
        } else {
            self.sweep_strip::<S, 1>(simd);
        }
    }
}

/// A chunk of inner blocks: what its tiles share.
pub(super) struct Chunk<'a> {
    /// Inner blocks.
    pub(super) blocks: Range<usize>,
    /// The weights of the strip.
    pub(super) wei: &'a [f32],
    pub(super) is_first: bool,
    is_last: bool,
    /// Elements from pixel to pixel.
    pub(super) pixel_step: usize,
}

/// A register tile: where its scalars come from and where its sums go.
pub(super) struct Place<const ROWS: usize> {
    /// Where the scalars of each line begin for inner block 0 and kernel row 0.
    pub(super) starts: [usize; ROWS],
    /// The same of the next tile.
    pub(super) next_starts: [usize; ROWS],
    kernel_rows: Range<usize>,
    /// Where the first vector of each line goes, in the first output block.
    pub(super) targets: [usize; ROWS],
    /// Pixels that the tile before has written.
    skip: usize,
    edges: Edges,
}

impl<
    const ROWS: usize,
    const COLS: usize,
    const STEP: usize,
    const PLAIN: bool,
    const G: usize,
    const TAPS: u8,
> TiledSweep<'_, ROWS, COLS, STEP, PLAIN, G, TAPS>
{
    /// Computes the `N` output blocks of the strip for the whole region.
    #[inline(always)]
    fn sweep_strip<S: Simd, const N: usize>(self, simd: S) {
        let mut sweep = self.0;
        let Target { base, sample_step, block_step, row_step, column_step, .. } = sweep.target;
        let strip = sweep.strip;
        let taps = strip.taps;
        let chunk_blocks = if G == 1 { sweep.chunk } else { taps.blocks().max(1) };
        let lines = sweep.samples * sweep.rows;
        let unit = if PLAIN { 1 } else { S::LANES };
        let pixel_step = unit * if STEP == 0 { sweep.column_step } else { STEP };
        for index in 0..taps.blocks().div_ceil(chunk_blocks) {
            let blocks = part(index, chunk_blocks, taps.blocks());
            let chunk = Chunk {
                wei: &sweep.wei[strip.start..][..N * S::LANES * taps.steps()],
                is_first: blocks.start == 0,
                is_last: blocks.end == taps.blocks(),
                pixel_step,
                blocks,
            };
            let tiles = lines.div_ceil(ROWS) * sweep.columns.div_ceil(COLS);
            let mut ahead = Ahead {
                weights: WeightsAhead::new(
                    &sweep,
                    (chunk.blocks.clone(), chunk.is_last),
                    tiles,
                    N * S::LANES,
                ),
                outputs: OutputsAhead::new(&sweep, &chunk, [ROWS, N, COLS]),
            };
            for first in (0..lines).step_by(ROWS) {
                // Where the rows do not divide the lines, the last line is computed several times.
                let at = |first: usize| -> [(usize, usize); ROWS] {
                    std::array::from_fn(|r| {
                        let line = (first + r).min(lines - 1);
                        (line / sweep.rows, line % sweep.rows)
                    })
                };
                let starts = |at: [(usize, usize); ROWS]| {
                    at.map(|(sample, row)| {
                        let staged_row = sweep.first_row + row * sweep.line_step;
                        sweep.lines.start(sample, 0, staged_row) + sweep.first_column * unit
                    })
                };
                let next_line_starts = starts(at(first + ROWS));
                let at = at(first);
                let line_starts = starts(at);
                let kernel_rows =
                    sweep.kernel_rows(at.map(|(_, row)| sweep.first_row + row * sweep.line_step));
                for from in (0..sweep.columns).step_by(COLS) {
                    // The last tile of a line overlaps its neighbor, or goes beyond the line's end where that costs nothing.
                    let beyond = |from: usize| (from + COLS).saturating_sub(sweep.columns);
                    let column = |from: usize| {
                        let fits = TAPS == EDGES && beyond(from) <= most_left_out(ROWS, COLS);
                        if fits { from } else { from.min(sweep.columns - COLS) }
                    };
                    let (next, next_column) = (from + COLS, column(from + COLS));
                    let column = column(from);
                    let span = [sweep.first_column + column, COLS, beyond(column)];
                    let most = most_left_out(ROWS, COLS);
                    let edges = Edges::new(span, taps.columns, &sweep.data_columns, most);
                    let place = Place {
                        starts: line_starts.map(|start| start + column * pixel_step),
                        next_starts: if next < sweep.columns {
                            line_starts.map(|start| start + next_column * pixel_step)
                        } else {
                            next_line_starts
                        },
                        kernel_rows: kernel_rows.clone(),
                        targets: at.map(|(sample, row)| {
                            base + sample * sample_step
                                + strip.first * block_step
                                + row * row_step
                                + column * column_step
                        }),
                        skip: from - column,
                        edges,
                    };
                    sweep.tile::<S, ROWS, COLS, N, G, TAPS>(simd, &chunk, &place, &mut ahead);
                    if const { !PLAIN && STEP < 2 }
                        && let (Some(gaps), true) = (sweep.gaps, chunk.is_last)
                    {
                        for ((_, row), start) in at.into_iter().zip(place.targets) {
                            for n in 0..N {
                                let at = [start + n * block_step, row, column];
                                gaps.clear(at, COLS, sweep.dst.reborrow());
                            }
                        }
                    }
                }
            }
        }
    }
}

impl Sweep<'_> {
    /// The kernel rows that meet more than padding on any of the lines whose staged rows begin at `staged_rows`.
    ///
    /// Which lines are in a tile together depends on the minibatch. Rows of padding that one line meets because another
    /// does not add zeros to its sums, which changes no bit but the sign of a sum that underflowed to zero.
    #[inline(always)]
    pub(super) fn kernel_rows<const ROWS: usize>(
        &self,
        staged_rows: [usize; ROWS],
    ) -> Range<usize> {
        let taps = &self.strip.taps;
        let (mut first, mut end) = (taps.rows, 0);
        for row in staged_rows {
            first = first.min(self.data_rows.start.saturating_sub(row));
            end = end.max(self.data_rows.end.saturating_sub(row).min(taps.rows));
        }
        first..end.max(first)
    }

    /// Computes one register tile.
    #[inline(always)]
    fn tile<
        S: Simd,
        const ROWS: usize,
        const COLS: usize,
        const N: usize,
        const G: usize,
        const TAPS: u8,
    >(
        &mut self,
        simd: S,
        chunk: &Chunk<'_>,
        place: &Place<ROWS>,
        ahead: &mut Ahead,
    ) {
        let step = self.target.column_step;
        let block_step = self.target.block_step;
        // Columns beyond the line are not written.
        let cols = COLS - if TAPS == EDGES { place.edges.beyond } else { 0 };
        let len = (cols - 1) * step + S::LANES;
        let mut sums = [[[simd.zero(); N]; COLS]; ROWS];
        let (bia, first) = (self.bia, self.strip.first);
        let bias = |n| bia.map(|bia| simd.load(&bia[(first + n) * S::LANES..]));
        if G > 1 {
            // The bias belongs to the sums of lanes.
        } else if chunk.is_first {
            for n in 0..N {
                if let Some(bias) = bias(n) {
                    for r in 0..ROWS {
                        for c in 0..COLS {
                            sums[r][c][n] = bias;
                        }
                    }
                }
            }
        } else {
            for r in 0..ROWS {
                for n in 0..N {
                    let start = place.targets[r] + n * block_step;
                    let waiting = self.dst.tile(start..start + len);
                    if TAPS != EDGES || cols == COLS {
                        let waiting = Outputs::<S, COLS>::new(simd, waiting, step);
                        for c in 0..COLS {
                            sums[r][c][n] = waiting.get(c);
                        }
                        continue;
                    }
                    let mut waiting = waiting.chunks(step);
                    for c in 0..COLS {
                        if let Some(waiting) = waiting.next() {
                            sums[r][c][n] = simd.load(waiting);
                        }
                    }
                }
            }
        }
        let mut sums = isolate(simd, sums);
        self.add_taps::<S, ROWS, COLS, N, G, TAPS>(simd, chunk, place, ahead, &mut sums);
        let mut sums = isolate(simd, sums);
        if G > 1 {
            let real = self.target.channels - self.strip.first * S::LANES;
            let bias = bias(0);
            for r in 0..ROWS {
                for c in 0..COLS {
                    // Where the source is infinite, lanes without weights are not zero.
                    let sum = simd.keep_first(simd.sum_groups::<G>(sums[r][c][0]), real);
                    sums[r][c][0] = bias.map_or(sum, |bias| simd.add(sum, bias));
                }
            }
        }
        if self.relu && chunk.is_last {
            for r in 0..ROWS {
                for c in 0..COLS {
                    for n in 0..N {
                        sums[r][c][n] = simd.max(sums[r][c][n], simd.zero());
                    }
                }
            }
        }
        for r in 0..ROWS {
            for n in 0..N {
                let start = place.targets[r] + n * block_step;
                let tile = self.dst.tile(start..start + len);
                if TAPS == EDGES && cols < COLS {
                    let mut pixels = tile.chunks_mut(step);
                    for c in 0..COLS {
                        if let Some(pixel) = pixels.next() {
                            simd.store(pixel, sums[r][c][n]);
                        }
                    }
                    continue;
                }
                let mut outputs = Outputs::<S, COLS>::new(simd, tile, step);
                if place.skip == 0 {
                    for c in 0..COLS {
                        outputs.set(c, sums[r][c][n]);
                    }
                    continue;
                }
                for c in 0..COLS {
                    if c >= place.skip {
                        outputs.set(c, sums[r][c][n]);
                    }
                }
            }
        }
    }

    /// Adds a chunk's products to the sums of a register tile.
    #[inline(always)]
    fn add_taps<
        S: Simd,
        const ROWS: usize,
        const COLS: usize,
        const N: usize,
        const G: usize,
        const TAPS: u8,
    >(
        &mut self,
        simd: S,
        chunk: &Chunk<'_>,
        place: &Place<ROWS>,
        ahead: &mut Ahead,
        sums: &mut [[[S::F32; N]; COLS]; ROWS],
    ) {
        if TAPS == POINTWISE {
            return self.add_channels::<S, ROWS, COLS, N>(simd, chunk, place, ahead, sums);
        }
        let (taps, lines) = (&self.strip.taps, &self.lines);
        // An address to count from.
        let dst = &*self.dst.tile(0..0);
        let outputs = &mut ahead.outputs;
        outputs.begin(place.targets[0]);
        let first_row = place.kernel_rows.start * lines.row_step;
        // A run of 16 channels by some columns takes as many steps a column as a tile has pixels, or a few more.
        let near_step = chunk.pixel_step / taps.columns.max(1);
        for block in chunk.blocks.clone() {
            let mut rest =
                &chunk.wei[taps.row_start(block, place.kernel_rows.start) * N * S::LANES..];
            let (runs, len) =
                if TAPS == EDGES { (1, taps.row_steps(block)) } else { taps.runs(block) };
            for kernel_row in place.kernel_rows.clone() {
                ahead.weights.advance(simd, self.wei);
                outputs.advance(simd, dst);
                let row = block * lines.block_step + kernel_row * lines.row_step;
                for run in 0..runs {
                    let (factors, after) = rest.split_at(len * N * S::LANES);
                    rest = after;
                    let offset = row + run * taps.lanes;
                    let from = place.starts.map(|start| start + offset);
                    if self.far {
                        for start in place.next_starts {
                            for c in 0..COLS {
                                let at = start + offset + c * chunk.pixel_step;
                                simd.prefetch(lines.src, at);
                            }
                        }
                    }
                    let steps = [chunk.pixel_step, G];
                    // What the next run reads, of the first line: a cache line a step or less.
                    let near = if kernel_row + 1 < place.kernel_rows.end {
                        from[0] + lines.row_step
                    } else if block + 1 < chunk.blocks.end {
                        place.starts[0] + first_row + (block + 1) * lines.block_step
                    } else {
                        place.next_starts[0] + first_row + chunk.blocks.start * lines.block_step
                    };
                    let fetch = Fetch { src: lines.src, at: near, step: near_step };
                    if TAPS == EDGES {
                        let row = KernelRow {
                            src: lines.src,
                            starts: from,
                            steps: [chunk.pixel_step, taps.lanes],
                            groups: taps.groups(block),
                            wei: factors,
                            fetch,
                        };
                        row.add_to(simd, sums, taps.columns, place.edges);
                        continue;
                    }
                    let scalars = Broadcasts::<ROWS, COLS, G>::new(lines.src, from, steps, len);
                    add_steps::<S, ROWS, COLS, N, G, 0, COLS>(simd, sums, scalars, factors, fetch);
                }
            }
        }
    }
}
