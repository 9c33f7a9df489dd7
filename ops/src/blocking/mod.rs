//! Cache blocking: how large the blocks of a layer are to be, so that few bytes cross into a cache for each operation.
//!
//! A block computes `mb x oc x oh x ow` results, each from `ic` input channels, and touches
//!
//! ```text
//! BS  = 4 (mb oc oh ow  +  mb ic ih iw  +  ic oc kh kw)  bytes,   ih = (oh - 1) sh + kh,  iw = (ow - 1) sw + kw
//! CPB = 2 mb oc ic oh ow kh kw                           operations
//! ```
//!
//! [`search`] tries all sizes and takes those that move the fewest bytes among blocks that fit the cache. The three passes
//! of a layer are one loop nest with other roles, so one blocking serves all three. A linear layer is a convolution of one
//! pixel.
//!
//! Source: Das et al. 2016, section 2 (the equations, the search, double buffering).

mod budget;
mod search;
mod shape;
mod traffic;
pub mod reference;
#[cfg(test)]
mod tests;

pub use budget::{CacheBudget, Caches};
pub use search::{Blocking, Constraints, Sizes, search, search_traversal};
pub use shape::ConvShape;
pub use traffic::{Block, Traversal};
