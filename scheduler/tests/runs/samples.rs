//! Samples and initial parameters as functions of their names, so that every rank makes its own.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::ops::Range;

use lockstep_graph::{Network, Param, ParamRole, share};
use lockstep_ops::sgd::SgdHyper;
use lockstep_scheduler::{Iteration, LocalSamples};

/// A number in [-1, 1) that depends on nothing but the key.
fn noise(key: impl Hash) -> f32 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    (hasher.finish() >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// Initial values of a parameter.
pub(crate) fn initial(layer: &str, param: &Param) -> Vec<f32> {
    let value = |i: usize| {
        let noise = noise((layer, &param.name, i));
        match param.role {
            ParamRole::Weight => noise / (param.fan_in() as f32).sqrt(),
            ParamRole::Scale | ParamRole::RunningVar => 1.0 + 0.2 * noise,
            _ => 0.1 * noise,
        }
    };
    (0..param.elements()).map(value).collect()
}

/// Iteration `index` of minibatches of the given sizes: one rank's share.
pub(crate) fn iteration(
    network: &Network,
    sizes: &[usize],
    index: usize,
    (rank, ranks): (usize, usize),
) -> Iteration {
    let first: usize = sizes[..index].iter().sum();
    let ids = |range: Range<usize>| range.map(move |i| (first + i) as u64);
    let own = ids(share(sizes[index], ranks, rank));
    let len = network.layer(network.input()).shape.elements();
    let values = own.clone().flat_map(|id| (0..len).map(move |i| noise((id, i)))).collect();
    let labels = own.map(|id| u32::try_from(id * 7 % network.classes() as u64).unwrap()).collect();
    Iteration {
        step: index as u64 + 1,
        epoch: 1,
        minibatch: sizes[index],
        hyper: SgdHyper { lr: 0.02, momentum: 0.9, weight_decay: 1e-3, nesterov: false },
        seed: 11,
        ids: ids(0..sizes[index]).collect(),
        samples: LocalSamples { values, labels },
    }
}
