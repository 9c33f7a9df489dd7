//! From layers in any order, connected by name, to a network: topological order, or the cycle that rules it out.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use petgraph::Direction;
use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};

use crate::builder::NetworkBuilder;
use crate::error::GraphError;
use crate::json::LayerEntry;
use crate::layer::{LayerId, LayerKind};
use crate::network::Network;

/// Edges run from the layer that is read to its reader.
type Connections = DiGraph<(), ()>;

/// Builds the network, each layer after those that it reads and otherwise in the given order.
pub(crate) fn assemble(name: String, entries: &[LayerEntry]) -> Result<Network, GraphError> {
    let Connected { inputs, owners } = resolve(entries)?;
    // Tied layers come after their owners. Where that cannot be, the builder says so.
    let with_owners: Vec<Vec<usize>> = inputs
        .iter()
        .zip(&owners)
        .map(|(inputs, owner)| [&inputs[..], owner.as_slice()].concat())
        .collect();
    let order = topological_order(&with_owners).or_else(|| topological_order(&inputs));
    let order = order.ok_or_else(|| GraphError::Cycle {
        layers: find_cycle(&inputs).iter().map(|&i| entries[i].name.clone()).collect(),
    })?;
    let mut builder = NetworkBuilder::new(name);
    let mut ids: Vec<Option<LayerId>> = vec![None; entries.len()];
    for index in order {
        let entry = &entries[index];
        let sources: Vec<LayerId> = inputs[index].iter().filter_map(|&i| ids[i]).collect();
        ids[index] = Some(insert(&mut builder, entry, &sources)?);
    }
    for (index, owner) in owners.iter().enumerate() {
        if let (Some(layer), Some(owner)) = (ids[index], owner.and_then(|owner| ids[owner])) {
            builder.tie(layer, owner)?;
        }
    }
    builder.build()
}

fn insert(
    builder: &mut NetworkBuilder,
    entry: &LayerEntry,
    sources: &[LayerId],
) -> Result<LayerId, GraphError> {
    match (entry.kind, entry.shape) {
        (LayerKind::Input, Some(shape)) if sources.is_empty() => builder.input(&entry.name, shape),
        (LayerKind::Input, None) => Err(GraphError::MissingShape { layer: entry.name.clone() }),
        (LayerKind::Input, _) | (_, None) => builder.insert(&entry.name, entry.kind, sources),
        (kind, Some(_)) => {
            Err(GraphError::StrayShape { layer: entry.name.clone(), kind: kind.name() })
        }
    }
}

/// How layers are connected, by position.
struct Connected {
    /// For each layer those that it reads.
    inputs: Vec<Vec<usize>>,
    /// For each layer the one that it is tied to.
    owners: Vec<Option<usize>>,
}

fn resolve(entries: &[LayerEntry]) -> Result<Connected, GraphError> {
    let mut by_name = HashMap::new();
    for (index, entry) in entries.iter().enumerate() {
        if by_name.insert(entry.name.as_str(), index).is_some() {
            return Err(GraphError::DuplicateName { name: entry.name.clone() });
        }
    }
    let position = |layer: &str, input: &String| {
        by_name.get(input.as_str()).copied().ok_or_else(|| GraphError::UnknownInput {
            layer: layer.to_owned(),
            input: input.clone(),
        })
    };
    let inputs = entries
        .iter()
        .map(|entry| entry.inputs.iter().map(|input| position(&entry.name, input)).collect())
        .collect::<Result<_, _>>()?;
    let owner = |entry: &LayerEntry, owner: &String| {
        by_name.get(owner.as_str()).copied().ok_or_else(|| GraphError::UnknownOwner {
            layer: entry.name.clone(),
            owner: owner.clone(),
        })
    };
    let owners = entries
        .iter()
        .map(|entry| entry.tied_to.as_ref().map(|name| owner(entry, name)).transpose())
        .collect::<Result<_, _>>()?;
    Ok(Connected { inputs, owners })
}

fn connections(inputs: &[Vec<usize>]) -> Connections {
    let edges = inputs
        .iter()
        .enumerate()
        .flat_map(|(reader, sources)| sources.iter().map(move |&source| (source, reader)));
    let mut graph = Connections::with_capacity(inputs.len(), inputs.len());
    for _ in inputs {
        graph.add_node(());
    }
    for (source, reader) in edges {
        graph.add_edge(NodeIndex::new(source), NodeIndex::new(reader), ());
    }
    graph
}

/// Of the layers whose inputs are done, the first declared comes next; `None` where a cycle leaves some pending.
/// O(V log V + E), Kahn's algorithm.
fn topological_order(inputs: &[Vec<usize>]) -> Option<Vec<usize>> {
    let graph = connections(inputs);
    let mut pending: Vec<usize> = inputs.iter().map(Vec::len).collect();
    let mut ready: BinaryHeap<Reverse<usize>> =
        (0..inputs.len()).filter(|&i| pending[i] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(inputs.len());
    while let Some(Reverse(index)) = ready.pop() {
        order.push(index);
        for reader in graph.neighbors_directed(NodeIndex::new(index), Direction::Outgoing) {
            pending[reader.index()] -= 1;
            if pending[reader.index()] == 0 {
                ready.push(Reverse(reader.index()));
            }
        }
    }
    (order.len() == inputs.len()).then_some(order)
}

/// One cycle, each layer read by the next, beginning with the first declared layer that is on a cycle.
///
/// The graph must have one: within a strongly connected component, walking from reader to source comes back.
fn find_cycle(inputs: &[Vec<usize>]) -> Vec<usize> {
    let graph = connections(inputs);
    let mut component = vec![0; inputs.len()];
    for (number, members) in kosaraju_scc(&graph).iter().enumerate() {
        for member in members {
            component[member.index()] = number;
        }
    }
    let source_of = |i: usize| inputs[i].iter().copied().find(|&s| component[s] == component[i]);
    let Some(start) = (0..inputs.len()).find(|&i| source_of(i).is_some()) else {
        return Vec::new();
    };
    let mut walk = vec![start];
    let mut last = start;
    while let Some(source) = source_of(last) {
        if let Some(begin) = walk.iter().position(|&seen| seen == source) {
            walk.drain(..begin);
            break;
        }
        walk.push(source);
        last = source;
    }
    walk.reverse();
    // The same cycle, whichever way the walk entered it.
    let first = (0..walk.len()).min_by_key(|&i| walk[i]).unwrap_or(0);
    walk.rotate_left(first);
    walk
}
