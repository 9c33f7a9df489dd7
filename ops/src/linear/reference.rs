//! A fully connected layer as plain loops over plain (mb, features) and (oc, ic) matrices, in f64.

use super::LinearDesc;

/// dst (mb, oc) = src (mb, ic) * wei (oc, ic)^T + bia (oc).
pub fn forward(desc: &LinearDesc, src: &[f32], wei: &[f32], bia: Option<&[f32]>) -> Vec<f32> {
    let mut dst = Vec::new();
    for src in src.chunks_exact(desc.in_features) {
        for (oc, wei) in wei.chunks_exact(desc.in_features).enumerate() {
            let bia = bia.map_or(0.0, |bia| f64::from(bia[oc]));
            let products = src.iter().zip(wei).map(|(&s, &w)| f64::from(s) * f64::from(w));
            dst.push((bia + products.sum::<f64>()) as f32);
        }
    }
    dst
}

/// diff_src (mb, ic) = diff_dst (mb, oc) * wei (oc, ic).
pub fn backward_data(desc: &LinearDesc, diff_dst: &[f32], wei: &[f32]) -> Vec<f32> {
    let mut diff_src = Vec::new();
    for diff_dst in diff_dst.chunks_exact(desc.out_features) {
        for ic in 0..desc.in_features {
            let column = wei[ic..].iter().step_by(desc.in_features);
            let products = diff_dst.iter().zip(column).map(|(&d, &w)| f64::from(d) * f64::from(w));
            diff_src.push(products.sum::<f64>() as f32);
        }
    }
    diff_src
}

/// diff_wei (oc, ic) = diff_dst (mb, oc)^T * src (mb, ic), and diff_bia (oc), the sum of diff_dst over samples.
pub fn backward_weights(desc: &LinearDesc, src: &[f32], diff_dst: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let mut diff_wei = vec![0.0_f64; desc.out_features * desc.in_features];
    let mut diff_bia = vec![0.0_f64; desc.out_features];
    let samples = src.chunks_exact(desc.in_features).zip(diff_dst.chunks_exact(desc.out_features));
    for (src, diff_dst) in samples {
        for (oc, &diff) in diff_dst.iter().enumerate() {
            diff_bia[oc] += f64::from(diff);
            for (ic, &s) in src.iter().enumerate() {
                diff_wei[oc * desc.in_features + ic] += f64::from(diff) * f64::from(s);
            }
        }
    }
    let narrow = |sums: Vec<f64>| sums.iter().map(|&sum| sum as f32).collect();
    (narrow(diff_wei), narrow(diff_bia))
}
