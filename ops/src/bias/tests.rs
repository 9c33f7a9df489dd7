//! Tests of the bias layer.

use super::*;
use crate::activation::along::{KINDS, applied};
use crate::trial::{CHANNELS, Random, Watched, bits, block, on_every_isa, run_blocks, unblock};
use crate::{Isa, Maps};

fn packed(plan: &Bias, plain: &[f32]) -> Vec<f32> {
    let mut packed = vec![f32::NAN; plan.bia_len()];
    plan.pack_bias(plain, &mut packed);
    packed
}

fn diff_bia(plan: &Bias, mb: usize, diff_dst: &[f32]) -> Vec<f32> {
    let blocks = plan.backward_weights_blocks(mb);
    let packed = run_blocks(blocks, plan.bia_len(), |block, diff_bia| {
        plan.backward_weights(block, BiasBackwardWeights { mb, diff_dst, diff_bia });
    });
    let mut plain = vec![f32::NAN; plan.desc().maps.c];
    plan.unpack_bias(&packed, &mut plain);
    assert_eq!(packed[plain.len()..].iter().find(|&&x| x != 0.0), None, "padding");
    plain
}

#[test]
fn all_passes_equal_the_reference() {
    for c in CHANNELS {
        let (maps, mb) = (Maps { c, h: 3, w: 5 }, 4);
        let mut random = Random(c as u64);
        let mut draw = |len| random.integers(len, 9);
        let (src, bia, diff_dst) = (draw(mb * c * 15), draw(c), draw(mb * c * 15));
        on_every_isa(|isa| {
            let plan = Bias::new(BiasDesc { maps, dst_activation: None }, isa).unwrap();
            let (blocked, bia_packed) = (block(&src, maps, isa), packed(&plan, &bia));
            let dst = run_blocks(plan.forward_blocks(mb), blocked.len(), |block, dst| {
                let (src, bia) = (Some(&blocked[..]), &bia_packed);
                plan.forward(block, BiasForward { mb, src, bia, dst });
            });
            assert_eq!(unblock(&dst, maps, isa), reference::forward(maps, &src, &bia));
            let mut in_place = Watched::holding(blocked);
            for block in 0..plan.forward_blocks(mb) {
                let dst = in_place.block();
                plan.forward(block, BiasForward { mb, src: None, bia: &bia_packed, dst });
            }
            assert_eq!(in_place.finish(), dst);

            let diff = block(&diff_dst, maps, isa);
            let diff_src = run_blocks(plan.backward_data_blocks(mb), diff.len(), |block, out| {
                let io = BiasBackwardData { mb, diff_dst: Some(&diff), diff_src: out };
                plan.backward_data(block, io);
            });
            assert_eq!(diff_src, diff);
            assert_eq!(diff_bia(&plan, mb, &diff), reference::backward_weights(maps, &diff_dst));
        });
    }
}

#[test]
fn nan_reaches_its_element_and_its_channel() {
    let maps = Maps { c: 2, h: 1, w: 2 };
    on_every_isa(|isa| {
        let plan = Bias::new(BiasDesc { maps, dst_activation: None }, isa).unwrap();
        let src = block(&[f32::NAN, 1.0, 2.0, 3.0], maps, isa);
        let bia = packed(&plan, &[10.0, 20.0]);
        let dst = run_blocks(plan.forward_blocks(1), src.len(), |block, dst| {
            plan.forward(block, BiasForward { mb: 1, src: Some(&src), bia: &bia, dst });
        });
        let dst = unblock(&dst, maps, isa);
        assert!(dst[0].is_nan());
        assert_eq!(dst[1..], [11.0, 22.0, 23.0]);
        let diff_bia = diff_bia(&plan, 1, &src);
        assert!(diff_bia[0].is_nan());
        assert_eq!(diff_bia[1], 5.0);
    });
}

#[test]
fn without_samples_the_gradient_is_zero() {
    let maps = Maps { c: 19, h: 2, w: 2 };
    on_every_isa(|isa| {
        let plan = Bias::new(BiasDesc { maps, dst_activation: None }, isa).unwrap();
        assert_eq!((plan.forward_blocks(0), plan.backward_data_blocks(0)), (0, 0));
        assert_eq!(diff_bia(&plan, 0, &[]), [0.0; 19]);
    });
}

#[test]
fn an_empty_shape_is_refused() {
    let maps = Maps { c: 3, h: 0, w: 2 };
    let error = Bias::new(BiasDesc { maps, dst_activation: None }, Isa::detect()).unwrap_err();
    assert_eq!(error.to_string(), "bias: h is 0, at least 1 is needed");
}

#[test]
fn activations_taken_along_are_those_of_a_layer_after() {
    for c in CHANNELS {
        let (maps, mb) = (Maps { c, h: 3, w: 5 }, 2);
        let mut random = Random(c as u64);
        let (src, bia) = (random.reals(mb * c * 15), random.reals(c));
        on_every_isa(|isa| {
            let forward = |dst_activation| {
                let plan = Bias::new(BiasDesc { maps, dst_activation }, isa).unwrap();
                let (src, bia) = (block(&src, maps, isa), packed(&plan, &bia));
                let dst = run_blocks(plan.forward_blocks(mb), src.len(), |block, dst| {
                    plan.forward(block, BiasForward { mb, src: Some(&src), bia: &bia, dst });
                });
                unblock(&dst, maps, isa)
            };
            for kind in KINDS {
                let want = applied(kind, maps, isa, &forward(None));
                assert_eq!(bits(&forward(Some(kind))), bits(&want));
            }
        });
    }
}
