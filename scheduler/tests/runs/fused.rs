//! Activations computed by their neighbors' tasks: the same bits as by tasks of their own.

use lockstep_graph::{
    BatchNorm, Conv2d, Dropout, GraphError, LayerId, Linear, Lrn, Mode, Network, NetworkBuilder,
    Pool, SoftmaxCrossEntropy, zoo,
};
use proptest::prelude::*;

use super::harness::Run;
use super::networks;

const SIZES: [usize; 3] = [5, 6, 3];

/// Three steps of training, and scoring of the same samples, with and without fusion.
#[track_caller]
fn check(network: &Network) {
    for mode in [Mode::Train { momentum: true }, Mode::Score] {
        let fused = Run { mode, ..Run::new(network.clone(), &SIZES).on(1, 2) };
        let apart = Run { fuse: false, ..fused.clone() };
        let (fused, apart) = (fused.outcome(), apart.outcome());
        assert_eq!(fused.reports, apart.reports, "{mode:?}");
        let bits = |v: &Vec<f32>| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        for (name, values) in &apart.parameters {
            assert_eq!(bits(&fused.parameters[name]), bits(values), "{name}, {mode:?}");
        }
    }
}

/// Adds one of the three activations.
type AddActivation = fn(&mut NetworkBuilder, &str, LayerId) -> Result<LayerId, GraphError>;

/// A layer of every kind before one of the activations, and of every kind after it.
fn every_neighbor(add: AddActivation) -> Result<Network, GraphError> {
    let mut net = NetworkBuilder::new("neighbors");
    let mut last = net.input("data", (3, 12, 12))?;
    last = net.conv2d("conv", last, Conv2d::new(19, 3).pad(1))?;
    last = add(&mut net, "conv_act", last)?;
    last = net.max_pool("max", last, Pool::new(3).stride(2))?;
    last = net.conv2d("grouped", last, Conv2d::new(38, 3).pad(1).groups(19))?;
    last = add(&mut net, "grouped_act", last)?;
    last = net.conv2d("strided", last, Conv2d::new(21, 3).pad(1).stride(2))?;
    last = net.batch_norm("norm", last, BatchNorm::default())?;
    let block = add(&mut net, "norm_act", last)?;
    last = net.conv2d("point", block, Conv2d::new(21, 1))?;
    last = net.add("sum", &[last, block])?;
    last = add(&mut net, "sum_act", last)?;
    last = net.avg_pool("avg", last, Pool::new(2).stride(1))?;
    last = net.bias("bias", last)?;
    last = add(&mut net, "bias_act", last)?;
    last = net.lrn("lrn", last, Lrn::new(5))?;
    last = add(&mut net, "lrn_act", last)?;
    last = net.batch_norm("norm2", last, BatchNorm::default())?;
    last = net.conv2d("depthwise", last, Conv2d::new(21, 3).pad(1).groups(21))?;
    last = add(&mut net, "depthwise_act", last)?;
    let flat = net.flatten("flat", last)?;
    last = net.conv2d("last_conv", last, Conv2d::new(5, 1).no_bias())?;
    last = add(&mut net, "last_conv_act", last)?;
    last = net.global_avg_pool("gap", last)?;
    let gap = net.flatten("flat_gap", last)?;
    last = net.concat("features", &[flat, gap])?;
    last = net.linear("fc1", last, Linear::new(33))?;
    last = add(&mut net, "fc1_act", last)?;
    last = net.dropout("dropout", last, Dropout::new(0.4))?;
    last = net.linear("fc2", last, Linear::new(17))?;
    last = add(&mut net, "fc2_act", last)?;
    last = net.linear("fc3", last, Linear::new(5))?;
    last = add(&mut net, "fc3_act", last)?;
    net.softmax_cross_entropy("loss", last, SoftmaxCrossEntropy::default())?;
    net.build()
}

#[test]
fn every_neighbor_computes_relu() {
    check(&every_neighbor(|net, name, from| net.relu(name, from)).unwrap());
}

#[test]
fn every_neighbor_computes_sigmoid() {
    check(&every_neighbor(|net, name, from| net.sigmoid(name, from)).unwrap());
}

#[test]
fn every_neighbor_computes_tanh() {
    check(&every_neighbor(|net, name, from| net.tanh(name, from)).unwrap());
}

#[test]
fn small_networks_of_the_zoo_are_the_same() {
    for name in ["lenet", "mlp", "small-vgg", "small-resnet"] {
        check(&zoo::by_name(name).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_networks_are_the_same(network in networks::network()) {
        check(&network);
    }
}
