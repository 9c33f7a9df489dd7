//! What the caller chooses when a plan is bound.

use lockstep_comm::LinkModel;

/// What a program is bound for.
#[derive(Debug, Clone, Copy, Default)]
pub struct BindOptions {
    /// Weight decay pulls at all parameters; otherwise at weights only, not at biases, scales and shifts.
    pub decay_all: bool,
    /// The largest norm of all gradients together, to which they are shortened; needs a plan that clips
    /// ([`PlanOptions::clip`](lockstep_graph::PlanOptions)).
    pub clip_norm: Option<f32>,
    /// By which the algorithm of each exchange is chosen; the same on all ranks.
    pub link: LinkModel,
}
