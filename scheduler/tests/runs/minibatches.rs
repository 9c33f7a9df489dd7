//! Minibatches of another size every iteration, some of which leave ranks without a sample.

use lockstep_graph::zoo;

use super::harness::Run;

#[test]
fn ranks_without_samples_take_part_and_the_mean_is_exact() {
    let run = Run::new(zoo::golden::small_resnet().unwrap(), &[5, 1, 7, 2, 3, 8, 1]);
    let reference = run.clone().on(1, 2).outcome();
    assert_eq!(reference.reports.len(), 7);
    assert_eq!(reference.recycled, [1, 2, 3, 4, 5, 6, 7]);
    for ranks in [2, 3, 4] {
        let other = run.clone().on(ranks, 2).outcome();
        for (a, b) in reference.reports.iter().zip(&other.reports) {
            assert_eq!((a.step, a.minibatch), (b.step, b.minibatch));
            assert!(b.correct <= b.minibatch as u64);
            // Statistics over one sample magnify rounding.
            let close = (a.loss - b.loss).abs() <= 1e-4 * a.loss.abs().max(1.0);
            assert!(close, "step {} on {ranks} ranks: {} instead of {}", a.step, b.loss, a.loss);
        }
    }
}

#[test]
fn a_rank_that_never_has_a_sample_ends_with_everybody() {
    let run = Run::new(zoo::golden::mlp().unwrap(), &[2, 1, 2, 1]).on(3, 1);
    let outcome = run.outcome();
    let reference = run.on(1, 1).outcome();
    for (a, b) in reference.losses().iter().zip(outcome.losses()) {
        assert!((a - b).abs() <= 1e-5 * a.max(1.0), "loss {b} instead of {a}");
    }
}
