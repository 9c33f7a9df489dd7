//! Depthwise convolutions, whose every channel is a group: a vector of channels needs no other, so pixels are the tile.
//!
//! The sums of a few pixels stay in registers over all taps, and taps that would meet padding are left out by the range of
//! each row and of the pixels at the edges. Sums have the order of the plain loops of `grouped`, and so the same bits.

use std::ops::Range;

use super::desc::Conv2dDesc;
use crate::simd::Simd;

/// Pixels of a tile.
const PIXELS: usize = 8;

/// One axis of the loops: position `at` of what is computed meets the positions `at * stride + tap - pad`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    /// Positions of what is computed.
    pub(super) to: usize,
    /// Positions of what is read.
    pub(super) from: usize,
    pub(super) taps: usize,
    pub(super) stride: usize,
    pub(super) pad: usize,
}

impl Axis {
    /// The taps that meet more than padding.
    fn taps_at(self, at: usize) -> Range<usize> {
        let first = self.pad.saturating_sub(at * self.stride);
        let end = (self.from + self.pad).saturating_sub(at * self.stride).min(self.taps);
        first.min(end)..end
    }

    /// The positions whose taps all meet more than padding.
    fn inside(self) -> Range<usize> {
        let first = self.pad.div_ceil(self.stride).min(self.to);
        let end = match (self.from + self.pad).checked_sub(self.taps) {
            Some(last) => (last / self.stride + 1).min(self.to),
            None => 0,
        };
        first..end.max(first)
    }
}

/// Rows and columns of a pass that gathers: forward, or backward data without stride.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gather {
    pub(super) vertical: Axis,
    pub(super) horizontal: Axis,
    /// Whether taps are read from the last to the first.
    pub(super) reversed: bool,
}

impl Gather {
    /// The forward pass.
    pub(super) fn forward(desc: &Conv2dDesc) -> Gather {
        let axis = |to, from, taps, stride, pad| Axis { to, from, taps, stride, pad };
        Gather {
            vertical: axis(desc.oh(), desc.ih, desc.kh, desc.sh, desc.ph),
            horizontal: axis(desc.ow(), desc.iw, desc.kw, desc.sw, desc.pw),
            reversed: false,
        }
    }

    /// Backward data, where it is a convolution of the gradient with the taps in reverse: without stride, and with no more
    /// padding than the kernel covers.
    pub(super) fn backward_data(desc: &Conv2dDesc) -> Option<Gather> {
        let is_plain = desc.sh == 1 && desc.sw == 1 && desc.ph < desc.kh && desc.pw < desc.kw;
        let axis = |to, from, taps, pad| Axis { to, from, taps, stride: 1, pad: taps - 1 - pad };
        is_plain.then(|| Gather {
            vertical: axis(desc.ih, desc.oh(), desc.kh, desc.ph),
            horizontal: axis(desc.iw, desc.ow(), desc.kw, desc.pw),
            reversed: true,
        })
    }

    /// Computes row `y`: `row[x] = start + sum of plane * wei`.
    #[inline(always)]
    pub(super) fn row<S: Simd>(
        &self,
        simd: S,
        y: usize,
        [plane, wei]: [&[f32]; 2],
        start: S::F32,
        row: &mut [f32],
    ) {
        let inside = self.horizontal.inside();
        let mut x = 0;
        while x < self.horizontal.to {
            if x >= inside.start && x + PIXELS <= inside.end {
                self.pixels::<S, PIXELS>(simd, [y, x], [plane, wei], start, row);
                x += PIXELS;
            } else {
                self.pixels::<S, 1>(simd, [y, x], [plane, wei], start, row);
                x += 1;
            }
        }
    }

    #[inline(always)]
    fn pixels<S: Simd, const P: usize>(
        &self,
        simd: S,
        [y, x]: [usize; 2],
        [plane, wei]: [&[f32]; 2],
        start: S::F32,
        row: &mut [f32],
    ) {
        let (vertical, horizontal) = (self.vertical, self.horizontal);
        let taps = vertical.taps * horizontal.taps;
        let columns = horizontal.taps_at(x);
        let mut sums = [start; P];
        for ky in vertical.taps_at(y) {
            let from_y = y * vertical.stride + ky - vertical.pad;
            for kx in columns.clone() {
                let from_x = x * horizontal.stride + kx - horizontal.pad;
                let tap = ky * horizontal.taps + kx;
                let tap = if self.reversed { taps - 1 - tap } else { tap };
                let factor = simd.load(&wei[tap * S::LANES..]);
                let first = (from_y * horizontal.from + from_x) * S::LANES;
                let step = horizontal.stride * S::LANES;
                let pixels = &plane[first..first + (P - 1) * step + S::LANES];
                for p in 0..P {
                    sums[p] = simd.mul_add(simd.load(&pixels[p * step..]), factor, sums[p]);
                }
            }
        }
        for p in 0..P {
            simd.store(&mut row[(x + p) * S::LANES..], sums[p]);
        }
    }

    /// Adds one sample's products to the gradients of the taps of a channel block: the forward pass's loops, with the sum
    /// over pixels.
    #[inline(always)]
    pub(super) fn add_taps<S: Simd>(
        &self,
        simd: S,
        [plane, diff_dst]: [&[f32]; 2],
        diff_wei: &mut [f32],
    ) {
        let (vertical, horizontal) = (self.vertical, self.horizontal);
        for ky in 0..vertical.taps {
            for kx in 0..horizontal.taps {
                let element = &mut diff_wei[(ky * horizontal.taps + kx) * S::LANES..];
                let mut sum = simd.load(element);
                for y in 0..vertical.to {
                    let from_y = (y * vertical.stride + ky).wrapping_sub(vertical.pad);
                    if from_y >= vertical.from {
                        continue;
                    }
                    let pixels = horizontal.met_by(kx);
                    if pixels.is_empty() {
                        continue;
                    }
                    let from_x = pixels.start * horizontal.stride + kx - horizontal.pad;
                    let src = &plane[(from_y * horizontal.from + from_x) * S::LANES..];
                    let diffs = &diff_dst[(y * horizontal.to + pixels.start) * S::LANES..];
                    let diffs = diffs.chunks_exact(S::LANES).take(pixels.len());
                    for (src, diff) in src.chunks(horizontal.stride * S::LANES).zip(diffs) {
                        sum = simd.mul_add(simd.load(src), simd.load(diff), sum);
                    }
                }
                simd.store(element, sum);
            }
        }
    }
}

impl Axis {
    /// The positions at which a tap meets more than padding.
    fn met_by(self, tap: usize) -> Range<usize> {
        let first = self.pad.saturating_sub(tap).div_ceil(self.stride).min(self.to);
        let end = (self.from + self.pad).saturating_sub(tap).div_ceil(self.stride).min(self.to);
        first..end.max(first)
    }
}
