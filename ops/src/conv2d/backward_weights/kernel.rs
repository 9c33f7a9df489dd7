//! The pixel loop: what a tile of taps and output vectors gains from the lines of a chunk.
//!
//! A tile is `R` pieces of `C` taps times `N` output vectors, all of them sums in registers. They are read from memory
//! before the first pixel of the chunk and written back after the last, so a chunk should have some hundred pixels.
//! Its lines may be short: going on to the next costs about as much as one pixel.

use std::ops::Range;

use super::ahead::{Ahead, LinesAhead};
use super::tap_tiles::{Piece, TapTile};
use crate::Isa;
use crate::simd::{BroadcastLines, Broadcasts, Kernel, Simd, VectorLines, Vectors};

/// Output vectors of a tile: the most.
pub(super) const MAX_VECTORS: usize = 2;

/// Pieces of a tile: the most.
pub(super) const MAX_PIECES: usize = 9;

/// Vectors and taps of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) vectors: usize,
    pub(super) pieces: usize,
    /// Taps of a piece.
    pub(super) taps: usize,
}

impl Shape {
    /// The most taps that `vectors` output vectors leave registers for, beside the vectors and a broadcast.
    ///
    /// Portable code, of which the compiler decides what is in registers, gets few, to keep the program small.
    pub(super) const fn most_taps(vectors: usize, registers: usize) -> usize {
        match (registers, vectors) {
            (32.., 1) => 27,
            (32.., _) => 14,
            (16.., 1) => 12,
            (16.., _) => 6,
            _ => 2,
        }
    }

    /// Pieces of `taps` taps that a tile takes if there are `count` of them.
    pub(super) fn most_pieces(
        vectors: usize,
        taps: usize,
        count: usize,
        registers: usize,
    ) -> usize {
        let most = Shape::most_taps(vectors, registers);
        if count.is_multiple_of(MAX_PIECES) && taps == 3 && MAX_PIECES * taps <= most {
            return MAX_PIECES;
        }
        (most / taps).clamp(1, 6)
    }

    /// Cycles that a pixel takes: two multiplications a cycle, of which 8 are under way at once. With a single vector
    /// every multiplication needs a load of its own, and the loads take longer.
    pub(super) fn cycles(self) -> f64 {
        let products = (self.pieces * self.taps * self.vectors).max(8) as f64 / 2.0;
        if self.vectors == 1 { 2.2 * products } else { products }
    }
}

/// Lines of `diff_dst`, and the lines of `src` that belong to them.
#[derive(Debug)]
pub(super) struct Chunk<'a> {
    pub(super) src: &'a [f32],
    /// The first scalar of the first line of the first inner block.
    pub(super) src_base: usize,
    /// The inner block and the kernel row to which it belongs.
    pub(super) src_first: [usize; 2],
    /// From inner block to inner block, and from kernel row to kernel row.
    pub(super) src_steps: [usize; 2],
    /// From pixel to pixel.
    pub(super) src_pixel_step: usize,
    /// From sample to sample, and from line to line.
    pub(super) src_line_steps: [usize; 2],
    pub(super) diff_dst: &'a [f32],
    /// Where the first line of each output vector begins.
    pub(super) diff_starts: [usize; MAX_VECTORS],
    /// From sample to sample, and from line to line.
    pub(super) diff_line_steps: [usize; 2],
    pub(super) samples: usize,
    pub(super) rows: Range<usize>,
    /// Pixels of a line.
    pub(super) pixels: usize,
}

impl Chunk<'_> {
    /// The first scalar of the line of an inner block and a kernel row, so many lines of a sample further on.
    #[inline(always)]
    pub(super) fn src_start(&self, skipped: usize, [block, row]: [usize; 2]) -> usize {
        self.src_base
            + skipped * self.src_line_steps[1]
            + (block - self.src_first[0]) * self.src_steps[0]
            + (row - self.src_first[1]) * self.src_steps[1]
    }
}

struct AddProducts<'a, 'b, const N: usize, const R: usize, const C: usize> {
    chunk: &'a Chunk<'b>,
    tiles: &'a [TapTile],
    pieces: &'a [Piece],
    ahead: &'a mut LinesAhead<'b>,
    sums: &'a mut [f32],
}

impl<const N: usize, const R: usize, const C: usize> Kernel for AddProducts<'_, '_, N, R, C> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        if const { R * C > Shape::most_taps(N, S::REGISTERS) } {
            unreachable!("the tile was made for other registers");
        }
        let AddProducts { chunk, tiles, pieces, ahead, sums } = self;
        let tile_sums = sums.chunks_exact_mut(N * R * C * S::LANES);
        let mut tile_pieces = pieces.chunks_exact(R).peekable();
        for (tile, sums) in tiles.iter().zip(tile_sums) {
            let Some(pieces) = tile_pieces.next() else { break };
            let next = tile_pieces.peek().copied().unwrap_or(pieces);
            let ahead = ahead.next(chunk);
            let rows = chunk.rows.start.max(tile.rows.0)..chunk.rows.end.min(tile.rows.1);
            if !rows.is_empty() {
                add_tile::<S, N, R, C>(simd, chunk, rows, [pieces, next], ahead, sums);
            }
        }
    }
}

/// Adds the products of some rows of a chunk to the sums of a tile, and fetches the line that is read next into the L1 cache:
/// the next one, or the first of the next tile.
#[inline(always)]
fn add_tile<S: Simd, const N: usize, const R: usize, const C: usize>(
    simd: S,
    chunk: &Chunk<'_>,
    rows: Range<usize>,
    [pieces, next_pieces]: [&[Piece]; 2],
    ahead: Ahead<'_>,
    memory: &mut [f32],
) {
    let mut sums = [[[simd.zero(); N]; C]; R];
    for r in 0..R {
        for c in 0..C {
            for n in 0..N {
                sums[r][c][n] = simd.load(&memory[((r * C + c) * N + n) * S::LANES..]);
            }
        }
    }
    let skipped = rows.start - chunk.rows.start;
    let start = |piece: &Piece| chunk.src_start(skipped, [piece.block, piece.row]) + piece.offset;
    let src_starts: [usize; R] = std::array::from_fn(|r| start(&pieces[r]));
    let next_starts: [usize; R] = std::array::from_fn(|r| start(&next_pieces[r]));
    let lines = [chunk.samples, rows.len()];
    let steps = [1, chunk.src_pixel_step];
    let pixels = chunk.pixels;
    let first = Broadcasts::<R, C, 1>::new(chunk.src, src_starts, steps, pixels);
    let scalar_lines = BroadcastLines::new(first, lines, chunk.src_line_steps);
    let shift = skipped * chunk.diff_line_steps[1];
    let starts: [usize; N] = std::array::from_fn(|n| chunk.diff_starts[n] + shift);
    let first = Vectors::new(simd, chunk.diff_dst, starts, S::LANES, pixels);
    let vector_lines = VectorLines::new(first, lines, chunk.diff_line_steps);
    for sample in 0..lines[0] {
        for line in 0..lines[1] {
            let scalars = scalar_lines.line([sample, line]);
            let vectors = vector_lines.line([sample, line]);
            let next = ahead.start.wrapping_add(sample * ahead.sample_step);
            let next = next.wrapping_add(line * ahead.line_step);
            let line_after = if line + 1 < lines[1] {
                Some([sample, line + 1])
            } else {
                (sample + 1 < lines[0]).then_some([sample + 1, 0])
            };
            let near = line_after.map_or(next_starts, |[sample, line]| {
                let [sample_step, line_step] = chunk.src_line_steps;
                src_starts.map(|start| start + sample * sample_step + line * line_step)
            });
            for (i, (scalars, vectors)) in scalars.with(vectors).enumerate() {
                simd.prefetch(ahead.tensor, next.wrapping_add(i * ahead.pixel_step));
                // Shorter pieces have too few products to each line.
                if const { C >= 4 } {
                    for near in near {
                        simd.prefetch_near(chunk.src, near.wrapping_add(i * chunk.src_pixel_step));
                    }
                }
                for r in 0..R {
                    for c in 0..C {
                        let scalar = simd.splat(scalars.get(r, c));
                        for n in 0..N {
                            sums[r][c][n] = simd.mul_add(scalar, vectors[n], sums[r][c][n]);
                        }
                    }
                }
            }
        }
    }
    for r in 0..R {
        for c in 0..C {
            for n in 0..N {
                simd.store(&mut memory[((r * C + c) * N + n) * S::LANES..], sums[r][c][n]);
            }
        }
    }
}

/// The shapes that are compiled: every length of a piece of taps that leaves registers, in as many pieces as fit.
macro_rules! with_shape {
    ($shape:expr, |$n:ident, $r:ident, $c:ident| $body:expr) => {
        with_shape!(@match $shape, ($n, $r, $c, $body),
            1: 1 x [1 2 3 4 5 6 7 8 9 10 11 12 13 14]
            1: 2 x [1 2 3 4 5 6 7 8 9 10 11 12 13]
            1: 3 x [1 2 3 4 5 6 7 8 9]
            1: 4 x [1 2 3 4 5 6]
            1: 5 x [1 2 3 4 5]
            1: 6 x [1 2 3 4]
            1: 9 x [3]
            2: 1 x [1 2 3 4 5 6 7 8 9 10 11 12 13 14]
            2: 2 x [1 2 3 4 5 6 7]
            2: 3 x [1 2 3 4]
            2: 4 x [1 2 3]
            2: 5 x [1 2]
            2: 6 x [1 2]
        )
    };
    (@match $shape:expr, $use:tt, $($vectors:literal : $pieces:literal x [$($taps:literal)*])*) => {{
        let Shape { vectors, pieces, taps } = $shape;
        match (vectors, pieces, taps) {
            $($(($vectors, $pieces, $taps) => with_shape!(@arm $use, $vectors, $pieces, $taps),)*)*
            _ => unreachable!("no tile of {vectors} vectors x {pieces} pieces x {taps} taps"),
        }
    }};
    (@arm ($n:ident, $r:ident, $c:ident, $body:expr), $vectors:literal, $pieces:literal, $taps:literal) => {{
        const $n: usize = $vectors;
        const $r: usize = $pieces;
        const $c: usize = $taps;
        $body
    }};
}

/// The longest piece that is compiled.
pub(super) const MAX_TAPS: usize = 14;

/// Adds the products of a chunk to the `sums` of tiles of one shape; sums lie tile by tile, piece by piece, tap by tap,
/// vector by vector.
pub(super) fn add_products<'b>(
    isa: Isa,
    shape: Shape,
    chunk: &Chunk<'b>,
    (tiles, pieces): (&[TapTile], &[Piece]),
    ahead: &mut LinesAhead<'b>,
    sums: &mut [f32],
) {
    with_shape!(shape, |N, R, C| {
        isa.dispatch(AddProducts::<N, R, C> { chunk, tiles, pieces, ahead, sums });
    });
}

/// Vectors that are summed up independently, so that their latency is hidden.
const BIAS_SUMS: usize = 8;

struct AddVectors<'a, const N: usize> {
    chunk: &'a Chunk<'a>,
    sums: &'a mut [f32],
}

impl<const N: usize> Kernel for AddVectors<'_, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let AddVectors { chunk, sums: memory } = self;
        let [sample_step, line_step] = chunk.diff_line_steps;
        for n in 0..N {
            let mut sums = [simd.zero(); BIAS_SUMS];
            for sample in 0..chunk.samples {
                for line in 0..chunk.rows.len() {
                    let start = chunk.diff_starts[n] + sample * sample_step + line * line_step;
                    let line = &chunk.diff_dst[start..start + chunk.pixels * S::LANES];
                    let mut pixels = line.chunks_exact(BIAS_SUMS * S::LANES);
                    for pixels in &mut pixels {
                        for (sum, pixel) in sums.iter_mut().zip(pixels.chunks_exact(S::LANES)) {
                            *sum = simd.add(*sum, simd.load(pixel));
                        }
                    }
                    let rest = pixels.remainder().chunks_exact(S::LANES);
                    for (sum, pixel) in sums.iter_mut().zip(rest) {
                        *sum = simd.add(*sum, simd.load(pixel));
                    }
                }
            }
            let memory = &mut memory[n * S::LANES..];
            let mut total = simd.load(memory);
            for sum in sums {
                total = simd.add(total, sum);
            }
            simd.store(memory, total);
        }
    }
}

/// Adds the vectors of a chunk to `sums`.
pub(super) fn add_vectors(isa: Isa, vectors: usize, chunk: &Chunk<'_>, sums: &mut [f32]) {
    match vectors {
        1 => isa.dispatch(AddVectors::<1> { chunk, sums }),
        _ => isa.dispatch(AddVectors::<2> { chunk, sums }),
    }
}
