//! The gradient of the input: diff_src = diff_dst * wei.
//!
//! Vectors run over samples, so that the packed weights are read as they are, a broadcast at a time. Gradients of the
//! output are transposed on the way in, those of the input on the way out; each of them is moved once for as many
//! products as the layer has features on the other side.
//!
//! ```text
//! loop 5: panels of oc, a number of groups; their diff_dst of the block's samples is transposed into scratch
//! loop 4:   a few ic: their weights of the panel stay in the second-level cache,
//! loop 3:     while all samples pass, as many vectors of them as a register tile has, which stay in the first- or
//! loop 2:       second-level cache while the ic pass, a tile at a time: rows of ic, vectors of samples
//! loop 1:         groups of oc of the panel
//! ```
//!
//! Sums stay in scratch, `[vectors of samples][ic][samples]`, until all panels have passed. While a tile computes, it asks
//! for the weights of the next ic, or, at the last ones, of the next panel.

use std::ops::Range;

use super::Linear;
use super::blocking::{Grid, Side, VECTORS, panels, tile_rows};
use super::epilogue::Differentiate;
use super::packing::GROUP;
use super::tile::{Lhs, Rhs, accumulate, add_sums, store_sums};
use super::transpose::{load_square, transpose_square};
use crate::Tiles;
use crate::extent::expect_len;
use crate::simd::{Kernel, Simd};

/// The most terms of a sum that are added up before the next tile comes: four groups. The weights of a tile lie in as many
/// places as the panel has groups, which are often a multiple of many pages apart and then compete for the same sets of the
/// first-level cache, where the panel of vectors has to stay. Measured (Zen 5): six groups 2 to 4 % slower, three 2 %.
const DEPTH: usize = 4 * GROUP;

/// Samples of a block at most.
const MAX_SAMPLES: usize = 256;

/// Input features of a block at most: their sums are half a MiB.
const MAX_FEATURES: usize = 512;

/// Input features that all samples pass together at most, in whole tiles: their weights of a panel are 99 KiB.
const NEAR_FEATURES: usize = 132;

/// Rows of a tile of a single vector: more than of two vectors, because sums must be more than two multiply-adds a
/// cycle of 4 to 5 cycles.
const SINGLE_ROWS: usize = 12;

/// Elements of the sums: features in whole tiles.
const SUMS: usize = MAX_SAMPLES * (MAX_FEATURES + 16);

/// Elements of a copy of the weights of a tile in one group.
const ODD_ROWS: usize = 12 * GROUP;

/// Elements of the transposed panel of diff_dst.
const PANEL: usize = MAX_SAMPLES * DEPTH;

/// The tensors of a block of the input's gradient.
#[derive(Debug)]
pub struct LinearBackwardData<'a> {
    /// Samples.
    pub mb: usize,
    /// The gradient of the output.
    pub diff_dst: &'a [f32],
    /// The weights, packed.
    pub wei: &'a [f32],
    /// The input of the forward pass, if and only if it is the value of an activation
    /// ([`LinearDesc::src_activation`](super::LinearDesc::src_activation)).
    pub src: Option<&'a [f32]>,
    /// The gradient of the input, or of that activation's input.
    pub diff_src: Tiles<'a>,
    /// Scratch of [`Linear::backward_data_scratch_len`] elements, of any values.
    pub scratch: &'a mut [f32],
}

impl Linear {
    /// Elements of scratch that a worker needs for [`Self::backward_data`].
    pub fn backward_data_scratch_len(&self) -> usize {
        PANEL + SUMS + ODD_ROWS
    }

    /// The number of blocks of the input's gradient.
    pub fn backward_data_blocks(&self, mb: usize) -> usize {
        self.backward_data_grid(mb).blocks()
    }

    /// Computes one block of the gradient of the input.
    ///
    /// # Panics
    ///
    /// If a buffer is shorter than `mb` samples, the weights than the packed ones, the scratch than
    /// [`Self::backward_data_scratch_len`], or `src` is missing where an activation was planned, or given where none was.
    pub fn backward_data(&self, block: usize, io: LinearBackwardData<'_>) {
        let op = "linear backward data";
        expect_len(op, "diff_dst", io.diff_dst.len(), io.mb * self.oc.padded());
        expect_len(op, "wei", io.wei.len(), self.wei_len());
        expect_len(op, "diff_src", io.diff_src.len(), io.mb * self.ic.padded());
        expect_len(op, "scratch", io.scratch.len(), self.backward_data_scratch_len());
        assert!(
            io.src.is_some() == self.desc.src_activation.is_some(),
            "{op}: src given and activation planned differ"
        );
        if let Some(src) = io.src {
            expect_len(op, "src", src.len(), io.mb * self.ic.padded());
        }
        let (samples, features) = self.backward_data_grid(io.mb).block(block);
        let LinearBackwardData { diff_dst, wei, src, mut diff_src, scratch, .. } = io;
        let lanes = self.isa.lanes();
        let (panel, rest) = scratch.split_at_mut(PANEL);
        let (sums, odd_rows) = rest.split_at_mut(SUMS);
        let rows = features.start..features.end.min(self.desc.in_features);
        // Few samples pass but once: then weights come from memory in stretches as long as can be.
        let few = samples.len() <= VECTORS * lanes;
        let near_features = if few { MAX_FEATURES } else { NEAR_FEATURES };
        let near_features = rows.len().div_ceil(rows.len().div_ceil(near_features).max(1));
        let near_features = sum_rows(near_features.max(1));
        for oc in panels(self.oc.padded(), DEPTH) {
            let (stride, columns, samples) = (self.oc.padded(), oc.clone(), &samples);
            self.isa.dispatch(TransposePanel { src: diff_dst, stride, samples, columns, panel });
            for first in rows.clone().step_by(near_features) {
                let near = first..(first + near_features).min(rows.end);
                let parts = Vectors::of(samples, lanes).count();
                let next = if near.end < rows.end {
                    near.end * GROUP
                } else {
                    oc.len() * self.desc.in_features + rows.start * GROUP
                };
                for (part, vectors) in Vectors::of(samples, lanes).enumerate() {
                    let sums = &mut sums[vectors.elements(sum_rows(rows.len()))];
                    let at = first - rows.start..first - rows.start + sum_rows(near.len());
                    self.isa.dispatch(Strip {
                        wei,
                        ic_total: self.desc.in_features,
                        oc: oc.clone(),
                        rows: near.clone(),
                        panel: &panel[vectors.elements(oc.len())],
                        sums: &mut sums[at.start * vectors.width..at.end * vectors.width],
                        odd_rows,
                        next,
                        part,
                        parts,
                        few,
                    });
                }
            }
        }
        let stride = self.ic.padded();
        let (samples, features) = (&samples, &features);
        let diff_src = &mut diff_src;
        let rows = rows.len();
        self.isa.dispatch(WriteBack {
            sums,
            rows,
            samples,
            first: features.start,
            stride,
            diff_src,
        });
        if let Some((kind, src)) = self.desc.src_activation.zip(src) {
            self.isa.dispatch(Differentiate { kind, src, diff_src, stride, samples, features });
        }
    }

    /// Samples by input features.
    fn backward_data_grid(&self, mb: usize) -> Grid {
        let lanes = self.isa.lanes();
        Grid::new(
            Side { len: mb, step: lanes, min: 32, good: 256, max: MAX_SAMPLES },
            Side { len: self.ic.padded(), step: lanes, min: 192, good: 384, max: MAX_FEATURES },
            self.workers,
        )
    }
}

/// Rows of sums: whole tiles.
fn sum_rows(features: usize) -> usize {
    features.next_multiple_of(12)
}

/// Vectors of samples that pass the weights together: [`VECTORS`], or the one that is left over.
#[derive(Debug, Clone, Copy)]
struct Vectors {
    /// The first sample, counted from the block's first.
    first: usize,
    /// Samples, with those that the last vector lacks.
    width: usize,
}

impl Vectors {
    fn of(samples: &Range<usize>, lanes: usize) -> impl Iterator<Item = Vectors> {
        let padded = samples.len().next_multiple_of(lanes);
        let width = VECTORS * lanes;
        (0..padded)
            .step_by(width)
            .map(move |first| Vectors { first, width: width.min(padded - first) })
    }

    /// Where they lie in a buffer `[vectors][row][sample]`.
    fn elements(self, rows: usize) -> Range<usize> {
        self.first * rows..(self.first + self.width) * rows
    }
}

/// Transposes `columns` of `samples`, which are `stride` apart, to `[vectors of samples][column][sample]`, with zeros for
/// the samples that a vector lacks.
struct TransposePanel<'a> {
    src: &'a [f32],
    stride: usize,
    samples: &'a Range<usize>,
    columns: Range<usize>,
    panel: &'a mut [f32],
}

impl Kernel for TransposePanel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let TransposePanel { src, stride, samples, columns, panel } = self;
        for vectors in Vectors::of(samples, S::LANES) {
            let panel = &mut panel[vectors.elements(columns.len())];
            for lane in (0..vectors.width).step_by(S::LANES) {
                let first = samples.start + vectors.first + lane;
                let filled = (samples.end - first).min(S::LANES);
                let starts = columns.clone().step_by(S::LANES);
                for (column, panel) in starts.zip(panel.chunks_exact_mut(vectors.width * S::LANES))
                {
                    let square = load_square(simd, &src[first * stride + column..], stride, filled);
                    let square = transpose_square(simd, square);
                    for row in 0..S::LANES {
                        simd.store(&mut panel[row * vectors.width + lane..], square[row]);
                    }
                }
            }
        }
    }
}

/// Transposes sums `[vectors of samples][ic][sample]` to where they belong, from feature `first` on. `rows` are the features
/// without padding.
struct WriteBack<'a, 't> {
    sums: &'a [f32],
    rows: usize,
    samples: &'a Range<usize>,
    first: usize,
    stride: usize,
    diff_src: &'a mut Tiles<'t>,
}

impl Kernel for WriteBack<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let WriteBack { sums, rows, samples, first: feature, stride, diff_src } = self;
        for vectors in Vectors::of(samples, S::LANES) {
            let sums = &sums[vectors.elements(sum_rows(rows))];
            for lane in (0..vectors.width).step_by(S::LANES) {
                let first = samples.start + vectors.first + lane;
                let filled = (samples.end - first).min(S::LANES);
                for row in (0..rows).step_by(S::LANES) {
                    let src = &sums[row * vectors.width + lane..];
                    let square = load_square(simd, src, vectors.width, rows - row);
                    let square = transpose_square(simd, square);
                    for sample in 0..S::LANES {
                        if sample < filled {
                            let at = (first + sample) * stride + feature + row;
                            simd.store(diff_src.tile(at..at + S::LANES), square[sample]);
                        }
                    }
                }
            }
        }
    }
}

/// A panel of some vectors of samples, and the weights of the block's input features that it meets.
struct Strip<'a> {
    wei: &'a [f32],
    ic_total: usize,
    /// The panel's output features, with padding: full groups, and perhaps a narrow one.
    oc: Range<usize>,
    /// The block's input features.
    rows: Range<usize>,
    panel: &'a [f32],
    sums: &'a mut [f32],
    odd_rows: &'a mut [f32],
    /// Where the weights are that all samples meet next, of the next input features or the next panel, counted from the
    /// panel's first.
    next: usize,
    /// Which of the `parts` of them is to be asked for.
    part: usize,
    parts: usize,
    /// Whether samples are so few that every weight is read once: then those of the tile after the next are asked for.
    few: bool,
}

impl Kernel for Strip<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let rows = self.rows.clone();
        let tall = tile_rows(S::LANES);
        let single = self.sums.len() == sum_rows(rows.len()) * S::LANES;
        let mut row = rows.start;
        while row < rows.end {
            let left = rows.end - row;
            // The first comparison is known at compile time, so a tile that does not fit is not even compiled.
            row += if single {
                self.multiply::<S, SINGLE_ROWS, 1>(simd, row)
            } else if tall == 12 && left > 8 && left != 16 {
                self.multiply::<S, 12, 2>(simd, row)
            } else if tall == 12 {
                self.multiply::<S, 8, 2>(simd, row)
            } else {
                self.multiply::<S, 6, 2>(simd, row)
            };
        }
    }
}

impl Strip<'_> {
    /// Multiplies a tile's rows, from `row` on, with N vectors of samples; returns R.
    #[inline(always)]
    fn multiply<S: Simd, const R: usize, const N: usize>(&mut self, simd: S, row: usize) -> usize {
        let (ic_total, oc, rows) = (self.ic_total, &self.oc, &self.rows);
        let full = oc.len() / GROUP;
        let (full_panel, narrow_panel) = self.panel.split_at(full * GROUP * N * S::LANES);
        let narrow = oc.len() - full * GROUP;
        let wei = &self.wei[oc.start * ic_total..];
        let (full_wei, narrow_wei) = wei.split_at(full * GROUP * ic_total);
        let (lines, ahead) = self.ahead::<R>(row);
        let at = (row - rows.start) * N * S::LANES;
        let out = &mut self.sums[at..at + R * N * S::LANES];
        let mut sums = [[simd.zero(); N]; R];
        let filled = (rows.end - row).min(R);
        let panels = full_panel.chunks_exact(GROUP * N * S::LANES);
        for (group, panel) in panels.enumerate() {
            let group = group * GROUP * ic_total;
            for line in 0..lines {
                simd.prefetch(wei, group + ahead + line * 16);
            }
            let mut src = &full_wei[group + row * GROUP..];
            if filled < R {
                copy_rows(simd, src, GROUP, filled, self.odd_rows);
                src = self.odd_rows;
            }
            let lhs = Lhs { src, row_stride: GROUP, k_stride: 1 };
            let rhs = Rhs { src: panel, k_stride: N * S::LANES };
            sums = accumulate(simd, sums, lhs, rhs, GROUP);
        }
        if narrow > 0 {
            copy_rows(simd, &narrow_wei[row * narrow..], narrow, filled, self.odd_rows);
            let lhs = Lhs { src: self.odd_rows, row_stride: GROUP, k_stride: 1 };
            let rhs = Rhs { src: narrow_panel, k_stride: N * S::LANES };
            sums = accumulate(simd, sums, lhs, rhs, narrow);
        }
        if oc.start == 0 {
            store_sums(simd, sums, out, N * S::LANES, R);
        } else {
            add_sums(simd, sums, out, N * S::LANES);
        }
        R
    }

    /// The lines of every group that a tile asks for, and where the first of them is.
    #[inline(always)]
    fn ahead<const R: usize>(&self, row: usize) -> (usize, usize) {
        let rows = &self.rows;
        if self.few {
            let next = row + 2 * R;
            let wrapped = self.next + next.saturating_sub(rows.end) * GROUP;
            return (R * GROUP / 16, if next < rows.end { next * GROUP } else { wrapped });
        }
        let span = (rows.len() * GROUP / 16).div_ceil(self.parts);
        let line = |row: usize| span * row.min(rows.len()) / rows.len();
        let (first, end) = (line(row - rows.start), line(row - rows.start + R));
        (end - first, self.next + (self.part * span + first) * 16)
    }
}

/// Copies rows of `width` elements to rows as wide as those of a full group, for a tile whose group is narrow or whose rows
/// run out. What is between and behind them may be anything: it goes into no sum, or into sums of rows that do not exist.
#[inline(always)]
fn copy_rows<S: Simd>(simd: S, src: &[f32], width: usize, rows: usize, copy: &mut [f32]) {
    let rows = src.chunks_exact(width).take(rows).zip(copy.chunks_exact_mut(GROUP));
    for (src, copy) in rows {
        for (src, copy) in src.chunks_exact(S::LANES).zip(copy.chunks_exact_mut(S::LANES)) {
            simd.store(copy, simd.load(src));
        }
    }
}
