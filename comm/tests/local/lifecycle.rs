//! Starting, agreeing, gathering, measuring clocks, idling and stopping.

use std::time::{Duration, Instant};

use lockstep_comm::{CommConfig, CommError, LocalJob, agree};

use crate::harness::{ROOMY, Rank, TIGHT, on_ranks, start};

#[test]
fn fifty_jobs_start_and_stop() {
    for _ in 0..50 {
        let ranks = on_ranks(3, TIGHT, |rank| (rank.comm.rank(), rank.comm.n_ranks()));
        assert_eq!(ranks, [(0, 3), (1, 3), (2, 3)]);
    }
}

#[test]
fn ranks_of_one_thread_can_be_shut_down_one_by_one() {
    let start_one = |endpoint| start(endpoint, CommConfig::default());
    let ranks: Vec<_> = LocalJob::endpoints(4).into_iter().map(start_one).collect();
    assert!(ranks.iter().all(|rank| rank.comm.library() == "local"));
    ranks.into_iter().for_each(|rank| rank.comm.shutdown().unwrap());
}

#[test]
fn a_single_rank_may_just_be_dropped() {
    let rank = start(LocalJob::endpoints(1).remove(0), CommConfig::default());
    let failures = rank.failures;
    drop(rank.comm);
    assert_eq!(failures.try_iter().count(), 0);
}

#[test]
fn all_gather_gives_everybody_everything() {
    for (n_ranks, chunking) in [(1, ROOMY), (2, TIGHT), (3, ROOMY), (5, TIGHT)] {
        let bytes = |rank: usize| -> Vec<u8> {
            let len = [1, 0, 5, 3_000_001, 17][rank];
            (0..len).map(|i| (i * 7 + rank) as u8).collect()
        };
        let gathered = on_ranks(n_ranks, chunking, |rank| {
            // Twice, because the same tags are used again.
            let first = rank.comm.all_gather(bytes(rank.comm.rank())).unwrap();
            let second = rank.comm.all_gather(vec![rank.comm.rank() as u8]).unwrap();
            assert_eq!(rank.comm.counters().bytes_sent, 0, "only submitted exchanges are counted");
            (first, second)
        });
        let expected: Vec<_> = (0..n_ranks).map(bytes).collect();
        let ids: Vec<_> = (0..n_ranks).map(|rank| vec![rank as u8]).collect();
        assert!(gathered.iter().all(|(first, second)| *first == expected && *second == ids));
    }
}

#[test]
fn ranks_of_one_machine_have_one_clock() {
    let offsets = on_ranks(3, ROOMY, |rank| rank.comm.clock_offset().unwrap());
    assert_eq!(offsets[0], 0);
    let most = Duration::from_millis(20).as_nanos() as i64;
    assert!(offsets.iter().all(|offset| offset.abs() < most), "{offsets:?}");
}

#[test]
fn disagreement_is_told_to_all_ranks() {
    let results = on_ranks(3, ROOMY, |rank| {
        let rate = if rank.comm.rank() == 1 { "0.02" } else { "0.01" };
        let facts = [("learning rate", rate), ("seed", "7")];
        agree(&rank.comm, &facts.map(|(key, value)| (key.to_owned(), value.to_owned())))
    });
    let message = r#"ranks disagree on learning rate: "0.01" on ranks 0, 2, "0.02" on rank 1"#;
    for result in results {
        assert_eq!(result.unwrap_err().to_string(), message);
    }
}

#[test]
fn agreement_holds_with_many_facts() {
    let facts: Vec<_> = (0..3000).map(|i| (format!("layer {i}"), "conv 5x5".to_owned())).collect();
    let results = on_ranks(4, ROOMY, |rank| agree(&rank.comm, &facts));
    assert_eq!(results, vec![Ok(()); 4]);
}

#[test]
fn different_chunks_are_a_disagreement() {
    let ranks: Vec<_> = LocalJob::endpoints(2)
        .into_iter()
        .zip([4096, 8192])
        .map(|(endpoint, chunk_bytes)| {
            start(endpoint, CommConfig { chunk_bytes, ..CommConfig::default() })
        })
        .collect();
    std::thread::scope(|scope| {
        let results: Vec<_> =
            ranks.iter().map(|Rank { comm, .. }| scope.spawn(move || agree(comm, &[]))).collect();
        for result in results {
            assert!(matches!(result.join().unwrap(), Err(CommError::Disagreement { .. })));
        }
    });
    ranks.into_iter().for_each(|rank| rank.comm.shutdown().unwrap());
}

/// CPU time of a thread in clock ticks of 10 ms, from its `stat` file.
#[cfg(target_os = "linux")]
fn cpu_ticks(stat: &std::path::Path) -> u64 {
    let stat = std::fs::read_to_string(stat).unwrap();
    let after_name = &stat[stat.rfind(')').unwrap()..];
    after_name.split(' ').skip(12).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

#[cfg(target_os = "linux")]
#[test]
fn an_idle_or_waiting_communication_thread_costs_nothing() {
    let (send, receive) = std::sync::mpsc::channel();
    let ranks: Vec<_> = LocalJob::endpoints(2)
        .into_iter()
        .map(|endpoint| {
            let send = send.clone();
            let on_thread_start = Box::new(move || {
                let own = std::fs::read_link("/proc/thread-self").unwrap();
                send.send(std::path::Path::new("/proc").join(own).join("stat")).unwrap();
            });
            start(endpoint, CommConfig { on_thread_start, ..CommConfig::default() })
        })
        .collect();
    let (idle, waiting) = (receive.recv().unwrap(), receive.recv().unwrap());
    // Rank 1 waits for rank 0, which does not come; rank 0 has nothing to do.
    std::thread::scope(|scope| {
        let comm = &ranks[1].comm;
        scope.spawn(move || comm.all_gather(Vec::new()).unwrap());
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(500) {
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(cpu_ticks(&idle) <= 2, "idle: {} ticks", cpu_ticks(&idle));
        assert!(cpu_ticks(&waiting) <= 2, "waiting: {} ticks", cpu_ticks(&waiting));
        ranks[0].comm.all_gather(Vec::new()).unwrap();
    });
    ranks.into_iter().for_each(|rank| rank.comm.shutdown().unwrap());
}
