//! The networks that come with the crate.

use std::collections::BTreeMap;

use lockstep_graph::{GraphError, Network, zoo};

/// Parameters by checkpoint name.
fn state_dict(net: &Network) -> BTreeMap<String, Vec<usize>> {
    let layers = net.layers().iter();
    layers
        .flat_map(|l| l.params.iter().map(|p| (format!("{}.{}", l.name, p.name), p.shape.clone())))
        .collect()
}

#[test]
fn lenet_has_the_parameters_of_caffes() {
    let net = zoo::by_name("lenet").unwrap();
    assert_eq!(net.parameter_count(), 431_080);
    assert_eq!(net.classes(), 10);
    assert_eq!(net.layer(net.input()).shape.to_string(), "1x28x28");
    let names: Vec<String> = state_dict(&net).into_keys().collect();
    assert_eq!(
        names,
        [
            "conv1.bias",
            "conv1.weight",
            "conv2.bias",
            "conv2.weight",
            "fc1.bias",
            "fc1.weight",
            "fc2.bias",
            "fc2.weight"
        ]
    );
}

#[test]
fn every_name_builds_a_network_that_can_be_trained() {
    let counts: Vec<(String, usize)> = zoo::names()
        .map(|name| {
            let net = zoo::by_name(name).unwrap();
            assert_eq!(net.name(), name);
            assert!(net.loss().is_some());
            (name.to_owned(), net.parameter_count())
        })
        .collect();
    let expected = [
        ("lenet", 431_080),
        // 784 * 300 + 300 + 300 * 100 + 100 + 100 * 10 + 10.
        ("mlp", 266_610),
        // Convolutions 896 + 9248 + 18,496 + 36,928 + 73,856 + 147,584; linear layers 524,544 + 2570.
        ("small-vgg", 814_122),
        // First convolution 464, blocks 4672 + 14,464 + 57,600, linear layer 650.
        ("small-resnet", 77_850),
    ];
    assert_eq!(counts, expected.map(|(name, count)| (name.to_owned(), count)));
}

#[test]
fn an_unknown_name_lists_the_known_ones() {
    assert_eq!(
        zoo::by_name("lenett").unwrap_err().to_string(),
        "unknown network \"lenett\": use lenet, mlp, small-vgg, small-resnet or a .json file"
    );
}

/// The tensors named `init.*` in the header of a golden run: a length of 8 bytes, then that much JSON.
fn golden_state_dict(name: &str) -> BTreeMap<String, Vec<usize>> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/runs");
    let bytes = std::fs::read(root.join(format!("{name}.safetensors"))).unwrap();
    let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + len]).unwrap();
    let tensors = header.as_object().unwrap().iter();
    tensors
        .filter_map(|(key, tensor)| {
            let shape = serde_json::from_value(tensor["shape"].clone()).ok()?;
            Some((key.strip_prefix("init.")?.to_owned(), shape))
        })
        .collect()
}

#[test]
fn golden_networks_have_the_state_dict_of_the_golden_runs() {
    type Recipe = fn() -> Result<Network, GraphError>;
    let recipes: [(&str, Recipe); 4] = [
        ("mlp", zoo::golden::mlp),
        ("lenet", zoo::golden::lenet),
        ("small_vgg", zoo::golden::small_vgg),
        ("small_resnet", zoo::golden::small_resnet),
    ];
    for (name, recipe) in recipes {
        let expected = golden_state_dict(name);
        assert!(!expected.is_empty());
        assert_eq!(state_dict(&recipe().unwrap()), expected, "{name}");
    }
}
