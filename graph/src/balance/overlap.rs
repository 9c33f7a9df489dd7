//! The overlap model of a whole iteration: how long it takes when the link works beside the computation.
//!
//! One rank of a symmetric job runs its layers forward and backward, over and over; the link serves exchanges by their
//! consumer's place in the next forward pass. Computation waits only where an exchange that it needs is not over: for the layer's own
//! weights, for inputs to be gathered, for a gradient that comes back from the layer above.
//!
//! What is more than the model of the paper: a layer whose input gradient must travel computes that one first and its weight gradient
//! while it travels; and a gather is cut into [`GATHER_CHUNKS`] chunks of samples, so that the layer computes the samples that have
//! arrived.

use super::link::Link;
use super::model::Model;

/// Pieces in which inputs are gathered while the layer computes.
const GATHER_CHUNKS: f64 = 4.0;

/// Iterations until the time of one no longer depends on the empty link that the first one met.
const ITERATIONS: usize = 4;

/// What an iteration takes, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Estimate {
    pub(super) step_s: f64,
    /// Seconds in which the link is busy.
    pub(super) exchange_s: f64,
}

/// A walk through iterations.
struct Walk<'a> {
    model: &'a Model,
    choice: &'a [usize],
    link: Link,
    now: f64,
    /// By layer: its first edge's place among all edges.
    first_edge: Vec<usize>,
    n_edges: usize,
    /// By layer: the exchanges that bring terms of its output's gradient.
    returning: Vec<Vec<usize>>,
}

/// The time of an iteration with these meshes, by index, in the long run.
pub(super) fn estimate(model: &Model, choice: &[usize]) -> Estimate {
    let mut n_edges = 0;
    let mut first_edge = Vec::with_capacity(model.layers.len());
    for layer in &model.layers {
        first_edge.push(n_edges);
        n_edges += layer.edges.len();
    }
    // An exchange of weights a layer, then one each way an edge.
    let link = Link::new(model.layers.len() + 2 * n_edges);
    let returning = vec![Vec::new(); model.layers.len()];
    let mut walk = Walk { model, choice, link, now: 0.0, first_edge, n_edges, returning };
    let (mut step_s, mut exchange_s) = (0.0, 0.0);
    for _ in 0..ITERATIONS {
        let (began, busy) = (walk.now, walk.link.busy);
        walk.forward();
        walk.backward();
        (step_s, exchange_s) = (walk.now - began, walk.link.busy - busy);
    }
    Estimate { step_s, exchange_s }
}

impl Walk<'_> {
    fn forward(&mut self) {
        let model = self.model;
        for (index, layer) in model.layers.iter().enumerate() {
            self.now = self.link.wait(self.now, index);
            let passes = &layer.passes[self.choice[index]];
            let began = self.now;
            for (place, edge) in layer.edges.iter().enumerate() {
                let seconds = model.moved(edge, self.choice, index).seconds;
                self.exchange_now(self.first_edge[index] + place, seconds);
            }
            self.exchange_now(self.first_edge[index], passes.loss.seconds);
            let gathered = self.now - began;
            let last_chunk = gathered + passes.forward_s / GATHER_CHUNKS;
            let first_chunk = gathered / GATHER_CHUNKS + passes.forward_s;
            self.now = began + last_chunk.max(first_chunk);
        }
    }

    /// Waits for an exchange on the critical path.
    fn exchange_now(&mut self, edge: usize, seconds: f64) {
        if seconds > 0.0 {
            let exchange = self.model.layers.len() + edge;
            self.link.submit(self.now, exchange, 0, seconds);
            self.now = self.link.wait(self.now, exchange);
        }
    }

    fn backward(&mut self) {
        let model = self.model;
        for (index, layer) in model.layers.iter().enumerate().rev() {
            for exchange in std::mem::take(&mut self.returning[index]) {
                self.now = self.link.wait(self.now, exchange);
            }
            let passes = &layer.passes[self.choice[index]];
            let returns = |edge: &super::model::Edge| {
                let seconds = model.moved(edge, self.choice, index).seconds;
                if edge.has_gradient { seconds } else { 0.0 }
            };
            let travels = layer.edges.iter().any(|edge| returns(edge) > 0.0);
            if travels {
                self.now += passes.backward_data_s;
                for (place, edge) in layer.edges.iter().enumerate() {
                    let seconds = returns(edge);
                    if seconds > 0.0 {
                        let exchange =
                            model.layers.len() + self.n_edges + self.first_edge[index] + place;
                        self.link.submit(self.now, exchange, 0, seconds);
                        self.returning[edge.producer].push(exchange);
                    }
                }
            }
            self.now += passes.backward_weights_s;
            if passes.weights.seconds > 0.0 {
                self.link.submit(self.now, index, 1 + index, passes.weights.seconds);
            }
            if !travels {
                self.now += passes.backward_data_s;
            }
        }
    }
}
