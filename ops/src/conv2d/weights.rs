//! Packed weights: from and to plain OIHW, and turned around for the backward data pass.

use std::ops::Range;

use super::backward_data::Phase;
use super::geometry::Geometry;
use super::register_tile::NV;
use super::strips::{Strip, len, strip_of, strips};
use crate::Tiles;

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

/// Where the weights of one kernel position lie in the order of one strip.
#[derive(Clone, Copy)]
struct Side {
    start: usize,
    /// From step to step.
    step: usize,
    /// Channels of a step.
    together: usize,
}

impl Side {
    /// The side of a strip that begins at output channel `out` and inner channel `at[0]`, a block's first.
    fn new(strip: &Strip, lanes: usize, out: usize, at: [usize; 3], start: usize) -> Side {
        Side {
            start: start + strip.position(lanes, out, at),
            step: strip.blocks * lanes,
            together: strip.taps.together,
        }
    }

    fn at(&self, lane: usize, channel: usize) -> usize {
        let (step, within) = (channel / self.together, channel % self.together);
        self.start + step * self.step + lane * self.together + within
    }
}

/// The weights of one kernel position between a block of output and a block of input channels, from the forward pass's
/// order, whose vectors hold `outs` lanes, to the backward data pass's, whose vectors hold `channels`.
struct Tile {
    from: Side,
    to: Side,
    outs: usize,
    channels: usize,
}

impl Tile {
    fn transpose(&self, wei: &[f32], turned: &mut [f32]) {
        let Tile { from, to, outs, channels } = *self;
        if from.together * to.together > 1 {
            for out in 0..outs {
                for channel in 0..channels {
                    turned[to.at(channel, out)] = wei[from.at(out, channel)];
                }
            }
            return;
        }
        let wei = &wei[from.start..][..(channels - 1) * from.step + outs];
        for out in 0..outs {
            let row = &mut turned[to.at(0, out)..][..channels];
            let column = wei[out..].iter().step_by(from.step);
            for (turned, wei) in row.iter_mut().zip(column) {
                *turned = *wei;
            }
        }
    }
}

/// The layout of the packed weights: for each group and strip of output blocks, step after step of [`Taps`](super::taps::Taps).
#[derive(Debug, Clone)]
pub(super) struct PackedWeights {
    geometry: Geometry,
    strips: Vec<Strip>,
}

impl PackedWeights {
    pub(super) fn new(geometry: &Geometry) -> PackedWeights {
        PackedWeights { geometry: *geometry, strips: geometry.strips() }
    }

    /// The layout with pairs of output blocks, whatever the last one holds.
    pub(super) fn in_pairs(geometry: &Geometry) -> PackedWeights {
        let g = geometry;
        let strips = strips(g.group_oc, g.lanes, g.taps(), NV, false, 0);
        PackedWeights { geometry: *g, strips }
    }

    /// Elements, output channels padded to whole vectors.
    pub(super) fn len(&self) -> usize {
        self.geometry.groups * self.group_len()
    }

    fn group_len(&self) -> usize {
        len(&self.strips, self.geometry.lanes)
    }

    /// Visits (plain position, packed position) of every weight, in plain order.
    pub(super) fn each(&self, mut visit: impl FnMut(usize, usize)) {
        let mut plain = 0;
        let lanes = self.geometry.lanes;
        each_weight(&self.geometry, |[group, o, i, ky, kx]| {
            let strip = strip_of(&self.strips, o, lanes);
            visit(plain, group * self.group_len() + strip.position(lanes, o, [i, ky, kx]));
            plain += 1;
        });
    }

    /// Where the weights of an output channel of the only group begin, for an input channel and a tap, counted row by row.
    pub(super) fn at(&self, o: usize, channel: usize, tap: usize) -> usize {
        let columns = self.geometry.kw;
        let strip = strip_of(&self.strips, o, self.geometry.lanes);
        strip.position(self.geometry.lanes, o, [channel, tap / columns, tap % columns])
    }

    /// Exchanges the channels of some weights of the only group, [in pairs](Self::in_pairs): those between some input blocks
    /// and a block of output channels, as `[tap][output channel][input channel, padded]`.
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
        let strip = strip_of(&self.strips, outs.start, lanes);
        turned.fill(0.0);
        for (at, in_block) in in_blocks.enumerate() {
            let channel = in_block * lanes;
            for tap in 0..g.kh * g.kw {
                let position = [channel, tap / g.kw, tap % g.kw];
                let start = tap * outs.len() * width + at * lanes;
                let tile = Tile {
                    from: Side::new(strip, lanes, outs.start, position, 0),
                    to: Side { start, step: width, together: 1 },
                    outs: outs.len(),
                    channels: lanes.min(g.group_ic - channel),
                };
                tile.transpose(wei, turned);
            }
        }
    }

    /// Turns around the weights of one strip of input blocks.
    pub(super) fn pack_backward(
        &self,
        phases: &[Phase],
        block: usize,
        wei: &[f32],
        mut dst: Tiles<'_>,
    ) {
        let g = &self.geometry;
        let lanes = g.lanes;
        let strips = phases[0].strips.len();
        let (group, index) = (block / strips, block % strips);
        let backward_len: usize = phases.iter().map(|phase| len(&phase.strips, lanes)).sum();
        for phase in phases {
            let strip = &phase.strips[index];
            let start = group * backward_len + strip.start;
            let turned = dst.tile(start..start + strip.len(lanes));
            turned.fill(0.0);
            let in_blocks = strip.first..strip.first + strip.blocks;
            // Inner channels outermost: then both orders are walked nearly as they lie.
            for o in (0..g.group_oc).step_by(lanes) {
                let outs = lanes.min(g.group_oc - o);
                let wei_strip = strip_of(&self.strips, o, lanes);
                for channel in in_blocks.clone().map(|in_block| in_block * lanes) {
                    let channels = lanes.min(g.group_ic - channel);
                    for j in 0..strip.taps.rows {
                        for i in 0..strip.taps.columns {
                            let ky = phase.py + (strip.taps.rows - 1 - j) * g.sh;
                            let kx = phase.px + (strip.taps.columns - 1 - i) * g.sw;
                            let wei_start = group * self.group_len();
                            let at = [channel, ky, kx];
                            let to = Strip { start: 0, ..*strip };
                            let tile = Tile {
                                from: Side::new(wei_strip, lanes, o, at, wei_start),
                                to: Side::new(&to, lanes, channel, [o, j, i], 0),
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
