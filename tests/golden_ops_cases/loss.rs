//! Softmax and cross-entropy.

use lockstep::ops::{
    Isa, SoftmaxCrossEntropy, SoftmaxCrossEntropyDesc, SoftmaxCrossEntropyForward,
    SoftmaxCrossEntropyForwardBackward, Tiles,
};

use super::Case;
use super::tensors::{blocked, plain, run};

pub(super) fn check(case: &Case, isa: Isa) {
    assert_eq!(case.parameter::<String>("reduction"), "mean", "the loss is the mean over samples");
    let x = case.tensor("x");
    let desc = SoftmaxCrossEntropyDesc {
        classes: x.maps().c,
        label_smoothing: case.optional("label_smoothing").unwrap_or(0.0),
    };
    let plan = SoftmaxCrossEntropy::new(desc, isa).expect("PyTorch took it");
    let (mb, src) = (x.mb(), &blocked(x, isa));
    let labels: &Vec<u32> = &case.tensor("y").values.iter().map(|&label| label as u32).collect();
    let scale = case.tensor("d_out").values[0] / mb as f32;
    let (mut losses, mut correct) = (vec![f32::NAN; mb], vec![f32::NAN; mb]);
    let diff_src = run(plan.forward_backward_blocks(mb), src.len(), |block, diff_src| {
        let (losses, correct) = (Tiles::from(&mut losses[..]), Tiles::from(&mut correct[..]));
        let forward = SoftmaxCrossEntropyForward { mb, src, labels, losses, correct };
        let io = SoftmaxCrossEntropyForwardBackward { forward, scale, diff_src };
        plan.forward_backward(block, io);
    });
    case.compare("out", &[losses.iter().sum::<f32>() / mb as f32]);
    case.compare("d_x", &plain(&diff_src, x.maps(), isa));
}
