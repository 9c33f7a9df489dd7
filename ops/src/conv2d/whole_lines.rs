//! The kernel of the backward data pass where lines are short: no column of padding is multiplied.
//!
//! The gradient of a layer without padding is a convolution of lines that have `KW - 1` columns of zeros on both sides. A
//! short line is half zeros. Here a register tile covers the whole line of two samples, and the columns of the kernel are
//! known when it is compiled, so that each pixel is multiplied with those weights alone whose products go somewhere:
//!
//! ```text
//! for a row, for two samples                        LINES x COLS sums in registers
//!   for a kernel row that meets more than padding
//!     for a channel                                 KW weights
//!       for a pixel p of each line, for a tap i     sum[p + LEFT - i] += line[p] * wei[i]    where there is such a column
//! ```
//!
//! It reads the tensor as it is: neither rows nor columns of padding are staged.

use super::register_tile::WholeLine;
use super::strips::Strip;
use super::sweep::{Sweep, Target};
use crate::Isa;
use crate::simd::{Broadcasts, Kernel, Outputs, Simd, Vectors};

/// Lines of a tile: of one row, so that they share their kernel rows, and of neighboring samples. The weights, which come
/// from the L2 cache, are loaded once for all.
pub(super) const LINES: usize = 2;

impl Sweep<'_> {
    /// Runs the sweep of a strip of one block with a kernel of whole lines, which [`WholeLine`] says there is.
    pub(super) fn run_whole_lines(self, isa: Isa, line: WholeLine) {
        match (line, self.strip.taps.together) {
            (WholeLine::Of12By5, 1) => isa.dispatch(WholeLines::<12, 8, 5, 4, 1>(self)),
            (WholeLine::Of12By5, 2) => isa.dispatch(WholeLines::<12, 8, 5, 4, 2>(self)),
            (WholeLine::Of12By5, _) => isa.dispatch(WholeLines::<12, 8, 5, 4, 4>(self)),
        }
    }
}

/// The sweep with lines of `COLS` columns from lines of `PIXELS` pixels, of which tap `LEFT` of `KW` meets the first column.
/// `G` inner channels are multiplied together.
struct WholeLines<
    'a,
    const COLS: usize,
    const PIXELS: usize,
    const KW: usize,
    const LEFT: usize,
    const G: usize,
>(Sweep<'a>);

impl<const COLS: usize, const PIXELS: usize, const KW: usize, const LEFT: usize, const G: usize>
    Kernel for WholeLines<'_, COLS, PIXELS, KW, LEFT, G>
{
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        if const { S::LANES < 16 } {
            unreachable!("whole lines fill the registers of 16 lanes");
        }
        let mut sweep = self.0;
        let Target { base, sample_step, block_step, row_step, column_step, channels } =
            sweep.target;
        let Strip { first, taps, .. } = sweep.strip;
        let wei = &sweep.wei[sweep.strip.start..][..taps.steps() * S::LANES];
        let real = channels - first * S::LANES;
        for row in 0..sweep.rows {
            let staged_row = sweep.first_row + row * sweep.line_step;
            let kernel_rows = sweep.kernel_rows([staged_row]);
            let first_row = staged_row + kernel_rows.start - sweep.data_rows.start;
            for sample in (0..sweep.samples).step_by(LINES) {
                // Without a second sample the first is computed twice.
                let samples: [usize; LINES] =
                    std::array::from_fn(|r| (sample + r).min(sweep.samples - 1));
                let mut sums = [[simd.zero(); COLS]; LINES];
                for block in 0..taps.blocks() {
                    let groups = taps.groups(block);
                    let mut starts =
                        samples.map(|sample| sweep.lines.start(sample, block, first_row));
                    for kernel_row in kernel_rows.clone() {
                        let run = taps.row_start(block, kernel_row);
                        let runs = std::array::from_fn(|i| (run + i * groups) * S::LANES);
                        let vectors = Vectors::<S, KW>::new(simd, wei, runs, S::LANES, groups);
                        let scalars = Broadcasts::<LINES, PIXELS, G>::new(
                            sweep.lines.src,
                            starts,
                            [S::LANES, G],
                            groups,
                        );
                        for (scalars, wei) in scalars.with(vectors) {
                            for p in 0..PIXELS {
                                for r in 0..LINES {
                                    let scalar = simd.splat_group(scalars.group(r, p));
                                    for i in 0..KW {
                                        let column = (p + LEFT).wrapping_sub(i);
                                        if column < COLS {
                                            sums[r][column] =
                                                simd.mul_add(scalar, wei[i], sums[r][column]);
                                        }
                                    }
                                }
                            }
                        }
                        starts = starts.map(|start| start + sweep.lines.row_step);
                    }
                }
                for r in 0..LINES {
                    let start =
                        base + samples[r] * sample_step + first * block_step + row * row_step;
                    let len = (COLS - 1) * column_step + S::LANES;
                    let line = sweep.dst.tile(start..start + len);
                    let mut outputs = Outputs::<S, COLS>::new(simd, line, column_step);
                    for c in 0..COLS {
                        let sum = simd.sum_groups::<G>(sums[r][c]);
                        // Where the source is infinite, lanes without weights are not zero.
                        outputs.set(c, if G > 1 { simd.keep_first(sum, real) } else { sum });
                    }
                }
            }
        }
    }
}
