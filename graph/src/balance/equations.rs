//! The balance equations of one layer: operations, and bytes under data, model and hybrid parallelism.
//!
//! Volumes come in two forms. The *paper's* form says how much sends overlap receives by a number in `[0, 1]` and weighs
//! against the bandwidth of both directions together. The *exact* form counts what one rank sends, which is what it receives,
//! when parameters travel by part-reduce and part-broadcast and activations by gathers within a group; it weighs against the
//! bandwidth of one direction of a full-duplex link.

use crate::layer::{Layer, LayerKind};
use crate::network::Network;

/// Bytes of one value.
pub(super) const VALUE_BYTES: f64 = 4.0;

/// Forward, backward data and backward weights cost the same.
const PASSES: f64 = 3.0;

/// How far sends overlap receives in the paper's volumes: 0 not at all, 1 wholly.
pub type Overlap = f64;

/// What the balance equations know of a layer: a convolution of one group, or a linear layer, which is a convolution of one
/// pixel. Biases are left out, as in the paper.
///
/// # Examples
/// ```
/// use lockstep_graph::balance::LayerSizes;
///
/// // A linear layer of 4096 features, minibatch 256 on 64 ranks: two groups of 32 ranks send least.
/// let layer = LayerSizes { ifm: 4096, ofm: 4096, kernel: 1, output: 1, input: 1 };
/// assert_eq!(layer.best_groups(256, 64), 2);
/// assert_eq!((layer.exact_bytes(256, 64, 2) / 1e4).round() / 100.0, 6.16);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerSizes {
    /// Input feature maps.
    pub ifm: usize,
    /// Output feature maps.
    pub ofm: usize,
    /// Pixels of a kernel, `kw * kh`.
    pub kernel: usize,
    /// Pixels of an output map, `ow * oh`.
    pub output: usize,
    /// Pixels of an input map without padding, `iw * ih`.
    pub input: usize,
}

impl LayerSizes {
    /// The sizes of a layer; `None` for layers that have no weights of this kind.
    #[must_use]
    pub fn of(network: &Network, layer: &Layer) -> Option<Self> {
        let source = network.layer(*layer.inputs.first()?).shape;
        match &layer.kind {
            LayerKind::Conv2d(conv) if conv.groups == 1 => {
                let (ifm, ih, iw) = source.maps();
                let (ofm, oh, ow) = layer.shape.maps();
                let (kh, kw) = conv.window.kernel;
                Some(Self { ifm, ofm, kernel: kh * kw, output: oh * ow, input: ih * iw })
            }
            LayerKind::Linear(linear) => Some(Self {
                ifm: source.elements(),
                ofm: linear.out_features,
                kernel: 1,
                output: 1,
                input: 1,
            }),
            _ => None,
        }
    }

    /// Number of weights.
    #[must_use]
    pub fn weights(self) -> f64 {
        self.ifm as f64 * self.ofm as f64 * self.kernel as f64
    }

    /// Operations of all three passes for this many points: `3 * 2 * points * ifm * ofm * kw * kh * ow * oh`.
    #[must_use]
    pub fn training_flops(self, points: f64) -> f64 {
        PASSES * 2.0 * points * self.weights() * self.output as f64
    }

    /// Bytes a node exchanges under data parallelism, in the paper's form: `sd * ifm * ofm * kw * kh * (2 - overlap)`.
    #[must_use]
    pub fn data_bytes(self, overlap: Overlap) -> f64 {
        VALUE_BYTES * self.weights() * (2.0 - overlap)
    }

    /// Bytes of one exchange of activations under model parallelism, in the paper's form: `sd * ifm * iw * ih * minibatch`.
    /// An iteration makes two: activations forward, their gradients backward.
    #[must_use]
    pub fn model_bytes(self, minibatch: usize) -> f64 {
        VALUE_BYTES * self.ifm as f64 * self.input as f64 * minibatch as f64
    }

    /// Operations for a byte under data parallelism, in the paper's form; with an overlap of 1 it is
    /// `1.5 * ow * oh * points`, whatever the kernel and the feature maps.
    #[must_use]
    pub fn flops_per_byte(self, points: f64, overlap: Overlap) -> f64 {
        self.training_flops(points) / self.data_bytes(overlap)
    }

    /// The paper's condition for model rather than data parallelism:
    /// `ofm * kw * kh * (2 - overlap) > iw * ih * minibatch`.
    #[must_use]
    pub fn prefers_model(self, minibatch: usize, overlap: Overlap) -> bool {
        self.data_bytes(overlap) > self.model_bytes(minibatch)
    }

    /// Bytes a node exchanges with `ranks` in `groups`, in the paper's form:
    /// `2 * sd * ifm * iw * ih * minibatch / G + sd * ifm * ofm * kw * kh * (2 - overlap) * G / N`. One group exchanges no
    /// weights.
    #[must_use]
    pub fn hybrid_bytes(
        self,
        minibatch: usize,
        ranks: usize,
        groups: usize,
        overlap: Overlap,
    ) -> f64 {
        let activations = 2.0 * self.model_bytes(minibatch) / groups as f64;
        let weights = self.data_bytes(overlap) * groups as f64 / ranks as f64;
        if groups == 1 { activations } else { activations + weights }
    }

    /// The number of groups at which [`hybrid_bytes`](Self::hybrid_bytes) is least, as a real number:
    /// `sqrt(2 * N * minibatch * iw * ih / ((2 - overlap) * ofm * kw * kh))`.
    #[must_use]
    pub fn optimal_groups(self, minibatch: usize, ranks: usize, overlap: Overlap) -> f64 {
        let points = 2.0 * ranks as f64 * minibatch as f64 * self.input as f64;
        (points / ((2.0 - overlap) * self.ofm as f64 * self.kernel as f64)).sqrt()
    }

    /// Bytes that one rank sends, and receives, in an iteration with `ranks` in `groups`, exactly where everything divides
    /// evenly: `2 * sd * ifm * iw * ih * (minibatch / G) * (1 - G / N)` of activations and
    /// `2 * sd * ifm * ofm * kw * kh * (G / N) * (1 - 1 / G)` of weights.
    #[must_use]
    pub fn exact_bytes(self, minibatch: usize, ranks: usize, groups: usize) -> f64 {
        let (activations, weights) = self.exact_parts(minibatch, ranks, groups);
        activations + weights
    }

    /// The two terms of [`exact_bytes`](Self::exact_bytes): activations with their gradients, weights with theirs.
    #[must_use]
    pub fn exact_parts(self, minibatch: usize, ranks: usize, groups: usize) -> (f64, f64) {
        let (ranks, groups) = (ranks as f64, groups as f64);
        let activations = 2.0 * self.model_bytes(minibatch) / groups * (1.0 - groups / ranks);
        let weights = 2.0 * VALUE_BYTES * self.weights() * groups / ranks * (1.0 - 1.0 / groups);
        (activations, weights)
    }

    /// The divisor of `ranks` at which [`exact_bytes`](Self::exact_bytes) is least; of equals the smallest.
    #[must_use]
    pub fn best_groups(self, minibatch: usize, ranks: usize) -> usize {
        let bytes = |groups| self.exact_bytes(minibatch, ranks, groups);
        divisors(ranks).min_by(|&a, &b| bytes(a).total_cmp(&bytes(b))).unwrap_or(1)
    }
}

/// The divisors of `n`, ascending.
pub(super) fn divisors(n: usize) -> impl Iterator<Item = usize> {
    (1..=n).filter(move |&d| n.is_multiple_of(d))
}
