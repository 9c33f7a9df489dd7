//! Convolutions by Winograd's minimal filtering: the same bits for any number of workers, and in the reproducible mode of ranks;
//! losses near those of the direct method, with either tile, under every strategy.

use lockstep_graph::{
    BatchNorm, Conv2d, Linear, Mode, Network, NetworkBuilder, Pool, SoftmaxCrossEntropy,
    WinogradLayers, WinogradTile,
};

use super::harness::Run;

const SIZES: [usize; 3] = [7, 16, 5];

/// Convolutions with and without bias, before an activation, a normalization and a fan-out.
fn network() -> Network {
    let mut net = NetworkBuilder::new("minimal-filtering");
    let data = net.input("data", (3, 10, 10)).unwrap();
    let first = net.conv2d("first", data, Conv2d::new(34, 3).pad(1)).unwrap();
    let first = net.relu("first.relu", first).unwrap();
    let a = net.conv2d("a", first, Conv2d::new(48, 3).pad(1)).unwrap();
    let a = net.relu("a.relu", a).unwrap();
    let b = net.conv2d("b", a, Conv2d::new(48, 3).pad(1).no_bias()).unwrap();
    let b = net.batch_norm("b.norm", b, BatchNorm::default()).unwrap();
    let sum = net.add("sum", &[a, b]).unwrap();
    let sum = net.relu("sum.relu", sum).unwrap();
    let pool = net.max_pool("pool", sum, Pool::new(2)).unwrap();
    let c = net.conv2d("c", pool, Conv2d::new(64, 3)).unwrap();
    let flat = net.flatten("flat", c).unwrap();
    let d = net.linear("d", flat, Linear::new(7)).unwrap();
    net.softmax_cross_entropy("loss", d, SoftmaxCrossEntropy::default()).unwrap();
    net.build().unwrap()
}

fn run(tile: Option<WinogradTile>) -> Run {
    let mut run = Run::new(network(), &SIZES);
    run.winograd = tile;
    run
}

#[test]
fn the_test_network_has_such_layers() {
    let network = network();
    for tile in [WinogradTile::Two, WinogradTile::Four] {
        let layers = WinogradLayers::new(&network, Some(tile));
        let taking = network.layers().iter().filter(|layer| layers.tile(layer.id).is_some());
        assert!(taking.count() >= 2);
    }
}

#[test]
fn losses_are_near_the_direct_methods() {
    for mode in [Mode::Train { momentum: true }, Mode::Score] {
        let direct = Run { mode, ..run(None) }.outcome();
        for tile in [WinogradTile::Two, WinogradTile::Four] {
            let other = Run { mode, ..run(Some(tile)) }.outcome();
            assert_ne!(other.losses(), direct.losses(), "{tile:?} is not the direct method");
            for (a, b) in other.losses().iter().zip(direct.losses()) {
                assert!((a - b).abs() <= 1e-4 * b.abs(), "{tile:?}: {a} instead of {b}");
            }
        }
    }
}

#[test]
fn the_bits_are_the_same_for_any_number_of_workers() {
    for tile in [WinogradTile::Two, WinogradTile::Four] {
        let one = run(Some(tile)).on(1, 1).outcome();
        for workers in [2, 3] {
            assert_eq!(
                run(Some(tile)).on(1, workers).outcome(),
                one,
                "{tile:?}, {workers} workers"
            );
        }
    }
}

#[test]
fn the_reproducible_mode_has_the_same_bits_on_any_number_of_ranks() {
    let mut alone = run(Some(WinogradTile::Four)).on(1, 1);
    alone.reproducible = true;
    alone.has_the_same_bits_everywhere();
}

#[test]
fn every_strategy_gives_the_same_losses() {
    let expected = run(Some(WinogradTile::Four)).on(1, 2).outcome();
    for (ranks, strategy) in [(2, "data"), (2, "model"), (4, "G=2"), (3, "data")] {
        let mut run = run(Some(WinogradTile::Four)).on(ranks, 1);
        run.strategy = strategy.parse().unwrap();
        for (a, b) in run.outcome().losses().iter().zip(expected.losses()) {
            assert!((a - b).abs() < 1e-5 * b.abs().max(1.0), "{ranks} ranks, {strategy}: {a} {b}");
        }
    }
}
