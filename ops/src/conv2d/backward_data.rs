//! Backward data pass: the gradient of the source.
//!
//! ```text
//! diff_src[n,ic,y,x] = sum_{oc,kh,kw: oh*sh+kh-ph = y, ow*sw+kw-pw = x} diff_dst[n,oc,oh,ow] * wei[oc,ic,kh,kw]
//! ```
//!
//! With y + ph = a*sh + py the sum runs over the kernel rows kh = py + j*sh alone, and oh = a - j: pixels of the same
//! *phase* (py, px) form a convolution of step 1 over `diff_dst`, with every sh-th row and sw-th column of the kernel, in
//! reverse. So the pass is one [sweep](super::sweep) a phase, with weights that
//! [`pack_backward`](super::Conv2d::pack_backward) has turned around: inner and outer channels exchanged, rows and columns
//! reversed. Without stride there is one phase.

use std::ops::Range;

use super::cut::{Cut, Work};
use super::epilogue::{Epilogue, Finish};
use super::gaps::Gaps;
use super::geometry::Geometry;
use super::register_tile::{NV, RegisterTile, WholeLine};
use super::staging::{Region, Staging};
use super::strips::{Strip, len, strips};
use super::sweep::{Sweep, Target, tile};
use super::taps::Taps;
use super::whole_lines::LINES;
use crate::blocking::Caches;
use crate::{ActivationKind, Isa, Tiles};

/// The tensors of a backward data block.
#[derive(Debug)]
pub struct Conv2dBackwardData<'a> {
    /// Samples.
    pub mb: usize,
    /// The gradient of the output.
    pub diff_dst: &'a [f32],
    /// The weights as [`pack_backward`](super::Conv2d::pack_backward) left them.
    pub wei: &'a [f32],
    /// The source, where it is the value of an [activation](super::Conv2dDesc::src_activation).
    pub src: Option<&'a [f32]>,
    /// The gradient of the input.
    pub diff_src: Tiles<'a>,
    /// At least [`backward_data_scratch_len`](super::Conv2d::backward_data_scratch_len) elements of any value.
    pub scratch: &'a mut [f32],
}

/// One axis, of source pixels `at = a * stride + phase - pad`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    input: usize,
    kernel: usize,
    stride: usize,
    pad: usize,
}

impl Axis {
    /// Kernel taps of a phase.
    pub(super) fn taps(self, phase: usize) -> usize {
        self.kernel.saturating_sub(phase).div_ceil(self.stride)
    }

    /// Kernel taps of phase 0, which has the most.
    fn most_taps(self) -> usize {
        self.taps(0)
    }

    /// All `a` that some pixel has.
    fn steps(self) -> Range<usize> {
        self.pad / self.stride..(self.input - 1 + self.pad) / self.stride + 1
    }

    /// The `a` among `steps` that pixels of a phase have.
    fn steps_of(self, phase: usize, steps: &Range<usize>) -> Range<usize> {
        let first = self.pad.saturating_sub(phase).div_ceil(self.stride).max(steps.start);
        let end = (self.input + self.pad).saturating_sub(phase).div_ceil(self.stride);
        first..end.min(steps.end).max(first)
    }

    /// The pixel of a step and phase.
    fn pixel(self, step: usize, phase: usize) -> usize {
        step * self.stride + phase - self.pad
    }
}

/// The pixels of one phase.
#[derive(Debug, Clone)]
pub(super) struct Phase {
    pub(super) py: usize,
    pub(super) px: usize,
    /// Of a group. Every phase has the same but for their weights, which lie phase by phase.
    pub(super) strips: Vec<Strip>,
    taps: Taps,
    /// The staged column that the first tap of step 0 reads.
    first_column: usize,
    columns: Range<usize>,
    /// Of each strip.
    tiles: Vec<RegisterTile>,
}

/// How the pass is computed.
#[derive(Debug, Clone)]
pub(super) struct BackwardDataPlan {
    isa: Isa,
    geometry: Geometry,
    staging: Staging,
    vertical: Axis,
    /// Where lines are short and padding would be much of them.
    whole_line: Option<WholeLine>,
    phases: Vec<Phase>,
    cut: Cut,
    activation: Option<ActivationKind>,
}

impl BackwardDataPlan {
    pub(super) fn new(
        geometry: &Geometry,
        activation: Option<ActivationKind>,
        isa: Isa,
        caches: Caches,
    ) -> BackwardDataPlan {
        let g = *geometry;
        let vertical = Axis { input: g.ih, kernel: g.kh, stride: g.sh, pad: g.ph };
        let horizontal = Axis { input: g.iw, kernel: g.kw, stride: g.sw, pad: g.pw };
        let (rows, columns) = (vertical.steps(), horizontal.steps());
        let (most_rows, most_columns) = (vertical.most_taps(), horizontal.most_taps());
        let whole_line = match [g.sh, g.sw] {
            [1, 1] => WholeLine::choose(g.lanes, g.iw, g.kw, g.pw),
            _ => None,
        };
        let pointwise = most_rows * most_columns == 1 && rows.end <= g.oh && columns.end == g.ow;
        let staging = Staging {
            lanes: g.lanes,
            blocks: g.groups * g.out_blocks(),
            height: g.oh,
            width: g.ow,
            top: most_rows - 1,
            left: most_columns - 1,
            columns: columns.end + most_columns - 1,
            direct: whole_line.is_some() || pointwise,
        };

        let all_taps =
            Taps { channels: g.group_oc, lanes: g.lanes, rows: g.kh, columns: g.kw, together: 1 };
        let most = if whole_line.is_some() { 1 } else { NV };
        let all_strips = strips(g.group_ic, g.lanes, all_taps, most, true, 0);
        let wei_len = len(&all_strips, g.lanes).div_ceil(all_strips.len());
        let cut = Cut::new(Work {
            rows: rows.len(),
            groups: g.groups,
            strips: all_strips.len(),
            lines_together: if whole_line.is_some() { LINES } else { 1 },
            row_fmas: g.iw * wei_len / g.lanes / g.sw,
            src_row_bytes: size_of::<f32>() * g.out_blocks() * staging.row_len(),
            row_step: 1,
            kernel_rows: most_rows,
            wei_bytes: size_of::<f32>() * wei_len,
            l2_bytes: caches.l2_bytes,
        });

        let mut wei_start = 0;
        let mut phases = Vec::new();
        for (py, px) in (0..g.sh).flat_map(|py| (0..g.sw).map(move |px| (py, px))) {
            let (kernel_rows, kernel_columns) = (vertical.taps(py), horizontal.taps(px));
            let first_column = most_columns - kernel_columns;
            let taps = Taps { rows: kernel_rows, columns: kernel_columns, ..all_taps };
            let columns = horizontal.steps_of(px, &columns);
            let strips = strips(g.group_ic, g.lanes, taps, most, true, wei_start);
            wei_start += len(&strips, g.lanes);
            let pixels = [columns.len(), cut.typical_lines()];
            let tiles = strips.iter().map(|strip| tile(isa, strip, false, 1, pixels)).collect();
            phases.push(Phase { py, px, strips, taps, first_column, columns, tiles });
        }
        BackwardDataPlan {
            isa,
            geometry: g,
            staging,
            vertical,
            whole_line,
            phases,
            cut,
            activation,
        }
    }

    /// The phases, in the order of their weights.
    pub(super) fn phases(&self) -> &[Phase] {
        &self.phases
    }

    /// Elements of the weights.
    pub(super) fn wei_len(&self) -> usize {
        self.geometry.groups * self.group_wei_len()
    }

    fn group_wei_len(&self) -> usize {
        self.phases.iter().map(|phase| len(&phase.strips, self.geometry.lanes)).sum()
    }

    /// Blocks that turn the weights around: strips of all groups.
    pub(super) fn pack_blocks(&self) -> usize {
        self.geometry.groups * self.phases[0].strips.len()
    }

    pub(super) fn blocks(&self, mb: usize) -> usize {
        self.cut.blocks(mb)
    }

    /// Whether only the first phase has taps, and all other pixels lie between or behind its pixels.
    fn has_gaps(&self) -> bool {
        let g = &self.geometry;
        self.phases.len() > 1 && [g.kh, g.kw] == [1; 2] && [g.ph, g.pw] == [0; 2]
    }

    pub(super) fn scratch_len(&self) -> usize {
        let len = |[samples, rows]: [usize; 2]| {
            let staged_rows = rows + self.vertical.most_taps() - 1;
            self.staging.scratch_len(samples, self.geometry.out_blocks(), staged_rows)
        };
        self.cut.extents().map(len).max().unwrap_or(0)
    }

    pub(super) fn run(&self, block: usize, io: Conv2dBackwardData<'_>) {
        let Conv2dBackwardData { mb, diff_dst, wei, src, mut diff_src, scratch } = io;
        let epilogue = match (self.activation, src) {
            (Some(kind), Some(src)) => Epilogue::Gradient(kind, src),
            _ => Epilogue::None,
        };
        let g = &self.geometry;
        let piece = self.cut.piece(block, mb);
        let offset = self.vertical.steps().start;
        let steps = offset + piece.rows.start..offset + piece.rows.end;
        let most_rows = self.vertical.most_taps();
        let region = Region {
            samples: piece.samples.clone(),
            blocks: piece.group * g.out_blocks()..(piece.group + 1) * g.out_blocks(),
            rows: steps.start..steps.end + most_rows - 1,
        };
        let lines = self.staging.stage(diff_dst, &region, scratch);
        let data_rows = self.staging.data_rows(&region);

        let in_blocks = g.group_ic.div_ceil(g.lanes);
        let group_wei = self.group_wei_len();
        let wei = &wei[piece.group * group_wei..][..group_wei];
        let line_len = g.iw * g.lanes;
        let block_step = g.ih * line_len;
        let sample_step = g.groups * in_blocks * block_step;
        let piece_base = piece.samples.start * sample_step + piece.group * in_blocks * block_step;
        for phase in if self.has_gaps() { &self.phases[..1] } else { &self.phases } {
            let rows = self.vertical.steps_of(phase.py, &steps);
            if rows.is_empty() || phase.columns.is_empty() {
                continue;
            }
            let y = self.vertical.pixel(rows.start, phase.py);
            let x = phase.columns.start * g.sw + phase.px - g.pw;
            let target = Target {
                base: piece_base + y * line_len + x * g.lanes,
                sample_step,
                block_step,
                row_step: g.sh * line_len,
                column_step: g.sw * g.lanes,
                channels: g.group_ic,
            };
            for index in piece.strips.clone() {
                let strip = phase.strips[index];
                let next =
                    if index + 1 < piece.strips.end { index + 1 } else { piece.strips.start };
                let sweep = Sweep {
                    strip,
                    next_strip: phase.strips[next],
                    lines,
                    first_column: phase.first_column + phase.columns.start,
                    first_row: rows.start - steps.start + most_rows - phase.taps.rows,
                    line_step: 1,
                    column_step: 1,
                    data_rows: data_rows.clone(),
                    data_columns: self.staging.data_columns(),
                    samples: piece.samples.len(),
                    rows: rows.len(),
                    columns: phase.columns.len(),
                    chunk: self.cut.chunk(phase.taps.blocks()),
                    wei,
                    bia: None,
                    far: self.staging.direct && index == piece.strips.start,
                    relu: false,
                    dst: diff_src.reborrow(),
                    target,
                    gaps: self.has_gaps().then(|| Gaps {
                        isa: self.isa,
                        row_step: line_len,
                        steps: [g.sh, g.sw],
                        extent: [g.ih - y, g.iw - x],
                    }),
                };
                match self.whole_line {
                    Some(line) => sweep.run_whole_lines(self.isa, line),
                    None => sweep.run(self.isa, phase.tiles[index], false),
                }
                let finish = Finish {
                    epilogue,
                    target,
                    samples: piece.samples.len(),
                    rows: rows.len(),
                    columns: phase.columns.len(),
                    strip,
                    dst: diff_src.reborrow(),
                };
                if finish.is_needed(g.lanes) {
                    self.isa.dispatch(finish);
                }
            }
        }
    }
}
