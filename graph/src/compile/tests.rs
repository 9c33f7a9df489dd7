//! What networks are compiled into.

use std::sync::Arc;

use super::{Mode, Plan, PlanOptions, Strategy};
use crate::builder::NetworkBuilder;
use crate::cost::Platform;
use crate::error::GraphError;
use crate::layer::{BatchNorm, Conv2d, Dropout, LayerKind, Linear, SoftmaxCrossEntropy};
use crate::network::Network;
use crate::task::{Hazard, TaskKind, TensorId, TensorRole};
use crate::zoo;

fn compile(network: Network, ranks: usize, mode: Mode) -> Plan {
    compile_with(network, ranks, mode, true)
}

fn compile_with(network: Network, ranks: usize, mode: Mode, fuse: bool) -> Plan {
    let options = PlanOptions {
        minibatch: 13,
        ranks,
        mode,
        strategy: Strategy::Data,
        platform: Platform::default(),
        fuse,
        ..PlanOptions::default()
    };
    Plan::compile(Arc::new(network), options).unwrap()
}

const TRAIN: Mode = Mode::Train { momentum: true };

fn names(plan: &Plan) -> Vec<&str> {
    plan.tasks().tasks().map(|t| t.name.as_str()).collect()
}

/// Reads as `from -> to` for edges within, `from => to` for carried ones.
fn has_edge(plan: &Plan, from: &str, to: &str, carried: bool) -> bool {
    plan.tasks().dependencies().any(|(a, b, d)| {
        let name = |id| plan.tasks().task(id).name.as_str();
        name(a) == from && name(b) == to && d.carried == carried
    })
}

fn two_layers() -> Network {
    let mut net = NetworkBuilder::new("two");
    let data = net.input("data", 6).unwrap();
    let a = net.linear("a", data, Linear::new(5)).unwrap();
    let s = net.sigmoid("s", a).unwrap();
    let b = net.linear("b", s, Linear::new(3)).unwrap();
    net.softmax_cross_entropy("loss", b, SoftmaxCrossEntropy::default()).unwrap();
    net.build().unwrap()
}

#[test]
fn one_rank_exchanges_nothing_and_the_first_layer_has_no_data_gradient() {
    let plan = compile_with(two_layers(), 1, TRAIN, false);
    let expected = [
        "data.load",
        "a.forward",
        "s.forward",
        "b.forward",
        "loss.loss",
        "loss.metrics",
        "loss.report",
        "b.backward_weights",
        "b.backward_data",
        "b.update",
        "s.backward_data",
        "a.backward_weights",
        "a.update",
    ];
    assert_eq!(names(&plan), expected);
}

#[test]
fn an_activation_is_computed_by_the_layer_before_and_its_gradient_by_the_layer_after() {
    let plan = compile(two_layers(), 1, TRAIN);
    let expected = [
        "data.load",
        "a+s.forward",
        "b.forward",
        "loss.loss",
        "loss.metrics",
        "loss.report",
        "b+s.backward_data",
        "b.backward_weights+update",
        "a.backward_weights+update",
    ];
    assert_eq!(names(&plan), expected);
    let tensors = |name: &str| {
        let task = plan.tasks().tasks().find(|t| t.name == name).unwrap();
        let names = |ids: &[TensorId]| {
            ids.iter().map(|&t| plan.tasks().tensor(t).name.clone()).collect::<Vec<_>>()
        };
        (names(&task.reads), names(&task.writes))
    };
    let text = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect::<Vec<_>>();
    let forward = (text(&["data.activation", "a.parameters"]), text(&["s.activation"]));
    assert_eq!(tensors("a+s.forward"), forward);
    // The slope is told from the activation's output, and what is written is the gradient of its input.
    let reads = text(&["b.gradient", "b.parameters", "s.activation"]);
    assert_eq!(tensors("b+s.backward_data"), (reads, text(&["a.gradient"])));
}

#[test]
fn parameters_step_along_with_their_gradient_where_nobody_else_needs_it() {
    let plan = compile(two_layers(), 1, TRAIN);
    // What reads the parameters as they were comes before, and the next iteration waits.
    assert!(has_edge(&plan, "b+s.backward_data", "b.backward_weights+update", false));
    assert!(has_edge(&plan, "b.forward", "b.backward_weights+update", false));
    assert!(has_edge(&plan, "b.backward_weights+update", "b.forward", true));
    let gradients = |plan: &Plan| {
        plan.tasks().tensors().iter().filter(|t| t.role == TensorRole::ParameterGradient).count()
    };
    assert_eq!(gradients(&plan), 0);
    // Exchanged gradients, gradients whose norm is needed, and layers apart: each has its update.
    let updates = |plan: &Plan| names(plan).iter().filter(|n| n.ends_with(".update")).count();
    let options = PlanOptions { minibatch: 13, clip: true, ..PlanOptions::default() };
    let clipped = Plan::compile(Arc::new(two_layers()), options).unwrap();
    for plan in
        [compile(two_layers(), 2, TRAIN), clipped, compile_with(two_layers(), 1, TRAIN, false)]
    {
        assert_eq!((updates(&plan), gradients(&plan)), (2, 2));
    }
}

#[test]
fn activations_whose_neighbors_cannot_help_keep_their_tasks() {
    let mut net = NetworkBuilder::new("alone");
    let data = net.input("data", (3, 6, 6)).unwrap();
    let conv = net.conv2d("conv", data, Conv2d::new(4, 3).pad(1)).unwrap();
    // Two layers read `conv`, so `first` cannot take its place; two layers read `first`: the sum takes the slope.
    let first = net.relu("first", conv).unwrap();
    let sum = net.add("sum", &[conv, first]).unwrap();
    // A sum cannot keep padding zero under a sigmoid.
    let second = net.sigmoid("second", sum).unwrap();
    // A concatenation takes no slopes.
    let third = net.tanh("third", second).unwrap();
    let both = net.concat("both", &[third, first]).unwrap();
    let flat = net.flatten("flat", both).unwrap();
    let fc = net.linear("fc", flat, Linear::new(2)).unwrap();
    // Nor does the loss.
    let last = net.relu("last", fc).unwrap();
    net.softmax_cross_entropy("loss", last, SoftmaxCrossEntropy::default()).unwrap();
    let plan = compile(net.build().unwrap(), 1, TRAIN);
    let passes = |layer: &str| {
        let names = names(&plan).into_iter();
        let passes = names.filter_map(|n| n.split_once('.')).filter(|(l, _)| *l == layer);
        passes.map(|(_, pass)| pass).collect::<Vec<_>>()
    };
    assert_eq!(passes("first"), ["forward", "accumulate_gradient"]);
    assert_eq!(passes("second"), ["forward", "backward_data"]);
    assert_eq!(passes("third"), ["forward", "backward_data"]);
    assert_eq!(passes("fc+last"), ["forward"]);
    assert_eq!(passes("last"), ["backward_data"]);
}

#[test]
fn residual_blocks_have_no_task_of_an_activation() {
    let plan = compile(zoo::golden::small_resnet().unwrap(), 2, TRAIN);
    for task in plan.tasks().tasks() {
        let is_relu = matches!(plan.network().layer(task.layer).kind, LayerKind::Relu);
        assert!(!is_relu || task.kind == TaskKind::AccumulateGradient, "{}", task.name);
    }
}

#[test]
fn several_ranks_exchange_each_layers_parameters_and_gather_the_loss() {
    let plan = compile(two_layers(), 3, TRAIN);
    let exchanges: Vec<_> = plan
        .tasks()
        .tasks()
        .filter(|t| t.kind.is_communication())
        .map(|t| t.name.as_str())
        .collect();
    let expected = [
        "loss.gather_metrics",
        "b.part_reduce",
        "b.part_broadcast",
        "a.part_reduce",
        "a.part_broadcast",
    ];
    assert_eq!(exchanges, expected);
    // 13 samples on 3 ranks: the busiest has 5.
    assert_eq!(plan.local_minibatch(), 5);
    let reduce = plan.tasks().tasks().find(|t| t.name == "a.part_reduce").unwrap();
    assert!((reduce.price.bytes_sent - 35.0 * 4.0 * 2.0 / 3.0).abs() < 1e-9);
}

#[test]
fn a_layers_next_forward_waits_for_its_own_parameters_and_for_no_others() {
    let plan = compile(two_layers(), 2, TRAIN);
    assert!(has_edge(&plan, "a.part_broadcast", "a+s.forward", true));
    assert!(has_edge(&plan, "b.part_broadcast", "b.forward", true));
    assert!(!has_edge(&plan, "b.part_broadcast", "a+s.forward", true));
    // Parameters are overwritten only when this iteration has read them for the last time.
    assert!(has_edge(&plan, "b+s.backward_data", "b.update", false));
    assert!(has_edge(&plan, "b.update", "b.part_broadcast", false));
}

#[test]
fn the_weight_gradient_comes_before_the_data_gradient_when_it_is_exchanged() {
    let plan = compile(zoo::golden::small_vgg().unwrap(), 2, TRAIN);
    for data in plan.tasks().tasks().filter(|t| t.kind == TaskKind::BackwardData) {
        let weights = plan
            .tasks()
            .tasks()
            .find(|t| t.kind == TaskKind::BackwardWeights && t.layer == data.layer);
        if let Some(weights) = weights {
            assert!(weights.critical_path > data.critical_path, "{}", weights.name);
        }
    }
}

#[test]
fn updates_whose_result_travels_come_before_all_other_work() {
    let least_update_and_most_other = |ranks, fuse| {
        let plan = compile_with(zoo::golden::small_vgg().unwrap(), ranks, TRAIN, fuse);
        let paths = |updates: bool| {
            let tasks = plan.tasks().tasks().filter(|t| !t.kind.is_communication());
            let wanted = tasks.filter(|t| (t.kind == TaskKind::Update) == updates);
            wanted.map(|t| t.critical_path).collect::<Vec<_>>()
        };
        let least = paths(true).into_iter().fold(f64::INFINITY, f64::min);
        (least, paths(false).into_iter().fold(0.0, f64::max))
    };
    let (update, other) = least_update_and_most_other(2, true);
    assert!(update > other);
    // Alone there is no link to keep busy.
    let (update, other) = least_update_and_most_other(1, false);
    assert!(update < other);
}

#[test]
fn gradients_at_a_fan_out_are_summed_in_layer_order() {
    for fuse in [false, true] {
        let plan = compile_with(zoo::golden::small_resnet().unwrap(), 1, TRAIN, fuse);
        let sums: Vec<_> = plan
            .tasks()
            .tasks()
            .filter(|t| t.kind == TaskKind::AccumulateGradient)
            .map(|t| t.reads.iter().map(|&r| plan.tasks().tensor(r).role).collect::<Vec<_>>())
            .collect();
        // Both blocks read their input twice. The second one's is a ReLU's output, which gives the slope.
        let gradient = TensorRole::ActivationGradient;
        let second = [gradient, gradient, TensorRole::Activation];
        assert_eq!(sums, [&second[..if fuse { 3 } else { 2 }], &[gradient, gradient]]);
    }
}

#[test]
fn batch_normalization_gathers_statistics_of_all_ranks_unless_told_otherwise() {
    let build = |norm: BatchNorm| {
        let mut net = NetworkBuilder::new("bn");
        let data = net.input("data", (3, 6, 6)).unwrap();
        let conv = net.conv2d("conv", data, Conv2d::new(4, 3)).unwrap();
        let bn = net.batch_norm("bn", conv, norm).unwrap();
        let flat = net.flatten("flat", bn).unwrap();
        let fc = net.linear("fc", flat, Linear::new(2)).unwrap();
        net.softmax_cross_entropy("loss", fc, SoftmaxCrossEntropy::default()).unwrap();
        net.build().unwrap()
    };
    let gathers = |plan: &Plan| names(plan).iter().filter(|n| n.starts_with("bn.gather_")).count();
    assert_eq!(gathers(&compile(build(BatchNorm::default()), 2, TRAIN)), 2);
    assert_eq!(gathers(&compile(build(BatchNorm::default()), 1, TRAIN)), 0);
    assert_eq!(gathers(&compile(build(BatchNorm::default().per_rank()), 2, TRAIN)), 0);
    let score = compile(build(BatchNorm::default()), 2, Mode::Score);
    assert!(!names(&score).contains(&"bn.statistics"));
}

#[test]
fn scoring_passes_dropout_through() {
    let mut net = NetworkBuilder::new("dropout");
    let data = net.input("data", 4).unwrap();
    let dropped = net.dropout("dropout", data, Dropout::new(0.5)).unwrap();
    let fc = net.linear("fc", dropped, Linear::new(2)).unwrap();
    net.softmax_cross_entropy("loss", fc, SoftmaxCrossEntropy::default()).unwrap();
    let net = net.build().unwrap();
    assert!(names(&compile(net.clone(), 1, TRAIN)).contains(&"dropout.forward"));
    assert!(!names(&compile(net, 1, Mode::Score)).contains(&"dropout.forward"));
}

#[test]
fn tasks_are_numbered_in_a_topological_order_and_paths_shrink_along_edges() {
    for ranks in [1, 4] {
        let plan = compile(zoo::golden::small_resnet().unwrap(), ranks, TRAIN);
        for (from, to, dependency) in plan.tasks().dependencies() {
            if dependency.carried {
                continue;
            }
            assert!(from < to);
            let path = |id| plan.tasks().task(id).critical_path;
            let lifted = [TaskKind::BackwardWeights, TaskKind::Update];
            assert!(path(from) >= path(to) || lifted.contains(&plan.tasks().task(to).kind));
        }
    }
}

#[test]
fn every_reason_to_wait_is_named() {
    let plan = compile(two_layers(), 2, TRAIN);
    let hazards: Vec<Hazard> = plan.tasks().dependencies().map(|(_, _, d)| d.hazard).collect();
    assert!(hazards.contains(&Hazard::ReadAfterWrite));
    assert!(hazards.contains(&Hazard::WriteAfterRead));
}

#[test]
fn empty_minibatches_and_networks_without_a_loss_are_refused() {
    let options = PlanOptions {
        minibatch: 0,
        ranks: 1,
        mode: TRAIN,
        strategy: Strategy::Data,
        platform: Platform::default(),
        fuse: true,
        ..PlanOptions::default()
    };
    let network = Arc::new(two_layers());
    let refused = Plan::compile(Arc::clone(&network), options.clone()).unwrap_err();
    assert_eq!(refused, GraphError::EmptyMinibatch);
    let refused = Plan::compile(network, PlanOptions { minibatch: 4, ranks: 0, ..options.clone() });
    assert!(refused.is_err());
    let mut net = NetworkBuilder::new("headless");
    let data = net.input("data", 4).unwrap();
    net.linear("fc", data, Linear::new(2)).unwrap();
    let headless = Arc::new(net.build().unwrap());
    let refused = Plan::compile(headless, PlanOptions { minibatch: 4, ..options }).unwrap_err();
    assert_eq!(
        refused.to_string(),
        GraphError::NoLoss { network: "headless".to_owned() }.to_string()
    );
}
