//! Pooling: the maximum or the average of a window that slides over each map.

mod average;
mod desc;
mod max;
mod plan;
pub mod reference;
#[cfg(test)]
mod tests;
mod window;

pub use desc::{PoolDesc, PoolKind};
pub use plan::{Pool, PoolBackward, PoolForward};
