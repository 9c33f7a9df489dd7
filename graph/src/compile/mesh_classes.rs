//! Which layers must have one mesh, because parameters are tied between them or between layers that follow them.
//!
//! A layer that is not free has the mesh of a *root*: the free layer that it follows through first inputs, or a layer that is
//! data-parallel whatever the strategy. Tied layers hold the same features of the same parameters, so their roots form a
//! class with one mesh. Where a root of a class is data-parallel, or flattening cuts the features of tied layers at other places,
//! the whole class is.

use super::meshes::{is_mixing, is_splittable};
use crate::layer::{LayerId, LayerKind};
use crate::network::Network;

/// How a free layer comes to its mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MeshSource {
    /// It is the first of its class, and in most networks the only one: the strategy gives it a mesh.
    Own,
    /// It has the mesh of this earlier free layer, the first of its class.
    Shared(LayerId),
    /// It is data-parallel, as another layer of its class must be.
    WholeSamples,
}

/// The classes of all free layers. A function of the network alone.
#[derive(Debug)]
pub(crate) struct MeshClasses {
    /// By layer: an earlier layer of the same class, or itself if it is the first.
    parents: Vec<usize>,
    /// By first layer of a class.
    whole_samples: Vec<bool>,
}

impl MeshClasses {
    /// O(layers), but for ties of ties.
    pub(crate) fn new(network: &Network) -> Self {
        let n = network.layers().len();
        let mut classes = Self { parents: (0..n).collect(), whole_samples: vec![false; n] };
        // By layer: its root, and what number of features of one channel of the root stay together.
        let mut roots: Vec<(usize, usize)> = Vec::with_capacity(n);
        for layer in network.layers() {
            let index = layer.id.index();
            let root = match layer.inputs.first() {
                _ if is_splittable(layer) => (index, 1),
                Some(input) if !is_mixing(&layer.kind) => {
                    let (root, together) = roots[input.index()];
                    let (_, h, w) = network.layer(*input).shape.maps();
                    let flattens = matches!(layer.kind, LayerKind::Flatten);
                    (root, if flattens { together * h * w } else { together })
                }
                _ => {
                    classes.whole_samples[index] = true;
                    (index, 1)
                }
            };
            roots.push(root);
            if let Some(owner) = layer.tied_to {
                let (owners, owners_together) = roots[owner.index()];
                classes.join(root.0, owners, root.1 != owners_together);
            }
        }
        classes
    }

    /// Makes one class of two.
    fn join(&mut self, a: usize, b: usize, whole_samples: bool) {
        let (a, b) = (self.first(a), self.first(b));
        let (first, other) = (a.min(b), a.max(b));
        self.parents[other] = first;
        self.whole_samples[first] |= self.whole_samples[other] || whole_samples;
    }

    fn first(&self, mut layer: usize) -> usize {
        while self.parents[layer] != layer {
            layer = self.parents[layer];
        }
        layer
    }

    /// Where a free layer has its mesh from.
    pub(crate) fn source(&self, layer: LayerId) -> MeshSource {
        let first = self.first(layer.index());
        match first {
            _ if self.whole_samples[first] => MeshSource::WholeSamples,
            _ if first == layer.index() => MeshSource::Own,
            _ => MeshSource::Shared(LayerId::new(first)),
        }
    }

    /// True for two free layers of one class.
    pub(crate) fn are_alike(&self, a: LayerId, b: LayerId) -> bool {
        self.first(a.index()) == self.first(b.index())
    }
}
