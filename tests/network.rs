//! Ranks on two hosts with a slow link between them: the exchange of gradients overlaps the backward pass and the next
//! forward pass, seen in the merged trace.
//!
//! Needs the feature `mpi` built with Open MPI, root and `ip` and `tc`: `tests/net/hosts` makes the hosts, network namespaces
//! with rate-limited links. `./test.sh` runs it where it can.
#![cfg(feature = "mpi")]
#![expect(clippy::unwrap_used, reason = "in tests, helpers included, a panic is the report")]

use std::path::Path;
use std::process::{Command, Output};

fn hosts(args: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/net/hosts");
    Command::new("timeout").arg("120").arg(script).args(args).output().unwrap()
}

/// Takes the hosts down, however the test ends.
struct Hosts;

impl Hosts {
    fn up(n: &str, rate: &str) -> Self {
        let up = hosts(&["up", n, rate]);
        assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
        Hosts
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        hosts(&["down"]);
    }
}

#[test]
fn on_a_slow_link_exchanges_overlap_the_backward_and_the_next_forward_pass() {
    let _hosts = Hosts::up("2", "100mbit");
    let out = tempfile::tempdir().unwrap();
    let trace = out.path().join("t.json");
    let trace = trace.to_str().unwrap();
    let lockstep = env!("CARGO_BIN_EXE_lockstep");
    let run = hosts(&[
        "mpirun",
        lockstep,
        "train",
        "--steps",
        "12",
        "--no-eval",
        "--trace",
        trace,
        "--trace-steps",
        "4..10",
    ]);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let check =
        Command::new(lockstep).args(["trace", "check", "--overlap", trace]).output().unwrap();
    let report = String::from_utf8_lossy(&check.stdout);
    assert!(check.status.success(), "{report}{}", String::from_utf8_lossy(&check.stderr));
}
