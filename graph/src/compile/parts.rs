//! Parts of the samples: in which pieces layers are computed, so that the exchange of one piece is hidden behind the work on the
//! next.
//!
//! Where features are split over the members of a group, activations travel between layers, and a pass would wait for them. Split
//! linear layers and what stands between them are therefore computed in parts: while one part's activations travel, the
//! next part is computed. So are the layers that feed them, as far back as every sample is computed by itself: their forward pass
//! covers the exchange of the parts before, and their backward pass begins with the first part of the gradient that comes back.

use crate::layer::{Layer, LayerKind};
use crate::network::Network;
use crate::placement::Mesh;
use crate::task::SamplePart;

/// Parts at most: with each the messages of every exchange, and their latencies, come once more.
const MOST_PARTS: usize = 4;

/// Samples that a part of a split layer has at least; smaller products are slow, and every message has its latency.
const PART_SAMPLES: usize = 32;

/// In how many parts every layer is computed.
pub(super) fn choose(network: &Network, meshes: &[Mesh], minibatch: usize) -> Vec<usize> {
    let mut parts = vec![1; network.layers().len()];
    for layer in network.layers() {
        let mesh = meshes[layer.id.index()];
        if mesh.members() > 1 && is_vector(layer) && is_sample_by_sample(&layer.kind) {
            parts[layer.id.index()] =
                (minibatch / mesh.groups() / PART_SAMPLES).clamp(1, MOST_PARTS);
        }
    }
    for layer in network.layers() {
        if parts[layer.id.index()] > 1 && matches!(layer.kind, LayerKind::Linear(_)) {
            feed(network, meshes, layer, &mut parts);
        }
    }
    parts
}

/// Gives the layers that feed a split layer the parts that its own are made of, where each of them has whole ones.
fn feed(network: &Network, meshes: &[Mesh], split: &Layer, parts: &mut [usize]) {
    let groups = meshes[split.id.index()].groups();
    let all = groups * parts[split.id.index()];
    let mut next = split;
    while let [input] = next.inputs[..] {
        let layer = network.layer(input);
        let mesh = meshes[input.index()];
        let is_fed_in_turn = mesh.members() == 1
            && mesh.groups() > groups
            && network.consumers(input).len() == 1
            && is_sample_by_sample(&layer.kind);
        if !is_fed_in_turn || !all.is_multiple_of(mesh.groups()) {
            return;
        }
        parts[input.index()] = all / mesh.groups();
        next = layer;
    }
}

/// The parts of a layer in the order in which they are best computed; empty where there is but one. Where the members of a group
/// bring its samples together, the first part of every member's comes first: these arrive together.
pub(super) fn in_order(mesh: Mesh, parts: usize) -> Vec<SamplePart> {
    if parts == 1 {
        return Vec::new();
    }
    let of_member =
        if parts.is_multiple_of(mesh.members()) { parts / mesh.members() } else { parts };
    let mut indices: Vec<usize> = (0..parts).collect();
    indices.sort_by_key(|index| (index % of_member, *index));
    indices
        .into_iter()
        .map(|index| SamplePart { index, of: parts, groups: mesh.groups() })
        .collect()
}

fn is_vector(layer: &Layer) -> bool {
    let (_, h, w) = layer.shape.maps();
    h * w == 1
}

/// True for layers that compute each sample by itself, with one input.
fn is_sample_by_sample(kind: &LayerKind) -> bool {
    matches!(
        kind,
        LayerKind::Linear(_)
            | LayerKind::Conv2d(_)
            | LayerKind::Bias
            | LayerKind::Relu
            | LayerKind::Sigmoid
            | LayerKind::Tanh
            | LayerKind::Dropout(_)
            | LayerKind::MaxPool(_)
            | LayerKind::AvgPool(_)
            | LayerKind::GlobalAvgPool
            | LayerKind::Lrn(_)
            | LayerKind::Flatten
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use crate::compile::{PerLayer, Plan, PlanOptions, Strategy};
    use crate::zoo;

    /// Tasks of a pass of one layer, by their parts, in the plan's order.
    fn tasks(plan: &Plan, of: &str) -> Vec<String> {
        // Without the activation that a task computes along.
        let plain = |name: &String| {
            let (before, pass) = name.split_once('.').unwrap();
            format!("{}.{pass}", before.split('+').next().unwrap())
        };
        let names = plan.tasks().tasks().map(|task| plain(&task.name));
        names.filter(|name| name.split(' ').next() == Some(of)).collect()
    }

    fn lenet(ranks: usize, strategy: Strategy) -> Plan {
        let network = Arc::new(zoo::by_name("lenet").unwrap());
        let options = PlanOptions { minibatch: 64 * ranks, ranks, strategy, ..Default::default() };
        Plan::compile(network, options).unwrap()
    }

    fn split_fc1() -> Strategy {
        let layers = PerLayer::from_json(Path::new("strategy.json"), r#"{"fc1": "model"}"#);
        Strategy::PerLayer(Arc::new(layers.unwrap()))
    }

    #[test]
    fn convolutions_feed_a_split_layer_in_parts() {
        let plan = lenet(2, split_fc1());
        let expected = ["fc1.forward 1/4", "fc1.forward 3/4", "fc1.forward 2/4", "fc1.forward 4/4"];
        assert_eq!(tasks(&plan, "fc1.forward"), expected);
        let exchange = "fc1.redistribute_input";
        assert_eq!(tasks(&plan, exchange), [1, 2].map(|part| format!("{exchange} {part}/2")));
        for pass in ["conv1.forward", "conv2.forward", "conv2.backward_data"] {
            assert_eq!(tasks(&plan, pass).len(), 2, "{pass}");
        }
        assert_eq!(tasks(&plan, "conv2.backward_weights").len(), 1);
    }

    #[test]
    fn data_parallel_layers_alone_have_no_parts() {
        let plan = lenet(2, Strategy::Data);
        assert!(plan.tasks().tasks().all(|task| task.part.is_none()));
    }

    #[test]
    fn a_part_of_a_split_layer_waits_for_the_part_that_feeds_it_alone() {
        let plan = lenet(2, split_fc1());
        let graph = plan.tasks();
        // Exchanges that a task of fc1's waits for in its iteration.
        let waits = |end: &str| -> Vec<&str> {
            let task = graph.tasks().find(|t| t.name.starts_with("fc1") && t.name.ends_with(end));
            let before = graph.predecessors(task.unwrap().id).filter(|(_, d)| !d.carried);
            let before = before.map(|(from, _)| graph.task(from));
            before.filter(|t| t.kind.is_communication()).map(|t| t.name.as_str()).collect()
        };
        // The last quarter of the samples is in the second half of the second rank's.
        assert_eq!(waits(".forward 4/4"), ["fc1.redistribute_input 2/2"]);
        assert_eq!(waits(".forward 3/4"), ["fc1.redistribute_input 1/2"]);
    }

    #[test]
    fn gradients_that_stay_here_can_wait_for_what_travels() {
        let can_wait = |ranks| {
            let plan = lenet(ranks, split_fc1());
            let order = plan.tasks().service_order();
            let names = order.tasks[order.urgent..].iter();
            names.map(|id| plan.tasks().task(*id).name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(can_wait(1), [""; 0]);
        // The other layers' gradients are sent to the other rank.
        assert_eq!(can_wait(2), ["fc1.backward_weights+update"]);
    }

    #[test]
    fn a_part_is_fed_before_the_next_is_begun() {
        let plan = lenet(2, split_fc1());
        let path = |layer: &str, end: &str| {
            let named = |name: &str| name.starts_with(layer) && name.ends_with(end);
            plan.tasks().tasks().find(|task| named(&task.name)).unwrap().critical_path
        };
        let head = path("conv1", ".forward 2/2");
        assert!(path("pool2", ".forward 1/2") > head);
        assert!(path("pool2", ".forward 2/2") < head);
    }
}
