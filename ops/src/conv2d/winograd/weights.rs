//! Weights to frequencies, in the order in which a pass reads them.
//!
//! ```text
//! [pair of output vectors][chunk of inner channels][frequency][inner channel of the chunk][output channel of the pair]
//! ```

use std::marker::PhantomData;
use std::ops::Range;

use super::WinogradTile;
use super::transform::{F2, F4, Transform, both_axes};
use crate::conv2d::register_tile::NV;
use crate::conv2d::weights::PackedWeights;
use crate::simd::{Kernel, Outputs, Simd};
use crate::{Isa, Tiles};

/// Elements of the turned weights of a pair of output vectors and a block of inner channels.
const TURNED: usize = TAPS * 16 * NV * 16;

/// Weights of a kernel.
pub(super) const TAPS: usize = 9;

/// The order of a pass's weights.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    pub(super) lanes: usize,
    /// Channels that are summed over.
    pub(super) inner: usize,
    /// Channels that are written.
    pub(super) outer: usize,
    /// Inner channels of a chunk: a multiple of the lanes.
    pub(super) chunk: usize,
    pub(super) frequencies: usize,
}

impl Order {
    pub(super) fn outer_blocks(&self) -> usize {
        self.outer.div_ceil(self.lanes)
    }

    pub(super) fn pairs(&self) -> usize {
        self.outer_blocks().div_ceil(NV)
    }

    pub(super) fn chunks(&self) -> usize {
        self.inner.div_ceil(self.chunk)
    }

    /// Output vectors of a pair.
    pub(super) fn pair_blocks(&self, pair: usize) -> Range<usize> {
        pair * NV..((pair + 1) * NV).min(self.outer_blocks())
    }

    /// Inner channels of a chunk.
    pub(super) fn channels(&self, chunk: usize) -> Range<usize> {
        chunk * self.chunk..((chunk + 1) * self.chunk).min(self.inner)
    }

    /// Elements of all weights.
    pub(super) fn len(&self) -> usize {
        self.outer_blocks() * self.lanes * self.inner * self.frequencies
    }

    /// The weights of a pair and a chunk.
    pub(super) fn chunk_range(&self, pair: usize, chunk: usize) -> Range<usize> {
        let width = self.pair_blocks(pair).len() * self.lanes;
        let channels = self.channels(chunk);
        let start = pair * NV * self.lanes * self.inner + channels.start * width;
        start * self.frequencies..(start + channels.len() * width) * self.frequencies
    }

    /// The weights of a pair, a chunk and a frequency.
    pub(super) fn range(&self, [pair, chunk, f]: [usize; 3]) -> Range<usize> {
        let all = self.chunk_range(pair, chunk);
        let len = all.len() / self.frequencies;
        all.start + f * len..all.start + (f + 1) * len
    }
}

/// Which pass the weights are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::conv2d) enum Turn {
    /// Forward: as they are.
    None,
    /// Backward data: input and output channels exchanged, rows and columns reversed.
    Around,
}

/// Transforms one pair and chunk of the packed weights.
pub(super) fn transform(
    isa: Isa,
    tile: WinogradTile,
    (order, turn): (Order, Turn),
    packed: &PackedWeights,
    block: usize,
    (wei, mut dst): (&[f32], Tiles<'_>),
) {
    let (pair, chunk) = (block / order.chunks(), block % order.chunks());
    let channels = order.channels(chunk);
    let dst = dst.tile(order.chunk_range(pair, chunk));
    let vectors = order.pair_blocks(pair).len();
    let width = vectors * order.lanes;
    let f_step = channels.len() * width;
    let mut turned = [0.0; TURNED];
    for first in channels.clone().step_by(order.lanes) {
        let inner = order.lanes.min(channels.end - first);
        let (from, taps) = match turn {
            Turn::None => {
                let out = pair * NV * order.lanes;
                (wei, std::array::from_fn(|tap| packed.at(out, first, tap)))
            }
            Turn::Around => {
                let len = inner * width;
                let turned = &mut turned[..TAPS * len];
                packed.turn_around(order.pair_blocks(pair), first..first + inner, wei, turned);
                (&*turned, std::array::from_fn(|tap| (TAPS - 1 - tap) * len))
            }
        };
        let to = &mut dst[(first - channels.start) * width..];
        let work = Work { from, taps, inner, vectors, to, f_step };
        match tile {
            WinogradTile::Two => isa.dispatch(WeightsTransform::<F2, 4, 2>(work, PhantomData)),
            WinogradTile::Four => isa.dispatch(WeightsTransform::<F4, 6, 4>(work, PhantomData)),
        }
    }
}

/// The weights between a block of inner channels and a pair of output vectors.
struct Work<'a> {
    from: &'a [f32],
    /// Where each tap's weights of the first inner channel begin; those of the next lie a pair of vectors further on.
    taps: [usize; TAPS],
    inner: usize,
    vectors: usize,
    to: &'a mut [f32],
    f_step: usize,
}

struct WeightsTransform<'a, W, const N: usize, const M: usize>(Work<'a>, PhantomData<W>);

impl<W: Transform<N, M>, const N: usize, const M: usize> Kernel for WeightsTransform<'_, W, N, M> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Work { from, taps, inner, vectors, to, f_step } = self.0;
        for at in (0..inner * vectors).map(|vector| vector * S::LANES) {
            let mut kernel = [[simd.zero(); 3]; 3];
            for y in 0..3 {
                for x in 0..3 {
                    kernel[y][x] = simd.load(&from[taps[y * 3 + x] + at..]);
                }
            }
            let kernel = both_axes!(simd, kernel, W::weights::<S>, 3 => N);
            for y in 0..N {
                let mut line = Outputs::<S, N>::new(simd, &mut to[y * N * f_step + at..], f_step);
                for x in 0..N {
                    line.set(x, kernel[y][x]);
                }
            }
        }
    }
}
