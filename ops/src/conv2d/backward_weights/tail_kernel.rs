//! The pixel loop of a tail: what a tile of taps, as vectors, and of output channels gains from the lines of a chunk.

use super::ahead::Ahead;
use super::kernel::Chunk;
use super::tail::TapVector;
use crate::Isa;
use crate::simd::{BroadcastLines, Broadcasts, Kernel, Simd, VectorLines, Vectors};

/// Output channels of a tile: the most.
const MAX_CHANNELS: usize = 4;

/// Taps and output channels of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TailShape {
    pub(super) taps: usize,
    pub(super) channels: usize,
}

impl TailShape {
    /// Parts into which the channels of a tail are cut.
    pub(super) fn channel_parts(channels: usize) -> usize {
        channels.div_ceil(MAX_CHANNELS)
    }

    /// The most taps for which there are registers, beside the channels and a vector, and addresses.
    pub(super) const fn most_taps(channels: usize, registers: usize) -> usize {
        match (registers, channels) {
            (32.., ..=3) | (16.., 1) => 9,
            (32.., _) | (16.., 2) => 6,
            (16.., 3) => 4,
            _ => 2,
        }
    }
}

struct AddTailProducts<'a, 'b, const N: usize, const O: usize> {
    chunk: &'a Chunk<'b>,
    taps: &'a [TapVector],
    first_channel: usize,
    ahead: Ahead<'b>,
    sums: &'a mut [f32],
    /// From the sums of a tap to those of the next.
    sums_step: usize,
}

impl<const N: usize, const O: usize> Kernel for AddTailProducts<'_, '_, N, O> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        if const { N > TailShape::most_taps(O, S::REGISTERS) } {
            unreachable!("the tile was made for other registers");
        }
        let AddTailProducts { chunk, taps, first_channel, ahead, sums: memory, sums_step } = self;
        let taps: &[TapVector; N] = taps.try_into().expect("as many taps as the shape has");
        let first_row = taps.iter().fold(usize::MAX, |first, tap| first.min(tap.rows.0));
        let end_row = taps.iter().fold(0, |end, tap| end.max(tap.rows.1));
        let rows = chunk.rows.start.max(first_row)..chunk.rows.end.min(end_row);
        if rows.is_empty() {
            return;
        }
        let mut sums = [[simd.zero(); O]; N];
        for n in 0..N {
            for o in 0..O {
                sums[n][o] = simd.load(&memory[n * sums_step + o * S::LANES..]);
            }
        }
        let skipped = rows.start - chunk.rows.start;
        let starts: [usize; N] = std::array::from_fn(|n| {
            let tap = &taps[n];
            chunk.src_start(skipped, [tap.block, tap.row]) + tap.column * S::LANES
        });
        let lines = [chunk.samples, rows.len()];
        let pixels = chunk.pixels;
        let first = Vectors::new(simd, chunk.src, starts, chunk.src_pixel_step, pixels);
        let vector_lines = VectorLines::new(first, lines, chunk.src_line_steps);
        let start = chunk.diff_starts[0] + skipped * chunk.diff_line_steps[1] + first_channel;
        let first = Broadcasts::<1, O, 1>::new(chunk.diff_dst, [start], [1, S::LANES], pixels);
        let scalar_lines = BroadcastLines::new(first, lines, chunk.diff_line_steps);
        for sample in 0..lines[0] {
            for line in 0..lines[1] {
                let scalars = scalar_lines.line([sample, line]);
                let vectors = vector_lines.line([sample, line]);
                let next = ahead.start.wrapping_add(sample * ahead.sample_step);
                let next = next.wrapping_add(line * ahead.line_step);
                for (i, (scalars, vectors)) in scalars.with(vectors).enumerate() {
                    simd.prefetch(ahead.tensor, next.wrapping_add(i * ahead.pixel_step));
                    let mut of_channels = [simd.zero(); O];
                    for o in 0..O {
                        of_channels[o] = simd.splat(scalars.get(0, o));
                    }
                    for n in 0..N {
                        for o in 0..O {
                            sums[n][o] = simd.mul_add(of_channels[o], vectors[n], sums[n][o]);
                        }
                    }
                }
            }
        }
        for n in 0..N {
            for o in 0..O {
                simd.store(&mut memory[n * sums_step + o * S::LANES..], sums[n][o]);
            }
        }
    }
}

/// The shapes that are compiled: every number of taps and of channels for which there are registers.
macro_rules! with_shape {
    ($shape:expr, |$n:ident, $o:ident| $body:expr) => {
        with_shape!(@match $shape, ($n, $o, $body),
            1: [1 2 3 4 5 6 7 8 9]
            2: [1 2 3 4 5 6 7 8 9]
            3: [1 2 3 4 5 6 7 8 9]
            4: [1 2 3 4 5 6]
        )
    };
    (@match $shape:expr, $use:tt, $($channels:literal : [$($taps:literal)*])*) => {{
        let TailShape { taps, channels } = $shape;
        match (channels, taps) {
            $($(($channels, $taps) => with_shape!(@arm $use, $channels, $taps),)*)*
            _ => unreachable!("no tile of {taps} taps x {channels} channels"),
        }
    }};
    (@arm ($n:ident, $o:ident, $body:expr), $channels:literal, $taps:literal) => {{
        const $n: usize = $taps;
        const $o: usize = $channels;
        $body
    }};
}

/// Adds the products of a chunk, whose vectors are those of the last output block, to the `sums` of some taps and of the
/// channels from `first_channel`; from tap to tap it is `sums_step`.
pub(super) fn add_tail_products<'b>(
    isa: Isa,
    shape: TailShape,
    chunk: &Chunk<'b>,
    (taps, first_channel): (&[TapVector], usize),
    ahead: Ahead<'b>,
    (sums, sums_step): (&mut [f32], usize),
) {
    with_shape!(shape, |N, O| {
        isa.dispatch(AddTailProducts::<N, O> {
            chunk,
            taps,
            first_channel,
            ahead,
            sums,
            sums_step,
        });
    });
}
