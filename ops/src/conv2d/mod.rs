//! Two-dimensional convolution: all three passes as direct convolution with 2-D register blocking.
//!
//! | To learn about | read |
//! |---|---|
//! | what is computed | `desc`, [`reference`](mod@reference) |
//! | how lines are padded | `staging` |
//! | the order of the weights | `taps`, `strips`, `weights` |
//! | the register tile | `register_tile` |
//! | the kernels | `sweep` with its innermost loop in `kernel_row`, for 1x1 layers `pointwise` (forward, backward data; `dispatch` chooses), `whole_lines` (backward data of small maps), `backward_weights`, `grouped`, `depthwise` |
//! | what a sweep fetches ahead | `ahead` |
//! | columns of padding, which are not multiplied | `edges` |
//! | pixels that no tap reaches | `gaps` |
//! | the blocks of a pass | `cut` |
//! | 3x3 kernels with fewer multiplications | `winograd` |

mod desc;
mod geometry;
mod staging;
mod taps;
mod strips;
mod weights;
mod register_tile;
mod cut;
mod epilogue;
mod ahead;
mod gaps;
mod edges;
mod kernel_row;
mod pointwise;
mod sweep;
mod dispatch;
mod whole_lines;
mod forward;
mod backward_data;
mod backward_weights;
mod depthwise;
mod grouped;
mod winograd;
mod plan;
pub mod reference;
#[cfg(test)]
mod tests;

pub use backward_data::Conv2dBackwardData;
pub use backward_weights::Conv2dBackwardWeights;
pub use desc::Conv2dDesc;
pub use forward::Conv2dForward;
pub use plan::Conv2d;
pub use winograd::WinogradTile;
