//! A failing rank ends the job for everybody, soon, with its own message; and nothing hangs afterwards.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockstep_comm::{Algorithm, CommConfig, CommError, Communicator, Exchange, LocalJob};

use crate::harness::{Chunking, Rank, TIGHT, even_strips, region, start};

/// Longest time from a failure to its report on the other ranks. The issue is seconds against for ever.
const SOON: Duration = Duration::from_secs(1);

fn config(chunking: Chunking) -> CommConfig {
    CommConfig {
        chunk_bytes: chunking.chunk_bytes,
        window: chunking.window,
        ..CommConfig::default()
    }
}

fn three_ranks() -> Vec<Rank> {
    LocalJob::endpoints(3).into_iter().map(|endpoint| start(endpoint, config(TIGHT))).collect()
}

fn all_reduce(rank: &Rank, id: u32, data: &mut [f32]) -> Arc<Exchange> {
    let n = rank.comm.n_ranks();
    let (members, strips): (Vec<_>, _) = ((0..n).collect(), even_strips(data.len(), n));
    Arc::new(
        Exchange::part_reduce(
            rank.label(id, 0),
            region(data),
            &members,
            &strips,
            Algorithm::Direct,
        )
        .unwrap(),
    )
}

/// Ranks 0 and 2 wait for rank 1, which does `fail`; both must hear `expected` of rank 1.
#[track_caller]
fn check_failure(fail: impl FnOnce(Rank), expected: &str) {
    let mut ranks = three_ranks();
    let mut data = vec![vec![1.0; 50_000]; 3];
    for at in [0, 2] {
        ranks[at].submit(&all_reduce(&ranks[at], 0, &mut data[at]), 1, 5);
    }
    let failing = ranks.remove(1);
    let before = Instant::now();
    fail(failing);
    for rank in ranks {
        let failure = rank.failed();
        assert!(before.elapsed() < SOON, "{:?}", before.elapsed());
        assert_eq!(failure, CommError::PeerFailed { rank: 1, message: expected.to_owned() });
        // Later calls fail alike, at once; nothing completes.
        assert_eq!(rank.comm.all_gather(vec![1]), Err(failure.clone()));
        assert_eq!(rank.comm.clock_offset(), Err(failure.clone()));
        assert_eq!(rank.comm.failure(), Some(failure.clone()));
        let mut more = vec![1.0; 3];
        rank.submit(&all_reduce(&rank, 1, &mut more), 1, 6);
        assert_eq!(rank.comm.shutdown(), Err(failure));
        assert_eq!(rank.completions.try_iter().count(), 0);
        assert_eq!(rank.failures.try_iter().count(), 0, "on_failure is called once");
    }
}

#[test]
fn an_abort_reaches_the_other_ranks() {
    check_failure(
        |rank| {
            rank.comm.abort(3, "loss is not finite");
            let own = CommError::Aborted { rank: 1, message: "loss is not finite".to_owned() };
            assert_eq!(rank.failed(), own);
            assert_eq!(rank.comm.shutdown(), Err(own));
        },
        "loss is not finite",
    );
}

#[test]
fn a_rank_that_just_leaves_is_missed() {
    check_failure(
        drop,
        "it left without shutting down its communicator, because of an earlier error",
    );
    check_failure(
        |rank| rank.comm.shutdown().unwrap(),
        "it shut down while this rank was exchanging with it",
    );
}

#[test]
fn an_endpoint_dropped_unused_is_missed() {
    let mut endpoints = LocalJob::endpoints(2);
    let unused = endpoints.pop();
    let rank = start(endpoints.remove(0), config(TIGHT));
    std::thread::scope(|scope| {
        let comm = &rank.comm;
        let waiting = scope.spawn(move || comm.all_gather(Vec::new()));
        drop(unused);
        let expected = CommError::PeerFailed {
            rank: 1,
            message: "it left without shutting down its communicator".to_owned(),
        };
        assert_eq!(waiting.join().unwrap(), Err(expected));
    });
}

#[test]
fn the_job_can_be_failed_from_outside() {
    let endpoints = LocalJob::endpoints(2);
    let job = endpoints[0].job();
    let ranks: Vec<_> =
        endpoints.into_iter().map(|endpoint| start(endpoint, config(TIGHT))).collect();
    job.fail(1, "killed");
    let message = "killed".to_owned();
    assert_eq!(ranks[0].failed(), CommError::PeerFailed { rank: 1, message: message.clone() });
    assert_eq!(ranks[1].failed(), CommError::Aborted { rank: 1, message });
}

/// A panic on the communication thread, in a callback, at any moment.
#[track_caller]
fn check_panic(faulty: CommConfig, waits_for_peers: bool) {
    let mut endpoints = LocalJob::endpoints(2);
    let other = start(endpoints.pop().unwrap(), config(TIGHT));
    let (fail, failures) = std::sync::mpsc::channel();
    let on_failure = Box::new(move |error: &CommError| fail.send(error.clone()).unwrap());
    let comm =
        Communicator::start(endpoints.remove(0), CommConfig { on_failure, ..faulty }).unwrap();
    let mut data = vec![1.0; 2 * 9000];
    let (mine, theirs) = data.split_at_mut(9000);
    let label = lockstep_comm::ExchangeLabel { id: 0, priority: 0, rank: 0 };
    let exchange = Exchange::part_reduce(
        label,
        region(mine),
        &[0, 1],
        &even_strips(9000, 2),
        Algorithm::Direct,
    )
    .unwrap();
    let before = Instant::now();
    // SAFETY: `data` outlives both communicators.
    unsafe { comm.submit(&Arc::new(exchange), 5, 0) };
    other.submit(&all_reduce(&other, 0, theirs), 5, 0);
    let failure = failures.recv().unwrap();
    assert_eq!(failure, CommError::ThreadPanicked { rank: 0, message: "on purpose".to_owned() });
    assert_eq!(comm.all_gather(vec![0; 9]), Err(failure.clone()));
    let of_other = CommError::PeerFailed { rank: 0, message: failure.to_string() };
    assert_eq!(other.failed(), of_other);
    assert!(before.elapsed() < SOON);
    if waits_for_peers {
        assert_eq!(other.completions.try_iter().count(), 0);
    }
    assert_eq!(comm.shutdown(), Err(failure));
}

#[test]
fn a_panic_in_a_callback_is_reported_everywhere() {
    let on_step: Option<Box<dyn FnMut(u64) + Send>> =
        Some(Box::new(|step| assert!(step != 5, "on purpose")));
    check_panic(CommConfig { on_step, ..config(TIGHT) }, true);
    let on_complete = Box::new(|_| panic!("on purpose"));
    check_panic(CommConfig { on_complete, ..config(TIGHT) }, false);
}

#[test]
fn a_panic_in_on_failure_does_not_keep_the_job_alive() {
    let mut endpoints = LocalJob::endpoints(2);
    let other = start(endpoints.pop().unwrap(), config(TIGHT));
    let on_failure = Box::new(|_: &CommError| panic!("on purpose"));
    let comm = Communicator::start(endpoints.remove(0), CommConfig { on_failure, ..config(TIGHT) })
        .unwrap();
    comm.abort(1, "first");
    assert_eq!(other.failed(), CommError::PeerFailed { rank: 0, message: "first".to_owned() });
}

#[test]
fn a_panic_at_the_start_is_an_error_of_start() {
    let mut endpoints = LocalJob::endpoints(2);
    let other = start(endpoints.pop().unwrap(), config(TIGHT));
    let on_thread_start = Box::new(|| panic!("no such core"));
    let error =
        Communicator::start(endpoints.remove(0), CommConfig { on_thread_start, ..config(TIGHT) });
    assert_eq!(
        error.unwrap_err().to_string(),
        "cannot start the communication thread: it panicked: no such core"
    );
    assert!(matches!(other.failed(), CommError::PeerFailed { rank: 0, .. }));
}

/// Misuse that only shows when an exchange is served.
#[track_caller]
fn check_misuse(expected: &CommError, misuse: impl FnOnce(&Rank, &mut [f32])) {
    let mut endpoints = LocalJob::endpoints(2);
    let other = start(endpoints.pop().unwrap(), config(TIGHT));
    let rank = start(endpoints.remove(0), config(TIGHT));
    let mut data = vec![0.0; 1000];
    misuse(&rank, &mut data);
    assert_eq!(rank.failed(), *expected);
    assert_eq!(other.failed(), CommError::PeerFailed { rank: 0, message: expected.to_string() });
}

#[test]
fn misuse_is_a_failure() {
    check_misuse(&CommError::StillInFlight { id: 4 }, |rank, data| {
        let exchange = all_reduce(rank, 4, data);
        rank.submit(&exchange, 0, 0);
        rank.submit(&exchange, 0, 1);
    });
    check_misuse(&CommError::NoSuchRank { id: 4, rank: 2, n_ranks: 2 }, |rank, data| {
        let label = rank.label(4, 0);
        let exchange = Exchange::part_reduce(
            label,
            region(data),
            &[0, 2],
            &even_strips(1000, 2),
            Algorithm::Direct,
        );
        rank.submit(&Arc::new(exchange.unwrap()), 0, 0);
    });
    check_misuse(&CommError::WrongRank { id: 4, described: 1, rank: 0 }, |rank, data| {
        let label = lockstep_comm::ExchangeLabel { rank: 1, ..rank.label(4, 0) };
        let exchange = Exchange::part_reduce(
            label,
            region(data),
            &[0, 1],
            &even_strips(1000, 2),
            Algorithm::Direct,
        );
        rank.submit(&Arc::new(exchange.unwrap()), 0, 0);
    });
}

#[test]
fn ranks_that_describe_an_exchange_differently_hear_of_it() {
    let mut endpoints = LocalJob::endpoints(2);
    let ranks =
        [endpoints.remove(0), endpoints.remove(0)].map(|endpoint| start(endpoint, config(TIGHT)));
    let mut data = vec![vec![0.0; 20], vec![0.0; 22]];
    for (rank, data) in ranks.iter().zip(&mut data) {
        rank.submit(&all_reduce(rank, 0, data), 0, 0);
    }
    let failures = ranks.each_ref().map(Rank::failed);
    let mismatch =
        |failure: &CommError| matches!(failure, CommError::SizeMismatch { expected: 40 | 44, .. });
    assert!(failures.iter().any(mismatch), "{failures:?}");
}
