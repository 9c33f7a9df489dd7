//! Metrics as JSON lines: one object a step, one an evaluation, at the end one an exchange; floats with all their digits.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use lockstep::{EpochRecord, ExchangeTimes, RunError, StepRecord};
use serde::Serialize;

/// A metrics file being written.
#[derive(Debug)]
pub(super) struct Metrics {
    path: PathBuf,
    out: BufWriter<File>,
    /// The first failure to write; later lines are dropped.
    failure: Option<std::io::Error>,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line<'a> {
    Step { step: u64, epoch: u64, loss: f64, samples_per_s: f64, lr: f32 },
    Eval { epoch: u64, loss: f64, top1: f64, samples: u64, samples_per_s: f64 },
    Exchange { name: &'a str, bytes_sent: u64, alone_us: f64, mean_us: f64, times: u64 },
}

impl Metrics {
    pub(super) fn create(path: &Path) -> Result<Self, RunError> {
        let file = File::create(path).map_err(|source| RunError::File {
            action: "create",
            path: path.to_owned(),
            source,
        })?;
        Ok(Self { path: path.to_owned(), out: BufWriter::new(file), failure: None })
    }

    pub(super) fn step(&mut self, record: &StepRecord) {
        self.write(&Line::Step {
            step: record.report.step,
            epoch: record.report.epoch,
            loss: record.report.loss,
            samples_per_s: record.samples_per_s,
            lr: record.lr,
        });
    }

    pub(super) fn epoch(&mut self, record: &EpochRecord) {
        if let Some(test) = &record.test {
            self.write(&Line::Eval {
                epoch: record.epoch,
                loss: test.loss,
                top1: test.top1(),
                samples: test.samples,
                samples_per_s: test.samples_per_s,
            });
        }
        self.flush();
    }

    /// Of rank 0, after the last step.
    pub(super) fn exchange(&mut self, exchange: &ExchangeTimes) {
        self.write(&Line::Exchange {
            name: &exchange.name,
            bytes_sent: exchange.bytes_sent,
            alone_us: exchange.alone.as_secs_f64() * 1e6,
            mean_us: exchange.mean().as_secs_f64() * 1e6,
            times: exchange.times,
        });
    }

    /// Makes what was written visible to others.
    pub(super) fn flush(&mut self) {
        if let Err(error) = self.out.flush() {
            self.failure.get_or_insert(error);
        }
    }

    /// Whether all lines were written.
    pub(super) fn result(&mut self) -> Result<(), RunError> {
        self.flush();
        match self.failure.take() {
            None => Ok(()),
            Some(source) => {
                Err(RunError::File { action: "write", path: self.path.clone(), source })
            }
        }
    }

    fn write(&mut self, line: &Line<'_>) {
        if self.failure.is_some() {
            return;
        }
        let mut text = serde_json::to_string(line).expect("lines hold numbers only");
        text.push('\n');
        if let Err(error) = self.out.write_all(text.as_bytes()) {
            self.failure = Some(error);
        }
    }
}
