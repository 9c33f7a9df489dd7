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
        let node_style = |_: &DiGraph<&Layer, Shape>, (_, layer): (NodeIndex, &&Layer)| {
            let parameters = !layer.params.is_empty() || layer.tied_to.is_some();
            let (style, kind) =
                (if parameters { "filled" } else { "solid" }, self.kind_text(layer));
            format!("shape = box style = {style} label = \"{}\\n{kind}\"", layer.name)
        };
        let dot = Dot::with_attr_getters(
            &graph,
            &[Config::NodeNoLabel, Config::EdgeNoLabel],
            &|_, edge| format!("label = \"{}\"", edge.weight()),
            &node_style,
        );
        format!("{dot:?}")
    }
}
