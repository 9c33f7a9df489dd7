//! Failures end all ranks with the reason, and nothing hangs.

use std::sync::Arc;

use lockstep_comm::{CommError, LocalJob};
use lockstep_graph::zoo;
use lockstep_scheduler::{Iteration, IterationReport, ScheduleError};

use super::harness::{Act, Failure, Outcome, Run, connect, watched};

fn run(ranks: usize, workers: usize) -> Run {
    Run::new(zoo::golden::small_resnet().unwrap(), &[6; 12]).on(ranks, workers)
}

#[track_caller]
fn assert_peer_failed(outcome: &Result<Outcome, Failure>, at_fault: usize) {
    match outcome {
        Err(Failure::Schedule(ScheduleError::PeerFailed {
            source: CommError::PeerFailed { rank, .. },
        })) => assert_eq!(*rank, at_fault),
        other => panic!("expected the failure of rank {at_fault}, got {other:?}"),
    }
}

#[test]
fn a_panicking_task_is_named_with_its_step() {
    for (ranks, workers, at_fault) in [(1, 1, 0), (1, 4, 0), (2, 1, 0), (2, 2, 1), (3, 1, 1)] {
        let mut run = run(ranks, workers);
        let names: Vec<_> =
            run.bind(0, None).program.plan().tasks().tasks().map(|t| t.name.clone()).collect();
        run.hook = Some((at_fault, Arc::new(|step| assert!(step != 4, "told to fail at 4"))));
        for (rank, outcome) in run.outcomes().iter().enumerate() {
            if rank != at_fault {
                assert_peer_failed(outcome, at_fault);
                continue;
            }
            let Err(Failure::Schedule(ScheduleError::TaskPanicked { task, step, message })) =
                outcome
            else {
                panic!("expected a task's panic, got {outcome:?}")
            };
            assert_eq!((*step, message.contains("told to fail at 4")), (4, true), "{message}");
            assert!(names.contains(task), "{task}");
        }
    }
}

#[test]
fn an_error_of_the_feed_ends_all_ranks() {
    for act in [Act::FailNext(1), Act::FailNext(5), Act::FailReport(1), Act::FailReport(12)] {
        for ranks in [1, 2] {
            let mut run = run(ranks, 2);
            run.act = Some((0, act));
            let outcomes = run.outcomes();
            assert!(matches!(outcomes[0], Err(Failure::Data(_))), "{:?}", outcomes[0]);
            // A rank may have completed all steps before the other fails on its last report.
            if ranks == 2 && act != Act::FailReport(12) {
                assert_peer_failed(&outcomes[1], 0);
            }
        }
    }
}

#[test]
fn a_panic_of_the_feed_lets_the_workers_go() {
    for ranks in [1, 2] {
        let mut run = run(ranks, 3);
        run.act = Some((0, Act::PanicNext(4)));
        let outcomes = run.outcomes();
        assert!(matches!(outcomes[0], Err(Failure::Panic)), "{:?}", outcomes[0]);
        if ranks == 2 {
            assert_peer_failed(&outcomes[1], 0);
        }
    }
}

#[test]
fn a_communicator_that_failed_before_the_run_refuses_it() {
    watched(|| {
        let run = run(2, 1);
        let mut ends = LocalJob::endpoints(2).into_iter().map(connect);
        let ((comm, router), other) = (ends.next().unwrap(), ends.next().unwrap());
        let mut bound = run.bind(0, Some((comm, router)));
        // The peer leaves without a word, and this rank hears of it before or during its run.
        drop(other);
        let ended = run.again(0, &mut bound);
        assert!(
            matches!(ended, Err(Failure::Schedule(ScheduleError::PeerFailed { .. }))),
            "{ended:?}"
        );
        let ended = run.again(0, &mut bound);
        assert!(
            matches!(ended, Err(Failure::Schedule(ScheduleError::PeerFailed { .. }))),
            "{ended:?}"
        );
    });
}

/// Fails at once, or ends at once.
struct Ends(bool);

impl lockstep_scheduler::Feed for Ends {
    type Error = Failure;

    fn next(&mut self) -> Result<Option<Iteration>, Failure> {
        if self.0 { Err(Failure::Data("at once")) } else { Ok(None) }
    }

    fn report(&mut self, _: &IterationReport) -> Result<(), Failure> {
        Ok(())
    }
}

#[test]
fn after_a_failure_among_ranks_nobody_touches_what_exchanges_may_write() {
    watched(|| {
        let run = run(2, 1);
        let mut ends = LocalJob::endpoints(2).into_iter().map(connect);
        let (mine, other) = (ends.next().unwrap(), ends.next().unwrap());
        let mut bound = run.bind(0, Some(mine));
        let ended = bound.executor.run(&bound.program, &mut Ends(true));
        assert!(matches!(ended, Err(Failure::Data("at once"))));
        let ended = bound.executor.run(&bound.program, &mut Ends(false));
        assert!(matches!(ended, Err(Failure::Schedule(ScheduleError::Abandoned))), "{ended:?}");
        let layer = run.network.find("0").unwrap();
        let exported = bound.store.export(&run.network, layer.id, "weight");
        assert!(matches!(exported, Err(ScheduleError::Abandoned)), "{exported:?}");
        drop(other);
    });
}

#[test]
fn a_rank_alone_may_run_again_after_a_failure() {
    watched(|| {
        let run = run(1, 2);
        let mut bound = run.bind(0, None);
        let ended = bound.executor.run(&bound.program, &mut Ends(true));
        assert!(matches!(ended, Err(Failure::Data("at once"))));
        run.again(0, &mut bound).unwrap();
        run.again(0, &mut bound).unwrap();
    });
}

#[test]
fn a_program_for_other_ranks_is_refused() {
    watched(|| {
        let run = run(2, 1);
        let mut bound = run.bind(0, None);
        let ended = run.again(0, &mut bound);
        let expected = ScheduleError::Ranks { planned: 2, connected: 1 };
        assert!(
            matches!(&ended, Err(Failure::Schedule(e)) if e.to_string() == expected.to_string()),
            "{ended:?}"
        );
    });
}
