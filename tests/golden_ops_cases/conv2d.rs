//! Convolution, of a blocked source and, where it is legal, of a plain one.

use lockstep::ops::{
    Conv2d, Conv2dBackwardData, Conv2dBackwardWeights, Conv2dDesc, Conv2dForward, Isa, Layout,
    Tiles,
};

use super::Case;
use super::tensors::{blocked, blocked_len, plain, run};

pub(super) fn check(case: &Case, isa: Isa) {
    let (x, weight) = (case.tensor("x"), case.tensor("weight"));
    let [oc, _, kh, kw] = weight.shape[..] else { panic!("a weight has four axes") };
    let (maps, groups) = (x.maps(), case.parameter("groups"));
    let (stride, pad) = (case.parameter("stride"), case.parameter("pad"));
    let desc = Conv2dDesc {
        ic: maps.c,
        oc,
        ih: maps.h,
        iw: maps.w,
        kh,
        kw,
        sh: stride,
        sw: stride,
        ph: pad,
        pw: pad,
        groups,
        bias: case.has("bias"),
        src_layout: Layout::Blocked(isa.lanes()),
        src_activation: None,
        dst_activation: None,
    };
    let plan = Conv2d::new(desc, isa).expect("PyTorch took it");
    let src = blocked(x, isa);
    check_forward_and_weights(case, isa, &plan, &src);
    check_data(case, isa, &plan);
    if groups == 1 && maps.c < isa.lanes() {
        let desc = Conv2dDesc { src_layout: Layout::Plain, ..desc };
        let plan = Conv2d::new(desc, isa).expect("a first layer may have a plain source");
        check_forward_and_weights(case, isa, &plan, &x.values);
    }
}

fn packed_weights(case: &Case, plan: &Conv2d) -> Vec<f32> {
    let mut wei = vec![f32::NAN; plan.wei_len()];
    plan.pack_weights(&case.tensor("weight").values, &mut wei);
    wei
}

fn check_forward_and_weights(case: &Case, isa: Isa, plan: &Conv2d, src: &[f32]) {
    let (mb, wei) = (case.tensor("x").mb(), packed_weights(case, plan));
    let bia = plan.desc().bias.then(|| {
        let mut bia = vec![f32::NAN; plan.bia_len()];
        plan.pack_bias(&case.tensor("bias").values, &mut bia);
        bia
    });
    let out = case.tensor("out");
    let mut scratch = vec![f32::NAN; plan.forward_scratch_len()];
    let dst = run(plan.forward_blocks(mb), blocked_len(out, isa), |block, dst| {
        let (bia, scratch) = (bia.as_deref(), &mut scratch[..]);
        plan.forward(block, Conv2dForward { mb, src, wei: &wei, bia, dst, scratch });
    });
    case.compare("out", &plain(&dst, out.maps(), isa));

    let diff_dst = &blocked(case.tensor("d_out"), isa);
    let mut diff_bia = vec![f32::NAN; if plan.desc().bias { plan.bia_len() } else { 0 }];
    let mut scratch = vec![f32::NAN; plan.backward_weights_scratch_len()];
    let diff_wei = run(plan.backward_weights_blocks(mb), plan.wei_len(), |block, diff_wei| {
        let diff_bia = plan.desc().bias.then(|| Tiles::from(&mut diff_bia[..]).into());
        let diff_wei = diff_wei.into();
        let scratch = &mut scratch[..];
        let io = Conv2dBackwardWeights { mb, src, diff_dst, diff_wei, diff_bia, scratch };
        plan.backward_weights(block, io);
    });
    let mut d_weight = vec![f32::NAN; case.tensor("weight").values.len()];
    plan.unpack_weights(&diff_wei, &mut d_weight);
    case.compare("d_weight", &d_weight);
    if plan.desc().bias {
        let mut d_bias = vec![f32::NAN; plan.desc().oc];
        plan.unpack_bias(&diff_bia, &mut d_bias);
        case.compare("d_bias", &d_bias);
    }
}

fn check_data(case: &Case, isa: Isa, plan: &Conv2d) {
    let (x, wei) = (case.tensor("x"), packed_weights(case, plan));
    let turned = run(plan.pack_backward_blocks(), plan.backward_wei_len(), |block, dst| {
        plan.pack_backward(block, &wei, dst);
    });
    let (mb, diff_dst) = (x.mb(), &blocked(case.tensor("d_out"), isa));
    let mut scratch = vec![f32::NAN; plan.backward_data_scratch_len()];
    let blocks = plan.backward_data_blocks(mb);
    let diff_src = run(blocks, blocked_len(x, isa), |block, diff_src| {
        let (wei, scratch) = (&turned, &mut scratch[..]);
        plan.backward_data(
            block,
            Conv2dBackwardData { mb, diff_dst, wei, src: None, diff_src, scratch },
        );
    });
    case.compare("d_x", &plain(&diff_src, x.maps(), isa));
}
