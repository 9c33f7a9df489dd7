//! A network in Graphviz's language.

use petgraph::dot::{Config, Dot};
use petgraph::graph::{DiGraph, NodeIndex};

use crate::layer::Layer;
use crate::network::Network;
use crate::shape::Shape;

impl Network {
    /// One box a layer; edges say what shape travels along them. Layers with parameters are filled.
    #[must_use]
    pub fn to_dot(&self) -> String {
        let mut graph: DiGraph<&Layer, Shape> = DiGraph::new();
        for layer in self.layers() {
            graph.add_node(layer);
        }
        for layer in self.layers() {
            for input in &layer.inputs {
                let (from, to) = (NodeIndex::new(input.index()), NodeIndex::new(layer.id.index()));
                graph.add_edge(from, to, self.layer(*input).shape);
            }
        }
        let dot = Dot::with_attr_getters(
            &graph,
            &[Config::NodeNoLabel, Config::EdgeNoLabel],
            &|_, edge| format!("label = \"{}\"", edge.weight()),
            &|_, (_, layer)| {
                let style = if layer.params.is_empty() { "solid" } else { "filled" };
                format!("shape = box style = {style} label = \"{}\\n{}\"", layer.name, layer.kind)
            },
        );
        format!("{dot:?}")
    }
}
