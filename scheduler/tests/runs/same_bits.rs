//! Contracts 1 and 2: any number of workers gives the same bits, any number of ranks the same losses.

use lockstep_graph::{Network, zoo};
use proptest::prelude::*;

use super::harness::Run;
use super::networks;

const SIZES: [usize; 3] = [7, 8, 5];

/// Trains three steps in all the ways. The ledger is active, so an access that the graph does not order ends the run.
fn check(network: Network) -> Result<(), TestCaseError> {
    let run = Run::new(network, &SIZES);
    let reference = run.clone().on(1, 1).outcome();
    for workers in 2..=4 {
        let other = run.clone().on(1, workers).outcome();
        prop_assert_eq!(&other.reports, &reference.reports, "{} workers", workers);
        let bits = |v: &Vec<f32>| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        for (name, values) in &reference.parameters {
            prop_assert_eq!(bits(&other.parameters[name]), bits(values), "{} of {}", name, workers);
        }
    }
    for ranks in 2..=3 {
        let other = run.clone().on(ranks, 2).outcome();
        for (a, b) in reference.losses().iter().zip(other.losses()) {
            let close = (a - b).abs() <= 1e-5 * a.abs().max(1.0);
            prop_assert!(close, "{ranks} ranks: loss {b} instead of {a}");
        }
        prop_assert_eq!(other, run.clone().on(ranks, 3).outcome(), "{} ranks", ranks);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_networks_do_not_depend_on_workers_or_ranks(network in networks::network()) {
        check(network)?;
    }
}

#[test]
fn a_residual_network_does_not_depend_on_workers_or_ranks() {
    check(zoo::golden::small_resnet().unwrap()).unwrap();
}
