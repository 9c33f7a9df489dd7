//! Pixels of a data gradient that no tap reaches: those between and behind the pixels of a 1x1 convolution with a stride.
//!
//! They become zero tile by tile, along with the pixels among them, so that the stores pass while products are summed up
//! and the lines of cache in between are not fetched again.

use crate::simd::{Kernel, Simd};
use crate::{Isa, Tiles};

/// What lies between the pixels of a sweep.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gaps {
    pub(super) isa: Isa,
    /// Rows and columns from pixel to pixel of the sweep.
    pub(super) steps: [usize; 2],
    /// Rows and columns from the first pixel of the sweep to the end of the map.
    pub(super) extent: [usize; 2],
    /// Elements from row to row of the map.
    pub(super) row_step: usize,
}

impl Gaps {
    /// Clears what lies between some pixels of a line, and below: at `start`, the sweep's `row` and `column`.
    pub(super) fn clear(self, [start, row, column]: [usize; 3], columns: usize, dst: Tiles<'_>) {
        let [height, width] = self.steps;
        let rows = height.min(self.extent[0] - row * height);
        let pixels = (columns * width).min(self.extent[1] - column * width);
        self.isa.dispatch(Clear { start, rows, pixels, width, row_step: self.row_step, dst });
    }
}

/// Some rows of pixels; in the first, every `width`-th is kept.
struct Clear<'a> {
    start: usize,
    rows: usize,
    pixels: usize,
    width: usize,
    row_step: usize,
    dst: Tiles<'a>,
}

impl Kernel for Clear<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        for row in 0..self.rows {
            let start = self.start + row * self.row_step;
            let line = self.dst.tile(start..start + self.pixels * S::LANES);
            let kept = usize::from(row == 0);
            for pixels in line.chunks_mut(self.width * S::LANES) {
                for pixel in pixels.chunks_exact_mut(S::LANES).skip(kept) {
                    simd.store(pixel, simd.zero());
                }
            }
        }
    }
}
