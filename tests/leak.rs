//! Memory is flat: the resident set at step 2,000 is within 2 % of that at step 200, traced or not, on one rank and on two.
//!
//! One test, because the resident set is the whole process's.
#![expect(clippy::unwrap_used, reason = "in tests, helpers included, a panic is the report")]

use std::fs;
use std::sync::Arc;

use lockstep::data::{SampleShape, Synthetic};
use lockstep::graph::zoo;
use lockstep::{
    EpochRecord, Job, Length, Observer, Ranks, RunOptions, StepRecord, TraceOptions, train,
};

const EARLY: u64 = 200;
const LATE: u64 = 2000;

fn resident_kib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse().unwrap()
}

#[derive(Default)]
struct Probe {
    early: f64,
    late: f64,
    epochs: u64,
}

impl Observer for Probe {
    fn step(&mut self, step: &StepRecord) {
        match step.report.step {
            EARLY => self.early = resident_kib(),
            LATE => self.late = resident_kib(),
            _ => {}
        }
    }

    fn epoch(&mut self, _epoch: &EpochRecord) {
        self.epochs += 1;
    }
}

fn check(ranks: usize, traced: bool) {
    let out = tempfile::tempdir().unwrap();
    let data = |first: usize| {
        Arc::new(Synthetic::new(SampleShape { c: 1, h: 28, w: 28 }, 10, 397, 1).starting_at(first))
    };
    let job = Job {
        network: Arc::new(zoo::by_name("lenet").unwrap()),
        train: data(0),
        test: Some(data(1000)),
        initial: None,
        options: RunOptions {
            minibatch: 4,
            length: Length::Steps(LATE),
            ranks: Ranks::InProcess(ranks),
            workers: Some(2),
            trace: traced
                .then(|| TraceOptions { path: out.path().join("t.json"), steps: 100..130 }),
            ..RunOptions::default()
        },
    };
    let mut probe = Probe::default();
    train(&job, &mut probe).unwrap();
    // 100 steps an epoch, the last of one sample; scored after each.
    assert_eq!(probe.epochs, 20);
    let growth = probe.late / probe.early - 1.0;
    assert!(growth < 0.02, "{ranks} ranks, traced {traced}: {} to {} KiB", probe.early, probe.late);
}

#[test]
fn resident_memory_does_not_grow() {
    for ranks in [1, 2] {
        for traced in [false, true] {
            check(ranks, traced);
        }
    }
}
