//! Forward pass.
//!
//! ```text
//! dst[n,oc,oh,ow] = bia[oc] + sum_{ic,kh,kw} src[n,ic,oh*sh+kh-ph,ow*sw+kw-pw] * wei[oc,ic,kh,kw]
//! ```

use super::cut::{Cut, LineCost};
use super::geometry::Geometry;
use super::register_tile::{BLOCKED_PIXELS, NV, PLAIN_PIXELS, RegisterTile, with_tile};
use super::staging::{Region, Staging};
use super::sweep::{Sweep, Target, TiledSweep};
use super::taps::Taps;
use crate::{Isa, Tiles};

/// The tensors of a forward block.
#[derive(Debug)]
pub struct Conv2dForward<'a> {
    /// Samples.
    pub mb: usize,
    /// The input.
    pub src: &'a [f32],
    /// The packed weights.
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
    tile: RegisterTile,
    cut: Cut,
}

impl ForwardPlan {
    pub(super) fn new(geometry: &Geometry, isa: Isa) -> ForwardPlan {
        let (staging, taps) = (geometry.src_staging(), geometry.taps());
        let pairs = geometry.out_blocks().div_ceil(NV);
        let cost = LineCost {
            vector_fmas: geometry.ow * taps.steps() * NV.min(geometry.out_blocks()),
            staged_bytes: size_of::<f32>() * taps.blocks() * geometry.sh * staging.row_len(),
        };
        let cut = Cut::new([geometry.oh, geometry.groups, pairs], cost);
        let set = if geometry.plain { PLAIN_PIXELS } else { BLOCKED_PIXELS };
        let tile = set.choose(geometry.ow, cut.max_lines(), isa.registers());
        ForwardPlan { isa, geometry: *geometry, staging, taps, tile, cut }
    }

    pub(super) fn blocks(&self, mb: usize) -> usize {
        self.cut.blocks(mb)
    }

    /// Staged rows that so many output rows read.
    fn staged_rows(&self, rows: usize) -> usize {
        (rows - 1) * self.geometry.sh + self.geometry.kh
    }

    pub(super) fn scratch_len(&self) -> usize {
        let [samples, rows] = self.cut.extent();
        self.staging.scratch_len(samples, self.taps.blocks(), self.staged_rows(rows))
    }

    pub(super) fn run(&self, block: usize, io: Conv2dForward<'_>) {
        let g = &self.geometry;
        let piece = self.cut.piece(block, io.mb);
        let first_row = piece.rows.start * g.sh;
        let in_blocks = self.taps.blocks();
        let region = Region {
            samples: piece.samples.clone(),
            blocks: piece.group * in_blocks..(piece.group + 1) * in_blocks,
            rows: first_row..first_row + self.staged_rows(piece.rows.len()),
        };
        let group_wei = g.out_blocks() * g.lanes * self.taps.steps();
        let group_bia = g.out_blocks() * g.lanes;
        let row_step = g.ow * g.lanes;
        let block_step = g.oh * row_step;
        let sample_step = g.groups * g.out_blocks() * block_step;
        let sweep = Sweep {
            taps: &self.taps,
            lines: self.staging.stage(io.src, &region, io.scratch),
            first_column: 0,
            first_row: 0,
            line_step: g.sh,
            data_rows: self.staging.data_rows(&region),
            samples: piece.samples.len(),
            rows: piece.rows.len(),
            columns: g.ow,
            pairs: piece.pairs,
            wei: &io.wei[piece.group * group_wei..][..group_wei],
            bia: io.bia.map(|bia| &bia[piece.group * group_bia..][..group_bia]),
            dst: io.dst,
            target: Target {
                base: piece.samples.start * sample_step
                    + piece.group * g.out_blocks() * block_step
                    + piece.rows.start * row_step,
                sample_step,
                block_step,
                row_step,
                column_step: g.lanes,
                channels: g.group_oc,
            },
        };
        if g.plain {
            with_tile!(self.tile, |R, C| self.isa.dispatch(TiledSweep::<R, C, true>(sweep)));
        } else {
            with_tile!(self.tile, |R, C| self.isa.dispatch(TiledSweep::<R, C, false>(sweep)));
        }
    }
}
