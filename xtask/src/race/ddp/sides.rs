//! The four runs of a round: each side on one rank and on two.

use std::process::Stdio;

use serde_json::Value;

use super::hosts::{Hosts, INTERFACE, address};
use super::{Args, Heat};
use crate::failure::Failure;
use crate::race::programs::{
    OWN, PEER, number, only, output, own, peer, printed_rows, written_rows,
};

/// Where rank 0 of the peer listens.
const PORT: u16 = 29_511;

/// What one run gives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Run {
    /// Samples a second over all ranks.
    pub(super) per_s: f64,
    /// The share of a step that communication takes from computation.
    pub(super) exposed: f64,
}

/// Ours on the first host alone.
pub(super) fn own_alone(args: &Args, hosts: &Hosts, heat: Heat<'_>) -> Result<Run, Failure> {
    let rows = written_rows(|rows| {
        let mut program = own();
        program.args(own_arguments(args, heat)).arg("--json").arg(rows);
        hosts.on(1, &program)
    })?;
    own_run(&only(rows, OWN)?)
}

/// Ours on both hosts.
pub(super) fn own_on_all(args: &Args, hosts: &Hosts, heat: Heat<'_>) -> Result<Run, Failure> {
    let rows = written_rows(|rows| {
        let mut program = own();
        program.args(own_arguments(args, heat)).arg(format!("--strategy={}", args.strategy));
        program.arg("--json").arg(rows);
        hosts.mpirun(&program)
    })?;
    own_run(&only(rows, OWN)?)
}

fn own_arguments(args: &Args, heat: Heat<'_>) -> [String; 8] {
    [
        "bench".to_owned(),
        "net".to_owned(),
        format!("--net={}", heat.net),
        "--mode=train".to_owned(),
        format!("--batch-per-rank={}", heat.batch),
        format!("--seconds={}", args.seconds),
        "--runs=1".to_owned(),
        "--workers=1".to_owned(),
    ]
}

fn own_run(row: &Value) -> Result<Run, Failure> {
    let per_s = number(row, "per_s", OWN)?;
    // One rank exchanges nothing.
    let exposed = match &row["exchanges"] {
        Value::Null => 0.0,
        exchanges => number(exchanges, "exposed_ms", OWN)? / number(row, "step_ms", OWN)?,
    };
    Ok(Run { per_s, exposed })
}

/// The peer on the first host alone, in one memory format.
pub(super) fn peer_alone(
    args: &Args,
    hosts: &Hosts,
    heat: Heat<'_>,
    format: &str,
) -> Result<Run, Failure> {
    let mut program = peer(&args.python, PROGRAM);
    program.args(peer_arguments(args, heat, format));
    peer_run(&only(printed_rows(&output(PEER, &mut hosts.on(1, &program))?), PEER)?)
}

/// The peer on both hosts.
pub(super) fn peer_on_all(
    args: &Args,
    hosts: &Hosts,
    heat: Heat<'_>,
    format: &str,
) -> Result<Run, Failure> {
    let rank = |rank: usize| {
        let mut program = peer(&args.python, PROGRAM);
        program.args(peer_arguments(args, heat, format));
        program.args(["--world=2".to_owned(), format!("--rank={rank}")]);
        program.arg(format!("--master={}:{PORT}", address(1)));
        program.arg(format!("--interface={INTERFACE}"));
        hosts.on(rank + 1, &program)
    };
    let mut second = rank(1);
    second.stdout(Stdio::null());
    let mut other = second.spawn().map_err(|source| Failure::Start {
        program: second.get_program().display().to_string(),
        source,
    })?;
    let first = output(PEER, &mut rank(0));
    if first.is_err() {
        // It would wait for the first until it is timed out.
        let _ = other.kill();
    }
    let ended = other
        .wait()
        .map_err(|source| Failure::Io { what: "the second rank's end".to_owned(), source })?;
    let text = first?;
    if !ended.success() {
        return Err(Failure::Step { name: format!("{PEER}, second rank"), status: ended });
    }
    peer_run(&only(printed_rows(&text), PEER)?)
}

const PROGRAM: &str = "torch_ddp.py";

fn peer_arguments(args: &Args, heat: Heat<'_>, format: &str) -> [String; 4] {
    [
        format!("--net={}", heat.net),
        format!("--batch={}", heat.batch),
        format!("--seconds={}", args.seconds),
        format!("--format={format}"),
    ]
}

fn peer_run(row: &Value) -> Result<Run, Failure> {
    let field = |key| number(row, key, PEER);
    Ok(Run { per_s: field("per_s")?, exposed: field("exposed_ms")? / field("step_ms")? })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn exposed_communication_is_a_share_of_the_step() {
        let row = json!({ "per_s": 20.0, "step_ms": 50.0, "exchanges": { "exposed_ms": 5.0 } });
        assert_eq!(own_run(&row).unwrap(), Run { per_s: 20.0, exposed: 0.1 });
        let row = json!({ "per_s": 20.0, "step_ms": 50.0 });
        assert_eq!(own_run(&row).unwrap(), Run { per_s: 20.0, exposed: 0.0 });
        let row = json!({ "per_s": 8.0, "step_ms": 40.0, "exposed_ms": 10.0 });
        assert_eq!(peer_run(&row).unwrap(), Run { per_s: 8.0, exposed: 0.25 });
        assert!(peer_run(&json!({ "per_s": 8.0, "step_ms": 40.0 })).is_err());
    }
}
