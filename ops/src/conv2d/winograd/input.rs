//! Tiles of a blocked tensor to frequencies.

use std::marker::PhantomData;
use std::ops::Range;

use super::tiling::{BlockTiles, Place};
use super::transform::{Transform, both_axes};
use crate::simd::{Kernel, Outputs, Simd};

/// Elements of the largest tile: 6 x 6 vectors of 16 lanes.
pub(super) const MAX_TILE: usize = 36 * 16;

/// A blocked tensor of which overlapping tiles are read; beyond its borders it is zero.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) values: &'a [f32],
    pub(super) height: usize,
    pub(super) width: usize,
    /// Channel blocks of a sample.
    pub(super) blocks: usize,
    /// Rows and columns of zeros that the first tile begins with; it begins inside where they are negative.
    pub(super) pad: [isize; 2],
}

/// Where the frequencies of tiles go: frequency `f` of channel `c` of tile `t` at `f * f_step + t * row + c`.
#[derive(Debug)]
pub(super) struct Frequencies<'a> {
    pub(super) values: &'a mut [f32],
    pub(super) f_step: usize,
    pub(super) row: usize,
}

/// The frequencies of some channel blocks of some tiles.
pub(super) struct InputTransform<'a, W, const N: usize, const M: usize> {
    pub(super) source: Source<'a>,
    pub(super) tiles: BlockTiles,
    pub(super) batch: Range<usize>,
    pub(super) blocks: Range<usize>,
    pub(super) frequencies: Frequencies<'a>,
    pub(super) transform: PhantomData<W>,
}

impl<W: Transform<N, M>, const N: usize, const M: usize> Kernel for InputTransform<'_, W, N, M> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let InputTransform { source, tiles, batch, blocks, frequencies, .. } = self;
        let Frequencies { values, f_step, row } = frequencies;
        let mut border = [0.0; MAX_TILE];
        // Tiles innermost: neighbors share lines, and lines follow each other.
        for (at, block) in blocks.enumerate() {
            for (t, tile) in batch.clone().enumerate() {
                let place = tiles.place(tile);
                let (tile, row_step) = source.tile::<S, N, M>(place, block, &mut border);
                let mut inputs = [[simd.zero(); N]; N];
                for y in 0..N {
                    let line = &tile[y * row_step..][..N * S::LANES];
                    for x in 0..N {
                        inputs[y][x] = simd.load(&line[x * S::LANES..]);
                    }
                }
                let tile = both_axes!(simd, inputs, W::input::<S>, N => N);
                for y in 0..N {
                    let start = y * N * f_step + t * row + at * S::LANES;
                    let mut line = Outputs::<S, N>::new(simd, &mut values[start..], f_step);
                    for x in 0..N {
                        line.set(x, tile[y][x]);
                    }
                }
            }
        }
    }
}

impl<'a> Source<'a> {
    /// A tile of `SIZE` rows and columns, `STEP` from its neighbors: its first element, and the elements from row to row: in place, or in `border` where the tile reaches beyond the
    /// map.
    #[inline(always)]
    pub(super) fn tile<'t, S: Simd, const SIZE: usize, const STEP: usize>(
        &self,
        place: Place,
        block: usize,
        border: &'t mut [f32; MAX_TILE],
    ) -> (&'t [f32], usize)
    where
        'a: 't,
    {
        let &Source { values, height, width, blocks, pad } = self;
        let map = (place.sample * blocks + block) * height * width * S::LANES;
        let first = [
            (place.row * STEP).cast_signed() - pad[0],
            (place.column * STEP).cast_signed() - pad[1],
        ];
        let inside = |first: isize, len: usize| {
            let end = (first + SIZE.cast_signed()).clamp(0, len.cast_signed());
            first.clamp(0, len.cast_signed()).cast_unsigned()..end.cast_unsigned()
        };
        let (rows, columns) = (inside(first[0], height), inside(first[1], width));
        if rows.len() == SIZE && columns.len() == SIZE {
            let start = map + (rows.start * width + columns.start) * S::LANES;
            return (&values[start..], width * S::LANES);
        }
        let tile = &mut border[..SIZE * SIZE * S::LANES];
        tile.fill(0.0);
        let len = columns.len() * S::LANES;
        for y in rows {
            let line = (y.cast_signed() - first[0]).cast_unsigned() * SIZE;
            let column = (columns.start.cast_signed() - first[1]).cast_unsigned();
            if len > 0 {
                let from = map + (y * width + columns.start) * S::LANES;
                tile[(line + column) * S::LANES..][..len].copy_from_slice(&values[from..][..len]);
            }
        }
        (tile, SIZE * S::LANES)
    }
}
