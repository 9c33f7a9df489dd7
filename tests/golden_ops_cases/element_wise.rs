//! Activations, sums and concatenations.

use lockstep::ops::{
    Activation, ActivationBackward, ActivationDesc, ActivationForward, ActivationKind, Add,
    AddDesc, AddFinish, AddForward, Concat, ConcatBackward, ConcatDesc, ConcatForward, Isa,
};

use super::Case;
use super::tensors::{blocked, blocked_len, plain, run};

pub(super) fn check_activation(case: &Case, isa: Isa) {
    let kind = match case.parameter::<String>("op").as_str() {
        "relu" => ActivationKind::Relu,
        "sigmoid" => ActivationKind::Sigmoid,
        _ => ActivationKind::Tanh,
    };
    let x = case.tensor("x");
    let desc = ActivationDesc { kind, maps: x.maps() };
    let plan = Activation::new(desc, isa).expect("PyTorch took it");
    let (mb, src) = (x.mb(), &blocked(x, isa)[..]);
    let dst = &run(plan.forward_blocks(mb), src.len(), |block, dst| {
        plan.forward(block, ActivationForward { mb, src: Some(src), dst });
    });
    case.compare("out", &plain(dst, x.maps(), isa));

    let diff_dst = &blocked(case.tensor("d_out"), isa)[..];
    let diff_src = run(plan.backward_blocks(mb), src.len(), |block, diff_src| {
        let diff_dst = Some(diff_dst);
        plan.backward(block, ActivationBackward { mb, dst, diff_dst, diff_src });
    });
    case.compare("d_x", &plain(&diff_src, x.maps(), isa));
}

pub(super) fn check_add(case: &Case, isa: Isa) {
    let (inputs, out) = (case.inputs(), case.tensor("out"));
    let desc = AddDesc { maps: out.maps(), terms: inputs.len(), finish: AddFinish::Sum };
    let plan = Add::new(desc, isa).expect("PyTorch took it");
    let terms: Vec<_> = inputs.iter().map(|name| blocked(case.tensor(name), isa)).collect();
    let terms: Vec<_> = terms.iter().map(Vec::as_slice).collect();
    let mb = out.mb();
    let dst = run(plan.forward_blocks(mb), blocked_len(out, isa), |block, dst| {
        let (src, others, value) = (Some(terms[0]), &terms[1..], None);
        plan.forward(block, AddForward { mb, src, others, value, dst });
    });
    case.compare("out", &plain(&dst, out.maps(), isa));
    // The gradient of each term is that of the sum, which is not computed but shared.
    for name in inputs {
        case.compare(&format!("d_{name}"), &case.tensor("d_out").values);
    }
}

pub(super) fn check_concat(case: &Case, isa: Isa) {
    assert_eq!(case.parameter::<usize>("axis"), 1, "channels are what is joined");
    let (inputs, out) = (case.inputs(), case.tensor("out"));
    let channels = inputs.iter().map(|name| case.tensor(name).maps().c).collect();
    let desc = ConcatDesc { channels, h: out.maps().h, w: out.maps().w };
    let plan = Concat::new(desc, isa).expect("PyTorch took it");
    let srcs: Vec<_> = inputs.iter().map(|name| blocked(case.tensor(name), isa)).collect();
    let srcs: Vec<_> = srcs.iter().map(Vec::as_slice).collect();
    let mb = out.mb();
    let dst = run(plan.forward_blocks(mb), blocked_len(out, isa), |block, dst| {
        plan.forward(block, ConcatForward { mb, srcs: &srcs, dst });
    });
    case.compare("out", &plain(&dst, out.maps(), isa));

    let diff_dst = &blocked(case.tensor("d_out"), isa);
    for (input, name) in inputs.iter().enumerate() {
        let (blocks, len) = (plan.backward_blocks(input, mb), srcs[input].len());
        let diff_src = run(blocks, len, |block, diff_src| {
            plan.backward(block, ConcatBackward { mb, input, diff_dst, diff_src });
        });
        let maps = case.tensor(name).maps();
        case.compare(&format!("d_{name}"), &plain(&diff_src, maps, isa));
    }
}
