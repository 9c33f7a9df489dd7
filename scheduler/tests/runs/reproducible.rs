//! The reproducible mode: the same bits on 1, 2, 4 and 8 ranks. Clipping: exact on any number of ranks.

use lockstep_graph::{
    BatchNorm, Conv2d, Dropout, Linear, Network, NetworkBuilder, Pool, SoftmaxCrossEntropy,
};

use super::harness::Run;

/// Uneven over 8 slices, fewer samples than slices, one sample.
const SIZES: [usize; 5] = [13, 32, 5, 1, 32];

/// Everything that sums over samples: convolutions, linear layers, biases, batch normalization, the loss.
fn network() -> Network {
    let mut net = NetworkBuilder::new("sums");
    let data = net.input("data", (3, 9, 9)).unwrap();
    let a = net.conv2d("a", data, Conv2d::new(20, 3).pad(1)).unwrap();
    let a = net.batch_norm("a.norm", a, BatchNorm::default()).unwrap();
    let a = net.relu("a.relu", a).unwrap();
    let b = net.conv2d("b", a, Conv2d::new(20, 3).pad(1).no_bias()).unwrap();
    let sum = net.add("sum", &[a, b]).unwrap();
    let sum = net.batch_norm("sum.norm", sum, BatchNorm::default()).unwrap();
    let sum = net.relu("sum.relu", sum).unwrap();
    let pool = net.max_pool("pool", sum, Pool::new(2)).unwrap();
    let flat = net.flatten("flat", pool).unwrap();
    let c = net.linear("c", flat, Linear::new(40)).unwrap();
    let c = net.sigmoid("c.sigmoid", c).unwrap();
    let c = net.dropout("c.drop", c, Dropout::new(0.3)).unwrap();
    let d = net.linear("d", c, Linear::new(7)).unwrap();
    net.softmax_cross_entropy("loss", d, SoftmaxCrossEntropy::default()).unwrap();
    net.build().unwrap()
}

#[test]
fn the_bits_are_the_same_on_any_number_of_ranks_and_workers() {
    for clip_norm in [None, Some(0.5)] {
        let mut alone = Run::new(network(), &SIZES).on(1, 1);
        (alone.reproducible, alone.clip_norm) = (true, clip_norm);
        alone.has_the_same_bits_everywhere();
    }
}

#[test]
fn the_mode_changes_nothing_but_rounding() {
    let plain = Run::new(network(), &SIZES).on(2, 1);
    let mut reproducible = plain.clone();
    reproducible.reproducible = true;
    let losses = reproducible.outcome().losses();
    for (a, b) in plain.outcome().losses().iter().zip(losses) {
        assert!((a - b).abs() < 1e-5 * b.abs(), "{a} {b}");
    }
}

#[test]
fn gradients_are_clipped_alike_under_every_strategy() {
    let mut alone = Run::new(network(), &SIZES).on(1, 2);
    let unclipped = alone.outcome();
    alone.clip_norm = Some(0.3);
    let expected = alone.outcome();
    assert!((expected.losses()[4] - unclipped.losses()[4]).abs() > 1e-3, "the norm is too large");
    for (ranks, strategy) in [(2, "data"), (2, "model"), (4, "G=2"), (3, "auto")] {
        let mut run = alone.clone().on(ranks, 1);
        run.strategy = strategy.parse().unwrap();
        for (a, b) in run.outcome().losses().iter().zip(expected.losses()) {
            assert!((a - b).abs() < 1e-5 * b.abs().max(1.0), "{ranks} ranks, {strategy}: {a} {b}");
        }
    }
    // A norm that no gradient reaches leaves every bit.
    alone.clip_norm = Some(1e6);
    assert_eq!(alone.outcome().losses(), unclipped.losses());
}

#[test]
fn what_cannot_be_reproducible_is_refused() {
    use lockstep_graph::{Plan, PlanOptions, Strategy};
    use std::sync::Arc;
    let refused = |ranks, strategy| {
        let options = PlanOptions {
            minibatch: 32,
            ranks,
            strategy,
            reproducible: true,
            ..Default::default()
        };
        Plan::compile(Arc::new(network()), options).unwrap_err().to_string()
    };
    assert!(refused(3, Strategy::Data).contains("3 ranks"));
    assert!(refused(2, Strategy::Model).contains("split by features"));
}
