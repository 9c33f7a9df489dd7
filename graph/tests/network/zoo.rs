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
        // The published counts: torchvision's for AlexNet, ResNet-50 and VGG-A; weights and biases of the papers' tables for
        // CD-DNN (45,099,008 + 23,640) and OverFeat-FAST (145,909,792 + 11,080).
        ("alexnet", 61_100_840),
        ("cd-dnn", 45_122_648),
        ("overfeat-fast", 145_920_872),
        ("resnet50", 25_557_032),
        ("vgg-a", 132_863_336),
    ];
    assert_eq!(counts, expected.map(|(name, count)| (name.to_owned(), count)));
}

/// Operations of a sample's forward pass in layers with weights.
fn weighted_flops(net: &Network) -> u64 {
    let weighted = net.layers().iter().filter(|l| l.params.iter().any(|p| p.name == "weight"));
    let weighted = weighted.filter(|l| matches!(l.kind.name(), "conv2d" | "linear"));
    weighted.map(|l| net.forward_flops_per_sample(l.id)).sum()
}

#[test]
fn networks_of_the_paper_cost_what_is_published() {
    let gflops = |name| weighted_flops(&zoo::by_name(name).unwrap()) as f64 / 1e9;
    let rounded = |name| (gflops(name) * 1e4).round() / 1e4;
    assert_eq!(rounded("overfeat-fast"), 5.6028);
    assert_eq!(rounded("vgg-a"), 15.2182);
    assert_eq!(rounded("cd-dnn"), 0.0902);
    assert_eq!(rounded("alexnet"), 1.4284);
    // 4.089 G multiply-adds: the stride is in the 3x3 convolutions.
    assert_eq!(rounded("resnet50"), 8.1784);
    assert_eq!(rounded("lenet"), 0.0046);
}

#[test]
fn a_layer_of_the_paper_costs_what_is_published() {
    let mflops = |net: &Network, layer: &str| {
        let flops = net.forward_flops_per_sample(net.find(layer).unwrap().id);
        (flops as f64 / 1e5).round() / 10.0
    };
    let overfeat = zoo::overfeat_fast().unwrap();
    let layers = ["conv1", "conv2", "conv3", "conv4", "conv5", "fc6", "fc7", "fc8"];
    assert_eq!(
        layers.map(|layer| mflops(&overfeat, layer)),
        [218.6, 707.8, 339.7, 1359.0, 2717.9, 226.5, 25.2, 8.2]
    );
    let vgg = zoo::vgg_a().unwrap();
    let layers = [
        "conv1_1", "conv2_1", "conv3_1", "conv3_2", "conv4_1", "conv4_2", "conv5_1", "conv5_2",
        "fc6", "fc7", "fc8",
    ];
    assert_eq!(
        layers.map(|layer| mflops(&vgg, layer)),
        [173.4, 1849.7, 1849.7, 3699.4, 1849.7, 3699.4, 924.8, 924.8, 205.5, 33.6, 8.2]
    );
}

#[test]
fn resnet50_has_torchvisions_names() {
    let names = state_dict(&zoo::resnet50().unwrap());
    // 53 convolutions, 53 batch normalizations of four tensors, one linear layer of two.
    assert_eq!(names.len(), 53 + 4 * 53 + 2);
    assert_eq!(names["conv1.weight"], [64, 3, 7, 7]);
    assert_eq!(names["layer1.0.downsample.0.weight"], [256, 64, 1, 1]);
    assert_eq!(names["layer4.2.conv2.weight"], [512, 512, 3, 3]);
    assert_eq!(names["layer4.0.downsample.1.running_var"], [2048]);
    assert_eq!(names["fc.weight"], [1000, 2048]);
}

#[test]
fn an_unknown_name_lists_the_known_ones() {
    assert_eq!(
        zoo::by_name("lenett").unwrap_err().to_string(),
        "unknown network \"lenett\": use lenet, mlp, small-vgg, small-resnet, alexnet, cd-dnn, \
         overfeat-fast, resnet50, vgg-a or a .json file"
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
    let recipes: [(&str, Recipe); 5] = [
        ("mlp", zoo::golden::mlp),
        ("lenet", zoo::golden::lenet),
        ("small_vgg", zoo::golden::small_vgg),
        ("small_resnet", zoo::golden::small_resnet),
        ("tied", zoo::golden::tied),
    ];
    for (name, recipe) in recipes {
        let expected = golden_state_dict(name);
        assert!(!expected.is_empty());
        assert_eq!(state_dict(&recipe().unwrap()), expected, "{name}");
    }
}
