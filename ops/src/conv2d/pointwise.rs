//! The loop of a 1x1 convolution: what a register tile of one line gains from a chunk of inner channels.
//!
//! A pixel of an inner block has but one vector of scalars, so a run is as short as a block has channels. Going from one run
//! to the next must cost next to nothing: views are checked once a tile, and addresses go up by constants.

use super::ahead::Ahead;
use super::kernel_row::{Fetch, add_steps};
use super::register_tile::RegisterTile;
use super::sweep::{Chunk, Place, Sweep};
use crate::simd::{BroadcastLines, Broadcasts, Simd};

impl Sweep<'_> {
    /// Whether a sweep over a blocked source is one of single taps with a tile of one line, a kernel of its own.
    pub(super) fn is_pointwise(&self, tile: RegisterTile) -> bool {
        let taps = &self.strip.taps;
        taps.rows * taps.columns == 1 && taps.together == 1 && tile.rows == 1 && tile.cols >= 8
    }

    /// Adds the products of a chunk's channels to the sums of a register tile.
    #[inline(always)]
    pub(super) fn add_channels<S: Simd, const ROWS: usize, const COLS: usize, const N: usize>(
        &mut self,
        simd: S,
        chunk: &Chunk<'_>,
        place: &Place<ROWS>,
        ahead: &mut Ahead,
        sums: &mut [[[S::F32; N]; COLS]; ROWS],
    ) {
        let (taps, lines) = (&self.strip.taps, &self.lines);
        // An address to count from.
        let dst = &*self.dst.tile(0..0);
        ahead.outputs.begin(place.targets[0]);
        let first = chunk.blocks.start * lines.block_step;
        let starts = place.starts.map(|start| start + first);
        let wei = &chunk.wei[chunk.blocks.start * S::LANES * N * S::LANES..];
        // The last block may have fewer channels.
        let whole = chunk.blocks.end.min(taps.channels / S::LANES) - chunk.blocks.start;
        let steps = [chunk.pixel_step, 1];
        let run = Broadcasts::<ROWS, COLS, 1>::new(lines.src, starts, steps, S::LANES);
        let runs = BroadcastLines::new(run, [1, whole], [0, lines.block_step]);
        let mut next = place.next_starts[0] + first;
        let mut weights = wei.chunks_exact(S::LANES * N * S::LANES);
        for block in 0..whole {
            let Some(factors) = weights.next() else { break };
            ahead.weights.advance(simd, self.wei);
            ahead.outputs.advance(simd, dst);
            if self.far {
                for c in 0..COLS {
                    simd.prefetch(lines.src, next + c * chunk.pixel_step);
                }
            }
            next += lines.block_step;
            // What the next run reads, or the next tile first.
            let near = if block + 1 < chunk.blocks.len() {
                starts[0] + (block + 1) * lines.block_step
            } else {
                place.next_starts[0] + first
            };
            let fetch = Fetch { src: lines.src, at: near, step: chunk.pixel_step };
            add_steps::<S, ROWS, COLS, N, 1, 0, COLS>(
                simd,
                sums,
                runs.line([0, block]),
                factors,
                fetch,
            );
        }
        if whole < chunk.blocks.len() {
            let channels = taps.channels % S::LANES;
            let starts = starts.map(|start| start + whole * lines.block_step);
            let run = Broadcasts::<ROWS, COLS, 1>::new(lines.src, starts, steps, channels);
            let factors = &weights.remainder()[..channels * N * S::LANES];
            let at = place.next_starts[0] + first;
            let fetch = Fetch { src: lines.src, at, step: chunk.pixel_step };
            add_steps::<S, ROWS, COLS, N, 1, 0, COLS>(simd, sums, run, factors, fetch);
        }
    }
}
