//! Gradients and parameters of several layers in one exchange: the same bits as each in its own.

use lockstep_graph::{Network, Strategy, TaskKind, zoo};

use super::harness::Run;

const SIZES: [usize; 4] = [16, 16, 5, 16];

/// Trains some steps with and without bundles; the ledger is active, so an access that the graph does not order ends the run.
#[track_caller]
fn check(together: &Run) {
    let alone = Run { bundle: false, ..together.clone() };
    let reduces = |run: &Run| {
        run.plan().tasks().tasks().filter(|task| task.kind == TaskKind::PartReduce).count()
    };
    assert!(reduces(together) < reduces(&alone), "nothing is bundled");
    let (together, alone) = (together.outcome(), alone.outcome());
    assert_eq!(together.reports, alone.reports);
    let bits = |v: &Vec<f32>| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    for (name, values) in &alone.parameters {
        assert_eq!(bits(&together.parameters[name]), bits(values), "{name}");
    }
}

fn networks() -> [Network; 2] {
    [zoo::golden::small_resnet().unwrap(), zoo::golden::mlp().unwrap()]
}

#[test]
fn any_number_of_ranks_gives_the_same_bits() {
    for network in networks() {
        for ranks in [2, 3, 5, 8] {
            check(&Run::new(network.clone(), &SIZES).on(ranks, 2));
        }
    }
}

#[test]
fn clipping_gives_the_same_bits() {
    for network in networks() {
        for ranks in [2, 3] {
            let run = Run::new(network.clone(), &SIZES).on(ranks, 2);
            check(&Run { clip_norm: Some(0.5), ..run });
        }
    }
}

#[test]
fn the_reproducible_mode_gives_the_same_bits() {
    for network in networks() {
        for ranks in [2, 4] {
            let run = Run::new(network.clone(), &SIZES).on(ranks, 2);
            check(&Run { reproducible: true, ..run });
        }
    }
}

#[test]
fn layers_of_different_meshes_give_the_same_bits() {
    for clip_norm in [None, Some(0.5)] {
        let run = Run::new(zoo::golden::small_resnet().unwrap(), &SIZES).on(4, 2);
        check(&Run { strategy: Strategy::Groups(2), clip_norm, ..run });
    }
}
