//! The house rules that a program can check. Each rule names every place where it is broken.
#![expect(clippy::unwrap_used, reason = "a check that cannot read what it checks has failed")]

mod arrows;
mod sources;
mod unsafe_files;

use std::fs;
use std::path::{Path, PathBuf};

/// The workspace's root.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../"))
}

/// A file of the workspace.
struct Source {
    /// From the root, with `/` between.
    path: String,
    text: String,
}

impl Source {
    fn stem(&self) -> &str {
        let name = self.path.rsplit('/').next().expect("a split has at least one part");
        name.split('.').next().expect("a split has at least one part")
    }
}

/// All files with an extension, outside of build directories and hidden ones.
fn files(extension: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(Source {
                    path: from_root(&path),
                    text: fs::read_to_string(&path).unwrap(),
                });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn from_root(path: &Path) -> String {
    let parts: PathBuf = path.strip_prefix(root()).unwrap().components().collect();
    parts.to_str().unwrap().replace('\\', "/")
}

/// Fails with all breaches of a rule.
#[track_caller]
fn check(rule: &str, breaches: &[String]) {
    assert!(breaches.is_empty(), "{rule}:\n  {}", breaches.join("\n  "));
}
