//! Initial parameters: the same on every rank by construction.
//!
//! Each value is a function of the seed, the parameter's name and the value's index alone, so no rank, worker or
//! order of layers matters. The distribution is PyTorch's default: weights and biases uniform in `+-1/sqrt(fan_in)`,
//! scales one, shifts zero, running mean zero, running variance one.

use lockstep_graph::{Layer, Param, ParamRole};
use rayon::prelude::*;

/// The initial values of one parameter in its plain PyTorch order.
#[must_use]
pub fn initial_values(seed: u64, layer: &Layer, param: &Param) -> Vec<f32> {
    let n: usize = param.shape.iter().product();
    match param.role {
        ParamRole::Scale | ParamRole::RunningVar => vec![1.0; n],
        ParamRole::Shift | ParamRole::RunningMean => vec![0.0; n],
        ParamRole::Weight | ParamRole::Bias => {
            let bound = 1.0 / (fan_in(layer) as f64).sqrt();
            let key = mix(seed ^ hash_name(&format!("{}.{}", layer.name, param.name)));
            (0..n as u64)
                .into_par_iter()
                .map(|i| {
                    // 53 random bits make a number in [0, 1).
                    let unit = (mix(key.wrapping_add(i)) >> 11) as f64 / (1_u64 << 53) as f64;
                    ((2.0 * unit - 1.0) * bound) as f32
                })
                .collect()
        }
    }
}

/// Inputs that one output of the layer sums over: the product of all but the weight's first dimension.
fn fan_in(layer: &Layer) -> usize {
    let weight = layer.params.iter().find(|p| p.role == ParamRole::Weight);
    weight.map_or(1, |w| w.shape[1..].iter().product::<usize>()).max(1)
}

/// FNV-1a of a name.
fn hash_name(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The finalizer of SplitMix64: a bijection of 64 bits that passes statistical tests on counters.
///
/// # Source
/// Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
fn mix(counter: u64) -> u64 {
    let mut z = counter.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use lockstep_graph::zoo;

    use super::*;

    #[test]
    fn values_depend_on_seed_and_name_and_fill_the_interval() {
        let net = zoo::by_name("lenet").unwrap();
        let layer = net.layers().iter().find(|l| l.name == "fc1").unwrap();
        let weight = &layer.params[0];
        let values = initial_values(1, layer, weight);
        let bound = 1.0 / (800.0_f32).sqrt();
        assert!(values.iter().all(|v| v.abs() <= bound));
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / values.len() as f64;
        let square =
            values.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 1e-3 * f64::from(bound) * 10.0, "{mean}");
        // A uniform distribution on [-b, b] has variance b^2 / 3.
        assert!((square / f64::from(bound).powi(2) - 1.0 / 3.0).abs() < 0.01);
        assert_eq!(values, initial_values(1, layer, weight));
        assert_ne!(values, initial_values(2, layer, weight));
        let bias = &layer.params[1];
        assert_ne!(initial_values(1, layer, bias)[..3], values[..3]);
    }
}
