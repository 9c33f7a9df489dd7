//! Fully connected layers.

use lockstep::ops::{
    Isa, Linear, LinearBackwardData, LinearBackwardWeights, LinearDesc, LinearForward, Tiles,
};

use super::Case;
use super::tensors::{blocked, blocked_len, plain, run};

pub(super) fn check(case: &Case, isa: Isa) {
    let (x, weight, out) = (case.tensor("x"), case.tensor("weight"), case.tensor("out"));
    let [out_features, in_features] = weight.shape[..] else { panic!("a weight has two axes") };
    let desc = LinearDesc {
        in_features,
        out_features,
        bias: case.has("bias"),
        src_activation: None,
        dst_activation: None,
    };
    let plan = Linear::new(desc, isa).expect("PyTorch took it");
    let mut wei = vec![f32::NAN; plan.wei_len()];
    plan.pack_weights(&weight.values, &mut wei);
    let bia = desc.bias.then(|| {
        let mut bia = vec![f32::NAN; plan.bia_len()];
        plan.pack_bias(&case.tensor("bias").values, &mut bia);
        bia
    });
    let (mb, src, wei) = (x.mb(), &blocked(x, isa), &wei);
    let mut scratch = vec![f32::NAN; plan.forward_scratch_len()];
    let dst = run(plan.forward_blocks(mb), blocked_len(out, isa), |block, dst| {
        let (bia, scratch) = (bia.as_deref(), &mut scratch[..]);
        plan.forward(block, LinearForward { mb, src, wei, bia, dst, scratch });
    });
    case.compare("out", &plain(&dst, out.maps(), isa));

    let diff_dst = &blocked(case.tensor("d_out"), isa);
    let mut scratch = vec![f32::NAN; plan.backward_data_scratch_len()];
    let diff_src = run(plan.backward_data_blocks(mb), src.len(), |block, diff_src| {
        let scratch = &mut scratch[..];
        let io = LinearBackwardData { mb, diff_dst, wei, src: None, diff_src, scratch };
        plan.backward_data(block, io);
    });
    case.compare("d_x", &plain(&diff_src, x.maps(), isa));

    let mut diff_bia = vec![f32::NAN; plan.bia_len()];
    let mut scratch = vec![f32::NAN; plan.backward_weights_scratch_len()];
    let diff_wei = run(plan.backward_weights_blocks(mb), wei.len(), |block, diff_wei| {
        let diff_bia = desc.bias.then(|| Tiles::from(&mut diff_bia[..]).into());
        let diff_wei = diff_wei.into();
        let scratch = &mut scratch[..];
        let io = LinearBackwardWeights { mb, src, diff_dst, diff_wei, diff_bia, scratch };
        plan.backward_weights(block, io);
    });
    let mut d_weight = vec![f32::NAN; weight.values.len()];
    plan.unpack_weights(&diff_wei, &mut d_weight);
    case.compare("d_weight", &d_weight);
    if desc.bias {
        let mut d_bias = vec![f32::NAN; out_features];
        plan.unpack_bias(&diff_bia, &mut d_bias);
        case.compare("d_bias", &d_bias);
    }
}
