//! Blocks that stand in for a program's own, to measure what it costs to hand them out.

use std::fmt;
use std::sync::Arc;

/// What is run in place of every compute task of a program: the tasks, their order and their dependencies stay.
#[derive(Clone)]
pub struct Drill {
    /// Blocks of each task, at least one.
    pub blocks_per_task: usize,
    /// What a block does.
    pub block: Arc<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Drill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drill")
            .field("blocks_per_task", &self.blocks_per_task)
            .finish_non_exhaustive()
    }
}
