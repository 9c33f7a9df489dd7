//! SGD as a plain loop, in f64.

use super::SgdHyper;

/// Updates `wei` and `velocity`, which is not read if momentum is 0.
pub fn update(hyper: SgdHyper, wei: &mut [f64], diff: &[f64], velocity: &mut [f64]) {
    let [lr, momentum, decay] = [hyper.lr, hyper.momentum, hyper.weight_decay].map(f64::from);
    for ((w, &d), v) in wei.iter_mut().zip(diff).zip(velocity) {
        let g = d + decay * *w;
        *v = momentum * *v + g;
        *w -= lr * if hyper.nesterov { g + momentum * *v } else { *v };
    }
}
