//! Which samples a step covers, and which of them are a rank's: sample counts that divide by nothing included.

use std::ops::Range;

/// Steps over epochs. Every epoch covers every sample once; its last step covers what is left and may be smaller.
///
/// # Examples
/// ```
/// use lockstep_data::Schedule;
///
/// let schedule = Schedule { n_samples: 101, minibatch: 8 };
/// assert_eq!(schedule.steps_per_epoch(), 13);
/// assert_eq!(schedule.positions(13), 96..101);
/// assert_eq!((schedule.epoch(14), schedule.positions(14)), (2, 0..8));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Schedule {
    /// Samples in an epoch. At least 1.
    pub n_samples: usize,
    /// Samples in a step, over all ranks. At least 1; may exceed `n_samples`, which then are one step.
    pub minibatch: usize,
}

impl Schedule {
    /// Steps in an epoch.
    ///
    /// # Panics
    /// If `minibatch` is 0.
    #[must_use]
    pub fn steps_per_epoch(&self) -> u64 {
        assert!(self.minibatch > 0, "a minibatch has at least one sample");
        self.n_samples.div_ceil(self.minibatch) as u64
    }

    /// The epoch, counted from 1, of a step, counted from 1.
    ///
    /// # Panics
    /// If `step`, `minibatch` or `n_samples` is 0.
    #[must_use]
    pub fn epoch(&self, step: u64) -> u64 {
        self.split(step).0
    }

    /// The positions in its epoch that a step covers, over all ranks.
    ///
    /// # Panics
    /// If `step`, `minibatch` or `n_samples` is 0.
    #[must_use]
    pub fn positions(&self, step: u64) -> Range<usize> {
        let first = self.split(step).1 * self.minibatch;
        first..self.n_samples.min(first + self.minibatch)
    }

    /// Epoch (from 1) and step in it (from 0).
    fn split(&self, step: u64) -> (u64, usize) {
        assert!(step > 0, "steps are counted from 1");
        assert!(self.n_samples > 0, "an epoch has at least one sample");
        let per_epoch = self.steps_per_epoch();
        ((step - 1) / per_epoch + 1, ((step - 1) % per_epoch) as usize)
    }
}

/// Which of `n` things are rank `rank`'s, of `ranks`: in one piece, in order of rank, and no two ranks differ by more than
/// one. The piece is empty where there are fewer things than ranks. Pieces nest: each of two ranks' pieces is those of two of
/// four ranks.
///
/// # Panics
/// If `rank` is not below `ranks`.
///
/// # Examples
/// ```
/// use lockstep_data::share;
///
/// assert_eq!([share(5, 3, 0), share(5, 3, 1), share(5, 3, 2)], [0..2, 2..4, 4..5]);
/// assert!(share(5, 8, 7).is_empty());
/// ```
#[must_use]
pub fn share(n: usize, ranks: usize, rank: usize) -> Range<usize> {
    assert!(rank < ranks, "rank {rank} of {ranks}");
    let cut = |rank: usize| {
        // Exact in 128 bits whatever the sizes; the quotient is at most `n`.
        let cut = (n as u128 * rank as u128).div_ceil(ranks as u128);
        usize::try_from(cut).expect("at most n")
    };
    cut(rank)..cut(rank + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn shares_join_up_and_differ_by_at_most_one(n in 0_usize..5000, ranks in 1_usize..40) {
            let shares: Vec<_> = (0..ranks).map(|rank| share(n, ranks, rank)).collect();
            prop_assert_eq!(shares[0].start, 0);
            prop_assert_eq!(shares[ranks - 1].end, n);
            prop_assert!(shares.windows(2).all(|pair| pair[0].end == pair[1].start));
            let most = shares.iter().map(ExactSizeIterator::len).max();
            let least = shares.iter().map(ExactSizeIterator::len).min();
            prop_assert!(most.unwrap() - least.unwrap() <= 1);
        }

        #[test]
        fn steps_cover_each_epoch_once(n_samples in 1_usize..300, minibatch in 1_usize..40) {
            let schedule = Schedule { n_samples, minibatch };
            let per_epoch = schedule.steps_per_epoch();
            for epoch in 1..4 {
                let first = (epoch - 1) * per_epoch + 1;
                let covered: Vec<usize> =
                    (first..first + per_epoch).flat_map(|step| schedule.positions(step)).collect();
                prop_assert_eq!(covered, (0..n_samples).collect::<Vec<_>>());
                prop_assert_eq!(schedule.epoch(first), epoch);
                prop_assert_eq!(schedule.epoch(first + per_epoch - 1), epoch);
            }
        }
    }

    #[test]
    fn a_minibatch_larger_than_the_data_is_one_step_of_all() {
        let schedule = Schedule { n_samples: 5, minibatch: 8 };
        assert_eq!(schedule.steps_per_epoch(), 1);
        assert_eq!(schedule.positions(3), 0..5);
        assert_eq!(schedule.epoch(3), 3);
    }

    #[test]
    #[should_panic(expected = "steps are counted from 1")]
    fn there_is_no_step_0() {
        let _ = Schedule { n_samples: 5, minibatch: 8 }.positions(0);
    }
}
