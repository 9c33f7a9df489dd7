//! Packed weights: from and to plain OIHW, and turned around for the backward data pass.

use super::backward_data::Phase;
use super::geometry::Geometry;
use super::register_tile::NV;
use super::taps::Taps;
use crate::Tiles;

/// The position of a weight among those of a group, for the output channel `out` of `out_blocks` blocks.
///
/// A pair of output blocks is a row of `NV` vectors a step; an odd last block is a row of one.
fn position(taps: &Taps, lanes: usize, out_blocks: usize, out: usize, step: usize) -> usize {
    let pair = out / (NV * lanes);
    let width = NV.min(out_blocks - pair * NV) * lanes;
    pair * NV * lanes * taps.steps() + step * width + out % (NV * lanes)
}

/// Visits every weight of a group as (group, output channel, input channel, kernel row, kernel column).
fn each_weight(g: &Geometry, mut visit: impl FnMut([usize; 5])) {
    for group in 0..g.groups {
        for o in 0..g.group_oc {
            for i in 0..g.group_ic {
                for ky in 0..g.kh {
                    for kx in 0..g.kw {
                        visit([group, o, i, ky, kx]);
                    }
                }
            }
        }
    }
}

/// The layout of the packed weights: for each group and pair of output blocks, step after step of [`Taps`].
#[derive(Debug, Clone)]
pub(super) struct PackedWeights {
    geometry: Geometry,
    taps: Taps,
}

impl PackedWeights {
    pub(super) fn new(geometry: &Geometry) -> PackedWeights {
        PackedWeights { geometry: *geometry, taps: geometry.taps() }
    }

    /// Elements, output channels padded to whole vectors.
    pub(super) fn len(&self) -> usize {
        self.geometry.groups * self.group_len()
    }

    fn group_len(&self) -> usize {
        self.geometry.out_blocks() * self.geometry.lanes * self.taps.steps()
    }

    fn position(&self, group: usize, o: usize, step: usize) -> usize {
        let g = &self.geometry;
        group * self.group_len() + position(&self.taps, g.lanes, g.out_blocks(), o, step)
    }

    /// Visits (plain position, packed position) of every weight, in plain order.
    pub(super) fn each(&self, mut visit: impl FnMut(usize, usize)) {
        let mut plain = 0;
        each_weight(&self.geometry, |[group, o, i, ky, kx]| {
            visit(plain, self.position(group, o, self.taps.step(i, ky, kx)));
            plain += 1;
        });
    }

    /// Elements of the weights turned around, input channels padded to whole vectors.
    pub(super) fn backward_len(&self) -> usize {
        self.geometry.groups * self.backward_group_len()
    }

    fn backward_group_len(&self) -> usize {
        let g = &self.geometry;
        g.group_ic.next_multiple_of(g.lanes) * g.group_oc * g.kh * g.kw
    }

    /// Pairs of input blocks, of all groups: each is turned around by a block of its own.
    pub(super) fn backward_blocks(&self) -> usize {
        let g = &self.geometry;
        g.groups * g.group_ic.div_ceil(NV * g.lanes)
    }

    /// Turns around the weights of one pair of input blocks.
    pub(super) fn pack_backward(
        &self,
        phases: &[Phase],
        block: usize,
        wei: &[f32],
        mut dst: Tiles<'_>,
    ) {
        let g = &self.geometry;
        let lanes = g.lanes;
        let in_blocks = g.group_ic.div_ceil(lanes);
        let pairs = in_blocks.div_ceil(NV);
        let (group, pair) = (block / pairs, block % pairs);
        let width = NV.min(in_blocks - pair * NV) * lanes;
        let channels = pair * NV * lanes..(pair * NV * lanes + width).min(g.group_ic);
        for phase in phases {
            let taps = &phase.taps;
            let start = group * self.backward_group_len()
                + phase.wei_start
                + pair * NV * lanes * taps.steps();
            let turned = dst.tile(start..start + taps.steps() * width);
            turned.fill(0.0);
            for (j, i) in (0..taps.rows).flat_map(|j| (0..taps.columns()).map(move |i| (j, i))) {
                let ky = phase.py + (taps.rows - 1 - j) * g.sh;
                let kx = phase.px + (taps.columns() - 1 - i) * g.sw;
                for o_block in 0..g.out_blocks() {
                    let outs = o_block * lanes..(o_block * lanes + lanes).min(g.group_oc);
                    // The channels of a block lie side by side in either order, so a lane is a step of 1 or of a row.
                    let to = taps.step(outs.start, j, i) * width;
                    for (lane, channel) in channels.clone().enumerate() {
                        let step = self.taps.step(channel, ky, kx);
                        let from = self.position(group, outs.start, step);
                        let column = turned[to + lane..].iter_mut().step_by(width);
                        for (turned, wei) in column.zip(&wei[from..from + outs.len()]) {
                            *turned = *wei;
                        }
                    }
                }
            }
        }
    }
}
