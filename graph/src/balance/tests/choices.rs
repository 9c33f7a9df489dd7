//! What is chosen for known networks on known links.

use super::super::{LayerChoice, Reason, choose_groups};
use crate::builder::NetworkBuilder;
use crate::cost::Platform;
use crate::layer::{Conv2d, LayerKind, Linear, Lrn, SoftmaxCrossEntropy};
use crate::network::Network;
use crate::zoo;

fn gbit(gbit: f64) -> Platform {
    Platform { link_bytes_per_s: gbit * 125e6, ..Platform::default() }
}

fn kinds<'a>(
    network: &'a Network,
    choices: &'a [LayerChoice],
    wanted: fn(&LayerKind) -> bool,
) -> impl Iterator<Item = (&'a str, &'a LayerChoice)> {
    let layers = network.layers().iter().zip(choices);
    layers.filter(move |(l, _)| wanted(&l.kind)).map(|(l, choice)| (l.name.as_str(), choice))
}

fn is_linear(kind: &LayerKind) -> bool {
    matches!(kind, LayerKind::Linear(_))
}

fn is_conv(kind: &LayerKind) -> bool {
    matches!(kind, LayerKind::Conv2d(_))
}

/// Groups of a layer.
#[track_caller]
fn groups(network: &Network, choices: &[LayerChoice], layer: &str) -> usize {
    choices[network.find(layer).unwrap().id.index()].mesh.groups()
}

#[test]
fn big_linear_layers_are_model_or_hybrid_parallel() {
    for network in [zoo::alexnet(), zoo::vgg_a(), zoo::overfeat_fast()].map(Result::unwrap) {
        for ranks in [16, 32, 64, 128] {
            for link in [1.0, 10.0] {
                let choices = choose_groups(&network, 256, ranks, &gbit(link));
                let of = format!("{} on {ranks}, {link} gbit", network.name());
                assert!(groups(&network, &choices, "fc6") < ranks, "{of}");
                let linear = || kinds(&network, &choices, is_linear);
                let sent: f64 = linear().map(|(_, choice)| choice.bytes).sum();
                let weights: usize =
                    linear().map(|(name, _)| network.find(name).unwrap().parameter_count()).sum();
                let data = 8.0 * weights as f64 * (1.0 - 1.0 / ranks as f64);
                assert!(sent < 0.5 * data, "{of}: {sent} against {data}");
            }
        }
    }
}

#[test]
fn convolutions_are_data_parallel_while_a_rank_has_samples_enough() {
    let check = |network: Network, cases: &[(usize, f64)]| {
        for &(ranks, link) in cases {
            let choices = choose_groups(&network, 256, ranks, &gbit(link));
            for (name, choice) in kinds(&network, &choices, is_conv) {
                let of = format!("{} {name} on {ranks}, {link} gbit", network.name());
                assert_eq!(choice.mesh.members(), 1, "{of}: {}", choice.why);
            }
        }
    };
    check(zoo::alexnet().unwrap(), &[(2, 1.0), (16, 1.0), (16, 10.0), (32, 10.0)]);
    check(zoo::vgg_a().unwrap(), &[(2, 1.0), (16, 1.0), (32, 1.0), (16, 10.0), (64, 10.0)]);
    check(zoo::overfeat_fast().unwrap(), &[(2, 1.0), (16, 1.0), (16, 10.0), (32, 10.0)]);
}

#[test]
fn with_two_samples_a_rank_splitting_the_last_convolutions_halves_what_they_send() {
    let network = zoo::overfeat_fast().unwrap();
    let choices = choose_groups(&network, 256, 128, &gbit(1.0));
    let conv5 = &choices[network.find("conv5").unwrap().id.index()];
    assert!(conv5.mesh.members() > 1);
    // 4 bytes, 2 ways, 1024 * 1024 * 9 weights and 1024 biases, 127 of 128 strips.
    assert!(conv5.bytes < 0.5 * 8.0 * (1024.0 * 1024.0 * 9.0 + 1024.0) * 127.0 / 128.0);
}

#[test]
fn two_ranks_split_the_hidden_layers_of_the_speech_network() {
    let network = zoo::cd_dnn().unwrap();
    let choices = choose_groups(&network, 512, 2, &gbit(1.0));
    for layer in ["fc2", "fc3", "fc4", "fc5", "fc6", "fc7", "fc8"] {
        assert_eq!(groups(&network, &choices, layer), 1, "{layer}");
    }
    let fc3 = &choices[network.find("fc3").unwrap().id.index()];
    // 2048 inputs of 512 samples, half of them from the other rank, there and back.
    assert_eq!(fc3.bytes, 2.0 * 4.0 * 2048.0 * 256.0);
}

#[test]
fn two_ranks_split_the_first_linear_layer_of_lenet() {
    let network = zoo::lenet().unwrap();
    let choices = choose_groups(&network, 128, 2, &gbit(1.0));
    for (layer, expected) in [("conv1", 2), ("conv2", 2), ("fc1", 1), ("fc2", 2)] {
        assert_eq!(groups(&network, &choices, layer), expected, "{layer}");
    }
}

#[test]
fn layers_without_weights_follow_and_those_that_look_across_channels_do_not() {
    let mut net = NetworkBuilder::new("mixed");
    let data = net.input("data", (16, 8, 8)).unwrap();
    let conv = net.conv2d("conv", data, Conv2d::new(64, 3).pad(1)).unwrap();
    let relu = net.relu("relu", conv).unwrap();
    let lrn = net.lrn("lrn", relu, Lrn::new(5)).unwrap();
    let flat = net.flatten("flat", lrn).unwrap();
    let wide = net.linear("wide", flat, Linear::new(4096)).unwrap();
    let tanh = net.tanh("tanh", wide).unwrap();
    let narrow = net.linear("narrow", tanh, Linear::new(10)).unwrap();
    net.softmax_cross_entropy("loss", narrow, SoftmaxCrossEntropy::default()).unwrap();
    let network = net.build().unwrap();
    let choices = choose_groups(&network, 16, 4, &gbit(1.0));
    assert_eq!(groups(&network, &choices, "lrn"), 4);
    assert_eq!(groups(&network, &choices, "flat"), 4);
    assert_eq!(groups(&network, &choices, "wide"), 1);
    assert_eq!(groups(&network, &choices, "tanh"), 1);
    // Ten features are fewer than a member's sixteen.
    assert_eq!(groups(&network, &choices, "narrow"), 4);
    let why: Vec<_> = choices.iter().map(|choice| choice.why.to_string()).collect();
    assert_eq!(why[0], "each rank loads its own samples");
    assert_eq!(why[2], "works on what conv leaves on each rank");
    assert_eq!(why[3], "lrn needs all channels of a sample");
    assert_eq!(why[7], "nothing to choose: one rank, or too few features to split");
    assert!(why[5].starts_with("model sends 0.39 MB (step "), "{}", why[5]);
    assert!(why[5].contains(" of data"), "{}", why[5]);
}

#[test]
fn one_rank_and_empty_requests_are_no_trouble() {
    for (minibatch, ranks) in [(0, 0), (0, 4), (1, 1), (3, 7)] {
        for network in [zoo::lenet(), zoo::small_resnet()].map(Result::unwrap) {
            let choices = choose_groups(&network, minibatch, ranks, &gbit(1.0));
            assert_eq!(choices.len(), network.layers().len());
            assert!(choices.iter().all(|choice| choice.mesh.ranks() == ranks.max(1)));
        }
    }
}

#[test]
fn no_choice_is_slower_than_pure_data_or_the_members_it_compares() {
    for name in zoo::names() {
        let network = zoo::by_name(name).unwrap();
        let ranks = if name == "resnet50" { 4 } else { 8 };
        for choice in choose_groups(&network, 64, ranks, &gbit(1.0)) {
            if let Reason::Compared { chosen, alternatives } = &choice.why {
                let own = alternatives.iter().find(|a| a.mesh == *chosen).unwrap();
                assert!((own.bytes - choice.bytes).abs() < 1e-6);
                let least = alternatives.iter().map(|a| a.step_s).fold(f64::INFINITY, f64::min);
                assert!(own.step_s <= least * 1.05, "{name}: {}", choice.why);
            }
        }
    }
}
