//! Packed weights: from and to plain OIHW, and turned around for the backward data pass.

use std::ops::Range;

use super::backward_data::Phase;
use super::geometry::Geometry;
use super::register_tile::NV;
use super::taps::Taps;
use crate::Tiles;

/// The position of a weight among those of a group, for the output channel `out` of `out_blocks` blocks.
///
/// A pair of output blocks is a row of `NV` vectors a step; an odd last block is a row of one.
pub(super) fn position(
    taps: &Taps,
    lanes: usize,
    out_blocks: usize,
    out: usize,
    step: usize,
) -> usize {
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

/// The weights of one kernel position between a block of output and a block of input channels.
struct Tile {
    from: usize,
    /// From input channel to input channel.
    from_step: usize,
    to: usize,
    /// From output channel to output channel.
    to_step: usize,
    outs: usize,
    channels: usize,
}

impl Tile {
    fn transpose(&self, wei: &[f32], turned: &mut [f32]) {
        let wei = &wei[self.from..][..(self.channels - 1) * self.from_step + self.outs];
        for out in 0..self.outs {
            let row = &mut turned[self.to + out * self.to_step..][..self.channels];
            let column = wei[out..].iter().step_by(self.from_step);
            for (turned, wei) in row.iter_mut().zip(column) {
                *turned = *wei;
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

    /// Where the weights of an output channel of the only group begin, for an input channel and a tap, counted row by row.
    pub(super) fn at(&self, o: usize, channel: usize, tap: usize) -> usize {
        let columns = self.geometry.kw;
        self.position(0, o, self.taps.step(channel, tap / columns, tap % columns))
    }

    /// Exchanges the channels of some weights of the only group: those between some input blocks and a block of output
    /// channels, as `[tap][output channel][input channel, padded]`.
    pub(super) fn turn_around(
        &self,
        in_blocks: Range<usize>,
        outs: Range<usize>,
        wei: &[f32],
        turned: &mut [f32],
    ) {
        let g = &self.geometry;
        let lanes = g.lanes;
        let width = in_blocks.len() * lanes;
        let from_step = NV.min(g.out_blocks() - outs.start / (NV * lanes) * NV) * lanes;
        turned.fill(0.0);
        for (at, in_block) in in_blocks.enumerate() {
            let channel = in_block * lanes;
            for tap in 0..g.kh * g.kw {
                let tile = Tile {
                    from: self.at(outs.start, channel, tap),
                    from_step,
                    to: tap * outs.len() * width + at * lanes,
                    to_step: width,
                    outs: outs.len(),
                    channels: lanes.min(g.group_ic - channel),
                };
                tile.transpose(wei, turned);
            }
        }
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
        let in_blocks = pair * NV..in_blocks.min((pair + 1) * NV);
        let width = in_blocks.len() * lanes;
        for phase in phases {
            let taps = &phase.taps;
            let start = group * self.backward_group_len()
                + phase.wei_start
                + pair * NV * lanes * taps.steps();
            let turned = dst.tile(start..start + taps.steps() * width);
            turned.fill(0.0);
            // Inner channels outermost: then both orders are walked nearly as they lie.
            for o in (0..g.group_oc).step_by(lanes) {
                let outs = lanes.min(g.group_oc - o);
                let from_step = NV.min(g.out_blocks() - o / (NV * lanes) * NV) * lanes;
                for (at, in_block) in in_blocks.clone().enumerate() {
                    let channel = in_block * lanes;
                    let channels = lanes.min(g.group_ic - channel);
                    for j in 0..taps.rows {
                        for i in 0..taps.columns {
                            let ky = phase.py + (taps.rows - 1 - j) * g.sh;
                            let kx = phase.px + (taps.columns - 1 - i) * g.sw;
                            let tile = Tile {
                                from: self.position(group, o, self.taps.step(channel, ky, kx)),
                                from_step,
                                to: taps.step(o, j, i) * width + at * lanes,
                                to_step: width,
                                outs,
                                channels,
                            };
                            tile.transpose(wei, turned);
                        }
                    }
                }
            }
        }
    }
}
