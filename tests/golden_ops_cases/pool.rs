//! Maximum, average and global average pooling.

use lockstep::ops::{Isa, Pool, PoolBackward, PoolDesc, PoolForward, PoolKind};

use super::Case;
use super::tensors::{blocked, blocked_len, plain, run};

pub(super) fn check(case: &Case, isa: Isa) {
    let kind = match case.parameter::<String>("op").as_str() {
        "maxpool" => PoolKind::Max,
        _ => PoolKind::Average { include_pad: case.flag("include_pad") },
    };
    let (maps, kernel) = (case.tensor("x").maps(), case.parameter("kernel"));
    let (stride, pad) = (case.parameter("stride"), case.parameter("pad"));
    let desc = PoolDesc {
        kind,
        c: maps.c,
        ih: maps.h,
        iw: maps.w,
        kh: kernel,
        kw: kernel,
        sh: stride,
        sw: stride,
        ph: pad,
        pw: pad,
        ceil: case.flag("ceil"),
        src_activation: None,
    };
    check_pool(case, isa, desc);
}

pub(super) fn check_global(case: &Case, isa: Isa) {
    check_pool(case, isa, PoolDesc::global_average(case.tensor("x").maps()));
}

fn check_pool(case: &Case, isa: Isa, desc: PoolDesc) {
    let (x, out) = (case.tensor("x"), case.tensor("out"));
    let plan = Pool::new(desc, isa).expect("PyTorch took it");
    let (mb, src) = (x.mb(), &blocked(x, isa));
    let dst = run(plan.forward_blocks(mb), blocked_len(out, isa), |block, dst| {
        plan.forward(block, PoolForward { mb, src, dst });
    });
    case.compare("out", &plain(&dst, out.maps(), isa));

    let diff_dst = &blocked(case.tensor("d_out"), isa);
    let diff_src = run(plan.backward_blocks(mb), src.len(), |block, diff_src| {
        plan.backward(block, PoolBackward { mb, src: Some(src), diff_dst, diff_src });
    });
    case.compare("d_x", &plain(&diff_src, x.maps(), isa));
}
