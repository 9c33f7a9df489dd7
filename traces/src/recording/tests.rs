//! A recording from start to finish, through the real subscriber and real threads.

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use super::*;
use crate::chrome::{self, ChromeEvent, Phase};
use crate::{ExchangeSpan, TaskSlice, check, exchange, pass};

fn config(path: &Path, rank: usize) -> TraceConfig {
    TraceConfig {
        path: path.to_owned(),
        rank,
        n_ranks: 2,
        host: "here".to_owned(),
        steps: 10..20,
        clock_offset_ns: 0,
    }
}

fn slice(name: &str, step: u64) -> TaskSlice<'_> {
    TaskSlice {
        name,
        layer: "conv1",
        layer_index: 4,
        pass: pass::FORWARD,
        step,
        flops: 3e6,
        bytes: 5e3,
        blocks: 2..7,
    }
}

fn events(path: &Path) -> Vec<ChromeEvent> {
    let mut events = Vec::new();
    chrome::read(path, |event| events.push(event)).unwrap();
    events
}

/// The slices' names in file order.
fn slices(path: &Path) -> Vec<String> {
    let slices = events(path).into_iter().filter(|event| event.ph == Phase::Complete);
    slices.map(|event| event.name).collect()
}

#[test]
fn what_is_recorded_is_found_in_the_ranks_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made/on/demand/trace.json");
    let trace = RankTrace::start(config(&path, 1)).unwrap();
    let recorder = trace.recorder();
    let submitted = Instant::now();
    thread::spawn(move || {
        let _thread = recorder.enter_thread("worker 0");
        {
            let _outer = recorder.task(&slice("outer \"quoted\"", 12));
            let _inner = recorder.task(&slice("inner", 12));
            thread::sleep(Duration::from_millis(3));
        }
        recorder.instant("step", 12);
        recorder.exchange(&ExchangeSpan {
            name: "part-reduce conv1",
            layer: "conv1",
            layer_index: 4,
            kind: exchange::PART_REDUCE,
            step: 12,
            bytes: 80,
            id: 7,
            submitted,
            completed: Instant::now(),
        });
    })
    .join()
    .unwrap();
    let file = trace.finish().unwrap();
    assert_eq!(file, folder.path().join("made/on/demand/trace.rank1.json"));
    assert!(!raw_file(&path, 1).exists());

    let events = events(&file);
    assert!(events.iter().all(|event| event.pid == 1));
    let find = |ph, name: &str| {
        let mut found = events.iter().filter(|event| event.ph == ph && event.name == name);
        found.next().unwrap_or_else(|| panic!("no {name} in {events:?}"))
    };
    let outer = find(Phase::Complete, "outer \"quoted\"");
    let dur_ns = outer.dur.unwrap();
    assert!(dur_ns >= 3_000_000);
    assert_eq!(outer.args["layer"], "conv1");
    assert_eq!(outer.args["pass"], "forward");
    assert_eq!(outer.args["step"], 12);
    assert_eq!(outer.args["blocks"], "2..7");
    assert_eq!(outer.args["flops"], 3e6);
    assert_eq!(outer.args["GFLOP/s"], 3e6 / dur_ns as f64);
    let inner = find(Phase::Complete, "inner");
    assert!(inner.ts >= outer.ts && inner.dur <= outer.dur);
    assert_eq!(find(Phase::Metadata, "thread_name").args["name"], "worker 0");
    assert_eq!(find(Phase::Metadata, "process_name").args["name"], "rank 1 (here)");
    let begin = find(Phase::AsyncBegin, "part-reduce conv1");
    let end = find(Phase::AsyncEnd, "part-reduce conv1");
    assert_eq!(begin.id2, end.id2);
    // The exchange was submitted before the slice began, and completed after it ended: both clocks
    // are one.
    assert!(begin.ts <= outer.ts, "{begin:?} {outer:?}");
    assert!(end.ts.unwrap() >= outer.ts.unwrap() + dur_ns, "{end:?} {outer:?}");
    assert!(check(&file).unwrap().ok());
}

#[test]
fn only_the_chosen_steps_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let trace = RankTrace::start(config(&folder.path().join("t.json"), 0)).unwrap();
    let recorder = trace.recorder();
    for step in 8..22 {
        assert_eq!(recorder.records(step), (10..20).contains(&step));
        drop(recorder.task(&slice(&step.to_string(), step)));
        drop(Recorder::off().task(&slice("off", step)));
    }
    let expected: Vec<String> = (10..20).map(|step| step.to_string()).collect();
    assert_eq!(slices(&trace.finish().unwrap()), expected);
    assert!(!recorder.records(12), "a finished recording records nothing");
    assert!(!Recorder::off().records(12));
}

#[test]
fn one_thread_can_record_for_several_ranks_and_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    for run in ["first", "second"] {
        let traces = [0, 1].map(|rank| RankTrace::start(config(&path, rank)).unwrap());
        for (rank, trace) in traces.iter().enumerate() {
            let recorder = trace.recorder();
            let _thread = recorder.enter_thread("worker 0");
            drop(recorder.task(&slice(&format!("{run} {rank}"), 10)));
        }
        for (rank, trace) in traces.iter().enumerate() {
            assert_eq!(slices(&trace.finish().unwrap()), [format!("{run} {rank}")]);
        }
    }
}

#[test]
fn a_recording_thread_keeps_its_own_subscriber() {
    let folder = tempfile::tempdir().unwrap();
    let trace = RankTrace::start(config(&folder.path().join("t.json"), 0)).unwrap();
    let recorder = trace.recorder();
    let mine = tracing::Dispatch::new(tracing_subscriber::registry());
    tracing::dispatcher::with_default(&mine, || {
        let _thread = recorder.enter_thread("worker 0");
        let _slice = recorder.task(&slice("task", 10));
        tracing::dispatcher::get_default(|current| {
            assert!(current.is::<tracing_subscriber::Registry>());
        });
    });
    assert_eq!(slices(&trace.finish().unwrap()), ["task"]);
}

#[test]
fn a_panic_leaves_a_whole_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let trace = RankTrace::start(config(&path, 0)).unwrap();
        let recorder = trace.recorder();
        let _thread = recorder.enter_thread("worker 0");
        let _slice = recorder.task(&slice("failing", 10));
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    let file = rank_file(&path, 0);
    assert_eq!(slices(&file), ["failing"]);
    assert!(check(&file).unwrap().ok());
    assert!(!raw_file(&path, 0).exists());
}

#[test]
fn finishing_from_another_thread_while_recording_goes_on_gives_a_valid_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    let trace = RankTrace::start(config(&path, 0)).unwrap();
    thread::scope(|scope| {
        for worker in 0..4 {
            let recorder = trace.recorder();
            scope.spawn(move || {
                let _thread = recorder.enter_thread(&format!("worker {worker}"));
                let _long = recorder.task(&slice("long", 10));
                while recorder.records(10) {
                    drop(recorder.task(&slice("short", 10)));
                }
            });
        }
        thread::sleep(Duration::from_millis(50));
        let finishers: Vec<_> =
            (0..3).map(|_| trace.finisher()).map(|it| scope.spawn(move || it.finish())).collect();
        for finisher in finishers {
            assert_eq!(finisher.join().unwrap().unwrap(), rank_file(&path, 0));
        }
    });
    assert_eq!(trace.finish().unwrap(), rank_file(&path, 0));
    let report = check(&rank_file(&path, 0)).unwrap();
    assert!(report.ok(), "{report}");
    let unfinished = |event: &ChromeEvent| event.args.contains_key("unfinished");
    assert!(events(&rank_file(&path, 0)).iter().any(|it| it.name == "long" && unfinished(it)));
}

#[test]
fn eight_threads_of_a_hundred_thousand_slices_are_all_recorded() {
    const N_THREADS: usize = 8;
    const N_SLICES: usize = 100_000;
    let folder = tempfile::tempdir().unwrap();
    let trace = RankTrace::start(config(&folder.path().join("t.json"), 0)).unwrap();
    thread::scope(|scope| {
        for worker in 0..N_THREADS {
            let recorder = trace.recorder();
            scope.spawn(move || {
                let _thread = recorder.enter_thread(&format!("worker {worker}"));
                for _ in 0..N_SLICES {
                    drop(recorder.task(&slice("tiny", 10)));
                }
            });
        }
    });
    let report = check(&trace.finish().unwrap()).unwrap();
    assert!(report.ok(), "{report}");
    assert_eq!((report.n_slices, report.n_threads), (N_THREADS * N_SLICES, N_THREADS));
}

#[test]
fn paths_that_cannot_become_a_file_are_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |path: &Path| RankTrace::start(config(path, 0)).unwrap_err();
    assert!(
        matches!(refused(folder.path()), TraceError::IsFolder { path } if path == folder.path())
    );
    let slash = folder.path().join("new/");
    assert!(matches!(refused(&slash), TraceError::NoFileName { .. }));
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let error = refused(&file.join("trace.json"));
    assert!(matches!(&error, TraceError::Write { path, .. } if *path == file), "{error}");
    assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");
    let left: BTreeSet<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, BTreeSet::from(["file".into()]), "a refused path leaves nothing behind");
}

#[test]
fn files_are_named_after_the_merged_one() {
    let name = |path: &str| rank_file(Path::new(path), 12).to_str().unwrap().to_owned();
    assert_eq!(name("a/trace.json"), "a/trace.rank12.json");
    assert_eq!(name("a.b/trace.v2.json"), "a.b/trace.v2.rank12.json");
    assert_eq!(name("trace"), "trace.rank12");
    assert_eq!(raw_file(Path::new("trace.json"), 0), Path::new("trace.rank0.raw"));
}
