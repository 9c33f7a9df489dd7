//! Training on data of one's own: two spirals, made in code, told apart by a small network.
//!
//! `cargo run --release --example train_own_data`

use std::f32::consts::TAU;
use std::sync::Arc;

use lockstep::data::{DataError, Dataset, SampleShape};
use lockstep::graph::{GraphError, Linear, Network, NetworkBuilder, SoftmaxCrossEntropy};
use lockstep::{EpochRecord, Job, Length, Observer, RunError, RunOptions, Sgd, StepRecord, train};

/// Points on two spirals that turn around each other; the spiral is the class.
struct Spirals {
    name: &'static str,
    first: usize,
    len: usize,
}

impl Dataset for Spirals {
    fn len(&self) -> usize {
        self.len
    }

    fn shape(&self) -> SampleShape {
        SampleShape { c: 2, h: 1, w: 1 }
    }

    fn classes(&self) -> usize {
        2
    }

    fn name(&self) -> &str {
        self.name
    }

    /// A function of the index alone: every rank and loader thread sees the same samples.
    fn read(&self, index: usize, dst: &mut [f32]) -> Result<u32, DataError> {
        let label = index % 2;
        // Multiples of the golden ratio, without their whole part, fill 0..1 evenly.
        let radius = ((self.first + index) as f32 * 0.618_034).fract();
        let angle = TAU * (radius + label as f32 / 2.0);
        dst.copy_from_slice(&[2.0 * radius * angle.cos(), 2.0 * radius * angle.sin()]);
        Ok(label as u32)
    }

    fn resident_bytes(&self) -> usize {
        0
    }

    fn fingerprint(&self) -> u64 {
        ((self.first as u64) << 32) | self.len as u64
    }
}

/// Listens to the run: counts its steps and keeps the accuracy after every epoch.
#[derive(Default)]
struct Progress {
    steps: usize,
    accuracy: Vec<f64>,
}

impl Observer for Progress {
    fn step(&mut self, _step: &StepRecord) {
        self.steps += 1;
    }

    fn epoch(&mut self, epoch: &EpochRecord) {
        self.accuracy.extend(epoch.test.map(|score| score.top1()));
    }
}

fn network() -> Result<Network, GraphError> {
    let mut net = NetworkBuilder::new("spirals");
    let point = net.input("point", 2)?;
    let hidden = net.linear("fc1", point, Linear::new(32))?;
    let hidden = net.tanh("tanh1", hidden)?;
    let hidden = net.linear("fc2", hidden, Linear::new(32))?;
    let hidden = net.tanh("tanh2", hidden)?;
    let logits = net.linear("fc3", hidden, Linear::new(2))?;
    net.softmax_cross_entropy("loss", logits, SoftmaxCrossEntropy::default())?;
    net.build()
}

fn main() -> Result<(), RunError> {
    let job = Job {
        network: Arc::new(network()?),
        train: Arc::new(Spirals { name: "spirals", first: 0, len: 1000 }),
        test: Some(Arc::new(Spirals { name: "more spirals", first: 1000, len: 200 })),
        initial: None,
        options: RunOptions {
            minibatch: 20,
            length: Length::Epochs(30),
            sgd: Sgd { lr: 0.1, weight_decay: 0.0, ..Sgd::default() },
            ..RunOptions::default()
        },
    };
    let mut progress = Progress::default();
    let outcome = train(&job, &mut progress)?;

    assert_eq!(progress.steps, 30 * 50);
    assert_eq!(outcome.steps, progress.steps as u64);
    let (first, last) = (progress.accuracy[0], progress.accuracy[29]);
    assert!(last > 0.97 && last > first, "accuracy {first} after one epoch, {last} after 30");
    Ok(())
}
