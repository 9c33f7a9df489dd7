//! What every layer costs on every mesh, once and for all: the tables that the search for the best meshes looks things up in.

use super::equations::{VALUE_BYTES, divisors};
use super::movement::{Load, Need, Sizes, channels_of};
use crate::compile::{Fusion, MeshClasses, MeshSource, is_splittable};
use crate::cost::{Platform, Price};
use crate::layer::{Layer, LayerKind, Param};
use crate::network::Network;
use crate::placement::{FEATURE_GRAIN, Mesh, share};

/// Values a sample that members of a group exchange for a loss over split classes.
const LOSS_VALUES: f64 = 4.0;

/// How a layer comes to its mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rule {
    /// Free to choose among these meshes, by index: members compute their own output features.
    Free(Vec<usize>),
    /// Has the mesh of this earlier free layer, because parameters are tied between them or layers that follow them.
    Tied(usize),
    /// Works on the features that its first input left on the rank.
    Follows(usize),
    /// Looks across channels, is the input, or is tied to what does: data-parallel.
    WholeSamples,
}

/// What one layer's passes take on one mesh, for the busiest rank.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Passes {
    pub(super) forward_s: f64,
    pub(super) backward_data_s: f64,
    /// With the update of the owned strip.
    pub(super) backward_weights_s: f64,
    /// Part-reduce and part-broadcast, by the layer that keeps the weights.
    pub(super) weights: Exchange,
    /// Of a loss over split classes: what the members tell each other.
    pub(super) loss: Exchange,
}

/// An exchange, for the busiest rank.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Exchange {
    pub(super) bytes: f64,
    pub(super) seconds: f64,
}

/// A tensor that a layer reads.
#[derive(Debug)]
pub(super) struct Edge {
    pub(super) producer: usize,
    pub(super) has_gradient: bool,
    /// The way forward, by the producer's mesh and the consumer's; the way back is the same.
    moves: Vec<Exchange>,
}

#[derive(Debug)]
pub(super) struct LayerModel {
    pub(super) rule: Rule,
    pub(super) passes: Vec<Passes>,
    pub(super) edges: Vec<Edge>,
}

/// All layers of a network on all meshes of so many ranks.
#[derive(Debug)]
pub(super) struct Model {
    /// By ascending number of groups, so that the last one is data-parallel.
    pub(super) meshes: Vec<Mesh>,
    pub(super) layers: Vec<LayerModel>,
}

impl Model {
    pub(super) fn new(
        network: &Network,
        minibatch: usize,
        ranks: usize,
        platform: &Platform,
    ) -> Self {
        let meshes: Vec<_> = divisors(ranks).filter_map(|g| Mesh::new(ranks, g).ok()).collect();
        let maker = Maker {
            network,
            minibatch,
            platform,
            fusion: Fusion::new(network, true, true),
            classes: MeshClasses::new(network),
            meshes: &meshes,
        };
        let mut needs_gradient: Vec<bool> = Vec::new();
        let mut sizes: Vec<Sizes> = Vec::new();
        let mut layers = Vec::new();
        for layer in network.layers() {
            let upstream = layer.inputs.iter().any(|input| needs_gradient[input.index()]);
            needs_gradient.push(upstream || network.parameters(layer.id).next().is_some());
            sizes.push(maker.sizes(layer, &sizes));
            layers.push(LayerModel {
                rule: maker.rule(layer),
                passes: maker.passes(layer, upstream),
                edges: maker.edges(layer, &sizes, &needs_gradient),
            });
        }
        Self { meshes, layers }
    }

    /// The mesh of every layer when the free ones have these, by index; entries of others are overwritten.
    pub(super) fn follow(&self, choice: &mut [usize]) {
        for (index, layer) in self.layers.iter().enumerate() {
            match layer.rule {
                Rule::Free(_) => {}
                Rule::Tied(first) => choice[index] = choice[first],
                Rule::Follows(input) => choice[index] = choice[input],
                Rule::WholeSamples => choice[index] = self.meshes.len() - 1,
            }
        }
    }

    /// What brings a tensor to its reader, with these meshes.
    pub(super) fn moved(&self, edge: &Edge, choice: &[usize], consumer: usize) -> Exchange {
        edge.moves[choice[edge.producer] * self.meshes.len() + choice[consumer]]
    }

    /// Bytes that the busiest rank sends in an iteration for a layer: to bring its inputs, to return their gradients, and for its
    /// weights.
    pub(super) fn bytes(&self, layer: usize, choice: &[usize]) -> f64 {
        let LayerModel { passes, edges, .. } = &self.layers[layer];
        let inputs = edges.iter().map(|edge| {
            let ways = if edge.has_gradient { 2.0 } else { 1.0 };
            ways * self.moved(edge, choice, layer).bytes
        });
        let own = passes[choice[layer]];
        own.weights.bytes + own.loss.bytes + inputs.sum::<f64>()
    }
}

/// What the tables are made from.
#[derive(Debug)]
struct Maker<'a> {
    network: &'a Network,
    minibatch: usize,
    platform: &'a Platform,
    fusion: Fusion,
    classes: MeshClasses,
    meshes: &'a [Mesh],
}

impl Maker<'_> {
    fn rule(&self, layer: &Layer) -> Rule {
        match (&layer.kind, layer.inputs.first()) {
            _ if is_splittable(layer) => match self.classes.source(layer.id) {
                MeshSource::Own => {
                    let most_members = layer.shape.maps().0.div_ceil(FEATURE_GRAIN);
                    let possible = |&i: &usize| self.meshes[i].members() <= most_members;
                    Rule::Free((0..self.meshes.len()).filter(possible).collect())
                }
                MeshSource::Shared(first) => Rule::Tied(first.index()),
                MeshSource::WholeSamples => Rule::WholeSamples,
            },
            (LayerKind::Lrn(_) | LayerKind::Concat | LayerKind::Conv2d(_), _) | (_, None) => {
                Rule::WholeSamples
            }
            (_, Some(input)) => Rule::Follows(input.index()),
        }
    }

    /// The sizes of a layer's output; flattened features stay with their channel.
    fn sizes(&self, layer: &Layer, before: &[Sizes]) -> Sizes {
        if let (LayerKind::Flatten, Some(input)) = (&layer.kind, layer.inputs.first()) {
            return before[input.index()];
        }
        let (channels, h, w) = layer.shape.maps();
        Sizes { samples: self.minibatch, channels, pixels: h * w }
    }

    fn passes(&self, layer: &Layer, upstream: bool) -> Vec<Passes> {
        self.meshes.iter().map(|&mesh| self.passes_on(layer, mesh, upstream)).collect()
    }

    fn passes_on(&self, layer: &Layer, mesh: Mesh, upstream: bool) -> Passes {
        let (channels, ..) = layer.shape.maps();
        let own = channels_of(channels, mesh.members(), 0).len() as f64 / channels as f64;
        let samples = share(self.minibatch, mesh.groups(), 0).len() as f64;
        let flops = self.network.forward_flops_per_sample(layer.id) as f64 * samples * own;
        let output = layer.shape.elements() as f64 * samples * own;
        let read: usize =
            layer.inputs.iter().map(|&i| self.network.layer(i).shape.elements()).sum();
        let read_share = if is_splittable(layer) { 1.0 } else { own };
        let parameters: usize = self.network.parameters(layer.id).map(Param::elements).sum();
        let weights = parameters as f64 * own * VALUE_BYTES;
        let bytes = (read as f64 * samples * read_share + output) * VALUE_BYTES + weights;
        let pass_s = self.platform.seconds(&Price::compute(flops, bytes));
        let kept = |fused: bool| if fused { 0.0 } else { pass_s };
        let mut passes = Passes {
            forward_s: kept(self.fusion.producer(layer.id).is_some()),
            ..Passes::default()
        };
        if upstream && !matches!(layer.kind, LayerKind::SoftmaxCrossEntropy(_)) {
            passes.backward_data_s = kept(self.fusion.is_gradient_folded(layer.id));
        }
        if weights > 0.0 && layer.tied_to.is_some() {
            // Its gradient is added to that of the others.
            let add = Price::compute(weights / VALUE_BYTES, 3.0 * weights);
            passes.backward_weights_s = pass_s + self.platform.seconds(&add);
        } else if weights > 0.0 {
            let groups = mesh.groups() as f64;
            let strip = weights / groups;
            let update = Price::compute(4.0 * strip / VALUE_BYTES, 5.0 * strip);
            passes.backward_weights_s = pass_s + self.platform.seconds(&update);
            let one = self.exchange(weights - strip, groups - 1.0);
            passes.weights = Exchange { bytes: 2.0 * one.bytes, seconds: 2.0 * one.seconds };
        }
        if matches!(layer.kind, LayerKind::SoftmaxCrossEntropy(_)) {
            let others = mesh.members() as f64 - 1.0;
            passes.loss = self.exchange(LOSS_VALUES * samples * VALUE_BYTES * others, others);
        }
        passes
    }

    fn edges(&self, layer: &Layer, sizes: &[Sizes], needs_gradient: &[bool]) -> Vec<Edge> {
        let need = if is_splittable(layer) { Need::AllFeatures } else { Need::OwnFeatures };
        let edge = |producer: usize| {
            let pairs =
                self.meshes.iter().flat_map(|from| self.meshes.iter().map(move |to| (from, to)));
            let moves = pairs.map(|(&from, &to)| {
                let Load { values, messages } = sizes[producer].redistribution(from, to, need);
                self.exchange(values * VALUE_BYTES, messages)
            });
            let has_gradient = needs_gradient[producer];
            Edge { producer, has_gradient, moves: moves.collect() }
        };
        layer.inputs.iter().map(|input| edge(input.index())).collect()
    }

    fn exchange(&self, bytes: f64, messages: f64) -> Exchange {
        Exchange { bytes, seconds: self.platform.seconds(&Price::exchange(bytes, messages)) }
    }
}
