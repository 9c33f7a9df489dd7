//! Bundles: layers whose gradients, and later their new parameters, travel in one exchange.
//!
//! An exchange costs something whatever its length: each message has its latency. Where several layers share one, that is paid
//! once for all of them, on the way out and on the way back. But then all wait for each other: in the backward pass for the last
//! gradient, and in the next forward pass for the last parameters.
//!
//! Walking the gradients in the order in which the backward pass yields them, a layer joins the open bundle of its mesh where that
//! makes the iteration shorter. With L the fixed cost of an exchange one way, w the time in which what waits in the bundle is sent
//! one way, and t the time that the computation takes from the last gradient of the bundle to the next one (backward), or from the
//! one layer's parameters to the other's (forward), joining gains
//!
//! | the layer's exchange | in either direction | because |
//! |---|---|---|
//! | is hidden behind the rest of the iteration | L - min(w, t) | it matters where the link is always busy: less by L, but later by what could have been sent before |
//! | is waited for | max(L - t, -w) | alone, what waits would have been sent in t, its fixed cost included |
//!
//! So a batch normalization travels with the convolution next to it, while large layers travel alone, and so does a first layer, which
//! is needed first and comes last, unless everything is small.

use crate::cost::{Platform, Price};
use crate::layer::LayerId;
use crate::placement::Mesh;

/// A layer's gradient that is to be exchanged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Gradient {
    pub(super) layer: LayerId,
    /// Ranks that hold the same features exchange it.
    pub(super) mesh: Mesh,
    /// What a rank sends of it, one way.
    pub(super) exchange: Price,
    /// When it is there, in seconds of computation since the backward pass began.
    pub(super) ready_s: f64,
    /// When the next forward pass reads the parameters, counted likewise.
    pub(super) needed_s: f64,
}

/// Layers whose gradients are exchanged together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bundle {
    /// In the order in which their gradients come: the last one is the first that the next forward pass needs.
    pub(super) layers: Vec<LayerId>,
}

/// Sorts gradients, given in the order in which they come, into bundles, in the order of their first gradients.
pub(super) fn bundles(gradients: &[Gradient], platform: &Platform) -> Vec<Bundle> {
    let mut bundles: Vec<(Open, Bundle)> = Vec::new();
    for gradient in gradients {
        // The last one of the mesh is the open one.
        let open = bundles.iter_mut().rev().find(|(open, _)| open.last.mesh == gradient.mesh);
        match open {
            Some((open, bundle)) if open.gains(gradient, platform) => {
                open.add(gradient);
                bundle.layers.push(gradient.layer);
            }
            _ => bundles.push((Open::new(gradient), Bundle { layers: vec![gradient.layer] })),
        }
    }
    bundles.into_iter().map(|(_, bundle)| bundle).collect()
}

/// A bundle to which layers may be added.
#[derive(Debug)]
struct Open {
    /// The gradient that came last.
    last: Gradient,
    /// Bytes that a rank sends of all so far, one way.
    bytes_sent: f64,
}

impl Open {
    fn new(first: &Gradient) -> Self {
        Self { last: *first, bytes_sent: first.exchange.bytes_sent }
    }

    fn add(&mut self, gradient: &Gradient) {
        self.last = *gradient;
        self.bytes_sent += gradient.exchange.bytes_sent;
    }

    /// Whether the iteration is shorter with the next gradient in this bundle.
    fn gains(&self, next: &Gradient, platform: &Platform) -> bool {
        let fixed = platform.seconds(&Price::exchange(0.0, next.exchange.messages));
        let one_way = |bytes| platform.seconds(&Price::exchange(bytes, 0.0));
        let waiting = one_way(self.bytes_sent);
        let together = 2.0 * (fixed + waiting + one_way(next.exchange.bytes_sent));
        let is_hidden = together < next.needed_s - next.ready_s;
        let gain = |between: f64| {
            if is_hidden { fixed - waiting.min(between) } else { (fixed - between).max(-waiting) }
        };
        let backward = next.ready_s - self.last.ready_s;
        let forward = self.last.needed_s - next.needed_s;
        gain(backward) + gain(forward) > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second a message, a byte a second.
    const PLATFORM: Platform = Platform {
        flops_per_s: 1.0,
        bytes_per_s: 1.0,
        link_bytes_per_s: 1.0,
        link_latency_s: 1.0,
        link_congestion: 0.0,
    };

    /// Gradients of (bytes, seconds between it and the one before, in the backward and in the forward pass) in the order in which
    /// they come, on two ranks; the layers of every bundle, numbered in the same order. Between the last gradient and the first
    /// parameters are so many seconds.
    #[track_caller]
    fn check(slack: f64, gradients: &[(f64, f64, f64)], expected: &[&[usize]]) {
        let mesh = Mesh::data_parallel(2);
        let between = gradients.iter().map(|&(_, backward, forward)| backward + forward);
        let mut needed_s = slack + between.sum::<f64>();
        let mut ready_s = 0.0;
        let gradients = gradients.iter().enumerate().map(|(index, &(bytes, backward, forward))| {
            ready_s += backward;
            needed_s -= forward;
            let (layer, exchange) = (LayerId::from_index(index), Price::exchange(bytes, 1.0));
            Gradient { layer, mesh, exchange, ready_s, needed_s }
        });
        let got = bundles(&gradients.collect::<Vec<_>>(), &PLATFORM);
        let got: Vec<Vec<usize>> =
            got.iter().map(|b| b.layers.iter().map(|l| l.index()).collect()).collect();
        assert_eq!(got, expected);
    }

    const HIDDEN: f64 = 1e6;

    #[test]
    fn what_is_small_waits_for_the_next() {
        check(HIDDEN, &[(0.9, 9.0, 9.0), (100.0, 9.0, 9.0)], &[&[0, 1]]);
        check(HIDDEN, &[(0.3, 9.0, 9.0), (0.3, 9.0, 9.0), (0.3, 9.0, 9.0)], &[&[0, 1, 2]]);
    }

    #[test]
    fn what_takes_longer_than_is_saved_does_not_wait() {
        check(HIDDEN, &[(1.1, 9.0, 9.0), (0.1, 9.0, 9.0)], &[&[0], &[1]]);
        check(HIDDEN, &[(0.6, 9.0, 9.0), (0.6, 9.0, 9.0), (0.6, 9.0, 9.0)], &[&[0, 1], &[2]]);
    }

    #[test]
    fn what_comes_and_is_needed_at_about_the_same_time_travels_together() {
        for slack in [0.0, HIDDEN] {
            check(slack, &[(100.0, 9.0, 9.0), (100.0, 0.5, 0.5)], &[&[0, 1]]);
            check(slack, &[(100.0, 9.0, 9.0), (100.0, 0.5, 1.6)], &[&[0], &[1]]);
        }
    }

    #[test]
    fn first_layers_wait_for_nothing_that_can_go_before_them() {
        let small = [(0.9, 9.0, 9.0), (0.1, 2.0, 2.0)];
        check(0.0, &small, &[&[0], &[1]]);
        // Where its fixed cost is longer than the computation in between, it would be in the way.
        check(0.0, &[(0.9, 9.0, 9.0), (0.1, 0.9, 0.9)], &[&[0, 1]]);
        check(HIDDEN, &small, &[&[0, 1]]);
    }

    #[test]
    fn every_mesh_has_bundles_of_its_own() {
        let gradient = |index, groups, ready_s| Gradient {
            layer: LayerId::from_index(index),
            mesh: Mesh::new(4, groups).unwrap(),
            exchange: Price::exchange(0.1, groups as f64 - 1.0),
            ready_s,
            needed_s: HIDDEN - ready_s,
        };
        let gradients = [gradient(0, 4, 1.0), gradient(1, 2, 2.0), gradient(2, 4, 3.0)];
        let layers: Vec<_> = bundles(&gradients, &PLATFORM).into_iter().map(|b| b.layers).collect();
        let [a, b, c] = [0, 1, 2].map(LayerId::from_index);
        assert_eq!(layers, [vec![a, c], vec![b]]);
    }
}
