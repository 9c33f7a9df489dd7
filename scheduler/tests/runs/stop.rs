//! A request to stop on one rank ends all ranks after the same step.

use lockstep_graph::zoo;

use super::harness::{Act, Run};

#[test]
fn all_ranks_end_after_the_same_step() {
    for ranks in [1, 2, 3] {
        for workers in [1, 3] {
            let mut run = Run::new(zoo::golden::mlp().unwrap(), &[6; 40]).on(ranks, workers);
            run.act = Some((ranks - 1, Act::StopAtReport(5)));
            let outcome = run.outcome();
            let n = outcome.reports.len();
            // The flag goes out with step 6 or, where that was on its way already, step 7 or 8; one more is under way then.
            assert!((7..=9).contains(&n), "{n} steps on {ranks} ranks");
            assert_eq!(outcome.recycled.len(), n, "every step fed is completed");
            let told: Vec<_> = outcome.reports.iter().filter(|r| r.stop).map(|r| r.step).collect();
            assert_eq!(told.first(), Some(&(n as u64 - 1)), "the last step but one tells of it");
        }
    }
}

#[test]
fn a_stop_in_the_last_steps_changes_nothing() {
    let mut run = Run::new(zoo::golden::mlp().unwrap(), &[4; 6]).on(2, 2);
    run.act = Some((1, Act::StopAtReport(5)));
    assert_eq!(run.outcome().reports.len(), 6);
}
