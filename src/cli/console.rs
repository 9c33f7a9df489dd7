//! What a person sees: progress bars on a terminal, plain lines in a pipe, errors in one sentence.

use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use lockstep::{EpochRecord, Observer, Outcome, RunError, RunStart, StepRecord};

use super::exchanges::ExchangeSum;
use super::metrics::Metrics;
use super::resident::peak_resident_mb;

/// In a pipe, a line at most this often.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Prints an error as one sentence, with its rank where there are several.
pub(super) fn error(rank: Option<usize>, error: &RunError) {
    match rank {
        Some(rank) => complain!("error: [rank {rank}] {error}"),
        None => complain!("error: {error}"),
    }
}

/// Prints what the user should know.
pub(super) fn warning(text: &str) {
    complain!("warning: {text}");
}

/// `1 step`, `2 steps`.
fn counted(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// Shows a training run and writes its metrics.
#[derive(Debug)]
pub(super) struct Console {
    metrics: Option<Metrics>,
    bar: Option<ProgressBar>,
    terminal: bool,
    total_steps: u64,
    last_line: Instant,
    /// Samples and seconds since the last line, the first step of an epoch left out: it waits for data.
    samples: u64,
    seconds: f64,
}

impl Console {
    pub(super) fn new(metrics: Option<Metrics>) -> Self {
        Self {
            metrics,
            bar: None,
            terminal: std::io::stderr().is_terminal(),
            total_steps: 0,
            last_line: Instant::now(),
            samples: 0,
            seconds: 0.0,
        }
    }

    /// Closes the bar and sums the run up.
    pub(super) fn finish(&mut self, outcome: Option<&Outcome>) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        match (&mut self.metrics, outcome) {
            (Some(metrics), None) => metrics.flush(),
            (metrics, Some(outcome)) => {
                let peak = peak_resident_mb();
                say!("{} steps done, peak memory {peak:.0} MB", outcome.steps);
                if !outcome.exchanges.is_empty() {
                    say!("{}", ExchangeSum::of(&outcome.exchanges).line());
                }
                if let Some(metrics) = metrics {
                    outcome.exchanges.iter().for_each(|exchange| metrics.exchange(exchange));
                    metrics.flush();
                }
            }
            (None, None) => {}
        }
    }

    /// Whether all metrics were written.
    pub(super) fn metrics_result(&mut self) -> Result<(), RunError> {
        self.metrics.as_mut().map_or(Ok(()), Metrics::result)
    }

    /// A line for people that goes where it does not tear the bar.
    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say!("{text}")),
            None => say!("{text}"),
        }
    }

    fn rate(&mut self) -> f64 {
        let rate = if self.seconds > 0.0 { self.samples as f64 / self.seconds } else { 0.0 };
        (self.samples, self.seconds) = (0, 0.0);
        rate
    }
}

impl Observer for Console {
    fn start(&mut self, start: &RunStart) {
        let RunStart { network, parameters, isa, workers, ranks, minibatch, .. } = start;
        say!(
            "{network}: {parameters} parameters, {isa}, {} x {}, transport {}, minibatch {minibatch} ({} a rank), \
             strategy {}{}",
            counted(*ranks as u64, "rank"),
            counted(*workers as u64, "worker"),
            start.transport,
            start.local_minibatch,
            start.strategy,
            if start.reproducible { ", reproducible" } else { "" }
        );
        say!(
            "{}, {} an epoch, {} in all, predicted peak memory {:.0} MB",
            counted(start.samples as u64, "sample"),
            counted(start.steps_per_epoch, "step"),
            counted(start.total_steps, "step"),
            start.peak_memory as f64 / 1e6
        );
        for warning in &start.warnings {
            self::warning(warning);
        }
        self.total_steps = start.total_steps;
        self.last_line = Instant::now();
        if self.terminal {
            let style = ProgressStyle::with_template(
                "{bar:30} step {pos}/{len}  {msg}  {elapsed_precise} elapsed, {eta} left",
            )
            .expect("the template is well formed");
            self.bar = Some(ProgressBar::new(start.total_steps).with_style(style));
        }
    }

    fn step(&mut self, step: &StepRecord) {
        if let Some(metrics) = &mut self.metrics {
            metrics.step(step);
        }
        let report = &step.report;
        self.samples += report.minibatch as u64;
        self.seconds += report.minibatch as f64 / step.samples_per_s;
        if let Some(bar) = &self.bar {
            bar.set_position(report.step);
        }
        let every = if self.bar.is_some() { LINE_EVERY / 20 } else { LINE_EVERY };
        if self.last_line.elapsed() < every && report.step != 1 {
            return;
        }
        self.last_line = Instant::now();
        let rate = self.rate();
        let text = format!("loss {:.4}  {rate:.0} samples/s", report.loss);
        match &self.bar {
            Some(bar) => bar.set_message(text),
            None => {
                say!("epoch {} step {}/{}: {text}", report.epoch, report.step, self.total_steps);
            }
        }
    }

    fn epoch(&mut self, epoch: &EpochRecord) {
        if let Some(metrics) = &mut self.metrics {
            metrics.epoch(epoch);
        }
        let mut text = format!(
            "epoch {}: train loss {:.4} in {:.2} s",
            epoch.epoch, epoch.train_loss, epoch.seconds
        );
        if let Some(test) = &epoch.test {
            text += &format!(
                ", test loss {:.4}, accuracy {:.2} % of {}",
                test.loss,
                100.0 * test.top1(),
                test.samples
            );
        }
        self.line(&text);
    }

    fn saved(&mut self, path: &Path) {
        self.line(&format!("saved {}", path.display()));
    }

    fn failed(&mut self, rank: usize, error: &RunError) {
        self.finish(None);
        if !error.is_consequence() {
            self::error(Some(rank), error);
        }
    }
}
