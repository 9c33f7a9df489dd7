//! Flattening against its reference, and back.

use proptest::prelude::*;

use super::*;
use crate::activation::along::{KINDS, applied, differentiated};
use crate::trial::{CHANNELS, Random, bits, block, blocked, on_every_isa, run_blocks, unblock};
use crate::{Isa, Maps, ShapeError};

fn forward(maps: Maps, isa: Isa, src: &[f32]) -> Vec<f32> {
    let flatten = Flatten::new(FlattenDesc { maps, src_activation: None }, isa).unwrap();
    let (mb, src) = (src.len() / (maps.c * maps.h * maps.w), block(src, maps, isa));
    let len = blocked(flatten.dst_maps(), isa).len(mb);
    let dst = run_blocks(flatten.forward_blocks(mb), len, |block, dst| {
        flatten.forward(block, FlattenForward { mb, src: &src, dst });
    });
    unblock(&dst, flatten.dst_maps(), isa)
}

fn backward(maps: Maps, isa: Isa, diff_dst: &[f32]) -> Vec<f32> {
    let flatten = Flatten::new(FlattenDesc { maps, src_activation: None }, isa).unwrap();
    let mb = diff_dst.len() / (maps.c * maps.h * maps.w);
    let diff_dst = block(diff_dst, flatten.dst_maps(), isa);
    let len = blocked(maps, isa).len(mb);
    let diff_src = run_blocks(flatten.backward_blocks(mb), len, |block, diff_src| {
        flatten.backward(block, FlattenBackward { mb, diff_dst: &diff_dst, src: None, diff_src });
    });
    unblock(&diff_src, maps, isa)
}

proptest! {
    #[test]
    fn plain_order_is_kept_in_both_directions(
        c in prop::sample::select(&CHANNELS[..]), h in 1_usize..12, w in 1_usize..12, mb in 0_usize..4, seed: u64,
    ) {
        let maps = Maps { c, h, w };
        let src = Random(seed).reals(mb * c * h * w);
        on_every_isa(|isa| {
            let dst = forward(maps, isa, &src);
            assert_eq!(dst, reference::forward(&src));
            assert_eq!(backward(maps, isa, &dst), src);
        });
    }
}

#[test]
fn many_planes_are_shared_out_among_blocks() {
    let maps = Maps { c: 35, h: 30, w: 30 };
    let src = Random(1).reals(6 * 35 * 900);
    on_every_isa(|isa| {
        assert!(
            Flatten::new(FlattenDesc { maps, src_activation: None }, isa)
                .unwrap()
                .forward_blocks(6)
                > 2
        );
        assert_eq!(forward(maps, isa, &src), src);
        assert_eq!(backward(maps, isa, &src), src);
    });
}

#[test]
fn nan_moves_like_any_value() {
    let maps = Maps { c: 2, h: 1, w: 2 };
    on_every_isa(|isa| {
        let dst = forward(maps, isa, &[0.0, 1.0, f32::NAN, 3.0]);
        assert!(dst[2].is_nan() && dst[3] == 3.0);
    });
}

#[test]
fn empty_maps_are_refused() {
    let maps = Maps { c: 2, h: 1, w: 0 };
    let error =
        Flatten::new(FlattenDesc { maps, src_activation: None }, Isa::detect()).unwrap_err();
    assert_eq!(error, ShapeError::Zero { op: "flatten", field: "w" });
}

#[test]
fn slopes_taken_along_are_those_of_a_layer_before() {
    for c in CHANNELS {
        let (maps, mb) = (Maps { c, h: 9, w: 8 }, 2);
        let mut random = Random(c as u64);
        let (x, diff_dst) = (random.reals(mb * c * 72), random.reals(mb * c * 72));
        on_every_isa(|isa| {
            for kind in KINDS {
                let y = applied(kind, maps, isa, &x);
                let desc = FlattenDesc { maps, src_activation: Some(kind) };
                let flatten = Flatten::new(desc, isa).unwrap();
                let (src, diff_dst) =
                    (block(&y, maps, isa), block(&diff_dst, flatten.dst_maps(), isa));
                let blocks = flatten.backward_blocks(mb);
                let along = run_blocks(blocks, src.len(), |block, diff_src| {
                    let (diff_dst, src) = (&diff_dst[..], Some(&src[..]));
                    flatten.backward(block, FlattenBackward { mb, diff_dst, src, diff_src });
                });
                let apart = unblock(&diff_dst, flatten.dst_maps(), isa);
                let want = differentiated(kind, maps, isa, [&y, &apart]);
                assert_eq!(bits(&unblock(&along, maps, isa)), bits(&want));
            }
        });
    }
}
