//! Gradients of the output to frequencies, and sums of frequencies to gradients of 3x3 weights.

use std::marker::PhantomData;
use std::ops::Range;

use super::input::{Frequencies, MAX_TILE, Source};
use super::tiling::BlockTiles;
use super::transform::{Transform, both_axes};
use super::weights::TAPS;
use crate::conv2d::register_tile::NV;
use crate::sgd::{GradientSink, Rule};
use crate::simd::{Kernel, Outputs, Simd};

/// The frequencies of the gradients of some channel blocks of some tiles of the output.
pub(super) struct GradientTransform<'a, W, const N: usize, const M: usize> {
    pub(super) source: Source<'a>,
    pub(super) tiles: BlockTiles,
    pub(super) batch: Range<usize>,
    pub(super) blocks: Range<usize>,
    pub(super) frequencies: Frequencies<'a>,
    /// The sums of the channels' gradients, where those are wanted.
    pub(super) bias: Option<&'a mut [f32]>,
    pub(super) transform: PhantomData<W>,
}

impl<W: Transform<N, M>, const N: usize, const M: usize> Kernel for GradientTransform<'_, W, N, M> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let GradientTransform { source, tiles, batch, blocks, frequencies, mut bias, .. } = self;
        let Frequencies { values, f_step, row } = frequencies;
        let mut border = [0.0; MAX_TILE];
        for (at, block) in blocks.enumerate() {
            let mut sum = match &bias {
                Some(bias) => simd.load(&bias[at * S::LANES..]),
                None => simd.zero(),
            };
            for (t, tile) in batch.clone().enumerate() {
                let place = tiles.place(tile);
                let (tile, row_step) = source.tile::<S, M, M>(place, block, &mut border);
                let mut gradients = [[simd.zero(); M]; M];
                let mut tile_sum = simd.zero();
                for y in 0..M {
                    let line = &tile[y * row_step..][..M * S::LANES];
                    for x in 0..M {
                        gradients[y][x] = simd.load(&line[x * S::LANES..]);
                        tile_sum = simd.add(tile_sum, gradients[y][x]);
                    }
                }
                sum = simd.add(sum, tile_sum);
                let tile = both_axes!(simd, gradients, W::output_gradient::<S>, M => N);
                for y in 0..N {
                    let start = y * N * f_step + t * row + at * S::LANES;
                    let mut line = Outputs::<S, N>::new(simd, &mut values[start..], f_step);
                    for x in 0..N {
                        line.set(x, tile[y][x]);
                    }
                }
            }
            if let Some(bias) = &mut bias {
                simd.store(&mut bias[at * S::LANES..], sum);
            }
        }
    }
}

/// The gradients of the weights of a share: `[output block][input channel][tap]`, vectors of output channels.
pub(super) struct WeightsGradient<'a, W, const N: usize, const M: usize> {
    /// Of each frequency `[pair of output blocks][input channel]`, vectors of the pair.
    pub(super) sums: &'a [f32],
    pub(super) f_step: usize,
    /// Input blocks.
    pub(super) ins: usize,
    /// Output blocks.
    pub(super) outs: usize,
    pub(super) gradients: &'a mut [f32],
    pub(super) transform: PhantomData<W>,
}

impl<W: Transform<N, M>, const N: usize, const M: usize> Kernel for WeightsGradient<'_, W, N, M> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let WeightsGradient { sums, f_step, ins, outs, gradients, .. } = self;
        let channels = ins * S::LANES;
        for out in 0..outs {
            let first = out / NV * NV;
            let vectors = NV.min(outs - first);
            for channel in 0..channels {
                let at = (first * channels + channel * vectors + out - first) * S::LANES;
                let mut frequencies = [[simd.zero(); N]; N];
                for y in 0..N {
                    for x in 0..N {
                        frequencies[y][x] = simd.load(&sums[(y * N + x) * f_step + at..]);
                    }
                }
                let kernel = both_axes!(simd, frequencies, W::weights_gradient::<S>, N => 3);
                let at = (out * channels + channel) * TAPS * S::LANES;
                let gradients = &mut gradients[at..][..TAPS * S::LANES];
                for y in 0..3 {
                    for x in 0..3 {
                        simd.store(&mut gradients[(y * 3 + x) * S::LANES..], kernel[y][x]);
                    }
                }
            }
        }
    }
}

/// Puts the gradients of the taps between an input channel and a vector of output channels where they go.
pub(super) struct Store<'a> {
    pub(super) gradients: &'a [f32],
    pub(super) places: [usize; TAPS],
    /// Output channels without padding.
    pub(super) real: usize,
    pub(super) diff_wei: GradientSink<'a>,
}

impl Kernel for Store<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Store { gradients, places, real, diff_wei } = self;
        // Zeros of diff_dst do not make a padded lane zero where the source is infinite.
        match diff_wei {
            GradientSink::Store(mut diff_wei) => {
                for (tap, at) in places.into_iter().enumerate() {
                    let gradient = simd.load(&gradients[tap * S::LANES..]);
                    let gradient = simd.keep_first(gradient, real);
                    simd.store(diff_wei.tile(at..at + S::LANES), gradient);
                }
            }
            GradientSink::Step(mut step) => {
                let rule = Rule::new(simd, step.hyper, 1.0);
                for (tap, at) in places.into_iter().enumerate() {
                    let gradient = simd.load(&gradients[tap * S::LANES..]);
                    step.vector(simd, &rule, at, simd.keep_first(gradient, real));
                }
            }
        }
    }
}
