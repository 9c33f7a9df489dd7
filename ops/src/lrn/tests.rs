//! Local response normalization against its reference, and at its limits.

use proptest::prelude::*;

use super::*;
use crate::activation::along::{KINDS, applied, differentiated};
use crate::trial::{
    CHANNELS, Random, assert_close, bits, block, blocked, dot, on_every_isa, run_blocks, unblock,
};
use crate::{Isa, Maps, ShapeError};

fn forward(desc: LrnDesc, isa: Isa, src: &[f32]) -> Vec<f32> {
    let lrn = Lrn::new(desc, isa).unwrap();
    let src = block(src, desc.maps, isa);
    let mb = src.len() / blocked(desc.maps, isa).sample_len();
    let mut scratch = vec![f32::NAN; lrn.forward_scratch_len()];
    let dst = run_blocks(lrn.forward_blocks(mb), src.len(), |block, dst| {
        lrn.forward(block, LrnForward { mb, src: &src, dst, scratch: &mut scratch });
    });
    unblock(&dst, desc.maps, isa)
}

fn backward(desc: LrnDesc, isa: Isa, src: &[f32], diff_dst: &[f32]) -> Vec<f32> {
    let lrn = Lrn::new(desc, isa).unwrap();
    let (src, diff_dst) = (block(src, desc.maps, isa), block(diff_dst, desc.maps, isa));
    let mb = src.len() / blocked(desc.maps, isa).sample_len();
    let mut scratch = vec![f32::NAN; lrn.backward_scratch_len()];
    let diff_src = run_blocks(lrn.backward_blocks(mb), src.len(), |block, diff_src| {
        let scratch = &mut scratch;
        let io = LrnBackward { mb, src: &src, diff_dst: &diff_dst, diff_src, scratch };
        lrn.backward(block, io);
    });
    unblock(&diff_src, desc.maps, isa)
}

fn alexnet(c: usize, h: usize, w: usize) -> LrnDesc {
    LrnDesc {
        maps: Maps { c, h, w },
        size: 5,
        alpha: 0.5,
        beta: 0.75,
        k: 2.0,
        src_activation: None,
    }
}

/// Inputs are of size 1 and divisors at least 1, so every term is of size 1 or less: what is off is the window's sums
/// (`size` roundings, weighted by alpha beta), the power (a few) and, in the gradient, the sum over the neighbors.
#[track_caller]
fn check(desc: LrnDesc, mb: usize, seed: u64) {
    let mut random = Random(seed);
    let len = mb * desc.maps.c * desc.maps.h * desc.maps.w;
    let (src, diff_dst) = (random.reals(len), random.reals(len));
    let weight = 1.0 + desc.alpha * desc.beta;
    let tolerance = 2.0 * (desc.size as f32 + 8.0) * weight * f32::EPSILON;
    on_every_isa(|isa| {
        assert_close(&forward(desc, isa, &src), &reference::forward(&desc, &src), tolerance);
        let want = reference::backward(&desc, &src, &diff_dst);
        assert_close(&backward(desc, isa, &src, &diff_dst), &want, 2.0 * weight * tolerance);
    });
}

proptest! {
    #[test]
    fn both_passes_are_the_reference(
        c in prop::sample::select(&CHANNELS[..]), h in 1_usize..5, w in 1_usize..12, mb in 0_usize..3, size in 1_usize..9,
        alpha in 0.0_f32..2.0, beta in prop::sample::select(&[0.5_f32, 0.75, 1.0, 0.6, 2.0][..]), k in 1.0_f32..3.0, seed: u64,
    ) {
        check(LrnDesc { size, alpha, beta, k, ..alexnet(c, h, w) }, mb, seed);
    }
}

#[test]
fn many_pixels_are_shared_out_among_blocks() {
    let desc = alexnet(96, 20, 21);
    assert!(Lrn::new(desc, Isa::detect()).unwrap().forward_blocks(3) > 2);
    check(desc, 3, 1);
}

#[test]
fn a_window_may_be_wider_than_the_channels() {
    check(LrnDesc { size: 60, ..alexnet(5, 2, 2) }, 1, 2);
}

#[test]
fn padding_stays_zero_without_k() {
    let desc = LrnDesc { k: 0.0, alpha: 4.0, ..alexnet(3, 1, 2) };
    let src = [1.0, 2.0, -1.0, 0.5, 1.5, -2.0];
    on_every_isa(|isa| {
        assert_close(&forward(desc, isa, &src), &reference::forward(&desc, &src), 1e-6);
        let want = reference::backward(&desc, &src, &src);
        assert_close(&backward(desc, isa, &src, &src), &want, 1e-5);
    });
}

#[test]
fn nan_spoils_its_neighborhood_and_nothing_else() {
    let desc = LrnDesc { size: 3, ..alexnet(17, 1, 2) };
    let mut src = Random(3).reals(34);
    // Channel 8, pixel 1: its neighbors are in two channel blocks of 8 lanes.
    src[17] = f32::NAN;
    on_every_isa(|isa| {
        let (dst, diff_src) = (forward(desc, isa, &src), backward(desc, isa, &src, &[1.0; 34]));
        for i in 0..34_usize {
            let distance = (i / 2).abs_diff(8);
            assert_eq!(dst[i].is_nan(), i % 2 == 1 && distance <= 1, "dst {i}");
            assert_eq!(diff_src[i].is_nan(), i % 2 == 1 && distance <= 2, "diff_src {i}");
        }
    });
}

#[test]
fn the_gradient_agrees_with_central_differences() {
    let desc = alexnet(9, 1, 1);
    let mut random = Random(4);
    let (src, diff_dst) = (random.reals(9), random.reals(9));
    let h = 1.0 / 64.0;
    on_every_isa(|isa| {
        let diff_src = backward(desc, isa, &src, &diff_dst);
        for i in 0..9 {
            let objective = |by: f32| {
                let mut src = src.clone();
                src[i] += by;
                dot(&reference::forward(&desc, &src), &diff_dst)
            };
            let slope = (objective(h) - objective(-h)) / (2.0 * f64::from(h));
            // h^2 / 6 times a third derivative below 1, and the rounding of the reference's values over h.
            assert!((slope - f64::from(diff_src[i])).abs() < 5e-5, "element {i}");
        }
    });
}

#[test]
fn an_empty_window_is_refused() {
    let error = Lrn::new(LrnDesc { size: 0, ..alexnet(3, 1, 1) }, Isa::detect()).unwrap_err();
    assert_eq!(error, ShapeError::Zero { op: "lrn", field: "size" });
}

#[test]
fn slopes_taken_along_are_those_of_a_layer_before() {
    let desc = alexnet(19, 3, 4);
    let mut random = Random(5);
    let (x, diff_dst) = (random.reals(2 * 19 * 12), random.reals(2 * 19 * 12));
    on_every_isa(|isa| {
        for kind in KINDS {
            let y = applied(kind, desc.maps, isa, &x);
            let apart = backward(desc, isa, &y, &diff_dst);
            let along = LrnDesc { src_activation: Some(kind), ..desc };
            let along = backward(along, isa, &y, &diff_dst);
            assert_eq!(bits(&along), bits(&differentiated(kind, desc.maps, isa, [&y, &apart])));
        }
    });
}
