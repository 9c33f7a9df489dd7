//! The numbers that the paper and its re-derivation print.

use super::super::{LayerSizes, minimum_points, nodes_at, system_ratio};
use crate::cost::Platform;
use crate::layer::LayerKind;
use crate::network::Network;
use crate::zoo;

/// 2 sockets x 16 cores x 2.3 GHz on FDR InfiniBand, and 2 x 9 x 2.9 GHz on 10 gigabit Ethernet; 32 operations a cycle.
fn systems() -> [Platform; 2] {
    [(32.0 * 2.3e9, 7e9), (18.0 * 2.9e9, 1.25e9)].map(|(cycles, link_bytes_per_s)| Platform {
        flops_per_s: 32.0 * cycles,
        link_bytes_per_s,
        ..Platform::default()
    })
}

/// A linear layer as the paper's worked example has it.
const FC_4096: LayerSizes = LayerSizes { ifm: 4096, ofm: 4096, kernel: 1, output: 1, input: 1 };

/// Name and sizes of every layer with weights.
fn weighted(network: &Network) -> Vec<(&str, LayerSizes)> {
    let sized = |layer| LayerSizes::of(network, layer);
    network.layers().iter().filter_map(|l| Some((l.name.as_str(), sized(l)?))).collect()
}

/// Compares at the digits that the table prints.
#[track_caller]
fn close(got: f64, want: f64, digits: i32) {
    let half = 0.5 * 10.0_f64.powi(-digits) * (1.0 + 1e-9);
    assert!((got - want).abs() <= half, "{got} is not {want}");
}

#[test]
fn the_two_systems_have_336_and_1336_operations_a_byte() {
    let [fdr, ethernet] = systems();
    close(system_ratio(&fdr).floor(), 336.0, 0);
    close(system_ratio(&ethernet), 1336.0, 0);
}

#[test]
fn operations_a_byte_depend_on_the_output_map_and_the_points_alone() {
    for network in [zoo::overfeat_fast().unwrap(), zoo::vgg_a().unwrap()] {
        for (name, sizes) in weighted(&network) {
            let want = 1.5 * sizes.output as f64 * 7.0;
            assert!((sizes.flops_per_byte(7.0, 1.0) / want - 1.0).abs() < 1e-12, "{name}");
        }
    }
}

#[test]
fn points_that_a_node_needs_and_the_nodes_that_follow() {
    // Gigaflops of training a point, megabytes, operations a byte and point; then for each system points and nodes.
    let check = |network: Network, flops, bytes, ratio, systems: [(f64, f64, usize); 2]| {
        let convolutions = weighted(&network)
            .into_iter()
            .filter(|(name, _)| matches!(network.find(name).unwrap().kind, LayerKind::Conv2d(_)));
        let (f, b) = convolutions.fold((0.0, 0.0), |(f, b), (_, sizes)| {
            (f + sizes.training_flops(1.0), b + sizes.data_bytes(1.0))
        });
        close(f / 1e9, flops, 2);
        close(b / 1e6, bytes, 1);
        close(f / b, ratio, if ratio < 1000.0 { 1 } else { 0 });
        for (platform, (points, whole, nodes)) in self::systems().iter().zip(systems) {
            let got = minimum_points(&network, system_ratio(platform), 1.0);
            close(got, points, 2);
            close(got.ceil(), whole, 0);
            assert_eq!(nodes_at(256, got), nodes);
        }
    };
    let overfeat = [(1.34, 2.0, 128), (5.33, 6.0, 42)];
    check(zoo::overfeat_fast().unwrap(), 16.03, 63.9, 250.7, overfeat);
    check(zoo::vgg_a().unwrap(), 44.91, 36.9, 1218.0, [(0.28, 1.0, 256), (1.10, 2.0, 128)]);
    close(minimum_points(&zoo::cd_dnn().unwrap(), 336.0, 1.0), 0.0, 9);
}

#[test]
fn the_table_of_groups() {
    // Groups; megabytes in the paper's form without and with overlap, and exactly; digits that the table prints.
    let rows = [
        (1, (8.39, 2), (8.39, 2), (8.26, 2)),
        (2, (8.39, 2), (6.29, 2), (6.16, 2)),
        (3, (9.09, 2), (5.94, 2), (6.86, 2)),
        (4, (10.49, 2), (6.29, 2), (8.26, 2)),
        (8, (17.8, 1), (9.4, 1), (15.6, 1)),
        (64, (134.0, 0), (67.0, 0), (132.0, 0)),
    ];
    for (groups, apart, together, exact) in rows {
        let paper = |overlap| FC_4096.hybrid_bytes(256, 64, groups, overlap) / 1e6;
        close(paper(0.0), apart.0, apart.1);
        close(paper(1.0), together.0, together.1);
        close(FC_4096.exact_bytes(256, 64, groups) / 1e6, exact.0, exact.1);
    }
    close(FC_4096.optimal_groups(256, 64, 0.0), 2.0, 2);
    close(FC_4096.optimal_groups(256, 64, 1.0), 2.83, 2);
    assert_eq!(FC_4096.best_groups(256, 64), 2);
}

#[test]
fn whole_stacks_of_linear_layers() {
    // Minibatch, ranks; megabytes of data, model and best hybrid parallelism; groups of each layer.
    #[track_caller]
    fn check(
        network: &Network,
        (minibatch, ranks): (usize, usize),
        mb: [f64; 3],
        groups: &[usize],
    ) {
        let linear: Vec<_> = weighted(network)
            .into_iter()
            .filter(|(name, _)| matches!(network.find(name).unwrap().kind, LayerKind::Linear(_)))
            .map(|(_, sizes)| sizes)
            .collect();
        let best: Vec<_> = linear.iter().map(|l| l.best_groups(minibatch, ranks)).collect();
        assert_eq!(best, groups);
        let sum = |groups: &dyn Fn(usize) -> usize| {
            let bytes = |(i, l): (usize, &LayerSizes)| l.exact_bytes(minibatch, ranks, groups(i));
            linear.iter().enumerate().map(bytes).sum::<f64>() / 1e6
        };
        close(sum(&|_| ranks), mb[0], 0);
        close(sum(&|_| 1), mb[1], 0);
        close(sum(&|i| best[i]), mb[2], 0);
    }
    let (overfeat, vgg) = (zoo::overfeat_fast().unwrap(), zoo::vgg_a().unwrap());
    let cd_dnn = zoo::cd_dnn().unwrap();
    check(&overfeat, (256, 64), [1023.0, 89.0, 59.0], &[2, 2, 4]);
    check(&vgg, (256, 64), [974.0, 67.0, 47.0], &[2, 2, 4]);
    check(&vgg, (512, 128), [981.0, 135.0, 55.0], &[4, 4, 8]);
    check(&vgg, (256, 16), [927.0, 64.0, 62.0], &[1, 1, 2]);
    check(&cd_dnn, (1024, 16), [338.0, 113.0, 74.0], &[2, 2, 2, 2, 2, 2, 2, 1]);
    check(&cd_dnn, (4096, 16), [338.0, 454.0, 156.0], &[4, 4, 4, 4, 4, 4, 4, 2]);
}

#[test]
fn convolutions_prefer_data_and_linear_layers_model_parallelism() {
    let networks = [
        (zoo::overfeat_fast().unwrap(), 256),
        (zoo::vgg_a().unwrap(), 256),
        (zoo::cd_dnn().unwrap(), 1024),
    ];
    for (network, minibatch) in &networks {
        for (name, sizes) in weighted(network) {
            let linear = matches!(network.find(name).unwrap().kind, LayerKind::Linear(_));
            for overlap in [0.0, 1.0] {
                assert_eq!(sizes.prefers_model(*minibatch, overlap), linear, "{name}");
            }
        }
    }
}
