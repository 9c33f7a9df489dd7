//! Batch normalization as plain loops over plain NCHW tensors, in f64.

use super::BatchNormDesc;

/// What training computes from a whole minibatch.
#[derive(Debug, Clone, PartialEq)]
pub struct Training {
    /// The output, (mb, c, h, w).
    pub dst: Vec<f32>,
    /// The means, one a channel.
    pub mean: Vec<f32>,
    /// 1/sqrt(variance + eps), one a channel.
    pub inverse_std: Vec<f32>,
    /// The running means after the step.
    pub running_mean: Vec<f32>,
    /// The running variances after the step.
    pub running_variance: Vec<f32>,
}

/// The gradients of a minibatch.
#[derive(Debug, Clone, PartialEq)]
pub struct Gradients {
    /// (mb, c, h, w)
    pub diff_src: Vec<f32>,
    /// One a channel.
    pub diff_wei: Vec<f32>,
    /// One a channel.
    pub diff_bia: Vec<f32>,
}

/// Normalizes `src` with its own statistics; `running` is the pair of running mean and variance before the step.
pub fn train(
    desc: &BatchNormDesc,
    src: &[f32],
    wei: &[f32],
    bia: &[f32],
    running: (&[f32], &[f32]),
) -> Training {
    let (momentum, c) = (f64::from(desc.momentum), desc.maps.c);
    let mut out = Training {
        dst: vec![0.0; src.len()],
        mean: Vec::new(),
        inverse_std: Vec::new(),
        running_mean: Vec::new(),
        running_variance: Vec::new(),
    };
    for channel in 0..c {
        let at = indices(desc, src.len(), channel);
        let (mean, variance) = moments(src, &at);
        let inverse_std = 1.0 / (variance + f64::from(desc.eps)).sqrt();
        for &i in &at {
            let normalized = (f64::from(src[i]) - mean) * inverse_std;
            out.dst[i] = (normalized * f64::from(wei[channel]) + f64::from(bia[channel])) as f32;
        }
        let n = at.len() as f64;
        let unbiased = variance * n / (n - 1.0).max(1.0);
        let update =
            |old: f32, new: f64| ((1.0 - momentum) * f64::from(old) + momentum * new) as f32;
        out.mean.push(mean as f32);
        out.inverse_std.push(inverse_std as f32);
        out.running_mean.push(update(running.0[channel], mean));
        out.running_variance.push(update(running.1[channel], unbiased));
    }
    out
}

/// Normalizes `src` with the given running mean and variance.
pub fn eval(
    desc: &BatchNormDesc,
    src: &[f32],
    wei: &[f32],
    bia: &[f32],
    running: (&[f32], &[f32]),
) -> Vec<f32> {
    let mut dst = vec![0.0; src.len()];
    for channel in 0..desc.maps.c {
        let std = (f64::from(running.1[channel]) + f64::from(desc.eps)).sqrt();
        for i in indices(desc, src.len(), channel) {
            let normalized = (f64::from(src[i]) - f64::from(running.0[channel])) / std;
            dst[i] = (normalized * f64::from(wei[channel]) + f64::from(bia[channel])) as f32;
        }
    }
    dst
}

/// The gradients of [`train`].
pub fn backward(desc: &BatchNormDesc, src: &[f32], wei: &[f32], diff_dst: &[f32]) -> Gradients {
    let mut out =
        Gradients { diff_src: vec![0.0; src.len()], diff_wei: Vec::new(), diff_bia: Vec::new() };
    for channel in 0..desc.maps.c {
        let at = indices(desc, src.len(), channel);
        let (mean, variance) = moments(src, &at);
        let std = (variance + f64::from(desc.eps)).sqrt();
        let normalized = |i: usize| (f64::from(src[i]) - mean) / std;
        let sum: f64 = at.iter().map(|&i| f64::from(diff_dst[i])).sum();
        let product: f64 = at.iter().map(|&i| f64::from(diff_dst[i]) * normalized(i)).sum();
        let n = at.len() as f64;
        for &i in &at {
            let inner = f64::from(diff_dst[i]) - sum / n - normalized(i) * product / n;
            out.diff_src[i] = (f64::from(wei[channel]) / std * inner) as f32;
        }
        out.diff_wei.push(product as f32);
        out.diff_bia.push(sum as f32);
    }
    out
}

/// The indices of all values of a channel.
fn indices(desc: &BatchNormDesc, len: usize, channel: usize) -> Vec<usize> {
    let pixels = desc.maps.h * desc.maps.w;
    (0..len).filter(|i| i / pixels % desc.maps.c == channel).collect()
}

fn moments(src: &[f32], at: &[usize]) -> (f64, f64) {
    let n = at.len() as f64;
    let mean = at.iter().map(|&i| f64::from(src[i])).sum::<f64>() / n;
    (mean, at.iter().map(|&i| (f64::from(src[i]) - mean).powi(2)).sum::<f64>() / n)
}
