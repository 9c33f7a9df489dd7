//! Our side of the race: `lockstep train`, read from its metrics.

use std::fs;

use super::{Args, Epoch, SAMPLES, complete};
use crate::failure::Failure;
use crate::race::programs::{OWN, json_lines, number, own};
use crate::steps::step;

pub(super) fn run(args: &Args) -> Result<Vec<Epoch>, Failure> {
    let unreadable = |source| Failure::Io { what: "the metrics file".to_owned(), source };
    let directory = tempfile::tempdir().map_err(unreadable)?;
    let metrics = directory.path().join("metrics.jsonl");
    let mut train = own();
    train
        .args(["train", "--net", "lenet", "--data", "mnist"])
        .args(["--epochs", &args.epochs.to_string(), "--batch", &args.batch.to_string()])
        .args(["--workers", &args.common.threads.to_string()])
        .arg("--metrics")
        .arg(&metrics);
    step(OWN, &mut train)?;
    let text = fs::read_to_string(&metrics).map_err(unreadable)?;
    complete(epochs(&text, args.batch)?, args, OWN)
}

/// Epochs of a metrics file: an epoch's time is the sum of its steps'.
fn epochs(metrics: &str, batch: usize) -> Result<Vec<Epoch>, Failure> {
    let (mut epochs, mut seconds, mut left) = (Vec::new(), 0.0, SAMPLES);
    for line in json_lines(metrics) {
        match line["kind"].as_str() {
            Some("step") => {
                let samples = left.min(batch);
                left -= samples;
                seconds += samples as f64 / number(&line, "samples_per_s", OWN)?;
            }
            Some("eval") => {
                epochs.push(Epoch { seconds, top1: number(&line, "top1", OWN)? });
                (seconds, left) = (0.0, SAMPLES);
            }
            _ => (),
        }
    }
    Ok(epochs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_takes_what_its_steps_take() {
        // 40,000 samples at 10,000 a second, the 20,000 left at 5,000.
        let metrics = r#"
            {"kind":"step","step":1,"samples_per_s":10000.0}
            {"kind":"step","step":2,"samples_per_s":5000.0}
            {"kind":"eval","epoch":1,"top1":0.5}
            {"kind":"step","step":3,"samples_per_s":20000.0}
            {"kind":"step","step":4,"samples_per_s":20000.0}
            {"kind":"eval","epoch":2,"top1":0.75}
        "#;
        let expected = [Epoch { seconds: 8.0, top1: 0.5 }, Epoch { seconds: 3.0, top1: 0.75 }];
        assert_eq!(epochs(metrics, 40_000).unwrap(), expected);
    }

    #[test]
    fn a_step_without_its_rate_is_reported() {
        let failure = epochs(r#"{"kind":"step","step":1}"#, 64).unwrap_err();
        assert!(failure.to_string().contains("no number samples_per_s"), "{failure}");
    }
}
