//! Merging: one clock, one process a rank.

use std::fs;

use super::*;
use crate::chrome::{ChromeEvent, read};

/// Writes the file of a rank with one slice at each of these times (nanoseconds), each 10 long.
fn rank_file(path: &Path, header: &Header, starts: &[i64]) {
    let mut writer = ChromeWriter::begin(Vec::new()).unwrap();
    for &start in starts {
        let mut event = ChromeEvent::new(Phase::Complete, "task", 0, 1);
        event.ts = Some(start);
        event.dur = Some(10);
        writer.event(&event).unwrap();
    }
    let name = ("name", header.process_name().into());
    writer.event(&ChromeEvent::metadata("process_name", 0, 0, name)).unwrap();
    let name = ("name", "worker 0".into());
    writer.event(&ChromeEvent::metadata("thread_name", 0, 1, name)).unwrap();
    let other_data = OtherData { ranks: vec![header.clone()], lost_lines: 1 };
    fs::write(path, writer.end(&other_data).unwrap()).unwrap();
}

fn header(rank: usize, origin_unix_ns: i64, clock_offset_ns: i64) -> Header {
    Header {
        rank,
        n_ranks: 4,
        host: format!("host{rank}"),
        steps: 0..5,
        origin_unix_ns,
        clock_offset_ns,
    }
}

#[test]
fn ranks_are_put_on_the_clock_of_rank_0_and_time_starts_at_the_first_event() {
    const EPOCH: i64 = 1_800_000_000_000_000_000;
    let folder = tempfile::tempdir().unwrap();
    let [zero, two, out] = ["0.json", "2.json", "out.json"].map(|name| folder.path().join(name));
    rank_file(&zero, &header(0, EPOCH, 0), &[5_000, 9_000]);
    // Started 1000 ns later by its own clock, which is 3000 ns ahead: 2000 ns before rank 0.
    rank_file(&two, &header(2, EPOCH + 1_000, 3_000), &[1_500, 6_001]);
    let summary = merge(&[two, zero], &out).unwrap();
    assert_eq!(summary.ranks, [0, 2]);
    assert_eq!(summary.missing, [1, 3]);
    assert_eq!((summary.lost_lines, summary.n_events), (2, 8));
    // The first event is at 1500 - 2000 = -500 of rank 0's time, the last ends at 9010.
    assert_eq!(summary.span_ns, 9_510);

    let mut slices = Vec::new();
    let mut names = Vec::new();
    let other_data = read(&out, |event| match event.ph {
        Phase::Complete => slices.push((event.pid, event.ts.unwrap())),
        _ => {
            assert_eq!(event.ts, None);
            names.push((event.pid, event.args["name"].as_str().unwrap().to_owned()));
        }
    })
    .unwrap();
    assert_eq!(slices, [(0, 5_500), (0, 9_500), (2, 0), (2, 4_501)]);
    let expected = [(0, "rank 0 (host0)"), (0, "worker 0"), (2, "rank 2 (host2)"), (2, "worker 0")];
    assert_eq!(names, expected.map(|(pid, name)| (pid, name.to_owned())));
    assert_eq!(other_data.ranks.len(), 2);
    assert!(crate::check(&out).unwrap().ok());
}

#[test]
fn what_cannot_be_merged_is_refused_and_leaves_the_old_file_alone() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, array, cut, out] =
        ["a", "b", "array", "cut", "out"].map(|name| folder.path().join(name));
    rank_file(&a, &header(1, 0, 0), &[1]);
    rank_file(&b, &header(1, 0, 0), &[2]);
    fs::write(&array, "[]").unwrap();
    let whole = fs::read(&a).unwrap();
    fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    fs::write(&out, "old").unwrap();
    let refused = |files: &[&PathBuf]| {
        let files: Vec<PathBuf> = files.iter().map(|&file| file.clone()).collect();
        merge(&files, &out).unwrap_err()
    };
    assert!(matches!(refused(&[]), TraceError::NothingToMerge { .. }));
    assert!(matches!(refused(&[&a, &b]), TraceError::DuplicateRank { rank: 1, .. }));
    assert!(matches!(refused(&[&a, &array]), TraceError::NotOneRank { n_ranks: 0, .. }));
    assert!(matches!(refused(&[&cut]), TraceError::Invalid { path, .. } if path == cut));
    let missing = folder.path().join("missing");
    assert!(matches!(refused(&[&missing]), TraceError::Read { path, .. } if path == missing));
    assert_eq!(fs::read_to_string(&out).unwrap(), "old");
    assert!(!folder.path().join("out.partial").exists());
}

#[test]
fn ranks_without_events_merge_into_a_valid_trace() {
    let folder = tempfile::tempdir().unwrap();
    let [a, out] = ["a", "out"].map(|name| folder.path().join(name));
    rank_file(&a, &header(0, 77, 0), &[]);
    let summary = merge(&[a], &out).unwrap();
    assert_eq!(summary.span_ns, 0);
    assert!(crate::check(&out).unwrap().ok());
}
