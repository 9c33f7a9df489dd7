//! `cargo xtask loom`: the models of the lock-free protocols, in a build of their own.

use std::env;

use crate::failure::Failure;
use crate::steps::{cargo, say, step, target_directory};

/// Crates with models.
const CRATES: [&str; 2] = ["lockstep-scheduler", "lockstep-comm"];

/// Forced switches between threads in one execution. Loom's authors find that two or three uncover nearly all faults; the
/// number of executions grows exponentially with it.
const MAX_PREEMPTIONS: &str = "3";

/// Runs the models.
pub(crate) fn run() -> Result<(), Failure> {
    let flags = env::var("RUSTFLAGS").unwrap_or_default();
    for package in CRATES {
        // `--cfg loom` changes every crate, so the build is kept apart; without optimization models take minutes.
        let mut models = cargo(&format!("test --release --lib --package {package}"));
        models
            .env("RUSTFLAGS", format!("{flags} --cfg loom"))
            .env("LOOM_MAX_PREEMPTIONS", MAX_PREEMPTIONS)
            .env("CARGO_TARGET_DIR", target_directory().join("loom"));
        step(&format!("models of {package}"), &mut models)?;
    }
    say("loom: all passed");
    Ok(())
}
