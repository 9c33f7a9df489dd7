//! Output channels cut into strips: the vectors that a sweep computes together.
//!
//! A strip is a pair of output blocks or a single one. Where the last block has few real channels, most lanes of its vector
//! would multiply zeros. Such a strip is *narrow*: its lanes are output channels by `G` neighboring inner channels, so that
//! one vector holds `G` products of each output channel, and a pixel's channels, `G` at a time, are repeated in all lanes:
//!
//! ```text
//! lane o * G + k of a step:  line[c * G + k, pixel] * wei[o, c * G + k]     summed over the steps, and then over k
//! ```
//!
//! It takes a `G`-th of the steps.

use super::taps::Taps;

/// Output blocks, and the weights with which they are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Strip {
    /// The first output block.
    pub(super) first: usize,
    /// Output blocks.
    pub(super) blocks: usize,
    /// The order of the weights.
    pub(super) taps: Taps,
    /// Where they begin among those of a group.
    pub(super) start: usize,
}

impl Strip {
    /// Elements of the weights.
    pub(super) fn len(&self, lanes: usize) -> usize {
        self.blocks * lanes * self.taps.steps()
    }

    /// Output channels of a group that a vector has room for, all blocks.
    fn room(&self, lanes: usize) -> usize {
        self.blocks * lanes / self.taps.together
    }

    /// Whether the strip computes an output channel.
    pub(super) fn has(&self, out: usize, lanes: usize) -> bool {
        (self.first * lanes..self.first * lanes + self.room(lanes)).contains(&out)
    }

    /// The position of the weight of an output channel and (inner channel, kernel row, kernel column).
    pub(super) fn position(
        &self,
        lanes: usize,
        out: usize,
        [channel, row, column]: [usize; 3],
    ) -> usize {
        let Taps { lanes: inner_lanes, together, .. } = self.taps;
        let step = self.taps.step(channel, row, column) * self.blocks * lanes;
        let lane = (out - self.first * lanes) * together + channel % inner_lanes % together;
        self.start + step + lane
    }
}

/// Inner channels that a vector with room for `lanes` output channels multiplies together, if `outs` are real.
fn together(outs: usize, lanes: usize) -> usize {
    match lanes / outs.max(1) {
        4.. => 4,
        2.. => 2,
        _ => 1,
    }
}

/// The strips of `outs` output channels, of `most` blocks where so many are left; their weights begin at `start`. The last
/// may be narrow where `may_narrow`.
pub(super) fn strips(
    outs: usize,
    lanes: usize,
    taps: Taps,
    most: usize,
    may_narrow: bool,
    mut start: usize,
) -> Vec<Strip> {
    let tail = outs % lanes;
    let narrow = Taps { together: together(tail, lanes), ..taps };
    // With few inner channels as many steps may be left.
    let steps = |taps: Taps| Taps { rows: 1, columns: 1, ..taps }.steps();
    let is_narrow = may_narrow && tail > 0 && 3 * steps(narrow) <= 2 * steps(taps);
    let whole = if is_narrow { outs / lanes } else { outs.div_ceil(lanes) };
    let mut all = Vec::with_capacity(whole.div_ceil(most) + 1);
    for first in (0..whole).step_by(most) {
        all.push(Strip { first, blocks: most.min(whole - first), taps, start: 0 });
    }
    if is_narrow {
        all.push(Strip { first: whole, blocks: 1, taps: narrow, start: 0 });
    }
    for strip in &mut all {
        strip.start = start;
        start += strip.len(lanes);
    }
    all
}

impl Strip {
    /// Brings the weights of a block that is a strip of its own into the order of this narrow strip of the same block.
    pub(super) fn pack_narrow(&self, lanes: usize, from: &[f32], to: &mut [f32]) {
        match self.taps.together {
            2 => self.pack_groups::<2>(lanes, from, to),
            _ => self.pack_groups::<4>(lanes, from, to),
        }
    }

    fn pack_groups<const G: usize>(&self, lanes: usize, from: &[f32], to: &mut [f32]) {
        let taps = self.taps;
        let mut from = from.chunks_exact(lanes);
        let mut to = to.chunks_exact_mut(lanes);
        for block in 0..taps.blocks() {
            let channels = taps.lanes.min(taps.channels - block * taps.lanes);
            for _ in 0..taps.rows * taps.columns {
                for (first, step) in (0..channels).step_by(G).zip(&mut to) {
                    // Of the last channels there may be fewer.
                    step.fill(0.0);
                    for (k, vector) in (0..G.min(channels - first)).zip(&mut from) {
                        for (group, wei) in step.chunks_exact_mut(G).zip(vector) {
                            group[k] = *wei;
                        }
                    }
                }
            }
        }
    }
}

/// Elements of the weights of all strips.
pub(super) fn len(strips: &[Strip], lanes: usize) -> usize {
    strips.iter().map(|strip| strip.len(lanes)).sum()
}

/// The strip that computes an output channel.
pub(super) fn strip_of(strips: &[Strip], out: usize, lanes: usize) -> &Strip {
    let found = strips.iter().find(|strip| strip.has(out, lanes));
    found.expect("every output channel has a strip")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_weight_has_a_place_of_its_own() {
        for (outs, channels) in [(20, 50), (50, 20), (17, 3), (16, 16), (7, 33), (35, 1), (3, 18)] {
            for (lanes, most) in [(16, 2), (8, 1), (8, 2)] {
                let taps = Taps { channels, lanes, rows: 2, columns: 3, together: 1 };
                let all = strips(outs, lanes, taps, most, true, 5);
                let len: usize = all.iter().map(|strip| strip.len(lanes)).sum();
                let mut seen = vec![false; len];
                for out in 0..outs {
                    let mut with = all.iter().filter(|strip| strip.has(out, lanes));
                    let strip = with.next().expect("a strip has the channel");
                    assert!(with.next().is_none());
                    for at in (0..channels * 6).map(|at| [at / 6, at / 3 % 2, at % 3]) {
                        let seen = &mut seen[strip.position(lanes, out, at) - 5];
                        assert!(!std::mem::replace(seen, true), "{strip:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn narrow_weights_are_those_of_a_whole_block() {
        for (outs, channels) in [(4, 20), (3, 18), (7, 33), (8, 13), (1, 16)] {
            let taps = Taps { channels, lanes: 16, rows: 2, columns: 3, together: 1 };
            let narrow = strips(outs, 16, taps, 2, true, 0)[0];
            let whole = strips(outs, 16, taps, 2, false, 0)[0];
            assert!(narrow.taps.together > 1 && whole.taps.together == 1);
            let (mut from, mut to) = (vec![0.0; whole.len(16)], vec![f32::NAN; narrow.len(16)]);
            let mut expected = vec![0.0; narrow.len(16)];
            for (wei, at) in (0..outs * channels * 6).enumerate() {
                let (out, at) = (at % outs, at / outs);
                let at = [at / 6, at / 3 % 2, at % 3];
                from[whole.position(16, out, at)] = wei as f32 + 1.0;
                expected[narrow.position(16, out, at)] = wei as f32 + 1.0;
            }
            narrow.pack_narrow(16, &from, &mut to);
            assert_eq!(to, expected);
        }
    }

    #[test]
    fn a_block_of_few_channels_is_narrow() {
        let taps = Taps { channels: 50, lanes: 16, rows: 5, columns: 5, together: 1 };
        let shapes = |outs, most| -> Vec<_> {
            let all = strips(outs, 16, taps, most, true, 0);
            all.iter().map(|strip| (strip.blocks, strip.taps.together)).collect()
        };
        assert_eq!(shapes(20, 2), [(1, 1), (1, 4)]);
        assert_eq!(shapes(50, 2), [(2, 1), (1, 1), (1, 4)]);
        assert_eq!(shapes(40, 1), [(1, 1), (1, 1), (1, 2)]);
        assert_eq!(shapes(41, 2), [(2, 1), (1, 1)]);
        assert_eq!(shapes(64, 2), [(2, 1), (2, 1)]);
        assert_eq!(shapes(3, 2), [(1, 4)]);
    }
}
