//! Which lanes of a channel block come from where.
//!
//! Where channel counts are multiples of the lanes, whole channel blocks move. Elsewhere a block of the result is put
//! together from runs of lanes:
//!
//! ```text
//! sources of 3 and 7 channels, 4 lanes:   |a0 a1 a2 . |   |b0 b1 b2 b3|b4 b5 b6 . |
//! result of 10 channels:                  |a0 a1 a2 b0|b1 b2 b3 b4|b5 b6 . . |
//! ```

use std::ops::Range;

/// A row of lanes that moves from a channel block of one tensor to a channel block of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LaneRun {
    /// The tensor it comes from, if that is one of several.
    pub(super) tensor: usize,
    pub(super) from_block: usize,
    pub(super) from_lane: usize,
    pub(super) to_lane: usize,
    pub(super) len: usize,
}

/// The runs that fill lanes from `to_channel` on, within one channel block, with the channels `from` of a tensor.
///
/// They are cut where the source goes on to its next channel block.
pub(super) fn lane_runs(
    tensor: usize,
    from: Range<usize>,
    to_channel: usize,
    lanes: usize,
) -> impl Iterator<Item = LaneRun> {
    let mut next = from.start;
    std::iter::from_fn(move || {
        (next < from.end).then(|| {
            let len = (lanes - next % lanes).min(from.end - next);
            let run = LaneRun {
                tensor,
                from_block: next / lanes,
                from_lane: next % lanes,
                to_lane: (to_channel + next - from.start) % lanes,
                len,
            };
            next += len;
            run
        })
    })
}

/// Copies a run of lanes at every pixel.
pub(super) fn copy_lanes(run: LaneRun, lanes: usize, from: &[f32], to: &mut [f32]) {
    match run.len {
        len if len == lanes => to.copy_from_slice(from),
        // Sizes that fit registers: the others are copied lane by lane.
        8 => copy_fixed::<8>(run, lanes, from, to),
        4 => copy_fixed::<4>(run, lanes, from, to),
        2 => copy_fixed::<2>(run, lanes, from, to),
        1 => copy_fixed::<1>(run, lanes, from, to),
        len => {
            for (from, to) in from.chunks_exact(lanes).zip(to.chunks_exact_mut(lanes)) {
                let from = &from[run.from_lane..][..len];
                for (to, from) in to[run.to_lane..][..len].iter_mut().zip(from) {
                    *to = *from;
                }
            }
        }
    }
}

fn copy_fixed<const LEN: usize>(run: LaneRun, lanes: usize, from: &[f32], to: &mut [f32]) {
    for (from, to) in from.chunks_exact(lanes).zip(to.chunks_exact_mut(lanes)) {
        let from: &[f32; LEN] =
            from[run.from_lane..].first_chunk().expect("a run ends in its block");
        let to = to[run.to_lane..].first_chunk_mut().expect("a run ends in its block");
        *to = *from;
    }
}
