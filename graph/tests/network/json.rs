//! Networks as JSON: what is written, what is read, and what is refused.

use std::path::Path;

use lockstep_graph::{GraphError, Network, Param, zoo};

#[test]
fn lenet_is_written_one_line_a_layer() {
    insta::assert_snapshot!(zoo::lenet().unwrap().to_json());
}

#[test]
fn built_in_networks_come_back_as_they_were() {
    let golden =
        [zoo::golden::mlp, zoo::golden::lenet, zoo::golden::small_vgg, zoo::golden::small_resnet];
    let networks = zoo::names().map(|name| zoo::by_name(name).unwrap());
    for net in networks.chain(golden.map(|recipe| recipe().unwrap())) {
        assert_eq!(Network::from_json(&net.to_json()).unwrap(), net);
    }
}

/// A document with these layers.
fn document(layers: &str) -> String {
    format!(
        r#"{{"format": "lockstep-network", "version": 1, "name": "net", "layers": [{layers}]}}"#
    )
}

#[track_caller]
fn refused(text: &str) -> String {
    Network::from_json(text).unwrap_err().to_string()
}

const DATA: &str = r#"{"name": "data", "kind": "input", "shape": [3, 8, 8]}"#;

#[test]
fn settings_have_pytorchs_defaults() {
    let net = Network::from_json(&document(&format!(
        r#"{DATA},
        {{"name": "conv", "kind": {{"conv2d": {{"oc": 4, "window": {{"kernel": [3, 3], "stride": [1, 1]}}}}}}, "inputs": ["data"]}},
        {{"name": "bn", "kind": {{"batch_norm": {{}}}}, "inputs": ["conv"]}},
        {{"name": "flat", "kind": "flatten", "inputs": ["bn"]}},
        {{"name": "loss", "kind": {{"softmax_cross_entropy": {{}}}}, "inputs": ["flat"]}}"#
    )))
    .unwrap();
    let kinds: Vec<String> = net.layers().iter().map(|layer| layer.kind.to_string()).collect();
    assert_eq!(kinds, ["input", "conv2d 4 3x3", "batch_norm", "flatten", "softmax_cross_entropy"]);
    assert_eq!(net.parameter_count(), 4 * 27 + 4 + 8);
}

#[test]
fn layers_may_come_in_any_order() {
    let layers = [
        r#"{"name": "sum", "kind": "add", "inputs": ["b", "a"]}"#,
        r#"{"name": "b", "kind": "tanh", "inputs": ["data"]}"#,
        r#"{"name": "a", "kind": "relu", "inputs": ["data"]}"#,
        DATA,
    ];
    let net = Network::from_json(&document(&layers.join(","))).unwrap();
    let names: Vec<&str> = net.layers().iter().map(|layer| layer.name.as_str()).collect();
    assert_eq!(names, ["data", "b", "a", "sum"]);
}

#[test]
fn a_cycle_is_reported_with_its_layers() {
    let cycle = [
        DATA,
        r#"{"name": "after", "kind": "relu", "inputs": ["c"]}"#,
        r#"{"name": "a", "kind": "add", "inputs": ["data", "c"]}"#,
        r#"{"name": "c", "kind": "tanh", "inputs": ["b"]}"#,
        r#"{"name": "b", "kind": "relu", "inputs": ["a"]}"#,
    ];
    assert_eq!(refused(&document(&cycle.join(","))), "layers form a cycle: a -> b -> c -> a");
    let own = format!(r#"{DATA}, {{"name": "x", "kind": "add", "inputs": ["data", "x"]}}"#);
    assert_eq!(refused(&document(&own)), "layers form a cycle: x -> x");
}

#[test]
fn a_long_chain_and_a_long_cycle_need_no_deep_stack() {
    let layer = |i: usize, from: usize| {
        format!(r#"{{"name": "l{i}", "kind": "relu", "inputs": ["l{from}"]}}"#)
    };
    let n = 100_000;
    let mut layers = vec![r#"{"name": "l0", "kind": "input", "shape": [1]}"#.to_owned()];
    layers.extend((1..n).rev().map(|i| layer(i, i - 1)));
    assert_eq!(Network::from_json(&document(&layers.join(","))).unwrap().layers().len(), n);
    let cycle: Vec<String> = (0..2000).map(|i| layer(i, (i + 1) % 2000)).collect();
    let Err(GraphError::Cycle { layers }) = Network::from_json(&document(&cycle.join(","))) else {
        panic!("a cycle is refused");
    };
    assert_eq!((layers.len(), layers[0].as_str(), layers[1].as_str()), (2000, "l0", "l1999"));
}

#[test]
fn connections_are_checked() {
    let message = |layer: &str| refused(&document(&format!("{DATA}, {layer}")));
    assert_eq!(
        message(r#"{"name": "relu", "kind": "relu", "inputs": ["date"]}"#),
        "layer relu reads date, which is not a layer of the network"
    );
    assert_eq!(message(DATA), "two layers are named data: give each its own name");
    assert_eq!(
        message(r#"{"name": "relu", "kind": "relu", "inputs": ["data", "data"]}"#),
        "layer relu: relu reads 1 input, got 2"
    );
    assert_eq!(
        message(r#"{"name": "relu", "kind": "relu"}"#),
        "layer relu: relu reads 1 input, got 0"
    );
    assert_eq!(
        message(r#"{"name": "in", "kind": "input", "shape": [3], "inputs": ["data"]}"#),
        "layer in: input reads no inputs, got 1"
    );
    assert_eq!(
        message(r#"{"name": "in", "kind": "input"}"#),
        "layer in: an input needs a shape, such as [3, 224, 224]"
    );
    assert_eq!(
        message(r#"{"name": "relu", "kind": "relu", "inputs": ["data"], "shape": [3, 8, 8]}"#),
        "layer relu: relu cannot have a shape: only an input has, all others follow"
    );
    assert_eq!(
        message(
            r#"{"name": "p", "kind": {"max_pool": {"window": {"kernel": [9, 9], "stride": [1, 1]}}}, "inputs": ["data"]}"#
        ),
        "layer p: window 9x9 is larger than the padded map 8x8 (input 3x8x8, padding 0x0)"
    );
}

#[test]
fn unknown_fields_and_kinds_are_refused_by_name() {
    let message = |layer: &str| refused(&document(layer));
    let starts = |layer: &str, expected: &str| {
        let message = message(layer);
        assert!(message.contains(expected), "{message}");
    };
    starts(
        r#"{"name": "c", "kind": {"conv2d": {"oc": 1, "window": {"kernel": [1, 1], "stride": [1, 1], "dilation": 2}}}}"#,
        "unknown field `dilation`, expected one of `kernel`, `stride`, `pad`",
    );
    starts(
        r#"{"name": "c", "kind": {"conv3d": {}}}"#,
        "unknown variant `conv3d`, expected one of `input`, `conv2d`",
    );
    starts(r#"{"name": "c", "kind": "relu", "from": []}"#, "unknown field `from`");
    starts(r#"{"name": "c", "kind": {"linear": {}}}"#, "missing field `out_features`");
    starts(
        r#"{"name": "c", "kind": "input", "shape": [1, 2]}"#,
        "a shape is [features] or [channels, height, width], got 2 sizes",
    );
    starts(r#"{"name": "c", "kind": "input", "shape": [-1]}"#, "invalid value: integer `-1`");
    starts(r#"{"name": "c", "name": "d", "kind": "relu"}"#, "duplicate field `name`");
    assert_eq!(
        refused(
            "{\"format\": \"lockstep-network\",\n \"version\": 1, \"nam\": \"x\", \"layers\": []}"
        ),
        "line 2, column 20: unknown field `nam`, expected one of `format`, `version`, `name`, `layers`"
    );
}

#[test]
fn other_documents_and_versions_are_refused() {
    assert_eq!(refused("{}"), "line 1, column 2: missing field `format`");
    assert_eq!(refused("lenet"), "line 1, column 1: expected value");
    assert_eq!(
        refused(r#"{"format": "lockstep-task-graph", "version": 1}"#),
        "\"format\" is \"lockstep-task-graph\", of a network it is \"lockstep-network\""
    );
    assert_eq!(
        refused(r#"{"format": "lockstep-network", "version": 2, "anything": 1}"#),
        "version 2 of the network format is unknown: this program reads version 1"
    );
    assert_eq!(refused(&document("")), "network net has no input layer");
}

#[test]
fn a_file_is_named_in_its_error() {
    let missing = Path::new("no/such/net.json");
    assert_eq!(
        Network::from_json_file(missing).unwrap_err().to_string(),
        "cannot read network file no/such/net.json: entity not found"
    );
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let message = Network::from_json_file(&manifest).unwrap_err().to_string();
    assert!(
        message.starts_with(&format!("network file {}: line 1, column ", manifest.display())),
        "{message}"
    );
}

/// Linear layers of the same shape, side by side, as `name` or `name tied_to owner`, in this order.
fn side_by_side(layers: &[(&str, Option<&str>)]) -> String {
    let mut entries = vec![r#"{"name": "data", "kind": "input", "shape": [4]}"#.to_owned()];
    for (name, owner) in layers {
        let tie = owner.map_or_else(String::new, |owner| format!(r#", "tied_to": "{owner}""#));
        entries.push(format!(
            r#"{{"name": "{name}", "kind": {{"linear": {{"out_features": 4}}}}, "inputs": ["data"]{tie}}}"#
        ));
    }
    let names: Vec<String> = layers.iter().map(|(name, _)| format!("{name:?}")).collect();
    entries.push(format!(r#"{{"name": "sum", "kind": "add", "inputs": [{}]}}"#, names.join(",")));
    document(&entries.join(","))
}

#[test]
fn tied_layers_may_come_in_any_order_and_count_once() {
    // A chain, from its end.
    let text = side_by_side(&[("c", Some("b")), ("b", Some("a")), ("a", None), ("d", None)]);
    let net = Network::from_json(&text).unwrap();
    let id = |name: &str| net.find(name).unwrap().id;
    assert_eq!([id("a"), id("b"), id("c")].map(|id| net.owner(id)), [id("a"); 3]);
    assert_eq!(net.tied(id("a")).map(|l| l.name.as_str()).collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!(net.parameter_count(), 2 * (4 * 4 + 4));
    assert_eq!(net.parameters(id("c")).map(Param::elements).sum::<usize>(), 20);
    assert_eq!(Network::from_json(&net.to_json()).unwrap(), net);
    assert!(net.to_table().contains("linear 4 tied to a"), "{}", net.to_table());
    assert!(net.to_dot().contains(r"c\nlinear 4 tied to a"), "{}", net.to_dot());
}

#[test]
fn ties_are_checked() {
    assert_eq!(
        refused(&side_by_side(&[("a", Some("x")), ("b", None)])),
        "layer a is tied to x, which is not a layer of the network"
    );
    assert_eq!(
        refused(&side_by_side(&[("a", Some("b")), ("b", Some("a"))])),
        "layer a cannot be tied to b: the other comes later, so tie the other to it"
    );
    let after = r#"
        {"name": "data", "kind": "input", "shape": [4]},
        {"name": "a", "kind": {"linear": {"out_features": 4}}, "inputs": ["data"], "tied_to": "b"},
        {"name": "b", "kind": {"linear": {"out_features": 4}}, "inputs": ["a"]}"#;
    assert_eq!(
        refused(&document(after)),
        "layer a cannot be tied to b: the other comes later, so tie the other to it"
    );
}
