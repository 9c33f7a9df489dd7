//! The `lockstep` program.

mod cli;

fn main() -> std::process::ExitCode {
    log_to_stderr();
    cli::run()
}

/// Logs what the libraries tell, down to the level that `LOCKSTEP_LOG` names; without it, nothing. Traces have dispatchers of
/// their own.
fn log_to_stderr() {
    let Ok(filter) = tracing_subscriber::EnvFilter::try_from_env("LOCKSTEP_LOG") else { return };
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}
