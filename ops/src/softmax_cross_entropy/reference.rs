//! Softmax cross-entropy as plain loops over plain (mb, classes) tensors, in f64.

use super::{SoftmaxCrossEntropyDesc, SplitSoftmaxCrossEntropyDesc};

/// The loss of every sample.
pub fn forward(desc: &SoftmaxCrossEntropyDesc, src: &[f32], labels: &[u32]) -> Vec<f32> {
    let samples = src.chunks_exact(desc.classes).zip(labels);
    let losses = samples.map(|(logits, &label)| {
        let log_probabilities = log_softmax(logits);
        let targets = (0..desc.classes).map(|class| target(desc, class, label));
        targets.zip(log_probabilities).map(|(target, log)| -target * log).sum::<f64>()
    });
    losses.map(|loss| loss as f32).collect()
}

/// The gradient of `src`, where the loss is `scale` times the sum of the samples' losses.
pub fn backward(
    desc: &SoftmaxCrossEntropyDesc,
    scale: f32,
    src: &[f32],
    labels: &[u32],
) -> Vec<f32> {
    let mut diff_src = Vec::new();
    for (logits, &label) in src.chunks_exact(desc.classes).zip(labels) {
        for (class, log) in log_softmax(logits).enumerate() {
            diff_src.push((f64::from(scale) * (log.exp() - target(desc, class, label))) as f32);
        }
    }
    diff_src
}

fn target(desc: &SoftmaxCrossEntropyDesc, class: usize, label: u32) -> f64 {
    let smoothing = f64::from(desc.label_smoothing);
    let uniform = smoothing / desc.classes as f64;
    if class == label as usize { 1.0 - smoothing + uniform } else { uniform }
}

fn log_softmax(logits: &[f32]) -> impl Iterator<Item = f64> {
    let max = logits.iter().fold(f64::NEG_INFINITY, |max, &x| max.max(f64::from(x)));
    let sum: f64 = logits.iter().map(|&x| (f64::from(x) - max).exp()).sum();
    logits.iter().map(move |&x| f64::from(x) - max - sum.ln())
}

/// What a member of a [split loss](super::SplitSoftmaxCrossEntropy) tells of each sample: its largest logit, and the sum of
/// the exponentials of its logits less that; (-inf, 0) without classes.
pub fn split_statistics(classes_here: usize, src: &[f32], mb: usize) -> Vec<[f64; 2]> {
    let samples = (0..mb).map(|n| &src[n * classes_here..(n + 1) * classes_here]);
    let statistics = samples.map(|logits| {
        let max = logits.iter().fold(f64::NEG_INFINITY, |max, &x| max.max(f64::from(x)));
        [max, logits.iter().map(|&x| (f64::from(x) - max).exp()).sum()]
    });
    statistics.collect()
}

/// The logarithm of the sum of the exponentials of a sample's logits, from the statistics of all members.
pub fn merge_statistics(members: &[[f64; 2]]) -> f64 {
    let max = members.iter().fold(f64::NEG_INFINITY, |max, [m, _]| max.max(*m));
    max + members.iter().map(|[m, sum]| sum * (m - max).exp()).sum::<f64>().ln()
}

/// The gradient of a member's logits, those of the classes from `first_class` on, as [`backward`] gives it for all: from
/// the [merged](merge_statistics) logarithms of the samples.
pub fn split_backward(
    desc: &SplitSoftmaxCrossEntropyDesc,
    scale: f32,
    src: &[f32],
    labels: &[u32],
    logarithms: &[f64],
) -> Vec<f32> {
    let SplitSoftmaxCrossEntropyDesc { classes_here, first_class, classes, label_smoothing } =
        *desc;
    let whole = SoftmaxCrossEntropyDesc { classes, label_smoothing };
    let mut diff_src = Vec::new();
    for (n, (&label, logarithm)) in labels.iter().zip(logarithms).enumerate() {
        for (class, &x) in src[n * classes_here..][..classes_here].iter().enumerate() {
            let probability = (f64::from(x) - logarithm).exp();
            let target = target(&whole, first_class + class, label);
            diff_src.push((f64::from(scale) * (probability - target)) as f32);
        }
    }
    diff_src
}
