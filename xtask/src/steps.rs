//! Running other programs, one step after the other, and saying so.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this is the program's voice")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;

/// The workspace's root.
pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Where builds go.
pub(crate) fn target_directory() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A call of the cargo that runs this program, in the root.
pub(crate) fn cargo(arguments: &str) -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root()).args(arguments.split_whitespace());
    command
}

/// Whether cargo has a subcommand: some are installed apart.
pub(crate) fn has_subcommand(name: &str) -> bool {
    let asked =
        cargo(&format!("{name} --version")).stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

/// Runs a step, its output shown; an error if it fails.
pub(crate) fn step(name: &str, command: &mut Command) -> Result<(), Failure> {
    say(&format!("-- {name}"));
    let status = command.status().map_err(|source| Failure::Start {
        program: command.get_program().display().to_string(),
        source,
    })?;
    if status.success() { Ok(()) } else { Err(Failure::Step { name: name.to_owned(), status }) }
}

/// A line for the person who watches.
pub(crate) fn say(text: &str) {
    println!("{text}");
}

/// The last line of a run that failed.
pub(crate) fn complain(failure: &Failure) {
    eprintln!("xtask: {failure}");
}
