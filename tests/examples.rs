//! Every example runs and all its assertions hold.
#![expect(clippy::unwrap_used, reason = "in tests, helpers included, a panic is the report")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds all examples the way this test was built, and returns the folder they are in.
///
/// `cargo test` has built them already, but `cargo test --test examples` has not.
fn build() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    // TARGET/debug/deps/examples-1234
    let folder = test.ancestors().nth(2).unwrap();
    let profile =
        if folder.file_name() == Some(OsStr::new("release")) { "release" } else { "test" };
    let features: Vec<&str> =
        [("mpi", cfg!(feature = "mpi")), ("faults", cfg!(feature = "faults"))]
            .into_iter()
            .filter_map(|(name, on)| on.then_some(name))
            .collect();
    let built = Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--examples", "--profile", profile, "--features", &features.join(",")])
        .arg("--target-dir")
        .arg(folder.parent().unwrap())
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    folder.join("examples")
}

/// The names of the examples, by their sources.
fn names() -> Vec<String> {
    let sources = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")).unwrap();
    let paths = sources.map(|entry| entry.unwrap().path());
    let rust = paths.filter(|path| path.extension() == Some(OsStr::new("rs")));
    let mut names: Vec<_> =
        rust.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn every_example_succeeds() {
    let folder = build();
    let names = names();
    assert!(names.contains(&"hello".to_owned()), "{names:?}");
    for name in names {
        let output = Command::new(folder.join(&name)).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "example {name}: {}\n{said}", output.status);
    }
}
