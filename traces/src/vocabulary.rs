//! The words that the checks look for in a trace: names of passes and kinds of exchanges.
//!
//! A trace may hold other words too; the checks just take no notice of them.

/// Names of passes, for `TaskSlice::pass`.
pub mod pass {
    /// A minibatch's samples are read.
    pub const LOAD: &str = "load";
    /// A layer's forward pass.
    pub const FORWARD: &str = "forward";
    /// The loss and its gradient.
    pub const LOSS: &str = "loss";
    /// The gradient of a layer's source.
    pub const BACKWARD_DATA: &str = "backward_data";
    /// The gradient of a layer's weights and bias.
    pub const BACKWARD_WEIGHTS: &str = "backward_weights";
    /// The optimizer's step on the strip that this rank owns.
    pub const UPDATE: &str = "update";
    /// A tensor changes its placement.
    pub const REDISTRIBUTE: &str = "redistribute";
}

/// Kinds of exchanges, for `ExchangeSpan::kind`.
pub mod exchange {
    /// Every member holds a partial sum; each ends owning the reduced strip.
    pub const PART_REDUCE: &str = "part_reduce";
    /// Each owner sends its strip to all.
    pub const PART_BROADCAST: &str = "part_broadcast";
    /// A tensor changes its placement.
    pub const REDISTRIBUTE: &str = "redistribute";
}
