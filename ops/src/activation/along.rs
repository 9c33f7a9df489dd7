//! What the tests of other ops compare activations with that they take along: a layer of its own, before or after them.

use super::*;
use crate::trial::{block, unblock};
use crate::{Isa, Maps};

/// All functions.
pub(crate) const KINDS: [ActivationKind; 3] =
    [ActivationKind::Relu, ActivationKind::Sigmoid, ActivationKind::Tanh];

/// The function of every element of plain samples, as the layer computes it.
pub(crate) fn applied(kind: ActivationKind, maps: Maps, isa: Isa, src: &[f32]) -> Vec<f32> {
    let plan = Activation::new(ActivationDesc { kind, maps }, isa).expect("a shape with elements");
    let mut dst = block(src, maps, isa);
    let mb = src.len() / maps.len();
    for block in 0..plan.forward_blocks(mb) {
        plan.forward(block, ActivationForward { mb, src: None, dst: dst.as_mut_slice().into() });
    }
    unblock(&dst, maps, isa)
}

/// The gradient of the function's input from its plain output and the gradient of that, as the layer computes it.
pub(crate) fn differentiated(
    kind: ActivationKind,
    maps: Maps,
    isa: Isa,
    [dst, diff_dst]: [&[f32]; 2],
) -> Vec<f32> {
    let plan = Activation::new(ActivationDesc { kind, maps }, isa).expect("a shape with elements");
    let (dst, mut diff) = (block(dst, maps, isa), block(diff_dst, maps, isa));
    let mb = diff_dst.len() / maps.len();
    for block in 0..plan.backward_blocks(mb) {
        let diff_src = diff.as_mut_slice().into();
        plan.backward(block, ActivationBackward { mb, dst: &dst, diff_dst: None, diff_src });
    }
    unblock(&diff, maps, isa)
}
