//! Starting both sides' programs, and reading the JSON rows that they leave.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::failure::Failure;
use crate::steps::{root, target_directory};

pub(super) const OWN: &str = "lockstep";
pub(super) const PEER: &str = "PyTorch";

/// The program under test, as built for release.
pub(super) fn own() -> Command {
    let mut command = Command::new(target_directory().join("release").join(OWN));
    command.current_dir(root());
    command
}

/// A program of `benches/peers`.
pub(super) fn peer(python: &Path, program: &str) -> Command {
    let mut command = Command::new(python);
    command.current_dir(root()).arg(format!("benches/peers/{program}"));
    command
}

/// What a program prints; its errors are shown.
pub(super) fn output(name: &str, command: &mut Command) -> Result<String, Failure> {
    command.stderr(Stdio::inherit());
    let output = command.output().map_err(|source| Failure::Start {
        program: command.get_program().display().to_string(),
        source,
    })?;
    if !output.status.success() {
        return Err(Failure::Step { name: name.to_owned(), status: output.status });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The rows that `lockstep bench` writes with `--json`.
pub(super) fn own_rows(arguments: &[String]) -> Result<Vec<Value>, Failure> {
    written_rows(|rows| {
        let mut command = own();
        command.arg("bench").args(arguments).arg("--json").arg(rows);
        command
    })
}

/// The rows that our program writes to the file that its command is given.
pub(super) fn written_rows(command: impl FnOnce(&Path) -> Command) -> Result<Vec<Value>, Failure> {
    let unreadable = |source| Failure::Io { what: "the rows of a benchmark".to_owned(), source };
    let directory = tempfile::tempdir().map_err(unreadable)?;
    let rows = directory.path().join("rows.json");
    output(OWN, &mut command(&rows))?;
    let text = fs::read_to_string(&rows).map_err(unreadable)?;
    serde_json::from_str(&text).map_err(|error| Failure::Output {
        program: OWN.to_owned(),
        problem: format!("not a list of rows: {error}"),
    })
}

/// The rows that a program of `benches/peers` prints.
pub(super) fn peer_rows(
    python: &Path,
    program: &str,
    arguments: &[String],
) -> Result<Vec<Value>, Failure> {
    Ok(printed_rows(&output(PEER, peer(python, program).args(arguments))?))
}

/// The rows in what a program printed.
pub(super) fn printed_rows(text: &str) -> Vec<Value> {
    json_lines(text).collect()
}

/// The JSON lines of a text; other lines are for people.
pub(super) fn json_lines(text: &str) -> impl Iterator<Item = Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok())
}

/// The only row of a run.
pub(super) fn only(rows: Vec<Value>, program: &str) -> Result<Value, Failure> {
    let count = rows.len();
    rows.into_iter().next().filter(|_| count == 1).ok_or_else(|| Failure::Output {
        program: program.to_owned(),
        problem: format!("{count} rows instead of one"),
    })
}

/// A number of a JSON object.
pub(super) fn number(object: &Value, key: &str, program: &str) -> Result<f64, Failure> {
    object[key].as_f64().ok_or_else(|| Failure::Output {
        program: program.to_owned(),
        problem: format!("no number {key} in {object}"),
    })
}

/// Writes the result's rows as one JSON array.
pub(super) fn write_rows(path: Option<&Path>, rows: &[Value]) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let text = Value::from(rows.to_vec()).to_string();
    fs::write(path, text).map_err(|source| Failure::Io { what: path.display().to_string(), source })
}
