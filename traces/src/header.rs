//! Who recorded a trace and on which clock: the header of raw files and rank files.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Who recorded a trace and on which clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) rank: usize,
    pub(crate) n_ranks: usize,
    pub(crate) host: String,
    /// The steps that were to be recorded.
    pub(crate) steps: Range<u64>,
    /// Where time 0 of the recording process lies, in nanoseconds since the Unix epoch.
    pub(crate) origin_unix_ns: i64,
    /// How far this rank's clock is ahead of rank 0's.
    pub(crate) clock_offset_ns: i64,
}

impl Header {
    /// Where time 0 of this rank lies on rank 0's clock, in nanoseconds since the Unix epoch.
    pub(crate) fn origin_on_rank_0(&self) -> i64 {
        self.origin_unix_ns.saturating_sub(self.clock_offset_ns)
    }

    /// The name that viewers show for this rank.
    pub(crate) fn process_name(&self) -> String {
        format!("rank {} ({})", self.rank, self.host)
    }
}
