//! The order of a sweep's weights, and where in a staged line each run of them finds its scalars.
//!
//! A *sweep* computes output vectors from staged lines. The weights of `NV` output vectors lie in exactly the order in
//! which the kernel reads them, one *step* (`NV * V` elements: one scalar's factors) after another:
//!
//! ```text
//! step = for block b of inner channels, for kernel row, for kernel column, for channel v of the block
//! ```
//!
//! A [narrow strip](super::strips) takes several channels a step. The last block has only its real channels. In the others
//! column and channel run together: they are contiguous in the staged line too, so a kernel walks a whole kernel row as one
//! *run*.

/// The weights of a sweep: inner channels by kernel rows by kernel columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taps {
    /// Channels that are summed over.
    pub(super) channels: usize,
    /// Channels of a block: the lanes of a vector, or 1.
    pub(super) lanes: usize,
    /// Kernel rows.
    pub(super) rows: usize,
    /// Kernel columns.
    pub(super) columns: usize,
    /// Channels of a step: 1, unless the strip is [narrow](super::strips).
    pub(super) together: usize,
}

impl Taps {
    /// Blocks of inner channels.
    pub(super) fn blocks(&self) -> usize {
        self.channels.div_ceil(self.lanes)
    }

    /// Steps of all weights of an output vector.
    pub(super) fn steps(&self) -> usize {
        let groups = self.channels / self.lanes * (self.lanes / self.together)
            + (self.channels % self.lanes).div_ceil(self.together);
        groups * self.rows * self.columns
    }

    /// Steps of a kernel row of a block.
    #[inline(always)]
    pub(super) fn row_steps(&self, block: usize) -> usize {
        self.groups(block) * self.columns
    }

    /// The step at which a kernel row of a block begins.
    #[inline(always)]
    pub(super) fn row_start(&self, block: usize, row: usize) -> usize {
        block * (self.lanes / self.together) * self.rows * self.columns
            + row * self.row_steps(block)
    }

    /// The step of a weight.
    pub(super) fn step(&self, channel: usize, row: usize, column: usize) -> usize {
        let block = channel / self.lanes;
        self.row_start(block, row)
            + column * self.groups(block)
            + channel % self.lanes / self.together
    }

    /// The runs of a kernel row, [`Taps::lanes`] scalars apart, and the steps of each.
    #[inline(always)]
    pub(super) fn runs(&self, block: usize) -> (usize, usize) {
        let groups = self.groups(block);
        if groups * self.together == self.lanes {
            (1, self.row_steps(block))
        } else {
            (self.columns, groups)
        }
    }

    /// Steps of the real channels of a block, for one kernel position; none after the last block.
    #[inline(always)]
    pub(super) fn groups(&self, block: usize) -> usize {
        let width = self.lanes.min(self.channels.saturating_sub(block * self.lanes));
        width.div_ceil(self.together)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_one_weight() {
        for (channels, lanes, rows, columns) in
            [(1, 1, 5, 5), (3, 1, 2, 7), (20, 16, 5, 5), (17, 8, 3, 4), (8, 8, 1, 2)]
        {
            let taps = Taps { channels, lanes, rows, columns, together: 1 };
            let mut steps: Vec<usize> = (0..channels)
                .flat_map(|c| (0..rows * columns).map(move |k| (c, k)))
                .map(|(c, k)| taps.step(c, k / columns, k % columns))
                .collect();
            steps.sort_unstable();
            assert_eq!(steps, (0..taps.steps()).collect::<Vec<_>>());
            for block in 0..taps.blocks() {
                let (runs, len) = taps.runs(block);
                assert_eq!(runs * len, taps.row_steps(block));
            }
        }
    }
}
