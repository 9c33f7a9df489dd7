//! The README tells the truth: its commands work as printed, and it names no flag that is not there.
#![expect(clippy::unwrap_used, reason = "in tests, helpers included, a panic is the report")]

use std::process::{Command, Output};

const README: &str = include_str!("../README.md");

fn lockstep(arguments: &[&str], folder: &std::path::Path) -> Output {
    let program = env!("CARGO_BIN_EXE_lockstep");
    Command::new(program).args(arguments).current_dir(folder).output().unwrap()
}

/// The lines of the README's blocks in a language.
fn block_lines(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    let blocks = README.split(&fence).skip(1);
    blocks.flat_map(|rest| rest.split("```").next().unwrap().lines()).collect()
}

#[test]
fn its_commands_run_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let commands: Vec<&str> = block_lines("sh")
        .into_iter()
        .filter_map(|line| line.strip_prefix("cargo run --release -- "))
        .collect();
    assert_eq!(commands.len(), 3, "{commands:?}");
    for command in commands {
        let mut arguments: Vec<&str> = command.split_whitespace().collect();
        // Three epochs are too long for a test.
        if arguments == ["train"] {
            arguments.extend(["--steps", "2"]);
        }
        let output = lockstep(&arguments, folder.path());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {}\n{said}", output.status);
    }
}

#[test]
fn every_flag_it_lists_is_one_of_its_subcommand() {
    let mut help = String::new();
    let mut checked = 0;
    for line in block_lines("text") {
        if let Some(rest) = line.strip_prefix("lockstep ") {
            let subcommand = rest.split_whitespace().next().unwrap();
            let output = lockstep(&[subcommand, "--help"], std::path::Path::new("."));
            assert!(output.status.success(), "{line}");
            help = String::from_utf8(output.stdout).unwrap();
        }
        for word in line.split([' ', '|']).filter(|word| word.starts_with("--")) {
            let known = help.split_whitespace().any(|known| known == word);
            assert!(known, "{word} of {line:?} is in no --help");
            checked += 1;
        }
    }
    assert!(checked > 10, "{checked} flags");
}
