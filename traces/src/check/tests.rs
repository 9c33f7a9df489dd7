//! Checks of small traces written by hand.

use std::fs;

use super::*;

/// Checks a trace of these events, given as JSON objects; thread 1 of process 0 is named.
fn check_events(events: &[String]) -> CheckReport {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let names = [
        r#"{"ph":"M","name":"process_name","pid":0,"args":{"name":"rank 0 (here)"}}"#.to_owned(),
        r#"{"ph":"M","name":"thread_name","pid":0,"tid":1,"args":{"name":"worker 0"}}"#.to_owned(),
    ];
    let all: Vec<String> = names.into_iter().chain(events.iter().cloned()).collect();
    fs::write(&path, format!("[{}]", all.join(","))).unwrap();
    check(&path).unwrap()
}

/// A slice on thread 1, in microseconds.
fn x(name: &str, ts: f64, dur: f64) -> String {
    format!(r#"{{"ph":"X","name":"{name}","pid":0,"tid":1,"ts":{ts},"dur":{dur}}}"#)
}

/// A slice of a task on thread 1, in microseconds.
fn task(pass: &str, layer_index: u32, step: u64, ts: f64, dur: f64) -> String {
    format!(
        r#"{{"ph":"X","name":"{pass}","pid":0,"tid":1,"ts":{ts},"dur":{dur},"args":{{
            "layer":"layer{layer_index}","layer_index":{layer_index},"pass":"{pass}","step":{step}}}}}"#
    )
}

/// An exchange, in microseconds.
fn exchange(kind: &str, layer_index: u32, step: u64, ts: f64, dur: f64) -> String {
    let id = format!("{kind}{layer_index}.{step}");
    let common =
        format!(r#""cat":"exchange","name":"{kind}","pid":0,"tid":1,"id2":{{"local":"{id}"}}"#);
    let end = ts + dur;
    format!(
        r#"{{"ph":"b",{common},"ts":{ts},"args":{{"layer":"layer{layer_index}",
            "layer_index":{layer_index},"kind":"{kind}","step":{step}}}}},
           {{"ph":"e",{common},"ts":{end}}}"#
    )
}

#[test]
fn nested_and_touching_slices_are_sound() {
    let report = check_events(&[
        x("inner", 2.0, 3.0),
        x("outer", 0.0, 10.0),
        x("same end", 5.0, 5.0),
        x("touching", 10.0, 1.0),
        x("empty", 10.0, 0.0),
        x("a third of a microsecond", 11.333, 0.334),
        x("starts where that ends", 11.667, 1.0),
    ]);
    assert!(report.ok(), "{report}");
    assert_eq!((report.n_slices, report.n_threads, report.span_ns), (7, 1, 12_667));
}

#[test]
fn overlapping_slices_are_reported_with_both_names() {
    let report = check_events(&[x("second", 5.0, 10.0), x("first", 0.0, 10.0), x("in", 1.0, 1.0)]);
    let overlap = Problem::Overlap {
        pid: 0,
        tid: 1,
        first: "first".to_owned(),
        second: "second".to_owned(),
        first_end_ns: 10_000,
        second_end_ns: 15_000,
    };
    assert_eq!(report.problems, [overlap]);
    assert!(!report.ok());
    assert!(report.to_string().contains("second (ends at 15000 ns) starts within first"));
}

#[test]
fn begins_and_ends_make_slices_and_must_pair() {
    let at =
        |ph: &str, ts: f64| format!(r#"{{"ph":"{ph}","name":"be{ts}","pid":0,"tid":1,"ts":{ts}}}"#);
    let report = check_events(&[at("B", 1.0), at("B", 2.0), at("E", 3.0), at("E", 4.0)]);
    assert!(report.ok(), "{report}");
    assert_eq!(report.n_slices, 2);
    let report = check_events(&[at("E", 1.0), at("B", 2.0)]);
    let unpaired = |name: &str| Problem::Unpaired { pid: 0, tid: 1, name: name.to_owned() };
    assert_eq!(report.problems, [unpaired("be1"), unpaired("be2")]);
}

#[test]
fn events_of_other_programs_are_passed_over() {
    let report = check_events(&[
        r#"{"ph":"C","name":"memory","pid":0,"tid":1,"ts":5,"args":{"bytes":3}}"#.to_owned(),
        r#"{"ph":"s","name":"flow","pid":0,"tid":1,"ts":5,"id":9,"cat":"x"}"#.to_owned(),
        x("slice", 1.0, 2.0),
    ]);
    assert!(report.ok(), "{report}");
    assert_eq!((report.n_slices, report.n_exchanges), (1, 0));
}

#[test]
fn an_exchange_without_an_end_is_unpaired() {
    let report = check_events(&[
        r#"{"ph":"b","cat":"exchange","name":"open","pid":0,"tid":1,"id2":{"local":"1"},"ts":1}"#
            .to_owned(),
    ]);
    assert_eq!(report.problems, [Problem::Unpaired { pid: 0, tid: 1, name: "open".to_owned() }]);
}

#[test]
fn unnamed_processes_and_threads_are_reported() {
    let report = check_events(&[
        r#"{"ph":"X","name":"a","pid":0,"tid":2,"ts":0,"dur":1}"#.to_owned(),
        r#"{"ph":"X","name":"a","pid":7,"tid":1,"ts":0,"dur":1}"#.to_owned(),
    ]);
    assert_eq!(
        report.problems,
        [
            Problem::UnnamedProcess { pid: 7 },
            Problem::UnnamedThread { pid: 0, tid: 2 },
            Problem::UnnamedThread { pid: 7, tid: 1 },
        ]
    );
}

#[test]
fn times_out_of_place_are_reported() {
    let report = check_events(&[
        x("early", -1.0, 2.0),
        x("backward", 5.0, -1.0),
        r#"{"ph":"X","name":"timeless","pid":0,"tid":1}"#.to_owned(),
        r#"{"ph":"M","name":"thread_name","pid":0,"tid":1,"ts":0,"args":{"name":"w"}}"#.to_owned(),
    ]);
    let named = |name: &str| (0, 1, name.to_owned());
    let found: Vec<_> = report
        .problems
        .iter()
        .map(|problem| match problem {
            Problem::NegativeTime { pid, tid, name } | Problem::Timeless { pid, tid, name } => {
                (*pid, *tid, name.clone())
            }
            Problem::TimedMetadata { pid, tid, kind } => (*pid, *tid, kind.clone()),
            other => panic!("unexpected: {other}"),
        })
        .collect();
    assert_eq!(found, [named("early"), named("backward"), named("timeless"), named("thread_name")]);
}

#[test]
fn many_problems_are_counted_and_the_first_listed() {
    let many: Vec<String> = (0..100).map(|k| x("early", -1.0 - f64::from(k), 0.0)).collect();
    let report = check_events(&many);
    assert_eq!((report.problems.len(), report.n_problems), (MAX_LISTED, 100));
    assert!(report.to_string().contains("and 80 more"), "{report}");
}

#[test]
fn what_is_no_trace_is_an_error_that_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    for text in ["", "[", "[{\"ph\":\"X\"},", "{\"traceEvents\":[]", "{}", "3", "[] []"] {
        fs::write(&path, text).unwrap();
        let error = check(&path).unwrap_err();
        assert!(matches!(&error, TraceError::Invalid { path: at, .. } if *at == path), "{error}");
    }
}

#[test]
fn the_lead_of_the_first_part_reduce_is_measured_to_the_last_backward_task() {
    let report = check_events(&[
        task("backward_weights", 2, 5, 0.0, 10.0),
        exchange("part_reduce", 1, 5, 18.0, 50.0),
        exchange("part_reduce", 2, 5, 12.0, 30.0),
        task("backward_data", 2, 5, 10.0, 10.0),
        task("update", 2, 5, 20.0, 99.0),
        // A step that does not overlap, and one without exchanges.
        task("backward_weights", 2, 6, 200.0, 10.0),
        exchange("part_reduce", 1, 6, 211.0, 5.0),
        task("backward_weights", 2, 7, 300.0, 10.0),
    ]);
    let leads: Vec<_> = report.steps.iter().map(|step| (step.step, step.reduce_lead_ns)).collect();
    assert_eq!(leads, [(5, Some(8_000)), (6, Some(-1_000)), (7, None)]);
    assert!(report.reduces_overlap_backward());
    assert!(!report.broadcasts_overlap_forward());
    assert_eq!(report.n_exchanges, 3);
}

#[test]
fn a_part_broadcast_counts_only_over_earlier_layers_of_the_next_step() {
    let report = check_events(&[
        exchange("part_broadcast", 3, 5, 0.0, 100.0),
        exchange("part_broadcast", 2, 5, 0.0, 25.0),
        task("forward", 0, 5, 0.0, 5.0),
        task("forward", 0, 6, 10.0, 10.0),
        task("forward", 1, 6, 20.0, 15.0),
        task("forward", 3, 6, 40.0, 10.0),
        task("forward", 2, 6, 95.0, 10.0),
    ]);
    let cover = BroadcastCover {
        broadcast_layer: "layer3".to_owned(),
        forward_layer: "layer1".to_owned(),
        total_ns: 30_000,
    };
    assert_eq!(report.steps[0].broadcast_cover, Some(cover));
    assert_eq!(report.steps[1].broadcast_cover, None);
    assert!(report.broadcasts_overlap_forward());
}

#[test]
fn the_busy_share_of_a_worker_counts_nested_slices_once() {
    let report = check_events(&[x("a", 0.0, 10.0), x("in a", 2.0, 3.0), x("b", 30.0, 10.0)]);
    assert_eq!(report.busy.len(), 1);
    assert_eq!((report.busy[0].busy_ns, report.busy[0].span_ns), (20_000, 40_000));
    assert!(report.to_string().contains("worker 0 50.0 %"), "{report}");
}
