//! `cargo xtask validate`: every check that needs no MPI, the cheapest first.

use std::fs;

use crate::failure::Failure;
use crate::steps::{cargo, has_subcommand, root, say, step};

/// Runs all checks; the first that fails ends it.
pub(crate) fn run() -> Result<(), Failure> {
    if_installed("fmt", "format", "fmt --all --check")?;
    step("tidy", &mut cargo("test --package xtask"))?;
    if_installed(
        "clippy",
        "clippy",
        "clippy --workspace --all-targets --features lockstep-dnn/faults -- -D warnings",
    )?;
    let runner =
        if has_subcommand("nextest") { "nextest run" } else { "test --lib --bins --tests" };
    step("tests", &mut cargo(&format!("{runner} --workspace --features lockstep-dnn/faults")))?;
    step("documentation tests", &mut cargo("test --workspace --doc"))?;
    step("golden values", &mut cargo("test --release --test golden"))?;
    step("compiled kernels", &mut cargo("test --release --package lockstep-ops --test codegen"))?;
    examples()?;
    let mut doc = cargo("doc --workspace --no-deps");
    step("documentation", doc.env("RUSTDOCFLAGS", "-D warnings"))?;
    // Advisories are left out here: they need a database from the network.
    if_installed("deny", "dependencies", "deny check bans licenses sources")?;
    say("validate: all passed");
    Ok(())
}

/// Tools that come apart from cargo may be missing on a user's machine; then their check is left out, audibly.
fn if_installed(subcommand: &str, name: &str, arguments: &str) -> Result<(), Failure> {
    if has_subcommand(subcommand) {
        step(name, &mut cargo(arguments))
    } else {
        say(&format!("-- {name}: left out, cargo {subcommand} is not installed"));
        Ok(())
    }
}

/// Runs the examples: each ends in assertions, so they are tests as well.
fn examples() -> Result<(), Failure> {
    let unreadable = |source| Failure::Io { what: "examples".to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(root().join("examples")).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|stem| stem.display().to_string()));
        }
    }
    names.sort();
    for name in names {
        step(&format!("example {name}"), &mut cargo(&format!("run --release --example {name}")))?;
    }
    Ok(())
}
