//! A network: layers in topological order, checked. What the user wrote, with no minibatch and no ranks.

use crate::layer::{Layer, LayerId, LayerKind, Param};

/// A checked network. Every shape is known, every layer reaches the output, and the order of layers is topological.
///
/// Made by [`NetworkBuilder`](crate::NetworkBuilder), [`Network::from_json`] or [`zoo`](crate::zoo); immutable.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    name: String,
    layers: Vec<Layer>,
    consumers: Vec<Vec<LayerId>>,
    flops: Vec<u64>,
    input: LayerId,
    output: LayerId,
}

impl Network {
    /// Takes layers that the builder checked; `flops` has one entry a layer.
    pub(crate) fn new(
        name: String,
        layers: Vec<Layer>,
        flops: Vec<u64>,
        input: LayerId,
        output: LayerId,
    ) -> Self {
        let mut consumers = vec![Vec::new(); layers.len()];
        for layer in &layers {
            for input in &layer.inputs {
                consumers[input.index()].push(layer.id);
            }
        }
        Self { name, layers, consumers, flops, input, output }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All layers, each after those that it reads; otherwise in the order in which they were declared.
    #[must_use]
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// One layer. Panics on an index of a larger network.
    #[must_use]
    pub fn layer(&self, id: LayerId) -> &Layer {
        &self.layers[id.index()]
    }

    /// The layer with this name. O(layers).
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Layer> {
        self.layers.iter().find(|layer| layer.name == name)
    }

    /// The layers that read a layer's output, in order; one that reads it twice is there twice.
    #[must_use]
    pub fn consumers(&self, id: LayerId) -> &[LayerId] {
        &self.consumers[id.index()]
    }

    /// The one input.
    #[must_use]
    pub fn input(&self) -> LayerId {
        self.input
    }

    /// The loss; `None` for a network that only infers.
    #[must_use]
    pub fn loss(&self) -> Option<LayerId> {
        let is_loss = matches!(self.layer(self.output).kind, LayerKind::SoftmaxCrossEntropy(_));
        is_loss.then_some(self.output)
    }

    /// What the loss reads; in a network without a loss, the last layer.
    #[must_use]
    pub fn logits(&self) -> LayerId {
        self.loss().map_or(self.output, |loss| self.layer(loss).inputs[0])
    }

    /// Number of classes: channels of the logits.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.layer(self.logits()).shape.maps().0
    }

    /// The layer that keeps the trainable parameters with which a layer computes: itself, unless it is tied
    /// ([`NetworkBuilder::tie`](crate::NetworkBuilder::tie)).
    #[must_use]
    pub fn owner(&self, id: LayerId) -> LayerId {
        self.layer(id).tied_to.unwrap_or(id)
    }

    /// The trainable parameters with which a layer computes: its own, or those of the layer that it is tied to.
    pub fn parameters(&self, id: LayerId) -> impl Iterator<Item = &Param> {
        self.layer(self.owner(id)).params.iter().filter(|param| param.role.is_trainable())
    }

    /// The layers that are tied to a layer, in order. O(layers).
    pub fn tied(&self, owner: LayerId) -> impl Iterator<Item = &Layer> {
        self.layers.iter().filter(move |layer| layer.tied_to == Some(owner))
    }

    /// Number of trainable values; those of tied layers count once.
    #[must_use]
    pub fn parameter_count(&self) -> usize {
        self.layers.iter().map(Layer::parameter_count).sum()
    }

    /// Floating-point operations of a layer's forward pass for one sample.
    ///
    /// A multiply-add counts two; biases of convolutions and linear layers are left out, as is usual. Pooling counts its window,
    /// functions with an exponential or a power ten operations a value.
    #[must_use]
    pub fn forward_flops_per_sample(&self, id: LayerId) -> u64 {
        self.flops[id.index()]
    }
}
