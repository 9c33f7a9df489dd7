//! `cargo xtask race nets`: throughput and peak memory of networks.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};
use serde_json::{Value, json};

use super::Common;
use super::programs::{OWN, PEER, number, only, own_rows, peer_rows, write_rows};
use super::turns::{Spread, by_turns};
use crate::failure::Failure;
use crate::steps::say;

/// Networks, and the minibatch that each is raced at unless another is asked for.
const NETS: [(&str, usize); 6] = [
    ("lenet", 64),
    ("cd-dnn", 256),
    ("alexnet", 32),
    ("vgg-a", 8),
    ("overfeat-fast", 16),
    ("resnet50", 8),
];

/// Arguments of `cargo xtask race nets`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
    /// Networks [default: all]
    #[arg(long, value_delimiter = ',', value_parser = NETS.map(|(net, _)| net))]
    net: Vec<String>,
    /// What to race in
    #[arg(long, value_enum, default_value = "both")]
    mode: Mode,
    /// Samples of a minibatch [default: for each network its own]
    #[arg(long, value_delimiter = ',')]
    batch: Vec<usize>,
    /// Seconds of one run, which has three steps at least
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Our 3x3 convolutions with Winograd's minimal filtering, tiles of 2 or 4; the peer chooses its own method
    #[arg(long, value_name = "TILE", default_value = "off", value_parser = ["off", "2", "4"])]
    winograd: String,
    /// Write the rows as JSON too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    Train,
    Score,
    Both,
}

impl Mode {
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Train => &["train"],
            Self::Score => &["score"],
            Self::Both => &["train", "score"],
        }
    }
}

/// One network in one mode at one minibatch.
#[derive(Debug, Clone, Copy)]
struct Heat<'a> {
    net: &'a str,
    mode: &'a str,
    batch: usize,
}

/// One run of one side.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Run {
    per_s: f64,
    peak_rss_mb: f64,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let wanted = |net: &str| args.net.is_empty() || args.net.iter().any(|wanted| wanted == net);
    say(HEADER);
    let mut rows = Vec::new();
    for (net, usual) in NETS.into_iter().filter(|(net, _)| wanted(net)) {
        let batches = if args.batch.is_empty() { vec![usual] } else { args.batch.clone() };
        for &mode in args.mode.names() {
            for &batch in &batches {
                let row = race(args, Heat { net, mode, batch })?;
                say(&line(&row));
                rows.push(row);
                // After every row: a race takes long, and may be cut short.
                write_rows(args.json.as_deref(), &rows)?;
            }
        }
    }
    Ok(())
}

/// Races one heat. Each run is a process of its own, so that its peak memory is its own.
fn race(args: &Args, heat: Heat<'_>) -> Result<Value, Failure> {
    let format = faster_format(args, heat)?;
    let pairs = by_turns(args.common.runs, || own(args, heat), || peer(args, heat, &format))?;
    let mut row = row(heat, args.common.threads, &format, &pairs);
    row["winograd"] = json!(args.winograd);
    Ok(row)
}

fn own(args: &Args, heat: Heat<'_>) -> Result<Run, Failure> {
    let mut arguments = vec!["net".to_owned(), "--runs=1".to_owned()];
    arguments.extend(shared_arguments(heat, args.seconds));
    arguments.push(format!("--workers={}", args.common.threads));
    arguments.push(format!("--winograd={}", args.winograd));
    side(&only(own_rows(&arguments)?, OWN)?, OWN)
}

fn peer(args: &Args, heat: Heat<'_>, format: &str) -> Result<Run, Failure> {
    side(&peer_row(args, heat, format, args.seconds)?, PEER)
}

/// The memory format that is faster for the peer, in a short trial.
fn faster_format(args: &Args, heat: Heat<'_>) -> Result<String, Failure> {
    let row = peer_row(args, heat, "best", args.seconds.min(1.0))?;
    let format = row["format"].as_str().ok_or_else(|| Failure::Output {
        program: PEER.to_owned(),
        problem: format!("no format in {row}"),
    })?;
    Ok(format.to_owned())
}

fn peer_row(args: &Args, heat: Heat<'_>, format: &str, seconds: f64) -> Result<Value, Failure> {
    let mut arguments = shared_arguments(heat, seconds).to_vec();
    arguments.push(format!("--threads={}", args.common.threads));
    arguments.push(format!("--format={format}"));
    only(peer_rows(&args.common.python, "torch_nets.py", &arguments)?, PEER)
}

fn shared_arguments(heat: Heat<'_>, seconds: f64) -> [String; 4] {
    let Heat { net, mode, batch } = heat;
    [
        format!("--net={net}"),
        format!("--mode={mode}"),
        format!("--batch={batch}"),
        format!("--seconds={seconds}"),
    ]
}

fn side(row: &Value, program: &str) -> Result<Run, Failure> {
    let field = |key| number(row, key, program);
    Ok(Run { per_s: field("per_s")?, peak_rss_mb: field("peak_rss_mb")? })
}

fn row(heat: Heat<'_>, threads: usize, format: &str, pairs: &[(Run, Run)]) -> Value {
    let ratio = Spread::of(pairs.iter().map(|(own, peer)| own.per_s / peer.per_s));
    let median = |figure: &dyn Fn(&(Run, Run)) -> f64| Spread::of(pairs.iter().map(figure)).median;
    json!({
        "net": heat.net,
        "mode": heat.mode,
        "batch": heat.batch,
        "threads": threads,
        "runs": pairs.len(),
        "per_s": median(&|(own, _)| own.per_s),
        "peer_per_s": median(&|(_, peer)| peer.per_s),
        "ratio": ratio.median,
        "ratio_min": ratio.min,
        "ratio_max": ratio.max,
        "peak_rss_mb": median(&|(own, _)| own.peak_rss_mb),
        "peer_peak_rss_mb": median(&|(_, peer)| peer.peak_rss_mb),
        "peer_format": format,
    })
}

const HEADER: &str = "network          mode   batch    lockstep/s     PyTorch/s   ratio (min - max)        MB   PyTorch MB";

fn line(row: &Value) -> String {
    let text = |key: &str| row[key].as_str().unwrap_or("?").to_owned();
    let figure = |key: &str| row[key].as_f64().unwrap_or(f64::NAN);
    format!(
        "{:<16} {:<6} {:>5} {:>13.2} {:>13.2} {:>7.2} ({:.2} - {:.2}) {:>9.0} {:>12.0}",
        text("net"),
        text("mode"),
        figure("batch"),
        figure("per_s"),
        figure("peer_per_s"),
        figure("ratio"),
        figure("ratio_min"),
        figure("ratio_max"),
        figure("peak_rss_mb"),
        figure("peer_peak_rss_mb"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_holds_medians_and_the_spread_of_the_ratio() {
        let run = |per_s, peak_rss_mb| Run { per_s, peak_rss_mb };
        let pairs = [
            (run(20.0, 50.0), run(10.0, 300.0)),
            (run(30.0, 52.0), run(10.0, 310.0)),
            (run(24.0, 51.0), run(16.0, 305.0)),
        ];
        let heat = Heat { net: "lenet", mode: "train", batch: 64 };
        let row = row(heat, 2, "contiguous", &pairs);
        assert_eq!(row["ratio"], 2.0);
        assert_eq!((&row["ratio_min"], &row["ratio_max"]), (&json!(1.5), &json!(3.0)));
        assert_eq!((&row["per_s"], &row["peer_per_s"]), (&json!(24.0), &json!(10.0)));
        assert_eq!((&row["peak_rss_mb"], &row["peer_peak_rss_mb"]), (&json!(51.0), &json!(305.0)));
        assert_eq!(
            line(&row),
            "lenet            train     64         24.00         10.00    2.00 (1.50 - 3.00)        51          305"
        );
    }
}
