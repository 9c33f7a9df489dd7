//! Fully connected layers: a blocked matrix product in each of the three passes.
//!
//! ```text
//! forward           dst      = src      * wei^T + bia     the sum runs over ic
//! backward_data     diff_src = diff_dst * wei             the sum runs over oc
//! backward_weights  diff_wei = diff_dst^T * src           the sum runs over mb
//! ```
//!
//! All three end in one register tile (`tile.rs`) that broadcasts one operand and takes vectors of the other:
//!
//! | pass | rows: broadcast | columns: vectors of |
//! |---|---|---|
//! | forward | samples of `src`, copied | oc, of `wei` as it is packed |
//! | backward_data | ic, of `wei` as it is packed | samples of `diff_dst`, transposed |
//! | backward_weights | ic, of `src`, copied | oc of `diff_dst`, copied |
//!
//! What is copied or transposed lies in scratch, panel by panel, and so do sums that are not complete; each pass draws its
//! loops in the words of BLIS.

mod backward_data;
mod backward_weights;
pub(crate) mod blocking;
mod desc;
mod epilogue;
mod forward;
mod packing;
mod plan;
pub mod reference;
mod sliced_weights;
#[cfg(test)]
mod tests;
pub(crate) mod tile;
mod transpose;

pub use backward_data::LinearBackwardData;
pub use backward_weights::LinearBackwardWeights;
pub use desc::LinearDesc;
pub use forward::LinearForward;
pub use plan::Linear;
