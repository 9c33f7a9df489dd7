//! Which activation layers have no tasks of their own: a neighbor does their work while the data is in cache.
//!
//! Forward, the layer before applies the function to what it writes, if nothing else reads that. Backward, whoever writes
//! the gradient of the activation's output multiplies by the slope at once, which can be told from the output: the
//! only consumer's data gradient, or the sum of the terms where there are several consumers. Where a neighbor cannot
//! do it, the activation layer keeps its task.
//!
//! In the same way a convolution computes the statistics that a batch normalization after it needs of its output.

use crate::layer::{Layer, LayerId, LayerKind};
use crate::network::Network;

/// Which tasks do the work of activation layers along with their own. A function of the network alone: every rank, the
/// training plan, the scoring plan and the kernels agree on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fusion {
    /// By activation layer: the layer whose forward task computes it.
    producers: Vec<Option<LayerId>>,
    /// By layer: the activation layer that its forward task computes.
    activations: Vec<Option<LayerId>>,
    /// By activation layer: who multiplies by its slope.
    gradients: Vec<Option<GradientFold>>,
    /// By convolution: the batch normalization whose statistics its forward task computes.
    statistics: Vec<Option<LayerId>>,
}

/// Who multiplies a gradient by an activation's slope, in place of the activation's own task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GradientFold {
    /// The data gradient of the only layer that reads the activation.
    Consumer(LayerId),
    /// The sum of the terms of several layers that read it.
    Sum,
}

impl Fusion {
    /// Fuses all that can be fused; without `fuse`, only statistics, which are sums in another order than by themselves;
    /// without `statistics`, not those.
    #[must_use]
    pub fn new(network: &Network, fuse: bool, statistics: bool) -> Self {
        let n = network.layers().len();
        let mut fusion = Self {
            producers: vec![None; n],
            activations: vec![None; n],
            gradients: vec![None; n],
            statistics: network
                .layers()
                .iter()
                .map(|layer| normalized(network, layer).filter(|_| statistics))
                .collect(),
        };
        if !fuse {
            return fusion;
        }
        for layer in network.layers().iter().filter(|layer| is_activation(&layer.kind)) {
            let (source, index) = (layer.inputs[0], layer.id.index());
            let is_only_reader = network.consumers(source).len() == 1;
            if is_only_reader && applies(&network.layer(source).kind, &layer.kind) {
                fusion.producers[index] = Some(source);
                fusion.activations[source.index()] = Some(layer.id);
            }
            fusion.gradients[index] = match network.consumers(layer.id) {
                &[only] => differentiates(network, only, &layer.kind)
                    .then_some(GradientFold::Consumer(only)),
                _ => Some(GradientFold::Sum),
            };
        }
        fusion
    }

    /// The activation layer that the forward task of `layer` computes along with its own.
    #[must_use]
    pub fn dst_activation(&self, layer: LayerId) -> Option<LayerId> {
        self.activations[layer.index()]
    }

    /// The layer whose forward task computes the activation layer `layer`.
    #[must_use]
    pub fn producer(&self, layer: LayerId) -> Option<LayerId> {
        self.producers[layer.index()]
    }

    /// The batch normalization whose statistics the forward task of `layer` computes in training.
    #[must_use]
    pub fn statistics(&self, layer: LayerId) -> Option<LayerId> {
        self.statistics[layer.index()]
    }

    /// The activation layer by whose slope the data gradient of `layer` multiplies what it writes: its only input.
    #[must_use]
    pub fn src_activation(&self, network: &Network, layer: LayerId) -> Option<LayerId> {
        let source = *network.layer(layer).inputs.first()?;
        let folded = self.gradients[source.index()] == Some(GradientFold::Consumer(layer));
        folded.then_some(source)
    }

    /// True where the sum of gradient terms at the output of the activation layer `layer` is multiplied by its slope.
    #[must_use]
    pub fn is_folded_into_sum(&self, layer: LayerId) -> bool {
        self.gradients[layer.index()] == Some(GradientFold::Sum)
    }

    /// True where the gradient at the output of the activation layer `layer` already is that of its input.
    #[must_use]
    pub fn is_gradient_folded(&self, layer: LayerId) -> bool {
        self.gradients[layer.index()].is_some()
    }
}

/// The batch normalization that alone reads the output of a convolution, if `layer` is one whose groups fill vectors.
fn normalized(network: &Network, layer: &Layer) -> Option<LayerId> {
    let is_convolution = matches!(&layer.kind, LayerKind::Conv2d(conv) if conv.groups == 1);
    let &[only] = network.consumers(layer.id) else { return None };
    let is_norm = matches!(network.layer(only).kind, LayerKind::BatchNorm(_));
    (is_convolution && is_norm).then_some(only)
}

fn is_activation(kind: &LayerKind) -> bool {
    matches!(kind, LayerKind::Relu | LayerKind::Sigmoid | LayerKind::Tanh)
}

/// Whether the forward pass of a layer can apply an activation to its output.
fn applies(producer: &LayerKind, activation: &LayerKind) -> bool {
    match producer {
        LayerKind::Conv2d(_) | LayerKind::Linear(_) | LayerKind::BatchNorm(_) | LayerKind::Bias => {
            true
        }
        // A sum does not look at channels, so it cannot keep the padding zero where the function of zero is not.
        LayerKind::Add => !matches!(activation, LayerKind::Sigmoid),
        _ => false,
    }
}

/// Whether the data gradient of `consumer` can multiply by an activation's slope.
fn differentiates(network: &Network, consumer: LayerId, activation: &LayerKind) -> bool {
    let consumer = network.layer(consumer);
    match &consumer.kind {
        LayerKind::Conv2d(_)
        | LayerKind::Linear(_)
        | LayerKind::MaxPool(_)
        | LayerKind::AvgPool(_)
        | LayerKind::GlobalAvgPool
        | LayerKind::Lrn(_)
        | LayerKind::BatchNorm(_) => true,
        // What was kept has the sign of what was there before, and what was not kept has no gradient.
        LayerKind::Dropout(_) => matches!(activation, LayerKind::Relu),
        // A flattening of one pixel passes the gradient on without touching it.
        LayerKind::Flatten => {
            let (_, h, w) = network.layer(consumer.inputs[0]).shape.maps();
            h * w > 1
        }
        _ => false,
    }
}
