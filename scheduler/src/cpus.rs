//! Which cores this process may use, how many workers that makes, and where threads are pinned.

use core_affinity::CoreId;

/// The cores that the affinity mask and the cgroup quota leave to this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cores {
    allowed: Vec<usize>,
    quota: usize,
}

impl Cores {
    /// Asks the system: the affinity mask for which, the cgroup CPU quota for how many.
    #[must_use]
    pub fn detect() -> Self {
        let mut allowed: Vec<usize> =
            core_affinity::get_core_ids().unwrap_or_default().iter().map(|c| c.id).collect();
        allowed.sort_unstable();
        // The standard library takes the smaller of the affinity mask and the cgroup's quota.
        let quota = std::thread::available_parallelism().map_or(1, usize::from);
        Self { allowed, quota }
    }

    /// Some cores, of which `quota` can be busy at once.
    #[must_use]
    pub fn new(allowed: Vec<usize>, quota: usize) -> Self {
        Self { allowed, quota }
    }

    /// Cores that can be busy at once: the mask's, or fewer where a quota is set.
    #[must_use]
    pub fn usable(&self) -> usize {
        self.quota.min(self.allowed.len().max(1)).max(1)
    }

    /// Cores in the affinity mask.
    #[must_use]
    pub fn in_mask(&self) -> usize {
        self.allowed.len()
    }

    /// Workers for each of `ranks_here` ranks on these cores: equal parts, less one for the communication thread
    /// where a rank has three cores or more, and at least one.
    ///
    /// With two cores a rank the second core does more good computing: the communication thread sleeps most of
    /// the time and takes what it needs from both.
    #[must_use]
    pub fn default_workers(&self, ranks_here: usize, communicates: bool) -> usize {
        Self::workers_on(self.usable() / ranks_here.max(1), communicates)
    }

    /// Workers of a rank that has `cores` cores to itself, by the same rule.
    #[must_use]
    pub fn workers_on(cores: usize, communicates: bool) -> usize {
        let spare = usize::from(communicates && cores >= 3);
        (cores - spare.min(cores)).max(1)
    }

    /// Where the threads of the `index`-th of `ranks_here` ranks go, when every thread of all these ranks can
    /// have a core to itself; otherwise the system places them, which it does better than a fixed choice.
    #[must_use]
    pub fn placement(&self, index: usize, ranks_here: usize, threads: usize) -> Option<Vec<usize>> {
        let fits = threads * ranks_here <= self.allowed.len() && self.quota >= self.allowed.len();
        (fits && threads > 0).then(|| self.allowed[index * threads..(index + 1) * threads].to_vec())
    }
}

/// Pins the calling thread to a core; false when the system refuses, which does no harm.
pub fn pin_current_thread(core: usize) -> bool {
    core_affinity::set_for_current(CoreId { id: core })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(n: usize, quota: usize) -> Cores {
        Cores::new((0..n).collect(), quota)
    }

    #[test]
    fn workers_share_the_cores_and_leave_one_to_communication_where_there_is_one() {
        assert_eq!(cores(2, 2).default_workers(1, false), 2);
        assert_eq!(cores(2, 2).default_workers(2, true), 1);
        assert_eq!(cores(2, 2).default_workers(4, true), 1);
        assert_eq!(cores(16, 16).default_workers(1, true), 15);
        assert_eq!(cores(16, 16).default_workers(4, true), 3);
    }

    #[test]
    fn a_quota_counts_like_missing_cores() {
        assert_eq!(cores(12, 4).default_workers(1, false), 4);
        assert_eq!(cores(2, 1).usable(), 1);
    }

    #[test]
    fn threads_are_pinned_only_where_each_has_a_core() {
        assert_eq!(cores(8, 8).placement(1, 2, 4), Some(vec![4, 5, 6, 7]));
        assert_eq!(cores(2, 2).placement(0, 1, 3), None);
        assert_eq!(cores(8, 4).placement(0, 1, 3), None);
    }

    #[test]
    fn this_machine_has_a_core() {
        assert!(Cores::detect().usable() >= 1);
    }
}
