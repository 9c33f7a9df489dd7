//! Four steps of stochastic gradient descent.

use lockstep::ops::Isa;
use lockstep::ops::sgd::{SgdHyper, update};

use super::Case;

pub(super) fn check(case: &Case, isa: Isa) {
    let hyper = SgdHyper {
        lr: case.parameter("lr"),
        momentum: case.parameter("momentum"),
        weight_decay: case.parameter("weight_decay"),
        nesterov: case.flag("nesterov"),
    };
    let mut wei = case.tensor("w.0").values.clone();
    let mut velocity = vec![0.0; wei.len()];
    for step in (0..).take_while(|step| case.has(&format!("d_w.{step}"))) {
        let diff = &case.tensor(&format!("d_w.{step}")).values;
        let velocity = (hyper.momentum != 0.0).then_some(&mut velocity[..]);
        update(isa, hyper, &mut wei, diff, velocity);
        case.compare(&format!("w.{}", step + 1), &wei);
    }
}
