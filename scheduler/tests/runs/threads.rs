//! What threads are set up with.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use lockstep_graph::zoo;
use lockstep_ops::denormals_flushed;

use super::harness::Run;

#[test]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "other CPUs are not asked to flush")]
fn denormals_are_flushed_in_every_worker() {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let mut run = Run::new(zoo::golden::small_resnet().unwrap(), &[8; 12]).on(1, 3);
    let names = Arc::clone(&seen);
    run.hook = Some((
        0,
        Arc::new(move |_| {
            assert!(denormals_flushed());
            let name = std::thread::current().name().unwrap().to_owned();
            names.lock().unwrap().insert(name);
        }),
    ));
    run.outcome();
    let seen = seen.lock().unwrap();
    assert!(!seen.is_empty());
    assert!(seen.iter().all(|name| name.starts_with("worker ")), "{seen:?}");
}
