//! The order of a sweep's weights, and where in a staged line each run of them finds its scalars.
//!
//! A *sweep* computes output vectors from staged lines. The weights of `NV` output vectors lie in exactly the order in
//! which the kernel reads them, one *step* (`NV * V` elements: one scalar's factors) after another:
//!
//! ```text
//! step = for block b of inner channels, for kernel row, for kernel column (by phase), for channel v of the block
//! ```
//!
//! The last block has only its real channels. Within a phase, column and channel run together: they are contiguous in
//! the staged line too, so a kernel walks them as one *run*.

/// Scalars that lie side by side, in a staged line and in the order of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// From the start of the line at the output pixel.
    pub(super) offset: usize,
    /// Scalars.
    pub(super) len: usize,
}

/// The weights of a sweep: inner channels by kernel rows by kernel columns.
#[derive(Debug, Clone)]
pub(super) struct Taps {
    /// Channels that are summed over.
    pub(super) channels: usize,
    /// Channels of a block: the lanes of a vector, or 1.
    pub(super) lanes: usize,
    /// Kernel rows.
    pub(super) rows: usize,
    /// The place of each kernel column in a row.
    places: Vec<usize>,
    natural_full: Vec<usize>,
    natural_last: Vec<usize>,
    /// The runs of a kernel row in a full block, in order.
    full: Vec<Run>,
    /// The runs of a kernel row in the last block, in order.
    last: Vec<Run>,
}

impl Taps {
    /// Taps of `columns` kernel columns over lines of `phases` phases, `phase_len` elements apart; column 0 begins at `first`.
    pub(super) fn new(
        channels: usize,
        lanes: usize,
        rows: usize,
        columns: usize,
        [phases, phase_len, first]: [usize; 3],
    ) -> Taps {
        let mut places = vec![0; columns];
        let (mut full, mut last) = (Vec::new(), Vec::new());
        let remainder = channels - (channels.div_ceil(lanes) - 1) * lanes;
        let mut place = 0;
        for phase in 0..phases.min(columns) {
            let count = (columns - phase).div_ceil(phases);
            let start = first + phase * phase_len;
            full.push(Run { offset: start, len: count * lanes });
            for at in 0..count {
                last.push(Run { offset: start + at * lanes, len: remainder });
                places[phase + at * phases] = place;
                place += 1;
            }
        }
        if remainder == lanes {
            last.clone_from(&full);
        }
        let natural = |width: usize| {
            places.iter().flat_map(|place| (0..width).map(move |v| place * width + v)).collect()
        };
        let (natural_full, natural_last) = (natural(lanes), natural(remainder));
        Taps { channels, lanes, rows, places, natural_full, natural_last, full, last }
    }

    /// Kernel columns.
    pub(super) fn columns(&self) -> usize {
        self.places.len()
    }

    /// Blocks of inner channels.
    pub(super) fn blocks(&self) -> usize {
        self.channels.div_ceil(self.lanes)
    }

    /// Blocks with all channels: all, or all but the last.
    pub(super) fn full_blocks(&self) -> usize {
        self.channels / self.lanes
    }

    /// Steps of all weights of an output vector.
    pub(super) fn steps(&self) -> usize {
        self.channels * self.rows * self.columns()
    }

    /// Steps of a kernel row of a block.
    #[inline(always)]
    pub(super) fn row_steps(&self, block: usize) -> usize {
        self.width(block) * self.columns()
    }

    /// The step at which a kernel row of a block begins.
    #[inline(always)]
    pub(super) fn row_start(&self, block: usize, row: usize) -> usize {
        block * self.lanes * self.rows * self.columns() + row * self.row_steps(block)
    }

    /// The step of a weight.
    pub(super) fn step(&self, channel: usize, row: usize, column: usize) -> usize {
        let block = channel / self.lanes;
        self.row_start(block, row) + self.places[column] * self.width(block) + channel % self.lanes
    }

    /// The steps of a kernel row, from its start, of scalars whose columns lie in their natural order, channels innermost.
    pub(super) fn natural_steps(&self, block: usize) -> &[usize] {
        if block < self.full_blocks() { &self.natural_full } else { &self.natural_last }
    }

    /// The runs of a kernel row whose columns lie in their natural order, and where each begins among its scalars.
    pub(super) fn natural_runs(&self, block: usize) -> impl Iterator<Item = (usize, Run)> {
        let width = self.width(block);
        let (runs, len) =
            if width == self.lanes { (1, self.row_steps(block)) } else { (self.columns(), width) };
        (0..runs).map(move |run| (run * len, Run { offset: run * self.lanes, len }))
    }

    /// The runs of a kernel row.
    #[inline(always)]
    pub(super) fn runs(&self, block: usize) -> &[Run] {
        if block + 1 == self.blocks() { &self.last } else { &self.full }
    }

    /// Real channels of a block.
    #[inline(always)]
    fn width(&self, block: usize) -> usize {
        self.lanes.min(self.channels - block * self.lanes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_one_weight() {
        for (channels, lanes, rows, columns, phases) in
            [(1, 1, 5, 5, 1), (3, 1, 2, 7, 2), (20, 16, 5, 5, 1), (17, 8, 3, 4, 3), (8, 8, 1, 2, 4)]
        {
            let taps = Taps::new(channels, lanes, rows, columns, [phases, 1000, 0]);
            let mut steps: Vec<usize> = (0..channels)
                .flat_map(|c| (0..rows * columns).map(move |k| (c, k)))
                .map(|(c, k)| taps.step(c, k / columns, k % columns))
                .collect();
            steps.sort_unstable();
            assert_eq!(steps, (0..taps.steps()).collect::<Vec<_>>());
            for block in 0..taps.blocks() {
                let sum: usize = taps.runs(block).iter().map(|run| run.len).sum();
                assert_eq!(sum, taps.row_steps(block));
            }
        }
    }

    #[test]
    fn runs_follow_the_phases() {
        let taps = Taps::new(8, 8, 1, 3, [2, 100, 0]);
        assert_eq!(taps.runs(0), [Run { offset: 0, len: 16 }, Run { offset: 100, len: 8 }]);
        assert_eq!((taps.step(0, 0, 2), taps.step(0, 0, 1)), (8, 16));
    }
}
