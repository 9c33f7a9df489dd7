//! Softmax cross-entropy as plain loops over plain (mb, classes) tensors, in f64.

use super::SoftmaxCrossEntropyDesc;

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
