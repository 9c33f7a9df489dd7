//! Data, model and hybrid parallelism compute the same: losses and parameters agree with one rank's, on any number of ranks.

use lockstep_graph::{
    BatchNorm, Conv2d, Dropout, Linear, Lrn, Mode, Network, NetworkBuilder, Pool,
    SoftmaxCrossEntropy, Strategy,
};

use super::harness::Run;

/// Few steps: rounding drifts apart with every one of them.
const SIZES: [usize; 4] = [13, 13, 5, 13];

/// As many samples as make several parts for a split layer.
const PARTED: [usize; 3] = [140, 65, 140];

const STRATEGIES: [&str; 5] = ["data", "model", "G=2", "G=3", "auto"];

/// Linear layers of uneven widths, with every activation, dropout between split layers, and more classes than fit one
/// member.
fn features() -> Network {
    let mut net = NetworkBuilder::new("features");
    let data = net.input("data", 37).unwrap();
    let a = net.linear("a", data, Linear::new(70)).unwrap();
    let a = net.relu("a.relu", a).unwrap();
    let a = net.dropout("a.drop", a, Dropout::new(0.4)).unwrap();
    let b = net.linear("b", a, Linear::new(130)).unwrap();
    let b = net.sigmoid("b.sigmoid", b).unwrap();
    let c = net.linear("c", b, Linear::new(33)).unwrap();
    let c = net.bias("c.bias", c).unwrap();
    let c = net.tanh("c.tanh", c).unwrap();
    let c = net.dropout("c.drop", c, Dropout::new(0.2)).unwrap();
    let d = net.linear("d", c, Linear::new(90)).unwrap();
    let smooth = SoftmaxCrossEntropy { label_smoothing: 0.1 };
    net.softmax_cross_entropy("loss", d, smooth).unwrap();
    net.build().unwrap()
}

/// Convolutions with all that can stand between them: batch and local response normalization, pooling, residuals over
/// layers of different widths, groups, concatenation, flattening of maps of several pixels.
fn maps() -> Network {
    let mut net = NetworkBuilder::new("maps");
    let data = net.input("data", (3, 9, 9)).unwrap();
    let a = net.conv2d("a", data, Conv2d::new(40, 3).pad(1)).unwrap();
    let a = net.batch_norm("a.norm", a, BatchNorm::default()).unwrap();
    let a = net.relu("a.relu", a).unwrap();
    let b = net.conv2d("b", a, Conv2d::new(40, 3).pad(1)).unwrap();
    let sum = net.add("sum", &[a, b]).unwrap();
    let sum = net.relu("sum.relu", sum).unwrap();
    let pool = net.max_pool("pool", sum, Pool::new(2)).unwrap();
    let c = net.conv2d("c", pool, Conv2d::new(56, 1)).unwrap();
    let lrn = net.lrn("lrn", c, Lrn::new(5)).unwrap();
    let d = net.conv2d("d", lrn, Conv2d::new(24, 3).pad(1).groups(4)).unwrap();
    let both = net.concat("both", &[pool, d]).unwrap();
    let e = net.conv2d("e", both, Conv2d::new(48, 3)).unwrap();
    let e = net.tanh("e.tanh", e).unwrap();
    let flat = net.flatten("flat", e).unwrap();
    let f = net.linear("f", flat, Linear::new(50)).unwrap();
    net.softmax_cross_entropy("loss", f, SoftmaxCrossEntropy::default()).unwrap();
    net.build().unwrap()
}

/// Convolutions too narrow to be split before linear layers that are: they feed these in parts.
fn feeding() -> Network {
    let mut net = NetworkBuilder::new("feeding");
    let data = net.input("data", (3, 11, 9)).unwrap();
    let a = net.conv2d("a", data, Conv2d::new(8, 3).pad(1)).unwrap();
    let a = net.relu("a.relu", a).unwrap();
    let pool = net.max_pool("pool", a, Pool::new(2)).unwrap();
    let pool = net.dropout("pool.drop", pool, Dropout::new(0.2)).unwrap();
    let b = net.conv2d("b", pool, Conv2d::new(12, 3).pad(1).groups(2)).unwrap();
    let b = net.lrn("b.lrn", b, Lrn::new(3)).unwrap();
    let b = net.tanh("b.tanh", b).unwrap();
    let flat = net.flatten("flat", b).unwrap();
    let c = net.linear("c", flat, Linear::new(70)).unwrap();
    let c = net.relu("c.relu", c).unwrap();
    let d = net.linear("d", c, Linear::new(10)).unwrap();
    net.softmax_cross_entropy("loss", d, SoftmaxCrossEntropy::default()).unwrap();
    net.build().unwrap()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-5 * a.abs().max(b.abs()).max(1.0)
}

#[track_caller]
fn agrees(network: Network, sizes: &[usize], ranks: &[usize], fuse: bool) {
    let mut alone = Run::new(network, sizes).on(1, 2);
    alone.fuse = fuse;
    let expected = alone.outcome();
    for &ranks in ranks {
        for name in STRATEGIES {
            let mut run = alone.clone().on(ranks, 1);
            run.strategy = name.parse().unwrap();
            let got = run.outcome();
            for (step, (a, b)) in got.losses().iter().zip(expected.losses()).enumerate() {
                assert!(close(*a, b), "{ranks} ranks, {name}: step {step}: {a} {b}");
            }
            let hits = |reports: &[lockstep_scheduler::IterationReport]| {
                reports.iter().map(|r| r.correct).collect::<Vec<_>>()
            };
            assert_eq!(hits(&got.reports), hits(&expected.reports), "{ranks} ranks, {name}");
            for (name_of, values) in &got.parameters {
                for (a, b) in values.iter().zip(&expected.parameters[name_of]) {
                    let close = (a - b).abs() < 2e-4 * b.abs().max(0.05);
                    assert!(close, "{ranks} ranks, {name}: {name_of}: {a} {b}");
                }
            }
        }
    }
}

#[test]
fn layers_of_features_agree_under_every_strategy() {
    agrees(features(), &SIZES, &[2, 3, 4, 5, 8], true);
}

#[test]
fn parts_of_the_samples_agree_under_every_strategy() {
    agrees(features(), &PARTED, &[2, 4], true);
    agrees(features(), &PARTED, &[2], false);
}

#[test]
fn layers_that_feed_split_ones_in_parts_agree_under_every_strategy() {
    let sizes = [260, 97, 260];
    agrees(feeding(), &sizes, &[2, 3, 4], true);
    agrees(feeding(), &sizes, &[2], false);
}

#[test]
fn layers_of_features_agree_without_fusion() {
    agrees(features(), &SIZES, &[2, 4], false);
}

#[test]
fn layers_of_maps_agree_under_every_strategy() {
    agrees(maps(), &SIZES, &[2, 3, 4], true);
}

#[test]
fn layers_of_maps_agree_without_fusion() {
    agrees(maps(), &SIZES, &[2], false);
}

#[test]
fn scoring_agrees_under_every_strategy() {
    for network in [features(), maps()] {
        let mut alone = Run::new(network, &SIZES).on(1, 1);
        alone.mode = Mode::Score;
        let expected = alone.outcome();
        let mut split = alone.clone().on(4, 1);
        split.strategy = Strategy::Groups(2);
        let got = split.outcome();
        for (a, b) in got.losses().iter().zip(expected.losses()) {
            assert!(close(*a, b), "{a} {b}");
        }
    }
}

#[test]
fn split_layers_give_the_same_bits_run_after_run_and_on_any_number_of_workers() {
    let mut run = Run::new(maps(), &SIZES).on(4, 1);
    run.strategy = Strategy::Groups(2);
    let first = run.outcome();
    for workers in [1, 2, 3] {
        let again = run.clone().on(4, workers).outcome();
        assert_eq!(again.losses(), first.losses());
        assert_eq!(again.parameters, first.parameters);
    }
}
