//! Local response normalization.

use lockstep::ops::{Isa, Lrn, LrnBackward, LrnDesc, LrnForward};

use super::Case;
use super::tensors::{blocked, plain, run};

pub(super) fn check(case: &Case, isa: Isa) {
    let x = case.tensor("x");
    let desc = LrnDesc {
        maps: x.maps(),
        size: case.parameter("size"),
        alpha: case.parameter("alpha"),
        beta: case.parameter("beta"),
        k: case.parameter("k"),
        src_activation: None,
    };
    let plan = Lrn::new(desc, isa).expect("PyTorch took it");
    let (mb, src) = (x.mb(), &blocked(x, isa));
    let mut scratch = vec![f32::NAN; plan.forward_scratch_len()];
    let dst = run(plan.forward_blocks(mb), src.len(), |block, dst| {
        plan.forward(block, LrnForward { mb, src, dst, scratch: &mut scratch });
    });
    case.compare("out", &plain(&dst, x.maps(), isa));

    let diff_dst = &blocked(case.tensor("d_out"), isa);
    let mut scratch = vec![f32::NAN; plan.backward_scratch_len()];
    let diff_src = run(plan.backward_blocks(mb), src.len(), |block, diff_src| {
        let scratch = &mut scratch[..];
        plan.backward(block, LrnBackward { mb, src, diff_dst, diff_src, scratch });
    });
    case.compare("d_x", &plain(&diff_src, x.maps(), isa));
}
