//! The number of groups of every layer: a local search for the shortest iteration by the overlap model.

use super::model::{Model, Rule};
use super::overlap::{Estimate, estimate};
use super::reason::{Alternative, Reason};
use crate::compile::is_splittable;
use crate::cost::Platform;
use crate::layer::LayerId;
use crate::network::Network;
use crate::placement::Mesh;

/// What a second of the link counts beside a second of the iteration, even where the computation hides it: the communication
/// thread takes a share of a core and of the memory's bandwidth.
const HIDDEN: f64 = 5e-2;

/// A change must gain more than rounding does.
const GAIN: f64 = 1.0 - 1e-9;

/// Data parallelism has the fewest tasks and the largest blocks: another mesh must gain more than this share of the cost.
const SIMPLER: f64 = 2e-3;

/// Sweeps over all layers, at most; few are needed.
const SWEEPS: usize = 8;

/// Starts from which the search descends: the best of those tried.
const STARTS: usize = 2;

/// The mesh that a layer should have, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerChoice {
    /// The layer.
    pub layer: LayerId,
    /// Its groups and members.
    pub mesh: Mesh,
    /// Bytes that the busiest rank sends in an iteration to gather the layer's inputs, to return their gradients and to
    /// exchange its weights.
    pub bytes: f64,
    /// Why this one.
    pub why: Reason,
}

/// Chooses a mesh for every layer of a network, so that an iteration takes the least time by the overlap model: one entry a layer, in
/// order.
///
/// Convolutions of one group and linear layers are free to choose among the numbers of groups that divide the ranks and leave
/// every member at least one whole group of 16 output features. Local response normalizations, concatenations, convolutions of
/// several groups and the input are data-parallel; every other layer has the mesh of its first input. Tied layers have one mesh
/// and exchange their gradient once, with the first of them. Where a tensor is
/// held otherwise than its reader needs it, what moves is counted exactly, for the rank that is busiest with it. A minibatch
/// or a number of ranks of zero counts as one.
///
/// # Cost
/// Some hundred to thousand walks over the layers: milliseconds, for deep networks tenths of a second.
///
/// # Examples
/// ```
/// use lockstep_graph::{Platform, balance::choose_groups, zoo};
///
/// // 16 nodes on gigabit Ethernet: each exchanges what 91 million weights of the linear layers would be, were they not split.
/// let network = zoo::alexnet().unwrap();
/// let choices = choose_groups(&network, 256, 16, &Platform::default());
/// let groups = |name: &str| choices[network.find(name).unwrap().id.index()].mesh.groups();
/// assert_eq!(groups("conv1"), 16);
/// assert!(groups("fc6") < 16);
/// ```
///
/// # Source
/// Das et al. 2016, sections 3.1 to 3.3; volumes made exact for one direction of a full-duplex link.
#[must_use]
pub fn choose_groups(
    network: &Network,
    minibatch: usize,
    ranks: usize,
    platform: &Platform,
) -> Vec<LayerChoice> {
    let model = Model::new(network, minibatch.max(1), ranks.max(1), platform);
    let search = Search { model: &model };
    let best = search.run();
    let reasons = network.layers().iter().map(|layer| {
        let index = layer.id.index();
        LayerChoice {
            layer: layer.id,
            mesh: model.meshes[best.choice[index]],
            bytes: model.bytes(index, &best.choice),
            why: search.reason(network, index, &best),
        }
    });
    reasons.collect()
}

/// Meshes of all layers, by index, and what they cost.
#[derive(Debug, Clone)]
struct Candidate {
    choice: Vec<usize>,
    cost: f64,
    estimate: Estimate,
}

struct Search<'a> {
    model: &'a Model,
}

impl Search<'_> {
    fn candidate(&self, mut choice: Vec<usize>) -> Candidate {
        self.model.follow(&mut choice);
        let estimate = estimate(self.model, &choice);
        Candidate { choice, cost: estimate.step_s + HIDDEN * estimate.exchange_s, estimate }
    }

    fn run(&self) -> Candidate {
        let mut starts = self.starts();
        starts.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        starts.truncate(STARTS);
        let ends = starts.into_iter().map(|start| self.descend(start));
        let best = ends.min_by(|a, b| a.cost.total_cmp(&b.cost));
        self.simplify(best.expect("there is a start, for every number has a divisor"))
    }

    /// As few groups as one of the meshes has, everywhere; and everywhere but in the first layers.
    fn starts(&self) -> Vec<Candidate> {
        let n = self.model.layers.len();
        let data = self.model.meshes.len() - 1;
        let free = self.free().count();
        let mut starts = vec![self.candidate(vec![data; n])];
        for mesh in 0..data {
            for skip in [0, free / 2, free.saturating_sub(3)] {
                let mut choice = vec![data; n];
                for (layer, possible) in self.free().skip(skip) {
                    choice[layer] = nearest(possible, mesh);
                }
                starts.push(self.candidate(choice));
            }
        }
        starts
    }

    /// Layers that are free to choose, with their possible meshes.
    fn free(&self) -> impl Iterator<Item = (usize, &[usize])> {
        let layers = self.model.layers.iter().enumerate();
        layers.filter_map(|(index, layer)| match &layer.rule {
            Rule::Free(possible) => Some((index, possible.as_slice())),
            _ => None,
        })
    }

    /// Changes one layer, or a layer with all that follow it, as long as that helps.
    fn descend(&self, mut best: Candidate) -> Candidate {
        for _ in 0..SWEEPS {
            let before = best.cost;
            for (place, (layer, possible)) in self.free().enumerate() {
                for &mesh in possible {
                    let mut one = best.choice.clone();
                    one[layer] = mesh;
                    self.take_if_better(&mut best, one);
                    let mut rest = best.choice.clone();
                    for (later, possible) in self.free().skip(place) {
                        rest[later] = nearest(possible, mesh);
                    }
                    self.take_if_better(&mut best, rest);
                }
            }
            if best.cost >= before {
                break;
            }
        }
        best
    }

    /// Makes layers data-parallel again that gain next to nothing otherwise.
    fn simplify(&self, mut best: Candidate) -> Candidate {
        let data = self.model.meshes.len() - 1;
        for (layer, _) in self.free() {
            let mut choice = best.choice.clone();
            choice[layer] = data;
            let simpler = self.candidate(choice);
            if simpler.cost <= best.cost * (1.0 + SIMPLER) {
                best = simpler;
            }
        }
        best
    }

    fn take_if_better(&self, best: &mut Candidate, mut choice: Vec<usize>) {
        self.model.follow(&mut choice);
        if choice != best.choice {
            let candidate = self.candidate(choice);
            if candidate.cost < best.cost * GAIN {
                *best = candidate;
            }
        }
    }

    fn reason(&self, network: &Network, layer: usize, best: &Candidate) -> Reason {
        let possible = match &self.model.layers[layer].rule {
            Rule::Follows(input) => {
                return Reason::Follows { input: network.layers()[*input].name.clone() };
            }
            Rule::Tied(first) => {
                return Reason::Tied { to: network.layers()[*first].name.clone() };
            }
            Rule::WholeSamples if is_splittable(&network.layers()[layer]) => {
                return Reason::TiedToWholeSamples;
            }
            Rule::WholeSamples => {
                return Reason::WholeSamples { kind: network.layers()[layer].kind.name() };
            }
            Rule::Free(possible) => possible,
        };
        let alternative = |&mesh: &usize| {
            let mut choice = best.choice.clone();
            choice[layer] = mesh;
            let other = self.candidate(choice);
            Alternative {
                mesh: self.model.meshes[mesh],
                bytes: self.model.bytes(layer, &other.choice),
                step_s: other.estimate.step_s,
            }
        };
        let alternatives: Vec<_> = possible.iter().map(alternative).collect();
        Reason::Compared { chosen: self.model.meshes[best.choice[layer]], alternatives }
    }
}

/// The possible mesh that is `mesh` or the next one of more groups.
fn nearest(possible: &[usize], mesh: usize) -> usize {
    possible.iter().copied().find(|&p| p >= mesh).unwrap_or(mesh)
}
