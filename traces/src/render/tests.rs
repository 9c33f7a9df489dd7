//! Rendering of raw files: any mix of threads and slices, whole, cut short or damaged.

use std::fmt::Write as _;
use std::fs;

use proptest::prelude::*;

use super::*;
use crate::check;
use crate::chrome;
use crate::event::Task;
use crate::header::Header;

/// A raw file in the making.
struct Raw {
    text: String,
}

impl Raw {
    fn new() -> Raw {
        let header = Header {
            rank: 3,
            n_ranks: 4,
            host: "here".to_owned(),
            steps: 0..9,
            origin_unix_ns: 1_000,
            clock_offset_ns: 0,
        };
        Raw { text: serde_json::to_string(&header).unwrap() + "\n" }
    }

    fn line(&mut self, ph: &str, ns: i64, thread: u64, event: &Event<'_>) {
        let line = serde_json::json!({
            "args": { "event": event.to_string(), "recording": "0" },
            "cat": "lockstep", "name": "task", "ph": ph, "pid": 1, "tid": thread,
            "ts": ns as f64 / 1000.0,
        });
        writeln!(self.text, "{line}").unwrap();
    }

    /// Renders these bytes of it, and gives the trace's events.
    fn render(&self, bytes: std::ops::Range<usize>) -> (Vec<ChromeEvent>, OtherData) {
        let folder = tempfile::tempdir().unwrap();
        let raw = folder.path().join("trace.rank3.raw");
        fs::write(&raw, &self.text.as_bytes()[bytes]).unwrap();
        let file = recover(&raw).unwrap();
        assert_eq!(file, folder.path().join("trace.rank3.json"));
        let report = check(&file).unwrap();
        assert!(report.ok(), "{report}\n{}", fs::read_to_string(&file).unwrap());
        let mut events = Vec::new();
        let other_data = chrome::read(&file, |event| events.push(event)).unwrap();
        (events, other_data)
    }

    fn render_all(&self) -> Vec<ChromeEvent> {
        self.render(0..self.text.len()).0
    }
}

fn task(name: &str) -> Event<'_> {
    Event::Task(Task {
        name: name.into(),
        layer: "fc".into(),
        layer_index: 1,
        pass: "update".into(),
        step: 2,
        flops: Some(6e3),
        bytes: None,
        blocks: 0..1,
    })
}

/// Name, start, duration, row and whether unfinished of each slice, in file order.
fn slices(events: &[ChromeEvent]) -> Vec<(&str, i64, i64, u64, bool)> {
    let slices = events.iter().filter(|event| event.ph == Phase::Complete);
    slices
        .map(|it| {
            let unfinished = it.args.contains_key("unfinished");
            (it.name.as_str(), it.ts.unwrap(), it.dur.unwrap(), it.tid, unfinished)
        })
        .collect()
}

#[test]
fn times_are_shifted_by_the_clock_reading_with_the_least_delay() {
    let mut raw = Raw::new();
    raw.line("i", 900, 7, &Event::Clock { ns: 5_000 });
    raw.line("i", 1_100, 7, &Event::Clock { ns: 5_500 });
    raw.line("i", 1_800, 7, &Event::Clock { ns: 5_600 });
    raw.line("B", 2_000, 7, &task("a"));
    raw.line("E", 3_500, 7, &task("a"));
    let events = raw.render_all();
    assert_eq!(slices(&events), [("a", 6_400, 1_500, 40_007, false)]);
    assert_eq!(events[0].args["GFLOP/s"], 4.0);
    assert!(!events[0].args.contains_key("bytes"));
}

#[test]
fn a_slice_whose_end_is_missing_lasts_to_the_last_event() {
    let mut raw = Raw::new();
    raw.line("i", 0, 5, &Event::Enter { name: "worker 0".into() });
    raw.line("B", 10, 5, &task("outer"));
    raw.line("B", 20, 5, &task("inner"));
    raw.line("i", 90, 6, &Event::Instant { name: "step".into(), step: 2 });
    let events = raw.render_all();
    assert_eq!(slices(&events), [("outer", 10, 80, 10_000, true), ("inner", 20, 70, 10_000, true)]);
    assert!(!events.iter().any(|event| event.args.contains_key("GFLOP/s")));
}

#[test]
fn lost_begins_and_ends_do_not_shift_the_pairs_of_others() {
    let mut raw = Raw::new();
    raw.line("E", 5, 1, &task("lost begin"));
    raw.line("B", 10, 1, &task("outer"));
    raw.line("B", 20, 1, &task("lost end"));
    raw.line("E", 50, 1, &task("outer"));
    raw.line("B", 60, 1, &task("next"));
    raw.line("E", 70, 1, &task("next"));
    let expected = [
        ("lost end", 20, 30, 40_001, false),
        ("outer", 10, 40, 40_001, false),
        ("next", 60, 10, 40_001, false),
    ];
    assert_eq!(slices(&raw.render_all()), expected);
}

#[test]
fn a_slice_that_outlives_its_threads_part_ends_with_it() {
    let mut raw = Raw::new();
    raw.line("i", 0, 1, &Event::Enter { name: "worker 0".into() });
    raw.line("B", 10, 1, &task("late"));
    raw.line("i", 20, 1, &Event::Leave);
    raw.line("i", 25, 2, &Event::Enter { name: "worker 0".into() });
    raw.line("B", 30, 2, &task("successor"));
    raw.line("E", 40, 1, &task("late"));
    raw.line("E", 50, 2, &task("successor"));
    let expected = [("late", 10, 10, 10_000, false), ("successor", 30, 20, 10_000, false)];
    assert_eq!(slices(&raw.render_all()), expected);
}

#[test]
fn damaged_lines_are_passed_over_and_counted() {
    let mut raw = Raw::new();
    raw.line("B", 10, 1, &task("a"));
    raw.text.push_str("{\"args\":{\"event\":\"\0\n");
    raw.text.push_str("{\"args\":{\"event\":\"{}\"},\"ph\":\"i\",\"tid\":1,\"ts\":1.0}\n");
    raw.line("E", 30, 1, &task("a"));
    raw.text.push_str("{\"args\":{\"event\":\"cut");
    let (events, other_data) = raw.render(0..raw.text.len());
    assert_eq!(slices(&events), [("a", 10, 20, 40_001, false)]);
    assert_eq!(other_data.lost_lines, 3);
}

#[test]
fn a_raw_file_without_a_header_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let raw = folder.path().join("t.raw");
    fs::write(&raw, "[\n").unwrap();
    assert!(matches!(recover(&raw), Err(TraceError::Invalid { path, .. }) if path == raw));
    assert!(!folder.path().join("t.json").exists());
}

/// One thing that a thread does, and how long after what came before.
#[derive(Debug, Clone)]
enum Act {
    Begin(String),
    End,
    Enter(u8),
    Leave,
    Exchange(i64, i64),
}

fn acts() -> impl Strategy<Value = Vec<(u64, i64, Act)>> {
    let act = prop_oneof![
        4 => any::<String>().prop_map(Act::Begin),
        4 => Just(Act::End),
        1 => (0..3u8).prop_map(Act::Enter),
        1 => Just(Act::Leave),
        1 => (any::<i32>(), any::<i32>()).prop_map(|(a, b)| Act::Exchange(a.into(), b.into())),
    ];
    // 104 days in nanoseconds are what microseconds in an f64 can hold; a run of steps is far less.
    prop::collection::vec((0..4u64, 0..1_000_000_000_000i64, act), 0..60)
}

fn raw_of(acts: &[(u64, i64, Act)]) -> (Raw, usize) {
    let mut raw = Raw::new();
    let mut now = 0;
    let mut n_begun = 0;
    let mut open: Vec<Vec<&str>> = vec![Vec::new(); 4];
    for (thread, pause, act) in acts {
        now += pause;
        match act {
            Act::Begin(name) => {
                n_begun += 1;
                open[*thread as usize].push(name);
                raw.line("B", now, *thread, &task(name));
            }
            Act::End => {
                if let Some(name) = open[*thread as usize].pop() {
                    raw.line("E", now, *thread, &task(name));
                }
            }
            Act::Enter(k) => {
                raw.line("i", now, *thread, &Event::Leave);
                raw.line("i", now, *thread, &Event::Enter { name: format!("worker {k}").into() });
            }
            Act::Leave => raw.line("i", now, *thread, &Event::Leave),
            Act::Exchange(submitted, completed) => {
                raw.line("i", now, *thread, &exchange(*submitted, *completed));
            }
        }
    }
    (raw, n_begun)
}

fn exchange(submitted_ns: i64, completed_ns: i64) -> Event<'static> {
    Event::Exchange(Exchange {
        name: "part-reduce fc".into(),
        layer: "fc".into(),
        layer_index: 1,
        kind: "part_reduce".into(),
        step: 2,
        bytes: 8,
        id: 0,
        submitted_ns,
        completed_ns,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// `render` itself asserts that the check finds nothing wrong.
    #[test]
    fn every_slice_of_a_whole_file_is_rendered_and_the_trace_is_sound(acts in acts()) {
        let (raw, n_begun) = raw_of(&acts);
        let (events, other_data) = raw.render(0..raw.text.len());
        prop_assert_eq!(slices(&events).len(), n_begun);
        prop_assert_eq!(other_data.lost_lines, 0);
    }

    #[test]
    fn a_file_cut_anywhere_gives_a_sound_trace(acts in acts(), cut in any::<prop::sample::Index>()) {
        let (raw, n_begun) = raw_of(&acts);
        let header = raw.text.find('\n').unwrap() + 1;
        let end = header + cut.index(raw.text.len() - header + 1);
        let (events, other_data) = raw.render(0..end);
        prop_assert!(slices(&events).len() <= n_begun);
        prop_assert!(other_data.lost_lines <= 1);
    }
}
