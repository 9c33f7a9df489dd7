//! What is planned is what is compiled: the same meshes, the same bytes.

use std::sync::Arc;

use super::super::{LayerChoice, choose_groups};
use crate::compile::{Mode, Plan, PlanOptions, Strategy};
use crate::cost::Platform;
use crate::network::Network;
use crate::zoo;

/// The choices and the plan compiled by them.
fn planned(network: Network, minibatch: usize, ranks: usize) -> (Vec<LayerChoice>, Plan) {
    let platform = Platform::default();
    let choices = choose_groups(&network, minibatch, ranks, &platform);
    let options = PlanOptions {
        minibatch,
        ranks,
        mode: Mode::Train { momentum: true },
        strategy: Strategy::Auto,
        platform,
        fuse: true,
        ..PlanOptions::default()
    };
    (choices, Plan::compile(Arc::new(network), options).unwrap())
}

#[test]
fn every_layer_is_compiled_for_the_mesh_that_was_chosen() {
    for name in ["lenet", "mlp", "small-vgg", "small-resnet", "alexnet", "cd-dnn"] {
        for ranks in [1, 2, 3, 8] {
            let (choices, plan) = planned(zoo::by_name(name).unwrap(), 13, ranks);
            for choice in choices {
                let layer = &plan.network().layer(choice.layer).name;
                assert_eq!(plan.meshes().mesh(choice.layer), choice.mesh, "{name} {layer} {ranks}");
            }
        }
    }
}

#[test]
fn every_layer_sends_the_bytes_that_were_planned() {
    let mut split = 0;
    for (name, minibatch, ranks) in [
        ("lenet", 64, 2),
        ("alexnet", 256, 16),
        ("cd-dnn", 512, 2),
        ("cd-dnn", 1024, 16),
        ("overfeat-fast", 256, 32),
    ] {
        let (choices, plan) = planned(zoo::by_name(name).unwrap(), minibatch, ranks);
        for choice in choices.iter().filter(|c| plan.network().layer(c.layer).parameter_count() > 0)
        {
            let tasks = plan.tasks().tasks().filter(|task| task.layer == choice.layer);
            let bytes: f64 = tasks.map(|task| task.price.bytes_sent).sum();
            let layer = &plan.network().layer(choice.layer).name;
            let of = format!("{name} {layer} {ranks}: {bytes} {}", choice.bytes);
            // A member's biases are few against its weights, and the longest share decides on both sides.
            assert!((bytes - choice.bytes).abs() <= 1e-9 * bytes, "{of}");
            split += usize::from(choice.mesh.members() > 1);
        }
    }
    assert!(split > 15, "{split}");
}
