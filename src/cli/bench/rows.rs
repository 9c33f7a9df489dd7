//! Rows of results, as a table for people and as JSON for programs.

use std::fs;
use std::path::Path;

use lockstep::RunError;
use serde::Serialize;

use super::shares::{Shares, TaskRow};
use crate::cli::exchanges::ExchangeSum;

/// One pass of one layer.
#[derive(Debug, Serialize)]
pub(super) struct OpRow {
    pub(super) layer: String,
    pub(super) pass: &'static str,
    pub(super) batch: usize,
    pub(super) isa: &'static str,
    /// Threads that shared the blocks.
    pub(super) workers: usize,
    pub(super) blocks: usize,
    /// The median of the runs, each by its median round.
    pub(super) gflops: f64,
    /// Slowest and fastest of the runs.
    pub(super) gflops_range: (f64, f64),
    /// By the fastest round of all.
    pub(super) gflops_best: f64,
    /// Of all workers' cores at once.
    pub(super) peak_gflops: f64,
    /// The median of the runs, each against the peak just before it.
    pub(super) peak_fraction: f64,
    /// Of the smaller of the peak and what the triad's bandwidth feeds.
    pub(super) roofline_fraction: f64,
    /// With each operand counted once.
    pub(super) gbytes_per_s: f64,
    /// Of the triad's. Above one where operands stay in a cache from round to round.
    pub(super) bandwidth_fraction: f64,
    /// Of Winograd's method: the largest difference from sums in f64, as a fraction of the largest value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<f64>,
    /// The same of the direct method.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) direct_error: Option<f64>,
}

/// One network.
#[derive(Debug, Serialize)]
pub(super) struct NetRow {
    pub(super) net: String,
    pub(super) mode: &'static str,
    pub(super) batch: usize,
    pub(super) isa: &'static str,
    /// Compute threads a rank.
    pub(super) workers: usize,
    pub(super) ranks: usize,
    /// What carried exchanges between them.
    pub(super) transport: String,
    pub(super) strategy: String,
    /// Over all ranks.
    pub(super) per_s: f64,
    /// Slowest and fastest of the runs.
    pub(super) per_s_range: (f64, f64),
    /// The median step.
    pub(super) step_ms: f64,
    pub(super) gflops: f64,
    /// Of all workers' cores at once.
    pub(super) peak_gflops: f64,
    pub(super) peak_fraction: f64,
    pub(super) peak_rss_mb: f64,
    /// Where the workers' time goes.
    pub(super) shares: Shares,
    /// Only with several ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exchanges: Option<ExchangeRow>,
    /// Where it goes task by task, when that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tasks: Vec<TaskRow>,
}

/// What a network's ranks exchange in a step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct ExchangeRow {
    /// Time in which a worker of the first rank waited while an exchange was under way.
    pub(super) exposed_ms: f64,
    /// Payload bytes that all ranks sent, the sum.
    pub(super) bytes_sent: f64,
    /// Payload bytes of the rank that sent most.
    pub(super) most_bytes_sent: f64,
    /// Messages of the rank that sent most.
    pub(super) most_messages_sent: f64,
    /// Time on a core of the communication thread that took most.
    pub(super) most_comm_cpu_ms: f64,
    /// The first rank's, one after another.
    pub(super) first: ExchangeSum,
}

impl OpRow {
    pub(super) const HEADER: &str = "layer            pass              batch  GFLOP/s  (min - max)        best   of peak  of roofline     GB/s  of triad";

    /// For people.
    pub(super) fn line(&self) -> String {
        let range = format!("({:.1} - {:.1})", self.gflops_range.0, self.gflops_range.1);
        format!(
            "{:<16} {:<17} {:>5} {:>8.1}  {:<16} {:>6.1} {:>7.1} % {:>10.1} % {:>8.1} {:>7.1} %",
            self.layer,
            self.pass,
            self.batch,
            self.gflops,
            range,
            self.gflops_best,
            100.0 * self.peak_fraction,
            100.0 * self.roofline_fraction,
            self.gbytes_per_s,
            100.0 * self.bandwidth_fraction
        )
    }
}

impl OpRow {
    /// For people: how exact the pass is.
    pub(super) fn error_line(&self, error: f64, direct: f64) -> String {
        format!(
            "{:<16} {:<17} {:>5} largest error / largest value: {error:.1e}, direct {direct:.1e}",
            self.layer, self.pass, self.batch
        )
    }
}

impl NetRow {
    pub(super) const HEADER: &str = "network          mode   batch ranks workers   samples/s  (min - max)          GFLOP/s   of peak   peak MB";

    /// For people.
    pub(super) fn line(&self) -> String {
        format!(
            "{:<16} {:<6} {:>5} {:>5} {:>7} {:>11.2}  ({:.2} - {:.2}) {:>10.1} {:>8.1} % {:>8.0}",
            self.net,
            self.mode,
            self.batch,
            self.ranks,
            self.workers,
            self.per_s,
            self.per_s_range.0,
            self.per_s_range.1,
            self.gflops,
            100.0 * self.peak_fraction,
            self.peak_rss_mb
        )
    }
}

impl ExchangeRow {
    /// For people.
    pub(super) fn line(&self) -> String {
        format!(
            "exchanges, a step: {:.3} MB over all ranks; of one rank at most {:.3} MB in {:.1} messages, \
             {:.2} ms of its communication thread; exposed {:.2} ms\n{}",
            self.bytes_sent / 1e6,
            self.most_bytes_sent / 1e6,
            self.most_messages_sent,
            self.most_comm_cpu_ms,
            self.exposed_ms,
            self.first.line()
        )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_exchanged_is_told_in_two_lines() {
        let row = ExchangeRow {
            exposed_ms: 1.25,
            bytes_sent: 4e6,
            most_bytes_sent: 2.5e6,
            most_messages_sent: 12.0,
            most_comm_cpu_ms: 0.5,
            first: ExchangeSum {
                exchanges: 9,
                bytes_sent: 2_000_000,
                alone_ms: 3.0,
                served_ms: 4.5,
            },
        };
        assert_eq!(
            row.line(),
            "exchanges, a step: 4.000 MB over all ranks; of one rank at most 2.500 MB in 12.0 messages, \
             0.50 ms of its communication thread; exposed 1.25 ms\n\
             rank 0's 9 exchanges a step send 2.000 MB; 3.00 ms alone before the first step, 4.50 ms in the steps"
        );
    }
}
