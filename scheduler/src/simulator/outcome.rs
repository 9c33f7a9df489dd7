//! What a simulated iteration takes, as a whole and by layer.

use lockstep_graph::LayerId;

/// One iteration in the long run, in seconds of one rank.
#[derive(Debug, Clone, PartialEq)]
pub struct SimulatedStep {
    /// From one iteration to the next.
    pub step_s: f64,
    /// The workers compute.
    pub compute_s: f64,
    /// The link is busy.
    pub exchange_s: f64,
    /// Both at once.
    pub overlapped_s: f64,
    /// Bytes that the rank sends.
    pub bytes_sent: f64,
    /// Messages that the rank sends.
    pub messages: f64,
    /// By layer, in the network's order; up to the last layer that has a task.
    pub layers: Vec<LayerTimes>,
    /// Iterations that were simulated.
    pub iterations: usize,
}

/// A layer's part of an iteration, in seconds of one rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerTimes {
    /// The layer.
    pub layer: LayerId,
    /// The workers compute its tasks.
    pub compute_s: f64,
    /// The link carries its exchanges.
    pub exchange_s: f64,
    /// The link carries its exchanges while the workers compute something.
    pub overlapped_s: f64,
    /// The bubble: workers wait until one of its exchanges is over.
    pub exposed_s: f64,
    /// Bytes that the rank sends for it.
    pub bytes_sent: f64,
}

impl SimulatedStep {
    /// Seconds in which the workers wait for the link.
    #[must_use]
    pub fn exposed_s(&self) -> f64 {
        self.step_s - self.compute_s
    }

    /// The share of the exchange that the computation hides; 1 where nothing is exchanged.
    #[must_use]
    pub fn overlap(&self) -> f64 {
        if self.exchange_s > 0.0 { self.overlapped_s / self.exchange_s } else { 1.0 }
    }

    /// The share of the time in which the workers compute; 1 where there is nothing to do.
    #[must_use]
    pub fn efficiency(&self) -> f64 {
        if self.step_s > 0.0 { self.compute_s / self.step_s } else { 1.0 }
    }
}
