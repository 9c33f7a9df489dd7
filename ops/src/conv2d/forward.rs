//! Forward pass.
//!
//! ```text
//! dst[n,oc,oh,ow] = bia[oc] + sum_{ic,kh,kw} src[n,ic,oh*sh+kh-ph,ow*sw+kw-pw] * wei[oc,ic,kh,kw]
//! ```

use super::cut::{Cut, Work};
use super::epilogue::{Epilogue, Finish};
use super::geometry::Geometry;
use super::register_tile::{NV, RegisterTile, column_step, pixel_tiles, with_tile};
use super::staging::{Region, Staging};
use super::sweep::{Sweep, Target, TiledSweep};
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
    tile: RegisterTile,
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
        let out_blocks = geometry.out_blocks();
        let cut = Cut::new(Work {
            rows: geometry.oh,
            groups: geometry.groups,
            pairs: out_blocks.div_ceil(NV),
            row_fmas: geometry.ow * taps.steps() * NV.min(out_blocks),
            src_row_bytes: size_of::<f32>() * taps.blocks() * staging.row_len(),
            row_step: geometry.sh,
            kernel_rows: geometry.kh,
            wei_bytes: size_of::<f32>() * taps.steps() * NV.min(out_blocks) * geometry.lanes,
            l2_bytes: caches.l2_bytes,
        });
        let tiles =
            pixel_tiles(geometry.plain, column_step(geometry.plain, geometry.sw, isa.registers()));
        let tile = tiles.choose(geometry.ow, cut.typical_lines(), isa.registers());
        ForwardPlan { isa, geometry: *geometry, staging, taps, tile, cut, activation }
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
            channel_blocks: first + piece.pairs.start * NV
                ..first + (piece.pairs.end * NV).min(g.out_blocks()),
        }
    }

    /// Staged rows that so many output rows read.
    fn staged_rows(&self, rows: usize) -> usize {
        (rows - 1) * self.geometry.sh + self.geometry.kh
    }

    pub(super) fn scratch_len(&self) -> usize {
        let len = |[samples, rows]: [usize; 2]| {
            self.staging.scratch_len(samples, self.taps.blocks(), self.staged_rows(rows))
        };
        self.cut.extents().map(len).max().unwrap_or(0)
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
        let group_wei = g.out_blocks() * g.lanes * self.taps.steps();
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
        let lines = self.staging.stage(src, &region, scratch);
        for pair in piece.pairs.clone() {
            let sweep = Sweep {
                taps: &self.taps,
                lines,
                first_column: 0,
                first_row: 0,
                line_step: g.sh,
                column_step: g.sw,
                data_rows: self.staging.data_rows(&region),
                samples: piece.samples.len(),
                rows: piece.rows.len(),
                columns: g.ow,
                pair,
                next_pair: if pair + 1 < piece.pairs.end { pair + 1 } else { piece.pairs.start },
                chunk: self.cut.chunk(in_blocks),
                wei: &wei[piece.group * group_wei..][..group_wei],
                bia: bia.map(|bia| &bia[piece.group * group_bia..][..group_bia]),
                far: self.staging.direct && g.kh == 1 && pair == piece.pairs.start,
                relu: epilogue.is_relu(),
                dst: dst.reborrow(),
                target,
            };
            self.sweep(sweep);
            let finish = Finish {
                epilogue,
                target,
                samples: piece.samples.len(),
                rows: piece.rows.len(),
                columns: g.ow,
                pair,
                dst: dst.reborrow(),
            };
            if finish.is_needed(g.lanes) {
                self.isa.dispatch(finish);
            }
        }
    }

    fn sweep(&self, sweep: Sweep<'_>) {
        let isa = self.isa;
        let Geometry { plain, sw, .. } = self.geometry;
        let step = column_step(plain, sw, isa.registers());
        with_tile!(self.tile, |R, C| match (plain, step) {
            (false, 1) => isa.dispatch(TiledSweep::<R, C, 1, false>(sweep)),
            (false, 2) => isa.dispatch(TiledSweep::<R, C, 2, false>(sweep)),
            (false, _) => isa.dispatch(TiledSweep::<R, C, 0, false>(sweep)),
            (true, 1) => isa.dispatch(TiledSweep::<R, C, 1, true>(sweep)),
            (true, 2) => isa.dispatch(TiledSweep::<R, C, 2, true>(sweep)),
            (true, 4) => isa.dispatch(TiledSweep::<R, C, 4, true>(sweep)),
            (true, _) => isa.dispatch(TiledSweep::<R, C, 0, true>(sweep)),
        });
    }
}
