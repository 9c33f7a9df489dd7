//! The forward pass: dst = src * wei^T + bia.
//!
//! ```text
//! loop 4: panels of ic; the block's samples are copied to scratch
//! loop 3:   groups of oc, as many as a register tile has vectors for: their weights of the panel stay in the first- or
//! loop 2:     second-level cache, while all samples pass, a register tile at a time
//! ```
//!
//! Copy and sums stay in the second-level cache. Where samples lie, they are kilobytes apart: each row of a tile would need
//! a page of its own, and all would compete for the same few places of the cache. While a tile computes, it asks for the
//! weights of the next group and for the samples of the next panel.
//!
//! A few samples are copied whole, and loops 4 and 3 change places: weights, of which there are so many more, come from
//! memory from first to last.

use std::ops::Range;

use super::Linear;
use super::blocking::{Grid, Side, VECTORS, panels, tile_rows};
use super::packing::GROUP;
use super::tile::{Ahead, Lhs, Rhs, accumulate, add_sums};
use crate::extent::expect_len;
use crate::simd::{Kernel, Simd};
use crate::{ActivationKind, Tiles};

/// The most terms of a sum that are added up before the next tile comes (KC), where sums lie in scratch: with AVX-512 the
/// panel of vectors, 24 KiB, and the rows of a tile, 9 KiB, fit a first-level cache of 48 KiB together; with AVX2, half as
/// much. Measured on both: 256 is 2 to 6 % slower, 128 as fast or slower.
const DEPTH: usize = 192;

/// Samples of a block at most.
const MAX_SAMPLES: usize = 256;

/// Output features of a block at most: the sums are half a MiB.
const MAX_FEATURES: usize = 512;

/// From one sample to the next in a panel: an odd number of cache lines, so that the rows of a tile do not compete.
const ROW: usize = DEPTH + 16;

/// Samples in whole tiles.
const MAX_ROWS: usize = MAX_SAMPLES + 12;

/// Elements of the copied panels.
const PANELS: usize = MAX_ROWS * ROW;

/// Elements of the sums.
const SUMS: usize = MAX_ROWS * MAX_FEATURES;

/// The tensors of a forward block.
#[derive(Debug)]
pub struct LinearForward<'a> {
    /// Samples.
    pub mb: usize,
    /// The input.
    pub src: &'a [f32],
    /// The weights, packed.
    pub wei: &'a [f32],
    /// The bias, packed; `None` if the layer has none.
    pub bia: Option<&'a [f32]>,
    /// The output.
    pub dst: Tiles<'a>,
    /// Scratch of [`Linear::forward_scratch_len`] elements, of any values.
    pub scratch: &'a mut [f32],
}

impl Linear {
    /// Elements of scratch that a worker needs for [`Self::forward`].
    pub fn forward_scratch_len(&self) -> usize {
        PANELS + SUMS
    }

    /// The number of blocks of the forward pass.
    pub fn forward_blocks(&self, mb: usize) -> usize {
        self.forward_grid(mb).blocks()
    }

    /// Computes one block of the output.
    ///
    /// # Panics
    ///
    /// If a buffer is shorter than `mb` samples, the weights or the bias than the packed ones, the scratch than
    /// [`Self::forward_scratch_len`], or a bias is given to a layer without, or not to one with.
    pub fn forward(&self, block: usize, io: LinearForward<'_>) {
        let op = "linear forward";
        expect_len(op, "src", io.src.len(), io.mb * self.ic.padded());
        expect_len(op, "wei", io.wei.len(), self.wei_len());
        expect_len(op, "dst", io.dst.len(), io.mb * self.oc.padded());
        assert!(io.bia.is_some() == self.desc.bias, "{op}: bias given and bias planned differ");
        if let Some(bia) = io.bia {
            expect_len(op, "bia", bia.len(), self.bia_len());
        }
        expect_len(op, "scratch", io.scratch.len(), self.forward_scratch_len());
        let (samples, features) = self.forward_grid(io.mb).block(block);
        let LinearForward { src, wei, bia, mut dst, scratch, .. } = io;
        let ic_total = self.desc.in_features;
        let lanes = self.isa.lanes();
        let (scratch, sums) = scratch.split_at_mut(PANELS);
        let rows = samples.len().next_multiple_of(tile_rows(lanes));
        let at_once = PANELS / (rows * ROW);
        let panels = panels(ic_total, DEPTH);
        let count = panels.clone().count();
        for first in (0..count).step_by(at_once) {
            let chunk = panels.clone().skip(first).take(at_once);
            for (ic, panel) in chunk.clone().zip(scratch.chunks_exact_mut(rows * ROW)) {
                let samples = samples.clone();
                self.isa.dispatch(CopyRows { src, stride: self.ic.padded(), samples, ic, panel });
            }
            let ahead = (at_once == 1).then_some(NextPanel {
                src: &src[samples.start * self.ic.padded()..samples.end * self.ic.padded()],
                stride: self.ic.padded(),
                strips: features.len().div_ceil(VECTORS * lanes),
            });
            let mut strips = 0;
            for group in self.oc.groups(&features) {
                let group_wei = &wei[group.first * ic_total..group.end() * ic_total];
                for columns in group.tiles(lanes) {
                    let column = group.first + columns.start;
                    let at = (column - features.start) * rows;
                    let sums = &mut sums[at..at + columns.len() * rows];
                    for (ic, panel) in chunk.clone().zip(scratch.chunks_exact(rows * ROW)) {
                        // What is read next: this panel's weights of the next group, or the next panel's of this one.
                        let next = if at_once == 1 {
                            group.end() * ic_total + ic.start * group.width
                        } else {
                            group.first * ic_total + ic.end * group.width
                        };
                        self.isa.dispatch(Strip {
                            panel,
                            depth: ic.len(),
                            wei: Rhs {
                                src: &group_wei[ic.start * group.width + columns.start..],
                                k_stride: group.width,
                            },
                            first: ic.start == 0,
                            bia: bia.map(|bia| &bia[column..column + columns.len()]),
                            samples: samples.len(),
                            vectors: columns.len() / lanes,
                            sums: &mut *sums,
                            next_wei: wei.get(next..).unwrap_or_default(),
                            next_src: ahead.map(|ahead| ahead.part(strips, ic.end)),
                        });
                    }
                    strips += 1;
                    if first + at_once >= count {
                        self.isa.dispatch(WriteRows {
                            sums,
                            kind: self.desc.dst_activation,
                            filled: self.desc.out_features.min(column + columns.len()) - column,
                            samples: samples.clone(),
                            column,
                            stride: self.oc.padded(),
                            dst: &mut dst,
                        });
                    }
                }
            }
        }
    }

    /// Samples by output features. Each weight that comes from memory meets all samples of a block, and each sample that is
    /// copied all features.
    fn forward_grid(&self, mb: usize) -> Grid {
        // A small batch is copied at once, and weights are what takes time.
        let (min, good) = ((4 * mb).clamp(GROUP, 96), (32 * mb).clamp(GROUP, 512));
        let len = self.desc.out_features;
        Grid::new(
            Side { len: mb, step: 4, min: 32, good: 256, max: MAX_SAMPLES },
            Side { len, step: GROUP, min, good, max: MAX_FEATURES },
            self.workers,
        )
    }
}

/// The next panel of samples, which is asked for in parts while strips are computed.
#[derive(Clone, Copy)]
struct NextPanel<'a> {
    src: &'a [f32],
    stride: usize,
    /// The number of parts.
    strips: usize,
}

impl<'a> NextPanel<'a> {
    /// The samples of one part, from feature `ic` on.
    fn part(self, strip: usize, ic: usize) -> Ahead<'a> {
        let samples = self.src.len() / self.stride;
        let at = strip * samples / self.strips * self.stride + ic;
        Ahead { src: self.src, at, stride: self.stride, lines: DEPTH / 16, line: 0 }
    }
}

/// Copies a panel of inputs of `samples`, which are `stride` apart, to rows of [`ROW`] elements.
struct CopyRows<'a> {
    src: &'a [f32],
    stride: usize,
    samples: Range<usize>,
    ic: Range<usize>,
    panel: &'a mut [f32],
}

impl Kernel for CopyRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let CopyRows { src, stride, samples, ic, panel } = self;
        // Whole vectors: panels start at one, and samples are padded to one.
        let ic = ic.start..ic.end.next_multiple_of(S::LANES);
        for (sample, row) in samples.zip(panel.chunks_exact_mut(ROW)) {
            let src = &src[sample * stride..][ic.clone()];
            for (src, dst) in src.chunks_exact(S::LANES).zip(row.chunks_exact_mut(S::LANES)) {
                simd.store(dst, simd.load(src));
            }
        }
    }
}

/// One panel of samples and the weights that it meets.
struct Strip<'a> {
    panel: &'a [f32],
    depth: usize,
    wei: Rhs<'a>,
    /// Whether this is the first panel, whose sums start with the bias.
    first: bool,
    bia: Option<&'a [f32]>,
    samples: usize,
    /// Vectors of outputs.
    vectors: usize,
    /// `[sample][vectors]`, in whole tiles.
    sums: &'a mut [f32],
    /// The weights that are read next.
    next_wei: &'a [f32],
    next_src: Option<Ahead<'a>>,
}

impl Kernel for Strip<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        if self.first {
            self.start(simd);
        }
        if self.vectors == 1 {
            self.multiply::<S, 1>(simd);
        } else {
            self.multiply::<S, VECTORS>(simd);
        }
    }
}

impl Strip<'_> {
    /// Fills the sums with the bias.
    #[inline(always)]
    fn start<S: Simd>(&mut self, simd: S) {
        let width = self.vectors * S::LANES;
        for row in self.sums.chunks_exact_mut(width).take(self.samples) {
            for (i, sum) in row.chunks_exact_mut(S::LANES).enumerate() {
                let bia = self.bia.map_or(simd.zero(), |bia| simd.load(&bia[i * S::LANES..]));
                simd.store(sum, bia);
            }
        }
    }

    /// Multiplies all rows, in tiles as high as the registers allow, and a lower one for the rest.
    #[inline(always)]
    fn multiply<S: Simd, const N: usize>(self, simd: S) {
        let tiles = self.samples.div_ceil(tile_rows(S::LANES));
        let wei = self.wei;
        let (depth, width) = (self.depth, N * S::LANES);
        // Where there are few tiles, each asks for much; more often, so that it need not wait.
        let parts = if tiles > 2 { 4 } else { 16 };
        let mut ahead = AheadOfTile {
            wei: Ahead { src: self.next_wei, at: 0, stride: 16, lines: 1, line: 0 },
            src: self.next_src,
            wei_lines: (depth * width / 16).div_ceil(tiles * parts),
            src_lines: (DEPTH / 16).div_ceil(parts),
            step: depth.div_ceil(parts),
        };
        let mut row = 0;
        while row < self.samples {
            let left = self.samples - row;
            let panel = &self.panel[row * ROW..];
            let sums = &mut self.sums[row * width..];
            let tile = Tile { panel, depth, wei, sums, ahead: &mut ahead };
            // The first comparison is known at compile time, so a tile that does not fit is not even compiled.
            row += if tile_rows(S::LANES) == 12 && left > 8 {
                tile.multiply::<S, 12, N>(simd)
            } else if tile_rows(S::LANES) == 12 && left > 4 {
                tile.multiply::<S, 8, N>(simd)
            } else if tile_rows(S::LANES) == 6 && left > 4 {
                tile.multiply::<S, 6, N>(simd)
            } else {
                tile.multiply::<S, 4, N>(simd)
            };
        }
    }
}

/// What is asked for while a strip is computed: a few cache lines at a time, because the core can wait for no more.
struct AheadOfTile<'a> {
    wei: Ahead<'a>,
    /// A row for a tile, so that there is time for all of a panel if a block has 16 strips.
    src: Option<Ahead<'a>>,
    /// Lines of the weights at a time.
    wei_lines: usize,
    /// Lines of the samples at a time.
    src_lines: usize,
    /// Terms of the sums that are added up meanwhile.
    step: usize,
}

/// A tile's samples and sums, and the weights.
struct Tile<'a, 'n> {
    panel: &'a [f32],
    depth: usize,
    wei: Rhs<'a>,
    sums: &'n mut [f32],
    ahead: &'n mut AheadOfTile<'a>,
}

impl Tile<'_, '_> {
    /// Multiplies R rows and N vectors; returns R.
    #[inline(always)]
    fn multiply<S: Simd, const R: usize, const N: usize>(self, simd: S) -> usize {
        let Tile { panel, depth, wei, sums: out, ahead } = self;
        let width = N * S::LANES;
        let mut sums = [[simd.zero(); N]; R];
        let mut k = 0;
        while k < depth {
            ahead.wei.fetch(simd, ahead.wei_lines);
            if let Some(src) = &mut ahead.src {
                src.fetch(simd, ahead.src_lines);
            }
            let part = ahead.step.min(depth - k);
            let lhs = Lhs { src: &panel[k..], row_stride: ROW, k_stride: 1 };
            let rhs = Rhs { src: &wei.src[k * wei.k_stride..], k_stride: wei.k_stride };
            sums = accumulate(simd, sums, lhs, rhs, part);
            k += part;
        }
        add_sums(simd, sums, out, width);
        R
    }
}

/// Writes complete sums to the output, through its activation. Padding stays zero, which neither a product of zero and
/// infinity nor every activation of zero would be.
struct WriteRows<'a, 't> {
    sums: &'a [f32],
    kind: Option<ActivationKind>,
    /// Features without padding.
    filled: usize,
    samples: Range<usize>,
    column: usize,
    stride: usize,
    dst: &'a mut Tiles<'t>,
}

impl Kernel for WriteRows<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let WriteRows { sums, kind, filled, samples, column, stride, dst } = self;
        let width = filled.next_multiple_of(S::LANES);
        for (sample, sums) in samples.zip(sums.chunks_exact(width)) {
            let at = sample * stride + column;
            let row = dst.tile(at..at + width);
            for (dst, sums) in row.chunks_exact_mut(S::LANES).zip(sums.chunks_exact(S::LANES)) {
                let value = simd.load(sums);
                simd.store(dst, kind.map_or(value, |kind| kind.apply(simd, value)));
            }
            row[filled..].fill(0.0);
        }
    }
}
