//! Rules on source files.

use super::{Source, check, files, root};

/// Lines of a file, its tests not counted.
const MOST_LINES: usize = 500;

const NAMELESS: [&str; 10] =
    ["base", "util", "utils", "common", "misc", "helper", "helpers", "types", "core", "stuff"];

/// Folders of `ops/src` that are not ops but what ops are made of.
const NOT_OPS: [&str; 1] = ["simd"];

/// Words that mark unfinished work; written in two halves, because this file is checked as well.
const UNFINISHED: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("XX", "X"),
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("dbg", "!("),
];

/// A mark that is allowed with the number of an issue behind it.
const LATER: &str = concat!("FIX", "ME");

/// Places in Rust files that break a rule, with what breaks it.
fn breaches(rule: impl Fn(&Source) -> Option<String>) -> Vec<String> {
    let says = |file: &Source| rule(file).map(|what| format!("{}: {what}", file.path));
    files("rs").iter().filter_map(says).collect()
}

#[test]
fn every_file_says_first_what_it_is() {
    let silent = breaches(|file| {
        let first = file.text.lines().next().unwrap_or_default();
        let says = first.strip_prefix("//! ").is_some_and(|text| !text.trim().is_empty());
        (!says).then(|| format!("begins with {first:?}"))
    });
    check("the first line of every file is `//!` and what the file is", &silent);
}

/// Lines before the tests within a file.
fn length(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.windows(2).position(|pair| {
        pair[0].starts_with("#[cfg(") && pair[0].contains("test") && pair[1].ends_with("tests {")
    });
    tests.unwrap_or(lines.len())
}

fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/") || path.starts_with("tests/")
}

#[test]
fn files_are_short() {
    let long = breaches(|file| {
        let length = length(&file.text);
        (length > MOST_LINES && !is_test(&file.path)).then(|| format!("{length} lines"))
    });
    check("a file has at most 500 lines without its tests", &long);
}

#[test]
fn tests_within_a_file_are_not_counted() {
    assert_eq!(length("//! A.\nfn a() {}\n"), 2);
    assert_eq!(length("//! A.\n#[cfg(test)]\nmod tests {\n    x\n}\n"), 1);
    assert_eq!(length("//! A.\n#[cfg(all(test, loom))]\nmod loom_tests {\n}\n"), 1);
    assert_eq!(length("//! A.\n#[cfg(test)]\nmod tests;\n"), 3);
}

#[test]
fn files_and_folders_have_names_that_mean_something() {
    let nameless = breaches(|file| {
        let folders = file.path.split('/').rev().skip(1);
        let mut names = folders.chain([file.stem()]);
        names.find(|name| NAMELESS.contains(name)).map(|name| format!("{name} says nothing"))
    });
    check("a file is named after its concept", &nameless);
}

#[test]
fn nothing_is_left_unfinished() {
    let unfinished = breaches(|file| {
        let unnumbered = |line: &str| line.split(LATER).skip(1).any(|rest| !rest.starts_with("(#"));
        let unfinished = |line: &str| UNFINISHED.iter().any(|word| line.contains(word));
        let lines = file.text.lines().enumerate();
        let lines = lines.filter(|(_, line)| unfinished(line) || unnumbered(line));
        let numbers: Vec<String> = lines.map(|(at, _)| (at + 1).to_string()).collect();
        (!numbers.is_empty()).then(|| format!("lines {}", numbers.join(", ")))
    });
    check("unfinished work is an issue, named by number", &unfinished);
}

#[test]
fn every_example_asserts() {
    let idle = breaches(|file| {
        let example = file.path.split('/').any(|part| part == "examples");
        (example && !file.text.contains("assert")).then(|| "asserts nothing".to_owned())
    });
    check("an example is a test as well", &idle);
}

#[test]
fn every_op_has_a_reference() {
    let mut bare = Vec::new();
    for entry in std::fs::read_dir(root().join("ops/src")).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let op = folder.is_dir() && !NOT_OPS.contains(&name.as_str());
        if op && !folder.join("reference.rs").is_file() {
            bare.push(format!("ops/src/{name}"));
        }
    }
    check("every op has a reference.rs of plain loops", &bare);
}
