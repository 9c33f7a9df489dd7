//! The mesh of every layer, and from it the placement of what a layer reads and writes.

use std::ops::Range;

use super::mesh_classes::{MeshClasses, MeshSource};
use super::parts;
use super::strategy::Strategy;
use crate::balance::choose_groups;
use crate::cost::Platform;
use crate::error::GraphError;
use crate::layer::{Layer, LayerId, LayerKind};
use crate::network::Network;
use crate::placement::{Extent, FEATURE_GRAIN, Mesh, Placement, share};
use crate::task::SamplePart;

/// How the layers of a network lie on the ranks. A function of network, strategy, ranks and minibatch: the same on every rank,
/// in the training and the scoring plan.
///
/// Layers with weights (linear layers and convolutions of one group) have the mesh that the strategy gives them: members of a
/// group read all input features and compute their own output features. Layers that look across channels without weights of
/// that kind (local response normalization, concatenation, grouped convolutions) and the input are data-parallel. All others
/// have the mesh of their first input and work on the features that are there. Tied layers have one mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meshes {
    ranks: usize,
    minibatch: usize,
    layers: Vec<LayerMesh>,
}

/// One layer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LayerMesh {
    mesh: Mesh,
    /// Features of the output that stay together.
    grain: usize,
    /// Parts in which the samples are computed.
    parts: usize,
}

impl Meshes {
    /// Resolves a strategy.
    ///
    /// # Errors
    /// There are no ranks, the strategy names a layer that has no weights or does not exist, or it names two layers differently
    /// that must have one mesh.
    pub fn new(
        network: &Network,
        strategy: &Strategy,
        ranks: usize,
        minibatch: usize,
        platform: &Platform,
    ) -> Result<Self, GraphError> {
        if ranks == 0 {
            return Err(GraphError::UnevenMesh { ranks: 0, groups: 0 });
        }
        let classes = MeshClasses::new(network);
        let asked = asked(network, &classes, strategy)?;
        let is_auto = |layer: &Layer| *asked[layer.id.index()] == Strategy::Auto;
        let choices = if network.layers().iter().any(is_auto) {
            choose_groups(network, minibatch, ranks, platform)
        } else {
            Vec::new()
        };
        let mut layers: Vec<LayerMesh> = Vec::new();
        for layer in network.layers() {
            let next = match (&layer.kind, layer.inputs.first()) {
                _ if is_splittable(layer) => {
                    let mesh = match classes.source(layer.id) {
                        MeshSource::Own => {
                            let chosen = choices.get(layer.id.index()).map(|choice| choice.mesh);
                            let groups = groups(layer, asked[layer.id.index()], ranks, chosen);
                            Mesh::new(ranks, groups)?
                        }
                        MeshSource::Shared(first) => layers[first.index()].mesh,
                        MeshSource::WholeSamples => Mesh::data_parallel(ranks),
                    };
                    LayerMesh { mesh, grain: FEATURE_GRAIN, parts: 1 }
                }
                (_, Some(input)) if !is_mixing(&layer.kind) => {
                    let before = layers[input.index()];
                    // Flattened features lie channel by channel.
                    let (_, h, w) = network.layer(*input).shape.maps();
                    let flattens = matches!(layer.kind, LayerKind::Flatten);
                    let grain = if flattens { before.grain * h * w } else { before.grain };
                    LayerMesh { grain, ..before }
                }
                _ => LayerMesh { mesh: Mesh::data_parallel(ranks), grain: FEATURE_GRAIN, parts: 1 },
            };
            layers.push(next);
        }
        let meshes: Vec<Mesh> = layers.iter().map(|layer| layer.mesh).collect();
        for (layer, parts) in layers.iter_mut().zip(parts::choose(network, &meshes, minibatch)) {
            layer.parts = parts;
        }
        Ok(Self { ranks, minibatch, layers })
    }

    /// All ranks.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Samples of the largest minibatch.
    #[must_use]
    pub fn minibatch(&self) -> usize {
        self.minibatch
    }

    /// The mesh of a layer.
    #[must_use]
    pub fn mesh(&self, layer: LayerId) -> Mesh {
        self.layers[layer.index()].mesh
    }

    /// Features of a layer's output that stay together.
    #[must_use]
    pub fn grain(&self, layer: LayerId) -> usize {
        self.layers[layer.index()].grain
    }

    /// The parts of the samples in which a layer is computed, forward and backward to its input, in the order in which they are
    /// best computed; empty where all samples are computed together. See `parts.rs`.
    #[must_use]
    pub fn parts(&self, layer: LayerId) -> Vec<SamplePart> {
        let LayerMesh { mesh, parts, .. } = self.layers[layer.index()];
        parts::in_order(mesh, parts)
    }

    /// Where a layer's output is.
    #[must_use]
    pub fn output(&self, layer: LayerId) -> Placement {
        let LayerMesh { mesh, grain, .. } = self.layers[layer.index()];
        Placement::activation(mesh, grain)
    }

    /// Where a layer needs its input `input`: with all features, or as it writes its own output.
    #[must_use]
    pub fn operand(&self, layer: &Layer, input: LayerId) -> Placement {
        let mesh = self.mesh(layer.id);
        if is_splittable(layer) || mesh.members() == 1 {
            Placement::gathered(mesh)
        } else {
            Placement::activation(mesh, self.grain(input))
        }
    }

    /// The gradient of [`operand`](Self::operand) as the layer computes it.
    #[must_use]
    pub fn operand_gradient(&self, layer: &Layer, input: LayerId) -> Placement {
        let operand = self.operand(layer, input);
        let partial = is_splittable(layer) && operand.mesh.members() > 1;
        Placement { partial, ..operand }
    }

    /// Output features of a layer that a rank computes; parameters and statistics of the layer are those of its features.
    #[must_use]
    pub fn features(&self, network: &Network, layer: LayerId, rank: usize) -> Range<usize> {
        let (features, ..) = network.layer(layer).shape.maps();
        let extent = Extent { samples: self.minibatch, features };
        self.output(layer).region(rank, extent).features
    }

    /// Samples of a minibatch that a rank computes for a layer, as positions within the minibatch.
    #[must_use]
    pub fn samples(&self, layer: LayerId, rank: usize, minibatch: usize) -> Range<usize> {
        let mesh = self.mesh(layer);
        share(minibatch, mesh.groups(), rank / mesh.members())
    }
}

/// True for layers that a strategy can split by features: their members need not talk to each other within the layer.
pub(crate) fn is_splittable(layer: &Layer) -> bool {
    match &layer.kind {
        LayerKind::Linear(_) => true,
        LayerKind::Conv2d(conv) => conv.groups == 1,
        _ => false,
    }
}

/// True for layers other than splittable ones that look across the channels of their input.
pub(super) fn is_mixing(kind: &LayerKind) -> bool {
    matches!(kind, LayerKind::Lrn(_) | LayerKind::Concat | LayerKind::Conv2d(_))
}

/// What is asked for each layer. Of layers that must have one mesh, it is enough to name one.
fn asked<'a>(
    network: &Network,
    classes: &MeshClasses,
    strategy: &'a Strategy,
) -> Result<Vec<&'a Strategy>, GraphError> {
    let mut asked: Vec<_> = network.layers().iter().map(|l| strategy.of(&l.name)).collect();
    let Strategy::PerLayer(layers) = strategy else { return Ok(asked) };
    let mut named: Vec<&Layer> = Vec::new();
    for name in layers.names() {
        let layer = network.find(name).filter(|layer| is_splittable(layer));
        let layer = layer.ok_or_else(|| GraphError::StrategyLayer {
            path: layers.path().to_owned(),
            layer: name.to_owned(),
        })?;
        let alike = named.iter().find(|other| classes.are_alike(layer.id, other.id));
        if let Some(first) = alike.filter(|first| layers.of(&first.name) != layers.of(name)) {
            return Err(GraphError::StrategyTied {
                path: layers.path().to_owned(),
                first: first.name.clone(),
                second: name.to_owned(),
            });
        }
        named.push(layer);
        for other in network.layers() {
            if classes.are_alike(layer.id, other.id) {
                asked[other.id.index()] = layers.of(name);
            }
        }
    }
    Ok(asked)
}

/// The number of groups for a splittable layer: what the strategy asks for, or the next number that divides the ranks and leaves
/// every member whole vectors of features to compute; what the planner has `chosen` where it was asked.
fn groups(layer: &Layer, asked: &Strategy, ranks: usize, chosen: Option<Mesh>) -> usize {
    let (features, ..) = layer.shape.maps();
    let most_members = features.div_ceil(FEATURE_GRAIN);
    let possible = (1..=ranks).filter(|g| ranks.is_multiple_of(*g) && ranks / g <= most_members);
    match asked {
        Strategy::Model => possible.min(),
        Strategy::Groups(wanted) => {
            let possible: Vec<_> = possible.collect();
            let smaller = possible.iter().rev().find(|g| *g <= wanted);
            smaller.or(possible.first()).copied()
        }
        Strategy::Auto => chosen.map(Mesh::groups),
        _ => None,
    }
    .unwrap_or(ranks)
}
