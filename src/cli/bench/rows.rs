//! Rows of results, as a table for people and as JSON for programs.
#![expect(clippy::print_stdout, reason = "the result is what the command is for")]

use std::fs;
use std::path::Path;

use lockstep::RunError;
use serde::Serialize;

/// One pass of one layer.
#[derive(Debug, Serialize)]
pub(super) struct OpRow {
    pub(super) layer: String,
    pub(super) pass: &'static str,
    pub(super) batch: usize,
    pub(super) isa: &'static str,
    pub(super) gflops: f64,
    /// Slowest and fastest of the runs.
    pub(super) gflops_range: (f64, f64),
    pub(super) peak_gflops: f64,
    pub(super) peak_fraction: f64,
}

/// One network.
#[derive(Debug, Serialize)]
pub(super) struct NetRow {
    pub(super) net: String,
    pub(super) mode: &'static str,
    pub(super) batch: usize,
    pub(super) isa: &'static str,
    pub(super) workers: usize,
    pub(super) per_s: f64,
    /// Slowest and fastest of the runs.
    pub(super) per_s_range: (f64, f64),
    pub(super) gflops: f64,
    /// Peak of one core times workers.
    pub(super) peak_gflops: f64,
    pub(super) peak_fraction: f64,
    pub(super) peak_rss_mb: f64,
}

impl OpRow {
    pub(super) const HEADER: &str = "layer                       pass               batch   GFLOP/s  (min - max)        of peak";

    pub(super) fn print(&self) {
        println!(
            "{:<27} {:<18} {:>5} {:>9.1}  ({:.1} - {:.1}) {:>12.1} %",
            self.layer,
            self.pass,
            self.batch,
            self.gflops,
            self.gflops_range.0,
            self.gflops_range.1,
            100.0 * self.peak_fraction
        );
    }
}

impl NetRow {
    pub(super) const HEADER: &str = "network          mode   batch workers   samples/s  (min - max)          GFLOP/s   of peak   peak MB";

    pub(super) fn print(&self) {
        println!(
            "{:<16} {:<6} {:>5} {:>7} {:>11.1}  ({:.1} - {:.1}) {:>10.1} {:>8.1} % {:>8.0}",
            self.net,
            self.mode,
            self.batch,
            self.workers,
            self.per_s,
            self.per_s_range.0,
            self.per_s_range.1,
            self.gflops,
            100.0 * self.peak_fraction,
            self.peak_rss_mb
        );
    }
}

/// Writes rows as one JSON array.
pub(super) fn write_json<T: Serialize>(path: Option<&Path>, rows: &[T]) -> Result<(), RunError> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(rows).expect("rows hold numbers and names");
    fs::write(path, text).map_err(|source| RunError::File {
        action: "write",
        path: path.to_owned(),
        source,
    })
}
