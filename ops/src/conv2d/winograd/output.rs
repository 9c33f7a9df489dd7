//! Frequencies back to tiles of the output, with what is applied to it.

use std::marker::PhantomData;
use std::ops::Range;

use super::tiling::BlockTiles;
use super::transform::{Transform, both_axes};
use crate::Tiles;
use crate::conv2d::epilogue::Epilogue;
use crate::simd::{Kernel, Simd};

/// The output vectors of a pair, of some tiles.
pub(super) struct OutputTransform<'a, W, const N: usize, const M: usize> {
    /// Frequency `f` of vector `v` of tile `t` at `f * f_step + (t * vectors + v) * lanes`.
    pub(super) sums: &'a [f32],
    pub(super) f_step: usize,
    /// Output vectors of the pair.
    pub(super) blocks: Range<usize>,
    pub(super) tiles: BlockTiles,
    pub(super) batch: Range<usize>,
    pub(super) height: usize,
    pub(super) width: usize,
    /// Real output channels; padded lanes become zero.
    pub(super) channels: usize,
    pub(super) bia: Option<&'a [f32]>,
    pub(super) epilogue: Epilogue<'a>,
    pub(super) dst: Tiles<'a>,
    pub(super) transform: PhantomData<W>,
}

impl<W: Transform<N, M>, const N: usize, const M: usize> Kernel for OutputTransform<'_, W, N, M> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let all_blocks = self.channels.div_ceil(S::LANES);
        let vectors = self.blocks.len();
        for (v, block) in self.blocks.clone().enumerate() {
            let real = self.channels - block * S::LANES;
            let bia = match self.bia {
                Some(bia) => simd.load(&bia[block * S::LANES..]),
                None => simd.zero(),
            };
            for (t, tile) in self.batch.clone().enumerate() {
                let place = self.tiles.place(tile);
                let outputs = self.outputs(simd, (t * vectors + v) * S::LANES, bia);
                let (y, x) = (place.row * M, place.column * M);
                let map = (place.sample * all_blocks + block) * self.height + y;
                let columns = M.min(self.width - x);
                let rows = M.min(self.height - y);
                for row in 0..M {
                    if row >= rows {
                        continue;
                    }
                    let start = ((map + row) * self.width + x) * S::LANES;
                    let line = self.dst.tile(start..start + columns * S::LANES);
                    for column in 0..M {
                        if column < columns {
                            let at = column * S::LANES;
                            let output =
                                finish(simd, self.epilogue, outputs[row][column], start + at);
                            let output = if real < S::LANES {
                                simd.keep_first(output, real)
                            } else {
                                output
                            };
                            simd.store(&mut line[at..], output);
                        }
                    }
                }
            }
        }
    }
}

/// Applies what is applied to every output vector.
#[inline(always)]
fn finish<S: Simd>(simd: S, epilogue: Epilogue<'_>, x: S::F32, at: usize) -> S::F32 {
    match epilogue {
        Epilogue::None => x,
        Epilogue::Activate(kind) => kind.apply(simd, x),
        Epilogue::Gradient(kind, value) => kind.gradient(simd, simd.load(&value[at..]), x),
    }
}

impl<W: Transform<N, M>, const N: usize, const M: usize> OutputTransform<'_, W, N, M> {
    /// The outputs of a tile, row by row, with the bias added.
    #[inline(always)]
    fn outputs<S: Simd>(&self, simd: S, at: usize, bia: S::F32) -> [[S::F32; M]; M] {
        let mut sums = [[simd.zero(); N]; N];
        for y in 0..N {
            for x in 0..N {
                sums[y][x] = simd.load(&self.sums[(y * N + x) * self.f_step + at..]);
            }
        }
        let mut outputs = both_axes!(simd, sums, W::output::<S>, N => M);
        for y in 0..M {
            for x in 0..M {
                outputs[y][x] = simd.add(outputs[y][x], bia);
            }
        }
        outputs
    }
}
