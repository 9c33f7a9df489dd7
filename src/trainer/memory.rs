//! Memory before and during a run: what the process has, and what a run will add.

use std::fs;

/// Bytes of this process in physical memory now; 0 where the system does not tell.
#[must_use]
pub(super) fn resident_bytes() -> u64 {
    status_bytes("VmRSS:")
}

/// The most bytes that this process has had in physical memory; 0 where the system does not tell.
#[must_use]
pub fn peak_resident_bytes() -> u64 {
    status_bytes("VmHWM:")
}

fn status_bytes(key: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Code, thread stacks and the allocator's own pages that a run brings in beside its tensors: 3.5 to 6 MB were seen.
const RUNTIME_BYTES: u64 = 4 << 20;

/// What the ranks of one process will use. The data sets are in the baseline: they are read before.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemoryEstimate {
    /// Resident when the rank started, data sets included.
    pub(super) baseline: u64,
    /// Parameters, running statistics, velocity.
    pub(super) store: u64,
    /// What lasts for an iteration.
    pub(super) arena: u64,
    /// Scratch of all workers.
    pub(super) scratch: u64,
    /// Prepared minibatches.
    pub(super) loader: u64,
    /// Ranks in this process.
    pub(super) ranks_here: u64,
}

impl MemoryEstimate {
    /// Predicted peak of the process.
    pub(super) fn total(&self) -> u64 {
        self.baseline
            + RUNTIME_BYTES
            + self.ranks_here * (self.store + self.arena + self.scratch + self.loader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_process_is_resident() {
        assert!(resident_bytes() > 1 << 20);
        assert!(peak_resident_bytes() >= resident_bytes());
    }
}
