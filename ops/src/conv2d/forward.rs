//! Forward pass.
//!
//! ```text
//! dst[n,oc,oh,ow] = bia[oc] + sum_{ic,kh,kw} src[n,ic,oh*sh+kh-ph,ow*sw+kw-pw] * wei[oc,ic,kh,kw]
//! ```

use super::cut::{Cut, Work};
use super::epilogue::{Epilogue, Finish};
use super::geometry::Geometry;
use super::register_tile::RegisterTile;
use super::staging::{Region, Staging};
use super::strips::{Strip, len};
use super::sweep::{Sweep, Target, tile};
use super::taps::Taps;
use crate::blocking::Caches;
use crate::{ActivationKind, Isa, TensorRegion, Tiles};

/// The tensors of a forward block.
#[derive(Debug)]
pub struct Conv2dForward<'a> {
    /// Samples.
    pub mb: usize,
    /// The input.
    pub src: &'a [f32],
    /// The packed weights, or what [`pack_forward`](super::Conv2d::pack_forward) made of them.
    pub wei: &'a [f32],
    /// The packed bias, if the layer has one.
    pub bia: Option<&'a [f32]>,
    /// The output.
    pub dst: Tiles<'a>,
    /// At least [`forward_scratch_len`](super::Conv2d::forward_scratch_len) elements of any value.
    pub scratch: &'a mut [f32],
}

/// How the pass is computed.
#[derive(Debug, Clone)]
pub(super) struct ForwardPlan {
    isa: Isa,
    geometry: Geometry,
    staging: Staging,
    taps: Taps,
    /// Of a group, each with its register tile.
    strips: Vec<(Strip, RegisterTile)>,
    /// The last of them, if it is swept as a narrow one, with weights that each block packs in scratch.
    narrow: Option<(Strip, RegisterTile)>,
    cut: Cut,
    activation: Option<ActivationKind>,
}

impl ForwardPlan {
    pub(super) fn new(
        geometry: &Geometry,
        activation: Option<ActivationKind>,
        isa: Isa,
        caches: Caches,
    ) -> ForwardPlan {
        let (staging, taps) = (geometry.padded_src(), geometry.taps());
        let strips = geometry.strips();
        let wei_len = len(&geometry.swept_strips(), geometry.lanes).div_ceil(strips.len());
        let cut = Cut::new(Work {
            rows: geometry.oh,
            groups: geometry.groups,
            strips: strips.len(),
            lines_together: 1,
            row_fmas: geometry.ow * wei_len / geometry.lanes,
            src_row_bytes: size_of::<f32>() * taps.blocks() * staging.row_len(),
            row_step: geometry.sh,
            kernel_rows: geometry.kh,
            wei_bytes: size_of::<f32>() * wei_len,
            l2_bytes: caches.l2_bytes,
        });
        let with_tile = |strip: Strip| {
            let lines = cut.typical_lines();
            (strip, tile(isa, &strip, geometry.plain, geometry.sw, [geometry.ow, lines]))
        };
        let strips = strips.into_iter().map(with_tile).collect();
        let narrow = geometry.narrow_strip().map(with_tile);
        ForwardPlan { isa, geometry: *geometry, staging, taps, strips, narrow, cut, activation }
    }

    pub(super) fn blocks(&self, mb: usize) -> usize {
        self.cut.blocks(mb)
    }

    /// Slices that the regions of the blocks make.
    pub(super) fn slices(&self, mb: usize) -> usize {
        self.cut.slices(mb)
    }

    /// What a block writes.
    pub(super) fn region(&self, block: usize, mb: usize) -> TensorRegion {
        let g = &self.geometry;
        let piece = self.cut.piece(block, mb);
        let first = piece.group * g.out_blocks();
        TensorRegion {
            slice: block % self.cut.slices(mb),
            samples: piece.samples,
            rows: piece.rows.start * g.joined..piece.rows.end * g.joined,
            channel_blocks: first + self.strips[piece.strips.start].0.first
                ..first
                    + self.strips.get(piece.strips.end).map_or(g.out_blocks(), |next| next.0.first),
        }
    }

    /// Staged rows that so many output rows read.
    fn staged_rows(&self, rows: usize) -> usize {
        (rows - 1) * self.geometry.sh + self.geometry.kh
    }

    fn narrow_len(&self) -> usize {
        self.narrow.map_or(0, |(strip, _)| strip.len(self.geometry.lanes))
    }

    pub(super) fn scratch_len(&self) -> usize {
        let len = |[samples, rows]: [usize; 2]| {
            self.staging.scratch_len(samples, self.taps.blocks(), self.staged_rows(rows))
        };
        self.cut.extents().map(len).max().unwrap_or(0) + self.narrow_len()
    }

    pub(super) fn run(&self, block: usize, io: Conv2dForward<'_>) {
        let Conv2dForward { mb, src, wei, bia, mut dst, scratch } = io;
        let g = &self.geometry;
        let piece = self.cut.piece(block, mb);
        let first_row = piece.rows.start * g.sh;
        let in_blocks = self.taps.blocks();
        let region = Region {
            samples: piece.samples.clone(),
            blocks: piece.group * in_blocks..(piece.group + 1) * in_blocks,
            rows: first_row..first_row + self.staged_rows(piece.rows.len()),
        };
        let group_wei = self.strips.iter().map(|(strip, _)| strip.len(g.lanes)).sum::<usize>();
        let group_bia = g.out_blocks() * g.lanes;
        let row_step = g.ow * g.lanes;
        let block_step = g.oh * row_step;
        let sample_step = g.groups * g.out_blocks() * block_step;
        let target = Target {
            base: piece.samples.start * sample_step
                + piece.group * g.out_blocks() * block_step
                + piece.rows.start * row_step,
            sample_step,
            block_step,
            row_step,
            column_step: g.lanes,
            channels: g.group_oc,
        };
        let epilogue = self.activation.map_or(Epilogue::None, Epilogue::Activate);
        let (narrow_wei, scratch) = scratch.split_at_mut(self.narrow_len());
        let lines = self.staging.stage(src, &region, scratch);
        for index in piece.strips.clone() {
            let (strip, tile) = self.strips[index];
            let group_wei = &wei[piece.group * group_wei..][..group_wei];
            let (swept, tile, wei) = match self.narrow {
                Some((narrow, tile)) if narrow.first == strip.first => {
                    narrow.pack_narrow(g.lanes, &group_wei[strip.start..], narrow_wei);
                    (narrow, tile, &*narrow_wei)
                }
                _ => (strip, tile, group_wei),
            };
            let next = if index + 1 < piece.strips.end { index + 1 } else { piece.strips.start };
            let sweep = Sweep {
                strip: swept,
                next_strip: if swept == strip { self.strips[next].0 } else { swept },
                lines,
                first_column: 0,
                first_row: 0,
                line_step: g.sh,
                column_step: g.sw,
                data_rows: self.staging.data_rows(&region),
                data_columns: self.staging.data_columns(),
                samples: piece.samples.len(),
                rows: piece.rows.len(),
                columns: g.ow,
                chunk: self.cut.chunk(in_blocks),
                wei,
                bia: bia.map(|bia| &bia[piece.group * group_bia..][..group_bia]),
                far: self.staging.direct && g.kh == 1 && index == piece.strips.start,
                relu: epilogue.is_relu(),
                dst: dst.reborrow(),
                target,
                gaps: None,
            };
            sweep.run(self.isa, tile, g.plain);
            let finish = Finish {
                epilogue,
                target,
                samples: piece.samples.len(),
                rows: piece.rows.len(),
                columns: g.ow,
                strip: swept,
                dst: dst.reborrow(),
            };
            if finish.is_needed(g.lanes) {
                self.isa.dispatch(finish);
            }
        }
    }
}
