//! Random networks: what holds for all of them.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use lockstep_graph::{
    AvgPool, BatchNorm, Conv2d, Dropout, LayerId, Linear, Lrn, MemoryPlan, Mode, Network,
    NetworkBuilder, Plan, PlanOptions, Platform, Pool, Shape, SoftmaxCrossEntropy,
    Strategy as Parallelism,
};
use proptest::prelude::*;

/// One layer to be: what it is, two numbers to choose sizes from, and which earlier layers it reads.
#[derive(Debug, Clone)]
struct Step {
    op: u8,
    size: usize,
    detail: usize,
    from: Vec<prop::sample::Index>,
}

fn step() -> impl Strategy<Value = Step> {
    let from = prop::collection::vec(any::<prop::sample::Index>(), 1..4);
    (0_u8..18, 1_usize..6, 1_usize..4, from).prop_map(|(op, size, detail, from)| Step {
        op,
        size,
        detail,
        from,
    })
}

/// The operations from here on tie two layers, where that is possible.
const TIES: u8 = 15;

/// The operations that read more than one layer.
const JOINS: RangeInclusive<u8> = 13..=14;

/// A network with a loss that all layers reach. Shrinks to fewer, smaller and less connected layers.
fn network() -> impl Strategy<Value = Network> {
    let input = prop_oneof![
        (1_usize..20).prop_map(Shape::from),
        (1_usize..9, 1_usize..10, 1_usize..10).prop_map(Shape::from),
    ];
    (input, prop::collection::vec(step(), 0..24)).prop_map(|(input, steps)| build(input, &steps))
}

/// Steps that the shapes rule out are left out; whatever nobody reads in the end is joined for the loss.
fn build(input: Shape, steps: &[Step]) -> Network {
    let mut net = NetworkBuilder::new("random");
    let mut made = vec![net.input("data", input).unwrap()];
    let mut unread = BTreeSet::from([made[0]]);
    for (number, step) in steps.iter().enumerate() {
        let mut from: Vec<LayerId> = step.from.iter().map(|index| *index.get(&made)).collect();
        if step.op >= TIES {
            // Most pairs are of different kinds or shapes: of all layers the first that fits.
            made.iter().any(|&layer| layer > from[0] && net.tie(layer, from[0]).is_ok());
            continue;
        }
        if !JOINS.contains(&step.op) {
            from.truncate(1);
        }
        if let Some(id) = append(&mut net, format!("layer{number}"), step, &from) {
            unread.retain(|id| !from.contains(id));
            unread.insert(id);
            made.push(id);
        }
    }
    let heads: Vec<LayerId> = unread
        .iter()
        .map(|&end| net.flatten(format!("flat{}", end.index()), end).unwrap())
        .collect();
    let logits = if let [only] = heads[..] { only } else { net.concat("logits", &heads).unwrap() };
    net.softmax_cross_entropy("loss", logits, SoftmaxCrossEntropy::default()).unwrap();
    net.build().unwrap()
}

fn append(
    net: &mut NetworkBuilder,
    name: String,
    step: &Step,
    from: &[LayerId],
) -> Option<LayerId> {
    let Step { op, size, detail, .. } = *step;
    let first = from[0];
    let pool = Pool::new(size).stride(detail).pad(size / 2);
    let added = match op {
        0 => net.conv2d(name, first, Conv2d::new(size, detail).pad(detail / 2)),
        1 => net.conv2d(
            name,
            first,
            Conv2d::new(2 * size, (size, detail)).stride(detail).groups(2).no_bias(),
        ),
        2 => net.linear(name, first, Linear::new(size)),
        3 => net.bias(name, first),
        4 => net.relu(name, first),
        5 => net.sigmoid(name, first),
        6 => net.tanh(name, first),
        7 => net.max_pool(name, first, pool),
        8 => net.avg_pool(name, first, AvgPool::from(pool.ceil()).exclude_pad()),
        9 => net.global_avg_pool(name, first),
        10 => net.lrn(name, first, Lrn { alpha: 0.1 * size as f64, ..Lrn::new(size) }),
        11 => net.batch_norm(name, first, BatchNorm::default().per_rank()),
        12 => net.dropout(name, first, Dropout::new(1.0 / (size as f64 + 0.7))),
        13 => net.add(name, from),
        _ => net.concat(name, from),
    };
    added.ok()
}

proptest! {
    #[test]
    fn layers_come_after_what_they_read(net in network()) {
        for (position, layer) in net.layers().iter().enumerate() {
            prop_assert_eq!(layer.id.index(), position);
            prop_assert!(layer.inputs.iter().all(|&input| input < layer.id));
        }
    }

    #[test]
    fn consumers_are_the_inputs_turned_round(net in network()) {
        let mut forward: Vec<(LayerId, LayerId)> =
            net.layers().iter().flat_map(|l| l.inputs.iter().map(|&input| (input, l.id))).collect();
        let mut backward: Vec<(LayerId, LayerId)> =
            net.layers().iter().flat_map(|l| net.consumers(l.id).iter().map(|&c| (l.id, c))).collect();
        forward.sort_unstable();
        backward.sort_unstable();
        prop_assert_eq!(forward, backward);
    }

    #[test]
    fn every_layer_reaches_the_loss(net in network()) {
        let loss = net.loss().unwrap();
        let mut reaches = vec![false; net.layers().len()];
        for layer in net.layers().iter().rev() {
            let consumers = net.consumers(layer.id).iter();
            reaches[layer.id.index()] = layer.id == loss || consumers.clone().any(|c| reaches[c.index()]);
        }
        prop_assert!(reaches.iter().all(|&r| r));
    }

    #[test]
    fn json_brings_a_network_back(net in network()) {
        prop_assert_eq!(Network::from_json(&net.to_json()).unwrap(), net);
    }

    #[test]
    fn the_order_of_layers_in_json_does_not_matter(net in network()) {
        let mut document: serde_json::Value = serde_json::from_str(&net.to_json()).unwrap();
        document["layers"].as_array_mut().unwrap().reverse();
        let again = Network::from_json(&document.to_string()).unwrap();
        prop_assert_eq!(again.layers().len(), net.layers().len());
        for layer in net.layers() {
            let other = again.find(&layer.name).unwrap();
            prop_assert_eq!((&other.kind, other.shape, &other.params), (&layer.kind, layer.shape, &layer.params));
            let names = |net: &Network, inputs: &[LayerId]| -> Vec<String> {
                inputs.iter().map(|&id| net.layer(id).name.clone()).collect()
            };
            prop_assert_eq!(names(&again, &other.inputs), names(&net, &layer.inputs));
            prop_assert_eq!(names(&again, other.tied_to.as_slice()), names(&net, layer.tied_to.as_slice()));
            prop_assert_eq!(again.forward_flops_per_sample(other.id), net.forward_flops_per_sample(layer.id));
        }
    }

    #[test]
    fn exports_hold_every_layer_and_connection(net in network()) {
        let connections: usize = net.layers().iter().map(|l| l.inputs.len()).sum();
        prop_assert_eq!(net.to_table().lines().count(), net.layers().len() + 2);
        prop_assert_eq!(net.to_dot().matches("shape = box").count(), net.layers().len());
        prop_assert_eq!(net.to_dot().matches(" -> ").count(), connections);
    }

    #[test]
    fn every_network_compiles(net in network(), ranks in 1_usize..5, minibatch in 1_usize..9) {
        let trainable = net.layers().iter().filter(|l| l.parameter_count() > 0).count();
        let options = PlanOptions {
            minibatch,
            ranks,
            mode: Mode::Train { momentum: true },
            strategy: Parallelism::Data,
            platform: Platform::default(),
            fuse: true,
            ..PlanOptions::default()
        };
        let mut plan = Plan::compile(Arc::new(net), options).unwrap();
        let updates = plan.tasks().tasks().filter(|t| t.name.ends_with("update")).count();
        prop_assert_eq!(updates, trainable, "tied parameters are updated once");
        prop_assert!(plan.tasks().dependencies().all(|(from, to, why)| why.carried || from < to));
        let lens = vec![1; plan.tasks().tensors().len()];
        prop_assert!(!MemoryPlan::new(plan.tasks_mut(), &lens, 1).is_empty());
    }
}
