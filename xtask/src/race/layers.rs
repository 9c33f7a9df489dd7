//! `cargo xtask race layers`: GFLOP/s of single layers, pass by pass.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use serde_json::{Value, json};

use super::Common;
use super::programs::{OWN, PEER, number, output, own, own_rows, peer_rows, write_rows};
use super::turns::{Spread, by_turns};
use crate::failure::Failure;
use crate::steps::say;

/// Arguments of `cargo xtask race layers`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
    /// Only layers whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Samples of a convolution
    #[arg(long, default_value_t = 8)]
    batch: usize,
    /// Samples of a linear layer
    #[arg(long, default_value_t = 256)]
    linear_batch: usize,
    /// Write the rows as JSON too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let listed = output(OWN, own().args(["bench", "ops", "--list"]))?;
    let wanted = |name: &str| args.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    say(HEADER);
    let mut rows = Vec::new();
    for layer in listed.lines().filter(|name| wanted(name)) {
        let runs = by_turns(args.common.runs, || own_run(args, layer), || peer_run(args, layer))?;
        for pass in ["forward", "backward_data", "backward_weights"] {
            let row = row(layer, pass, args.common.threads, &runs)?;
            say(&line(&row));
            rows.push(row);
        }
        write_rows(args.json.as_deref(), &rows)?;
    }
    Ok(())
}

fn own_run(args: &Args, layer: &str) -> Result<Vec<Value>, Failure> {
    let mut arguments = vec!["ops".to_owned(), "--runs=3".to_owned()];
    arguments.extend(shared_arguments(args, layer));
    arguments.push(format!("--workers={}", args.common.threads));
    own_rows(&arguments)
}

fn peer_run(args: &Args, layer: &str) -> Result<Vec<Value>, Failure> {
    let mut arguments = shared_arguments(args, layer).to_vec();
    arguments.push(format!("--threads={}", args.common.threads));
    peer_rows(&args.common.python, "torch_layers.py", &arguments)
}

fn shared_arguments(args: &Args, layer: &str) -> [String; 3] {
    [
        format!("--layer={layer}"),
        format!("--batch={}", args.batch),
        format!("--linear-batch={}", args.linear_batch),
    ]
}

/// The figures of one pass.
fn row(
    layer: &str,
    pass: &str,
    threads: usize,
    runs: &[(Vec<Value>, Vec<Value>)],
) -> Result<Value, Failure> {
    let of_pass = |rows: &[Value], program: &str| {
        let row = rows.iter().find(|row| row["layer"] == layer && row["pass"] == pass);
        row.cloned().ok_or_else(|| Failure::Output {
            program: program.to_owned(),
            problem: format!("no row of {layer} {pass}"),
        })
    };
    let (mut gflops, mut fractions, mut peers, mut ratios) = (vec![], vec![], vec![], vec![]);
    let mut batch = Value::Null;
    for (own, peer) in runs {
        let own = of_pass(own, OWN)?;
        let (rate, peer) =
            (number(&own, "gflops", OWN)?, number(&of_pass(peer, PEER)?, "gflops", PEER)?);
        gflops.push(rate);
        fractions.push(number(&own, "peak_fraction", OWN)?);
        peers.push(peer);
        ratios.push(rate / peer);
        batch = own["batch"].clone();
    }
    let ratio = Spread::of(ratios);
    Ok(json!({
        "layer": layer,
        "pass": pass,
        "batch": batch,
        "threads": threads,
        "runs": runs.len(),
        "gflops": Spread::of(gflops).median,
        "peak_fraction": Spread::of(fractions).median,
        "peer_gflops": Spread::of(peers).median,
        "ratio": ratio.median,
        "ratio_min": ratio.min,
        "ratio_max": ratio.max,
    }))
}

const HEADER: &str =
    "layer            pass               batch   GFLOP/s  of peak   PyTorch   ratio (min - max)";

fn line(row: &Value) -> String {
    let text = |key: &str| row[key].as_str().unwrap_or("?").to_owned();
    let figure = |key: &str| row[key].as_f64().unwrap_or(f64::NAN);
    format!(
        "{:<16} {:<18} {:>5} {:>9.1} {:>6.1} % {:>9.1} {:>7.2} ({:.2} - {:.2})",
        text("layer"),
        text("pass"),
        figure("batch"),
        figure("gflops"),
        100.0 * figure("peak_fraction"),
        figure("peer_gflops"),
        figure("ratio"),
        figure("ratio_min"),
        figure("ratio_max"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(gflops: f64) -> Vec<Value> {
        let row = |pass: &str, gflops: f64| json!({ "layer": "vgg_c2", "pass": pass, "batch": 8, "gflops": gflops, "peak_fraction": gflops / 200.0 });
        vec![row("forward", gflops), row("backward_data", 1.0)]
    }

    #[test]
    fn a_row_holds_the_figures_of_its_pass() {
        let runs =
            [(rows(180.0), rows(90.0)), (rows(160.0), rows(160.0)), (rows(170.0), rows(100.0))];
        let row = row("vgg_c2", "forward", 2, &runs).unwrap();
        assert_eq!(
            line(&row),
            "vgg_c2           forward                8     170.0   85.0 %     100.0    1.70 (1.00 - 2.00)"
        );
    }

    #[test]
    fn a_missing_pass_is_reported() {
        let runs = [(rows(180.0), rows(90.0))];
        let failure = row("vgg_c2", "backward_weights", 2, &runs).unwrap_err();
        assert!(failure.to_string().contains("no row of vgg_c2 backward_weights"), "{failure}");
    }
}
