//! Weight tying: one set of parameters, whose gradient is the sum of the gradients by each use, under every strategy.

use std::collections::BTreeMap;
use std::sync::Arc;

use lockstep_graph::{
    BatchNorm, Conv2d, Dropout, GraphError, Linear, Mode, Network, NetworkBuilder, Plan,
    PlanOptions, Pool, SoftmaxCrossEntropy, zoo,
};
use lockstep_ops::Isa;
use lockstep_scheduler::ParameterStore;
use proptest::prelude::*;

use super::harness::{Outcome, Run};
use super::networks;

const SIZES: [usize; 4] = [13, 13, 5, 13];

/// As many samples as make several parts for a split layer.
const PARTED: [usize; 2] = [140, 65];

/// Ties of every kind of layer: a convolution of the samples as they come, one over another stride, grouped and depthwise
/// convolutions, normalizations, biases.
fn maps() -> Result<Network, GraphError> {
    let mut net = NetworkBuilder::new("maps");
    let data = net.input("data", (3, 12, 12))?;
    let a = net.conv2d("a", data, Conv2d::new(3, 3).pad(1))?;
    let a2 = net.conv2d("a2", a, Conv2d::new(3, 3))?;
    net.tie(a2, a)?;
    let b = net.conv2d("b", a2, Conv2d::new(40, 3).pad(1))?;
    let b_norm = net.batch_norm("b.norm", b, BatchNorm::default())?;
    let b_relu = net.relu("b.relu", b_norm)?;
    let c = net.conv2d("c", b_relu, Conv2d::new(40, 3).pad(1).no_bias())?;
    let c_norm = net.batch_norm("c.norm", c, BatchNorm::default())?;
    net.tie(c_norm, b_norm)?;
    let sum = net.add("sum", &[c_norm, b_relu])?;
    let sum = net.relu("sum.relu", sum)?;
    let c2 = net.conv2d("c2", sum, Conv2d::new(40, 3).stride(2).no_bias())?;
    let c2_bias = net.bias("c2.bias", c2)?;
    let c3 = net.conv2d("c3", c2_bias, Conv2d::new(40, 3).pad(1).no_bias())?;
    let c3_bias = net.bias("c3.bias", c3)?;
    net.tie(c2, c)?;
    net.tie(c3, c)?;
    net.tie(c3_bias, c2_bias)?;
    let e = net.sigmoid("e", c3_bias)?;
    let f = net.conv2d("f", e, Conv2d::new(40, 3).pad(1).groups(4))?;
    let f2 = net.conv2d("f2", f, Conv2d::new(40, 3).pad(1).groups(4))?;
    net.tie(f2, f)?;
    let g = net.conv2d("g", f2, Conv2d::new(40, 3).pad(1).groups(40))?;
    let g2 = net.conv2d("g2", g, Conv2d::new(40, 3).groups(40))?;
    net.tie(g2, g)?;
    let pool = net.max_pool("pool", g2, Pool::new(2))?;
    let flat = net.flatten("flat", pool)?;
    let logits = net.linear("logits", flat, Linear::new(7))?;
    net.softmax_cross_entropy("loss", logits, SoftmaxCrossEntropy::default())?;
    net.build()
}

/// Linear layers that are split under most strategies: one used three times, with dropout between, and the classes tied to the
/// first layer.
fn features() -> Result<Network, GraphError> {
    let mut net = NetworkBuilder::new("features");
    let data = net.input("data", 70)?;
    let a = net.linear("a", data, Linear::new(70))?;
    let a_relu = net.relu("a.relu", a)?;
    let b = net.linear("b", a_relu, Linear::new(70).no_bias())?;
    let b_bias = net.bias("b.bias", b)?;
    let b_tanh = net.tanh("b.tanh", b_bias)?;
    let drop = net.dropout("drop", b_tanh, Dropout::new(0.3))?;
    let b2 = net.linear("b2", drop, Linear::new(70).no_bias())?;
    let b2_bias = net.bias("b2.bias", b2)?;
    let b2_sigmoid = net.sigmoid("b2.sigmoid", b2_bias)?;
    let b3 = net.linear("b3", b2_sigmoid, Linear::new(70).no_bias())?;
    let sum = net.add("sum", &[b3, a_relu])?;
    let sum = net.relu("sum.relu", sum)?;
    let a2 = net.linear("a2", sum, Linear::new(70))?;
    // A chain, from its end.
    net.tie(b3, b2)?;
    net.tie(b2, b)?;
    net.tie(b2_bias, b_bias)?;
    net.tie(a2, a)?;
    net.softmax_cross_entropy("loss", a2, SoftmaxCrossEntropy::default())?;
    net.build()
}

/// A bias on maps, which may be split, tied to one behind a normalization that needs whole samples, and one on flattened maps tied
/// to one on features.
fn unlike() -> Result<Network, GraphError> {
    let mut net = NetworkBuilder::new("unlike");
    let data = net.input("data", (3, 4, 4))?;
    let a = net.conv2d("a", data, Conv2d::new(32, 3).pad(1))?;
    let a_bias = net.bias("a.bias", a)?;
    let lrn = net.lrn("lrn", a_bias, lockstep_graph::Lrn::new(3))?;
    let lrn_bias = net.bias("lrn.bias", lrn)?;
    net.tie(lrn_bias, a_bias)?;
    let b = net.conv2d("b", lrn_bias, Conv2d::new(32, 3).stride(2).pad(1))?;
    let flat = net.flatten("flat", b)?;
    let flat_bias = net.bias("flat.bias", flat)?;
    let c = net.linear("c", flat_bias, Linear::new(128))?;
    let c_bias = net.bias("c.bias", c)?;
    net.tie(c_bias, flat_bias)?;
    let relu = net.relu("relu", c_bias)?;
    let d = net.linear("d", relu, Linear::new(5))?;
    net.softmax_cross_entropy("loss", d, SoftmaxCrossEntropy::default())?;
    net.build()
}

/// The same network without ties, and by name of a layer the one that it was tied to.
fn untied(network: &Network) -> (Network, BTreeMap<String, String>) {
    let (mut text, mut twins) = (network.to_json(), BTreeMap::new());
    for layer in network.layers() {
        if let Some(owner) = layer.tied_to {
            let owner = network.layer(owner).name.clone();
            text = text.replace(&format!(r#","tied_to":"{owner}""#), "");
            twins.insert(layer.name.clone(), owner);
        }
    }
    let apart = Network::from_json(&text).unwrap();
    assert!(apart.layers().iter().all(|layer| layer.tied_to.is_none()));
    (apart, twins)
}

/// After one step from the same values, tied parameters have moved by the sum of what their untied twins have.
fn check_sum_of_uses(network: &Network) {
    let run = Run::new(network.clone(), &[7]);
    let (apart, twins) = untied(network);
    let apart = Run { twins: twins.clone(), ..Run::new(apart, &[7]) };
    let (before, tied, apart) = (apart.before(), run.outcome(), apart.outcome());
    assert!((tied.losses()[0] - apart.losses()[0]).abs() < 1e-6);
    for (name, values) in &tied.parameters {
        let (layer, param) = name.rsplit_once('.').unwrap();
        // Running statistics belong to each layer.
        let is_tied = |twin: &str| twins.get(twin).is_some_and(|owner| owner == layer);
        let uses = network.layers().iter().map(|l| l.name.as_str());
        let uses: Vec<&str> = uses.filter(|n| *n == layer || is_tied(n)).collect();
        let uses = if param.starts_with("running") { vec![layer] } else { uses };
        for (i, value) in values.iter().enumerate() {
            let start = before[name][i];
            // Weight decay pulls once at what is tied, and at each of the twins.
            let decay = 0.02 * 1e-3 * start * (uses.len() - 1) as f32;
            let moved = |n: &&str| apart.parameters[&format!("{n}.{param}")][i] - start;
            let expected = start + uses.iter().map(moved).sum::<f32>() + decay;
            let close = (value - expected).abs() <= 2e-6 + 1e-4 * (expected - start).abs();
            assert!(close, "{name}[{i}] is {value}, its {} uses give {expected}", uses.len());
        }
    }
}

#[test]
fn the_gradient_is_the_sum_of_those_by_each_use() {
    for network in [maps(), features(), unlike(), zoo::golden::tied()] {
        check_sum_of_uses(&network.unwrap());
    }
}

fn same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-5 * b.abs().max(1.0)
}

/// Losses, hits and parameters are those of one rank.
#[track_caller]
fn agrees(alone: &Run, expected: &Outcome, ranks: usize, strategy: &str) {
    let mut run = alone.clone().on(ranks, 1);
    run.strategy = strategy.parse().unwrap();
    let got = run.outcome();
    for (step, (a, b)) in got.losses().iter().zip(expected.losses()).enumerate() {
        assert!(same(*a, b), "{ranks} ranks, {strategy}: step {step}: {a} {b}");
    }
    for (name, values) in &got.parameters {
        for (a, b) in values.iter().zip(&expected.parameters[name]) {
            let close = (a - b).abs() < 2e-4 * b.abs().max(0.05);
            assert!(close, "{ranks} ranks, {strategy}: {name}: {a} {b}");
        }
    }
}

#[test]
fn tied_layers_agree_under_every_strategy() {
    let golden = zoo::golden::tied;
    for (network, clip_norm) in [
        (maps(), None),
        (features(), Some(0.5)),
        (unlike(), None),
        (golden(), None),
        (golden(), Some(0.1)),
    ] {
        let alone = Run { clip_norm, ..Run::new(network.unwrap(), &SIZES).on(1, 1) };
        let expected = alone.outcome();
        for ranks in [2, 3, 4, 5, 8] {
            for strategy in ["data", "model", "G=2", "auto"] {
                agrees(&alone, &expected, ranks, strategy);
            }
        }
    }
}

#[test]
fn tied_layers_agree_in_parts_of_the_samples_and_without_fusion() {
    let alone = Run::new(features().unwrap(), &PARTED).on(1, 1);
    let expected = alone.outcome();
    for fuse in [true, false] {
        let alone = Run { fuse, ..alone.clone() };
        agrees(&alone, &expected, 2, "model");
        agrees(&alone, &expected, 4, "G=2");
    }
}

#[test]
fn scoring_agrees_under_every_strategy() {
    for network in [maps(), features()] {
        let alone = Run { mode: Mode::Score, ..Run::new(network.unwrap(), &SIZES).on(1, 1) };
        agrees(&alone, &alone.outcome(), 4, "G=2");
    }
}

#[test]
fn reproducible_bits_are_the_same_on_any_number_of_ranks_and_workers() {
    for (network, clip_norm) in [(maps(), Some(0.5)), (features(), None)] {
        let alone = Run::new(network.unwrap(), &[13, 32, 5, 1, 32]).on(1, 1);
        let alone = Run { reproducible: true, clip_norm, ..alone };
        alone.has_the_same_bits_everywhere();
    }
}

#[test]
fn parameters_are_imported_and_exported_by_the_name_of_any_use() {
    let network = Arc::new(features().unwrap());
    let plan = Plan::compile(Arc::clone(&network), PlanOptions::default()).unwrap();
    let store = ParameterStore::new(&plan, 0, Isa::detect()).unwrap();
    let id = |name: &str| network.find(name).unwrap().id;
    let values: Vec<f32> = (0..70 * 70).map(|i| i as f32).collect();
    store.import(&network, id("b3"), "weight", &values).unwrap();
    for name in ["b", "b2", "b3"] {
        assert_eq!(store.export(&network, id(name), "weight").unwrap(), values);
    }
    assert_eq!(store.share(&network, id("b2"), "weight").unwrap(), 0..70 * 70);
    let missing = store.export(&network, id("b3"), "bias").unwrap_err().to_string();
    assert!(missing.contains("b3.bias"), "{missing}");
    // Parameters and velocity, once.
    let padded = |n: usize| 4 * n.next_multiple_of(16);
    let once = 2 * (padded(70 * 80) + padded(80));
    assert!(store.bytes() <= 2 * once + 2 * padded(80), "{} bytes", store.bytes());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_ties_sum_the_gradients_by_each_use(network in networks::network()) {
        check_sum_of_uses(&network);
    }
}
