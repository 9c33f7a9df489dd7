//! What tied layers are compiled into, and how they lie on the ranks.

use std::fs;
use std::sync::Arc;

use lockstep_graph::balance::choose_groups;
use lockstep_graph::{
    Conv2d, Linear, Lrn, Network, NetworkBuilder, Plan, PlanOptions, Platform, SoftmaxCrossEntropy,
    Strategy, TaskKind, TensorRole,
};

/// Three uses of one matrix, and a layer of its own behind them.
fn thrice() -> Network {
    let mut net = NetworkBuilder::new("thrice");
    let data = net.input("data", 64).unwrap();
    let a = net.linear("a", data, Linear::new(64)).unwrap();
    let b = net.linear("b", a, Linear::new(64)).unwrap();
    let c = net.linear("c", b, Linear::new(64)).unwrap();
    let d = net.linear("d", c, Linear::new(48)).unwrap();
    net.tie(b, a).unwrap();
    net.tie(c, b).unwrap();
    net.softmax_cross_entropy("loss", d, SoftmaxCrossEntropy::default()).unwrap();
    net.build().unwrap()
}

/// A split convolution and one after a layer that needs whole samples; biases behind them are tied.
fn split_and_whole() -> Network {
    let mut net = NetworkBuilder::new("split_and_whole");
    let data = net.input("data", (3, 8, 8)).unwrap();
    let a = net.conv2d("a", data, Conv2d::new(64, 3).pad(1)).unwrap();
    let a_bias = net.bias("a.bias", a).unwrap();
    let lrn = net.lrn("lrn", a_bias, Lrn::new(3)).unwrap();
    let lrn_bias = net.bias("lrn.bias", lrn).unwrap();
    net.tie(lrn_bias, a_bias).unwrap();
    let b = net.conv2d("b", lrn_bias, Conv2d::new(64, 3)).unwrap();
    let flat = net.flatten("flat", b).unwrap();
    net.softmax_cross_entropy("loss", flat, SoftmaxCrossEntropy::default()).unwrap();
    net.build().unwrap()
}

fn compile(network: Network, options: PlanOptions) -> Plan {
    // Each layer's exchange is to be seen.
    let options = PlanOptions { minibatch: 16, bundle: false, ..options };
    Plan::compile(Arc::new(network), options).unwrap()
}

/// Tasks from the first weight gradient on, of some kinds.
fn names(plan: &Plan, kinds: &[TaskKind]) -> Vec<String> {
    let tasks = plan.tasks().tasks().filter(|t| kinds.contains(&t.kind));
    tasks.map(|t| t.name.clone()).collect()
}

const GRADIENT: [TaskKind; 6] = [
    TaskKind::BackwardWeights,
    TaskKind::SumGradients,
    TaskKind::GradientSquares,
    TaskKind::PartReduce,
    TaskKind::Update,
    TaskKind::PartBroadcast,
];

#[test]
fn the_uses_gradients_are_summed_and_exchanged_once_by_the_first() {
    let plan = compile(thrice(), PlanOptions { ranks: 2, ..PlanOptions::default() });
    let expected = [
        "d.backward_weights",
        "d.part_reduce",
        "d.update",
        "d.part_broadcast",
        "c.backward_weights",
        "b.backward_weights",
        "b.sum_gradients",
        "a.backward_weights",
        "a.sum_gradients",
        "a.part_reduce",
        "a.update",
        "a.part_broadcast",
    ];
    assert_eq!(names(&plan, &GRADIENT), expected);
    let parameters = plan.tasks().tensors().iter().filter(|t| t.role == TensorRole::Parameters);
    assert_eq!(
        parameters.map(|t| t.name.as_str()).collect::<Vec<_>>(),
        ["a.parameters", "d.parameters"]
    );
}

#[test]
fn the_update_waits_for_every_use_and_every_use_for_the_exchange() {
    let plan = compile(thrice(), PlanOptions { ranks: 2, ..PlanOptions::default() });
    let edges: Vec<(&str, &str, bool)> = plan
        .tasks()
        .dependencies()
        .map(|(from, to, d)| {
            let name = |id| plan.tasks().task(id).name.as_str();
            (name(from), name(to), d.carried)
        })
        .collect();
    for reader in ["a.forward", "b.forward", "c.forward", "b.backward_data", "c.backward_data"] {
        assert!(edges.contains(&(reader, "a.update", false)), "{reader}");
        // Who reads first in the next iteration waits for the new values.
        assert!(edges.contains(&("a.part_broadcast", reader, true)), "{reader}");
    }
}

#[test]
fn clipping_counts_a_tied_gradient_once() {
    let plan = compile(thrice(), PlanOptions { clip: true, ..PlanOptions::default() });
    assert_eq!(
        names(&plan, &[TaskKind::GradientSquares]),
        ["d.gradient_squares", "a.gradient_squares"]
    );
    assert_eq!(names(&plan, &[TaskKind::Update]), ["d.update", "a.update"]);
}

#[test]
fn the_sum_over_uses_comes_before_the_sum_over_slices() {
    let options = PlanOptions { ranks: 4, reproducible: true, ..PlanOptions::default() };
    let plan = compile(thrice(), options);
    let of_ties = names(&plan, &GRADIENT);
    let of_ties: Vec<&str> =
        of_ties.iter().map(String::as_str).skip_while(|n| !n.starts_with('c')).collect();
    let expected = [
        "c.backward_weights 1/2",
        "c.backward_weights 2/2",
        "b.backward_weights 1/2",
        "b.sum_gradients",
        "b.backward_weights 2/2",
        "b.sum_gradients",
        "a.backward_weights 1/2",
        "a.sum_gradients",
        "a.backward_weights 2/2",
        "a.sum_gradients",
        "a.sum_gradients",
        "a.part_reduce",
        "a.update",
        "a.part_broadcast",
    ];
    assert_eq!(of_ties, expected);
}

/// Groups of some layers under a strategy.
fn groups(network: &Network, strategy: &Strategy, layers: &[&str]) -> Vec<usize> {
    let options = PlanOptions { ranks: 4, strategy: strategy.clone(), ..PlanOptions::default() };
    let plan = compile(network.clone(), options);
    let id = |name: &&str| plan.network().find(name).unwrap().id;
    layers.iter().map(|name| plan.meshes().mesh(id(name)).groups()).collect()
}

#[test]
fn tied_layers_have_one_mesh_whoever_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = |text: &str| {
        let path = folder.path().join("layers.json");
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().parse::<Strategy>().unwrap()
    };
    let network = thrice();
    let of = |strategy: &Strategy| groups(&network, strategy, &["a", "b", "c", "d"]);
    assert_eq!(of(&file(r#"{"default": "data", "c": "model"}"#)), [1, 1, 1, 4]);
    assert_eq!(of(&file(r#"{"default": "model", "b": 2, "a": 2}"#)), [2, 2, 2, 2]);
    let auto = of(&Strategy::Auto);
    assert_eq!(auto[..3], [auto[0]; 3]);
    let conflict = file(r#"{"a": "model", "c": "data"}"#);
    let options = PlanOptions { ranks: 4, strategy: conflict, ..PlanOptions::default() };
    let refused = Plan::compile(Arc::new(network), options).unwrap_err().to_string();
    let reason = "layers.json: a and c must have the same strategy, because parameters are tied between them or between \
                  layers that follow them: name one of them, or give both the same";
    assert!(refused.ends_with(reason), "{refused}");
}

#[test]
fn what_is_tied_to_a_data_parallel_layer_is_data_parallel() {
    let network = split_and_whole();
    for strategy in [Strategy::Model, Strategy::Groups(2), Strategy::Auto] {
        assert_eq!(groups(&network, &strategy, &["a", "a.bias", "lrn.bias"]), [4, 4, 4]);
    }
    assert_eq!(groups(&network, &Strategy::Model, &["b"]), [1]);
    let choices = choose_groups(&network, 16, 4, &Platform::default());
    let why = |name: &str| choices[network.find(name).unwrap().id.index()].why.to_string();
    assert_eq!(why("a"), "parameters are tied with a data-parallel layer");
    let network = thrice();
    let choices = choose_groups(&network, 16, 4, &Platform::default());
    assert_eq!(choices[2].why.to_string(), "as a, with which parameters are tied");
}

#[test]
fn the_planner_counts_the_exchange_of_tied_layers_once() {
    for (ranks, minibatch) in [(2, 4), (4, 64), (8, 4096)] {
        let network = thrice();
        let choices = choose_groups(&network, minibatch, ranks, &Platform::default());
        let (strategy, options) = (Strategy::Auto, PlanOptions::default());
        let options = PlanOptions { minibatch, ranks, strategy, bundle: false, ..options };
        let plan = Plan::compile(Arc::new(network), options).unwrap();
        for choice in &choices[1..5] {
            assert_eq!(plan.meshes().mesh(choice.layer), choice.mesh);
            let tasks = plan.tasks().tasks().filter(|task| task.layer == choice.layer);
            let bytes: f64 = tasks.map(|task| task.price.bytes_sent).sum();
            let name = &plan.network().layer(choice.layer).name;
            let close = (bytes - choice.bytes).abs() <= 1e-9 * bytes;
            assert!(close, "{name} on {ranks} ranks: {bytes} {}", choice.bytes);
        }
    }
}
