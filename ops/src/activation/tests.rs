//! Tests of the activations.

use super::*;
use crate::trial::{
    CHANNELS, Random, Watched, assert_close, bits, block, on_every_isa, run_blocks, unblock,
};
use crate::{Isa, Maps};

const KINDS: [ActivationKind; 3] =
    [ActivationKind::Relu, ActivationKind::Sigmoid, ActivationKind::Tanh];

fn forward(kind: ActivationKind, maps: Maps, isa: Isa, src: &[f32]) -> Vec<f32> {
    let plan = Activation::new(ActivationDesc { kind, maps }, isa).unwrap();
    let src = block(src, maps, isa);
    let mb = samples(&src, maps, isa);
    let dst = run_blocks(plan.forward_blocks(mb), src.len(), |block, dst| {
        plan.forward(block, ActivationForward { mb, src: Some(&src), dst });
    });
    let mut in_place = Watched::holding(src);
    for block in 0..plan.forward_blocks(mb) {
        plan.forward(block, ActivationForward { mb, src: None, dst: in_place.block() });
    }
    assert_eq!(bits(&in_place.finish()), bits(&dst), "in place");
    unblock(&dst, maps, isa)
}

fn backward(kind: ActivationKind, maps: Maps, isa: Isa, [dst, diff_dst]: [&[f32]; 2]) -> Vec<f32> {
    let plan = Activation::new(ActivationDesc { kind, maps }, isa).unwrap();
    let (dst, diff_dst) = (block(dst, maps, isa), block(diff_dst, maps, isa));
    let mb = samples(&dst, maps, isa);
    let diff_src = run_blocks(plan.backward_blocks(mb), dst.len(), |block, diff_src| {
        let diff_dst = Some(&diff_dst[..]);
        plan.backward(block, ActivationBackward { mb, dst: &dst, diff_dst, diff_src });
    });
    let mut in_place = Watched::holding(diff_dst);
    for block in 0..plan.backward_blocks(mb) {
        let diff_src = in_place.block();
        plan.backward(block, ActivationBackward { mb, dst: &dst, diff_dst: None, diff_src });
    }
    assert_eq!(bits(&in_place.finish()), bits(&diff_src), "in place");
    unblock(&diff_src, maps, isa)
}

fn samples(blocked: &[f32], maps: Maps, isa: Isa) -> usize {
    blocked.len() / (maps.c.next_multiple_of(isa.lanes()) * maps.h * maps.w)
}

#[test]
fn both_passes_agree_with_the_reference() {
    for kind in KINDS {
        for c in CHANNELS {
            let maps = Maps { c, h: 3, w: 5 };
            let mut random = Random(c as u64);
            let mut draw = || random.reals(4 * 15 * c).iter().map(|x| x * 10.0).collect::<Vec<_>>();
            let (src, diff_dst) = (draw(), draw());
            let dst = reference::forward(kind, &src);
            let diff_src = reference::backward(kind, &src, &diff_dst);
            on_every_isa(|isa| {
                // Values are at most 1 but for ReLU's, which are exact; four roundings of a value, and then of a
                // gradient of at most 10.
                assert_close(&forward(kind, maps, isa, &src), &dst, 4.0 * f32::EPSILON);
                let got = backward(kind, maps, isa, [&dst, &diff_dst]);
                assert_close(&got, &diff_src, 40.0 * f32::EPSILON);
            });
        }
    }
}

#[test]
fn tensors_of_many_blocks_are_partitioned() {
    let maps = Maps { c: 35, h: 40, w: 40 };
    let src = Random(1).reals(5 * 35 * 1600);
    on_every_isa(|isa| {
        let plan = Activation::new(ActivationDesc { kind: KINDS[1], maps }, isa).unwrap();
        assert!(plan.forward_blocks(5) > 1);
        // Of 17 planes of a block, few are the last of their sample: padding is cleared across borders too.
        let dst = forward(KINDS[1], maps, isa, &src);
        assert_close(&dst, &reference::forward(KINDS[1], &src), 4.0 * f32::EPSILON);
    });
}

#[test]
fn tanh_is_within_two_units_in_the_last_place() {
    let src: Vec<f32> = (-120_000..=120_000).map(|i| i as f32 * 1e-4).collect();
    let maps = Maps { c: 1, h: 1, w: src.len() };
    on_every_isa(|isa| {
        let got = forward(ActivationKind::Tanh, maps, isa, &src);
        for (x, got) in src.iter().zip(got) {
            let want = f64::from(*x).tanh();
            let error =
                (f64::from(got) - want).abs() / want.abs().max(f64::from(f32::MIN_POSITIVE));
            assert!(error <= 2.0 * f64::from(f32::EPSILON), "tanh({x}) = {got}, want {want}");
        }
    });
}

#[test]
fn extreme_values_saturate_and_nan_stays() {
    let maps = Maps { c: 5, h: 1, w: 1 };
    let src = [f32::NEG_INFINITY, -1e30, 1e30, f32::INFINITY, f32::NAN];
    on_every_isa(|isa| {
        for (kind, want) in [
            (ActivationKind::Relu, [0.0, 0.0, 1e30, f32::INFINITY, f32::NAN]),
            (ActivationKind::Sigmoid, [0.0, 0.0, 1.0, 1.0, f32::NAN]),
            (ActivationKind::Tanh, [-1.0, -1.0, 1.0, 1.0, f32::NAN]),
        ] {
            assert_close(&forward(kind, maps, isa, &src), &want, 0.0);
        }
    });
}

#[test]
fn nan_of_either_pass_is_nan_in_the_gradient() {
    let maps = Maps { c: 3, h: 1, w: 1 };
    for kind in KINDS {
        on_every_isa(|isa| {
            let got = backward(kind, maps, isa, [&[f32::NAN, 0.5, 0.5], &[1.0, f32::NAN, 1.0]]);
            assert!(got[0].is_nan() && got[1].is_nan() && got[2] > 0.0, "{kind:?}: {got:?}");
        });
    }
}

#[test]
fn without_samples_there_are_no_blocks() {
    for kind in KINDS {
        let desc = ActivationDesc { kind, maps: Maps { c: 3, h: 2, w: 2 } };
        let plan = Activation::new(desc, Isa::detect()).unwrap();
        assert_eq!((plan.forward_blocks(0), plan.backward_blocks(0)), (0, 0));
    }
}
