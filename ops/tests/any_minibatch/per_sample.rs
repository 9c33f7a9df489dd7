//! The ops that do no more than look at each sample: pooling, response normalization, functions, sums, copies.

use std::ops::Range;

use lockstep_ops::{
    Activation, ActivationBackward, ActivationDesc, ActivationForward, ActivationKind, Add,
    AddDesc, AddFinish, AddForward, Bias, BiasBackwardWeights, BiasDesc, BiasForward, Concat,
    ConcatBackward, ConcatDesc, ConcatForward, Dropout, DropoutBackward, DropoutDesc,
    DropoutForward, DropoutKey, Flatten, FlattenBackward, FlattenDesc, FlattenForward, Isa, Lrn,
    LrnBackward, LrnDesc, LrnForward, Maps, Pool, PoolBackward, PoolDesc, PoolForward, PoolKind,
    Tiles,
};
use proptest::prelude::*;

use crate::{Random, check, check_sums, on_every_isa, run};

fn pool(desc: PoolDesc, isa: Isa, mb: usize, seed: u64) {
    let Ok(pool) = Pool::new(desc, isa) else { return };
    let random = &mut Random(seed);
    let src = random.blocked(desc.src(), isa, mb);
    let diff_dst = random.blocked(pool.dst_maps(), isa, mb);
    check(&format!("{desc:?}"), mb, random, |samples| {
        let (mb, src) = (samples.len(), src.of(&samples));
        run(pool.forward_blocks(mb), mb * diff_dst.sample_len, |block, dst| {
            pool.forward(block, PoolForward { mb, src, dst });
        })
    });
    check(&format!("gradient of {desc:?}"), mb, random, |samples| {
        let (mb, diff_dst) = (samples.len(), diff_dst.of(&samples));
        run(pool.backward_blocks(mb), mb * src.sample_len, |block, diff_src| {
            let src = (desc.kind == PoolKind::Max).then_some(src.of(&samples));
            pool.backward(block, PoolBackward { mb, src, diff_dst, diff_src });
        })
    });
}

fn lrn(maps: Maps, isa: Isa, mb: usize, seed: u64) {
    let desc = LrnDesc { maps, size: 5, alpha: 1e-2, beta: 0.75, k: 2.0, src_activation: None };
    let lrn = Lrn::new(desc, isa).expect("the shape is possible");
    let random = &mut Random(seed);
    let (src, diff_dst) = (random.blocked(maps, isa, mb), random.blocked(maps, isa, mb));
    check("response normalization", mb, random, |samples| {
        let (mb, src) = (samples.len(), src.of(&samples));
        let mut scratch = vec![f32::NAN; lrn.forward_scratch_len()];
        run(lrn.forward_blocks(mb), src.len(), |block, dst| {
            lrn.forward(block, LrnForward { mb, src, dst, scratch: &mut scratch });
        })
    });
    check("gradient of response normalization", mb, random, |samples| {
        let (mb, src, diff_dst) = (samples.len(), src.of(&samples), diff_dst.of(&samples));
        let mut scratch = vec![f32::NAN; lrn.backward_scratch_len()];
        run(lrn.backward_blocks(mb), src.len(), |block, diff_src| {
            let scratch = &mut scratch;
            lrn.backward(block, LrnBackward { mb, src, diff_dst, diff_src, scratch });
        })
    });
}

/// Functions of one element at a time, and sums of two.
fn elements(maps: Maps, isa: Isa, mb: usize, seed: u64) {
    let random = &mut Random(seed);
    let (src, other) = (random.blocked(maps, isa, mb), random.blocked(maps, isa, mb));
    for kind in [ActivationKind::Relu, ActivationKind::Sigmoid, ActivationKind::Tanh] {
        let plan = Activation::new(ActivationDesc { kind, maps }, isa).expect("a shape");
        check("activation", mb, random, |samples| {
            let (mb, src) = (samples.len(), src.of(&samples));
            run(plan.forward_blocks(mb), src.len(), |block, dst| {
                plan.forward(block, ActivationForward { mb, src: Some(src), dst });
            })
        });
        check("slope", mb, random, |samples| {
            let (mb, dst) = (samples.len(), src.of(&samples));
            let diff_dst = Some(other.of(&samples));
            run(plan.backward_blocks(mb), dst.len(), |block, diff_src| {
                plan.backward(block, ActivationBackward { mb, dst, diff_dst, diff_src });
            })
        });
    }
    let add = Add::new(AddDesc { maps, terms: 2, finish: AddFinish::Sum }, isa).expect("a shape");
    check("sum", mb, random, |samples| {
        let (mb, src) = (samples.len(), src.of(&samples));
        run(add.forward_blocks(mb), src.len(), |block, dst| {
            let others = &[other.of(&samples)][..];
            add.forward(block, AddForward { mb, src: Some(src), others, value: None, dst });
        })
    });
    let bias = Bias::new(BiasDesc { maps, dst_activation: None }, isa).expect("a shape");
    let mut bia = vec![0.0; bias.bia_len()];
    bias.pack_bias(&random.reals(maps.c), &mut bia);
    check("bias", mb, random, |samples| {
        let (mb, src) = (samples.len(), src.of(&samples));
        run(bias.forward_blocks(mb), src.len(), |block, dst| {
            bias.forward(block, BiasForward { mb, src: Some(src), bia: &bia, dst });
        })
    });
    check_sums("gradient of bias", mb, random, |samples, alone| {
        let copy = alone.map(|skip| src.alone(&samples, skip)[skip..].to_vec());
        let diff_dst = copy.as_deref().unwrap_or(src.of(&samples));
        let mb = samples.len();
        run(bias.backward_weights_blocks(mb), bias.bia_len(), |block, diff_bia| {
            bias.backward_weights(block, BiasBackwardWeights { mb, diff_dst, diff_bia });
        })
    });
}

/// Samples keep their masks, wherever they are: those belong to their numbers.
fn dropout(maps: Maps, isa: Isa, mb: usize, seed: u64) {
    let desc = DropoutDesc { maps, first_channel: 0, p: 0.4, follows_relu: false };
    let dropout = Dropout::new(desc, isa).expect("the shape is possible");
    let random = &mut Random(seed);
    let src = random.blocked(maps, isa, mb);
    let numbers: Vec<u64> = (0..mb).map(|n| 1000 + n as u64).collect();
    let key = DropoutKey { seed, layer: 3, step: 5 };
    check("dropout", mb, random, |range: Range<usize>| {
        let (mb, samples, src) = (range.len(), &numbers[range.clone()], Some(src.of(&range)));
        run(dropout.forward_blocks(mb), mb * maps_len(maps, isa), |block, dst| {
            dropout.forward(block, DropoutForward { mb, key, samples, src, dst });
        })
    });
    check("gradient of dropout", mb, random, |range: Range<usize>| {
        let (mb, samples) = (range.len(), &numbers[range.clone()]);
        let diff_dst = Some(src.of(&range));
        run(dropout.backward_blocks(mb), mb * maps_len(maps, isa), |block, diff_src| {
            let io = DropoutBackward { mb, key, samples, dst: None, diff_dst, diff_src };
            dropout.backward(block, io);
        })
    });
}

fn maps_len(maps: Maps, isa: Isa) -> usize {
    maps.c.next_multiple_of(isa.lanes()) * maps.h * maps.w
}

/// Ops that move elements.
fn copies(maps: Maps, isa: Isa, mb: usize, seed: u64) {
    let random = &mut Random(seed);
    let flatten = Flatten::new(FlattenDesc { maps, src_activation: None }, isa).expect("a shape");
    let src = random.blocked(maps, isa, mb);
    let flat = random.blocked(flatten.dst_maps(), isa, mb);
    check("flatten", mb, random, |samples| {
        let (mb, src) = (samples.len(), src.of(&samples));
        run(flatten.forward_blocks(mb), mb * flat.sample_len, |block, dst| {
            flatten.forward(block, FlattenForward { mb, src, dst });
        })
    });
    check("unflatten", mb, random, |samples| {
        let (mb, diff_dst) = (samples.len(), flat.of(&samples));
        run(flatten.backward_blocks(mb), mb * src.sample_len, |block, diff_src| {
            flatten.backward(block, FlattenBackward { mb, diff_dst, src: None, diff_src });
        })
    });
    let Maps { c, h, w } = maps;
    let desc = ConcatDesc { channels: vec![c, 5], h, w };
    let joined = random.blocked(desc.dst(), isa, mb);
    let concat = Concat::new(desc, isa).expect("the shape is possible");
    let five = random.blocked(Maps { c: 5, h, w }, isa, mb);
    check("concatenation", mb, random, |samples| {
        let (mb, srcs) = (samples.len(), &[src.of(&samples), five.of(&samples)][..]);
        run(concat.forward_blocks(mb), mb * joined.sample_len, |block, dst| {
            concat.forward(block, ConcatForward { mb, srcs, dst });
        })
    });
    check("gradient of concatenation", mb, random, |samples| {
        let (mb, diff_dst, input) = (samples.len(), joined.of(&samples), 0);
        let blocks = concat.backward_blocks(input, mb);
        run(blocks, mb * src.sample_len, |block, diff_src: Tiles<'_>| {
            concat.backward(block, ConcatBackward { mb, input, diff_dst, diff_src });
        })
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn samples_of_any_pool(
        kind in prop_oneof![
            Just(PoolKind::Max), any::<bool>().prop_map(|include_pad| PoolKind::Average { include_pad }),
        ],
        c in 1..40_usize, (ih, iw) in (1..12_usize, 1..20_usize), (kh, kw) in (1..5_usize, 1..5_usize),
        (sh, sw) in (1..4_usize, 1..4_usize), pads in (0..3_usize, 0..3_usize), ceil: bool,
        mb in 2..20_usize, seed: u64,
    ) {
        let (ph, pw) = (pads.0.min(kh / 2), pads.1.min(kw / 2));
        let desc = PoolDesc { kind, c, ih, iw, kh, kw, sh, sw, ph, pw, ceil, src_activation: None };
        on_every_isa(|isa| pool(desc, isa, mb, seed));
    }

    #[test]
    fn samples_of_simple_ops(
        c in 1..40_usize, h in 1..9_usize, w in 1..9_usize, mb in 2..20_usize, seed: u64,
    ) {
        let maps = Maps { c, h, w };
        on_every_isa(|isa| {
            lrn(maps, isa, mb, seed);
            elements(maps, isa, mb, seed);
            dropout(maps, isa, mb, seed);
            copies(maps, isa, mb, seed);
        });
    }
}

#[test]
fn samples_of_simple_ops_with_several_blocks() {
    let maps = Maps { c: 35, h: 20, w: 21 };
    on_every_isa(|isa| {
        lrn(maps, isa, 17, 1);
        elements(maps, isa, 17, 2);
        dropout(maps, isa, 17, 3);
        copies(maps, isa, 17, 4);
        let global = PoolDesc::global_average(maps);
        pool(global, isa, 17, 5);
    });
}
