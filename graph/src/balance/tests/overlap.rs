//! The overlap model against the efficiencies that its re-derivation prints.

use super::super::model::{Model, Rule};
use super::super::overlap::estimate;
use crate::cost::Platform;
use crate::layer::LayerKind;
use crate::network::Network;
use crate::zoo;

/// Points, nodes, flops a second of a node, bytes a second of its link.
type Case = (usize, usize, f64, f64);

/// The efficiency with linear layers in one of these numbers of groups, which the convolutions never are.
fn efficiency(network: &Network, case: Case, groups: fn(usize) -> usize) -> f64 {
    let (minibatch, ranks, flops_per_s, link_bytes_per_s) = case;
    let platform = Platform {
        flops_per_s,
        bytes_per_s: 1e18,
        link_bytes_per_s,
        // 50 us for a layer's part-reduce and part-broadcast together.
        link_latency_s: 25e-6 / (ranks as f64 - 1.0),
        link_congestion: 0.0,
    };
    let model = Model::new(network, minibatch, ranks, &platform);
    let data = model.meshes.len() - 1;
    let mut choice = vec![data; model.layers.len()];
    for (index, layer) in network.layers().iter().enumerate() {
        if let (Rule::Free(possible), LayerKind::Linear(_)) =
            (&model.layers[index].rule, &layer.kind)
        {
            let enough = |&&mesh: &&usize| model.meshes[mesh].groups() >= groups(ranks);
            choice[index] = *possible.iter().find(enough).unwrap();
        }
    }
    model.follow(&mut choice);
    let compute: f64 = (0..choice.len())
        .map(|index| {
            let passes = model.layers[index].passes[choice[index]];
            passes.forward_s + passes.backward_data_s + passes.backward_weights_s
        })
        .sum();
    compute / estimate(&model, &choice).step_s
}

#[test]
fn efficiencies_of_the_papers_cases() {
    // Flops a second are the single node's samples a second times flops a sample. Efficiencies with linear layers data-parallel, in
    // one group, and in two.
    let (vgg, overfeat, cd_dnn) =
        (zoo::vgg_a().unwrap(), zoo::overfeat_fast().unwrap(), zoo::cd_dnn().unwrap());
    let (vgg_rate, cd_rate) = (28.0 * 45.5e9, 4600.0 * 0.269e9);
    let cases = [
        (&vgg, (256, 64, vgg_rate, 6.0e9), 0.82, 0.93, 0.97),
        (&vgg, (512, 128, vgg_rate, 8.0e9), 1.00, 0.90, 0.97),
        (&overfeat, (256, 64, 88.0 * 16.6e9, 6.0e9), 0.24, 0.76, 0.87),
        (&vgg, (256, 16, vgg_rate, 1.15e9), 0.66, 0.92, 0.92),
        (&overfeat, (256, 16, 86.0 * 16.6e9, 1.15e9), 0.20, 0.72, 0.73),
        (&cd_dnn, (1024, 16, cd_rate, 6.0e9), 0.23, 0.47, 0.65),
    ];
    for (network, case, data, model, hybrid) in cases {
        let of = format!("{} {case:?}", network.name());
        let got = [
            efficiency(network, case, |n| n),
            efficiency(network, case, |_| 1),
            efficiency(network, case, |_| 2),
        ];
        let [got_data, got_model, got_hybrid] = got;
        assert!((got_data - data).abs() < 0.01, "{of}: data {got_data}");
        // The derivation gathers all of a layer's inputs before it computes; here it computes on what has arrived.
        assert!(got_model > model - 0.01 && got_hybrid > hybrid - 0.02, "{of}: {got:?}");
    }
}
