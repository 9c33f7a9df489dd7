//! Rules on manifests: which crate may know which, and that all have the workspace's lints.

use std::process::Command;

use serde_json::Value;

use super::{check, files};

/// The crates that each of ours may depend on: arrows point down only. What is new here is a decision for ARCHITECTURE.md.
const ARROWS: [(&str, &[&str]); 8] = [
    (
        "lockstep-dnn",
        &[
            "lockstep-graph",
            "lockstep-ops",
            "lockstep-comm",
            "lockstep-traces",
            "lockstep-data",
            "lockstep-scheduler",
        ],
    ),
    ("lockstep-scheduler", &["lockstep-graph", "lockstep-ops", "lockstep-comm", "lockstep-traces"]),
    ("lockstep-graph", &[]),
    ("lockstep-ops", &[]),
    ("lockstep-comm", &[]),
    ("lockstep-traces", &[]),
    ("lockstep-data", &[]),
    ("xtask", &[]),
];

/// What cargo knows of the workspace's own crates.
fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(super::root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// The names of our crates that a package depends on, for building or for tests.
fn own_dependencies<'a>(package: &'a Value, own: &[String]) -> Vec<&'a str> {
    let dependencies = package["dependencies"].as_array().unwrap();
    let names = dependencies.iter().map(|dependency| dependency["name"].as_str().unwrap());
    names.filter(|name| own.iter().any(|known| known == name)).collect()
}

#[test]
fn arrows_between_crates_point_down() {
    let packages = packages();
    let own: Vec<String> =
        packages.iter().map(|package| package["name"].as_str().unwrap().to_owned()).collect();
    let mut new = Vec::new();
    for (package, name) in packages.iter().zip(&own) {
        let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| from == name) else {
            new.push(format!("{name} is not in the list of crates"));
            continue;
        };
        for to in own_dependencies(package, &own) {
            if !allowed.contains(&to) {
                new.push(format!("{name} -> {to}"));
            }
        }
    }
    check("crates depend on each other only as ARCHITECTURE.md draws it", &new);
}

#[test]
fn every_crate_has_the_workspace_s_lints() {
    // Lints are not inherited unless a manifest says so, and cargo does not warn.
    let manifests = files("toml").into_iter().filter(|file| file.stem() == "Cargo");
    let without = manifests.filter(|manifest| !inherits_lints(&manifest.text));
    check(
        "every manifest has `[lints] workspace = true`",
        &without.map(|manifest| manifest.path).collect::<Vec<_>>(),
    );
}

fn inherits_lints(manifest: &str) -> bool {
    let section = manifest.split("\n[lints]\n").nth(1).unwrap_or_default();
    section.lines().take_while(|line| !line.starts_with('[')).any(|line| line == "workspace = true")
}

#[test]
fn lints_are_found_only_in_their_section() {
    assert!(inherits_lints("[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n"));
    assert!(!inherits_lints("[package]\nname = \"a\"\n"));
    assert!(!inherits_lints("[package]\n\n[lints]\n\n[other]\nworkspace = true\n"));
}
