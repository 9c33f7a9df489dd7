//! The project's own commands: `cargo xtask validate`, `cargo xtask loom`, `cargo xtask race`, `cargo xtask agree`,
//! `cargo xtask soak`.

mod agree;
mod failure;
mod launchers;
mod loom;
mod race;
mod soak;
mod steps;
mod validate;

use std::process::ExitCode;

use clap::Parser;

/// Commands for working on Lockstep.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
enum Command {
    /// Run every check that needs no MPI: format, tidy, clippy, tests, golden values, examples, documentation
    Validate,
    /// Check the lock-free protocols in every interleaving
    Loom,
    /// Race Lockstep against PyTorch, by turns: mnist, nets, layers or ddp
    Race(race::Args),
    /// Compare the losses of every strategy on every number of ranks with one rank's
    Agree(agree::Args),
    /// Start a job of one step again and again, in process and by each MPI's launcher
    Soak(soak::Args),
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Validate => validate::run(),
        Command::Loom => loom::run(),
        Command::Race(args) => race::run(&args),
        Command::Agree(args) => agree::run(&args),
        Command::Soak(args) => soak::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            steps::complain(&failure);
            ExitCode::FAILURE
        }
    }
}
