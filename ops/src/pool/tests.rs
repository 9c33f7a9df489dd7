//! Pooling against its reference, and PyTorch's rules on borders, ties and NaN one by one.

use proptest::prelude::*;

use super::*;
use crate::activation::along::{KINDS, applied, differentiated};
use crate::trial::{
    CHANNELS, Random, assert_close, bits, block, blocked, on_every_isa, run_blocks, unblock,
};
use crate::{Isa, Maps, ShapeError};

fn forward(desc: PoolDesc, isa: Isa, src: &[f32]) -> Vec<f32> {
    let pool = Pool::new(desc, isa).unwrap();
    let (mb, src) = (src.len() / (desc.c * desc.ih * desc.iw), block(src, desc.src(), isa));
    let len = blocked(pool.dst_maps(), isa).len(mb);
    let dst = run_blocks(pool.forward_blocks(mb), len, |block, dst| {
        pool.forward(block, PoolForward { mb, src: &src, dst });
    });
    unblock(&dst, pool.dst_maps(), isa)
}

fn backward(desc: PoolDesc, isa: Isa, src: &[f32], diff_dst: &[f32]) -> Vec<f32> {
    let pool = Pool::new(desc, isa).unwrap();
    let (mb, src) = (src.len() / (desc.c * desc.ih * desc.iw), block(src, desc.src(), isa));
    let diff_dst = block(diff_dst, pool.dst_maps(), isa);
    let diff_src = run_blocks(pool.backward_blocks(mb), src.len(), |block, diff_src| {
        let needs_src = desc.kind == PoolKind::Max || desc.src_activation.is_some();
        let src = needs_src.then_some(&src[..]);
        pool.backward(block, PoolBackward { mb, src, diff_dst: &diff_dst, diff_src });
    });
    unblock(&diff_src, desc.src(), isa)
}

/// The gradient of a maximum, in the memory that holds the input.
fn backward_in_place(desc: PoolDesc, isa: Isa, src: &[f32], diff_dst: &[f32]) -> Vec<f32> {
    let pool = Pool::new(desc, isa).unwrap();
    let mb = src.len() / desc.src().len();
    let mut diff_src = block(src, desc.src(), isa);
    let diff_dst = block(diff_dst, pool.dst_maps(), isa);
    for block in 0..pool.backward_blocks(mb) {
        let diff_src = diff_src.as_mut_slice().into();
        pool.backward(block, PoolBackward { mb, src: None, diff_dst: &diff_dst, diff_src });
    }
    unblock(&diff_src, desc.src(), isa)
}

fn square(kind: PoolKind, size: usize, k: usize, s: usize, pad: usize) -> PoolDesc {
    let (ih, iw) = (size, size);
    let (kh, kw, sh, sw, ph, pw) = (k, k, s, s, pad, pad);
    PoolDesc { kind, c: 1, ih, iw, kh, kw, sh, sw, ph, pw, ceil: false, src_activation: None }
}

const AVERAGE: PoolKind = PoolKind::Average { include_pad: true };
const AVERAGE_REAL: PoolKind = PoolKind::Average { include_pad: false };

fn kinds() -> impl Strategy<Value = PoolKind> {
    prop_oneof![Just(PoolKind::Max), Just(AVERAGE), Just(AVERAGE_REAL)]
}

prop_compose! {
    fn descs()(
        kind in kinds(), c in prop::sample::select(&CHANNELS[..]), (ih, iw) in (1_usize..9, 1_usize..9),
        (kh, kw) in (1_usize..5, 1_usize..5), (sh, sw) in (1_usize..6, 1_usize..4), pads in (0_usize..3, 0_usize..3),
        ceil: bool,
    ) -> PoolDesc {
        let (ph, pw) = (pads.0.min(kh / 2), pads.1.min(kw / 2));
        // Windows that fit: the others are refused, which another test is about.
        let (kh, kw) = (kh.min(ih + 2 * ph), kw.min(iw + 2 * pw));
        let (ph, pw) = (ph.min(kh / 2), pw.min(kw / 2));
        PoolDesc { kind, c, ih, iw, kh, kw, sh, sw, ph, pw, ceil, src_activation: None }
    }
}

proptest! {
    #[test]
    fn both_passes_are_the_reference(desc in descs(), mb in 0_usize..4, seed: u64) {
        let mut random = Random(seed);
        let src = random.integers(mb * desc.c * desc.ih * desc.iw, 2);
        let dst_maps = desc.dst().unwrap();
        let diff_dst = random.integers(mb * desc.c * dst_maps.h * dst_maps.w, 4);
        // A maximum and sums of integers are exact; a mean is off by the rounding of 1/n and of the product, and its
        // gradient by that of each of the windows that meet.
        let windows = (desc.kh.div_ceil(desc.sh) * desc.kw.div_ceil(desc.sw)) as f32;
        let tolerance = |largest: f32| match desc.kind {
            PoolKind::Max => 0.0,
            PoolKind::Average { .. } => 2.0 * largest * f32::EPSILON,
        };
        on_every_isa(|isa| {
            let (dst, want) = (forward(desc, isa, &src), reference::forward(&desc, mb, &src));
            assert_close(&dst, &want, tolerance(2.0));
            let diff_src = backward(desc, isa, &src, &diff_dst);
            let want = reference::backward(&desc, mb, &src, &diff_dst);
            assert_close(&diff_src, &want, tolerance(4.0 * windows * windows));
        });
    }

    #[test]
    fn no_gradient_is_lost_or_made(desc in descs(), mb in 1_usize..3, seed: u64) {
        prop_assume!(desc.kind != AVERAGE);
        let mut random = Random(seed);
        let dst = desc.dst().unwrap();
        let src = random.reals(mb * desc.c * desc.ih * desc.iw);
        let diff_dst = random.integers(mb * desc.c * dst.h * dst.w, 8);
        on_every_isa(|isa| {
            let diff_src = backward(desc, isa, &src, &diff_dst);
            let sum = |diffs: &[f32]| diffs.iter().map(|&d| f64::from(d)).sum::<f64>();
            let rounding = 8.0 * diff_dst.len() as f64 * 4.0 * f64::from(f32::EPSILON);
            assert!((sum(&diff_src) - sum(&diff_dst)).abs() <= rounding, "{desc:?}");
        });
    }
}

#[test]
fn of_equal_maxima_the_first_in_row_major_order_takes_the_gradient() {
    on_every_isa(|isa| {
        let desc = square(PoolKind::Max, 3, 2, 1, 0);
        let src = [0., 5., 5., 0., 5., 0., 0., 0., 0.];
        assert_eq!(
            backward(desc, isa, &src, &[1., 2., 4., 8.]),
            [0., 3., 0., 0., 12., 0., 0., 0., 0.]
        );
    });
}

#[test]
fn padding_never_wins() {
    on_every_isa(|isa| {
        let desc = square(PoolKind::Max, 2, 3, 1, 1);
        assert_eq!(forward(desc, isa, &[-4., -3., -2., -5.]), [-2.; 4]);
        let src = [f32::NEG_INFINITY; 4];
        assert_eq!(forward(desc, isa, &src), src);
        assert_eq!(backward(desc, isa, &src, &[1.; 4]), [4., 0., 0., 0.]);
    });
}

#[test]
fn nan_is_the_maximum_and_takes_the_gradient() {
    on_every_isa(|isa| {
        for at in 0..4 {
            let desc = square(PoolKind::Max, 2, 2, 2, 0);
            let mut src = [1., f32::INFINITY, -3., 0.];
            src[at] = f32::NAN;
            assert!(forward(desc, isa, &src)[0].is_nan(), "NaN at {at}");
            let mut want = [0.; 4];
            want[at] = 7.;
            assert_eq!(backward(desc, isa, &src, &[7.]), want, "NaN at {at}");
        }
    });
}

#[test]
fn windows_that_tile_the_map_leave_what_is_over_on_the_right_and_below() {
    let mut random = Random(3);
    for (k, size) in [(2, 7), (2, 8), (3, 10), (3, 9)] {
        let desc = PoolDesc { c: 20, ..square(PoolKind::Max, size, k, k, 0) };
        let mut src = random.integers(2 * desc.src().len(), 2);
        src[size + 1] = f32::NAN;
        src[desc.src().len() - 1] = f32::INFINITY;
        let diff_dst = random.integers(2 * desc.dst().unwrap().len(), 4);
        let want = reference::backward(&desc, 2, &src, &diff_dst);
        on_every_isa(|isa| {
            assert!(Pool::new(desc, isa).unwrap().is_tiled());
            assert_eq!(backward(desc, isa, &src, &diff_dst), want, "{k} x {k} of {size}");
            let in_place = backward_in_place(desc, isa, &src, &diff_dst);
            assert_eq!(in_place, want, "{k} x {k} of {size}, in place");
        });
    }
}

#[test]
fn a_map_is_tiled_where_each_input_has_one_window_and_each_window_is_whole() {
    let is_tiled = |desc: PoolDesc| Pool::new(desc, Isa::detect()).unwrap().is_tiled();
    assert!(is_tiled(square(PoolKind::Max, 7, 2, 2, 0)));
    assert!(!is_tiled(square(PoolKind::Max, 8, 2, 2, 1)), "padding");
    assert!(!is_tiled(square(PoolKind::Max, 7, 3, 2, 0)), "windows overlap");
    assert!(!is_tiled(PoolDesc { ceil: true, ..square(PoolKind::Max, 7, 2, 2, 0) }), "cut off");
    assert!(is_tiled(PoolDesc { ceil: true, ..square(PoolKind::Max, 8, 4, 4, 0) }));
}

#[test]
fn nan_goes_through_an_average() {
    on_every_isa(|isa| {
        let desc = square(AVERAGE, 2, 2, 2, 0);
        assert!(forward(desc, isa, &[1., f32::NAN, -3., 0.])[0].is_nan());
        let diff_src = backward(desc, isa, &[1.; 4], &[f32::NAN]);
        assert!(diff_src.iter().all(|d| d.is_nan()));
    });
}

#[test]
fn the_divisor_counts_what_pytorch_counts() {
    let src: Vec<f32> = (0..9_u8).map(f32::from).collect();
    on_every_isa(|isa| {
        // Corner windows hold 4 real pixels of 9.
        let desc = square(AVERAGE, 3, 3, 2, 1);
        assert_eq!(forward(desc, isa, &src)[0], (0. + 1. + 3. + 4.) * (1. / 9.));
        let desc = square(AVERAGE_REAL, 3, 3, 2, 1);
        assert_eq!(forward(desc, isa, &src)[0], (0. + 1. + 3. + 4.) / 4.);
        // A last window that sticks out of the input is divided by what is inside.
        for kind in [AVERAGE, AVERAGE_REAL] {
            let desc = PoolDesc { ceil: true, ..square(kind, 3, 2, 2, 0) };
            assert_eq!(forward(desc, isa, &src), [2., 3.5, 6.5, 8.]);
        }
    });
}

#[test]
fn a_global_average_is_a_feature_vector() {
    on_every_isa(|isa| {
        let maps = Maps { c: 3, h: 2, w: 2 };
        let desc = PoolDesc::global_average(maps);
        assert_eq!(desc.dst().unwrap(), Maps { c: 3, h: 1, w: 1 });
        let src: Vec<f32> = (0..12_u8).map(f32::from).collect();
        assert_eq!(forward(desc, isa, &src), [1.5, 5.5, 9.5]);
        let diff_src = backward(desc, isa, &src, &[4., 8., 12.]);
        assert_eq!(diff_src, [1., 1., 1., 1., 2., 2., 2., 2., 3., 3., 3., 3.]);
    });
}

#[test]
fn many_planes_are_shared_out_among_blocks() {
    let desc = PoolDesc { c: 35, ..square(PoolKind::Max, 30, 3, 2, 1) };
    let src = Random(1).integers(6 * 35 * 900, 100);
    on_every_isa(|isa| {
        assert!(Pool::new(desc, isa).unwrap().forward_blocks(6) > 2);
        assert_eq!(forward(desc, isa, &src), reference::forward(&desc, 6, &src));
    });
}

#[test]
fn a_window_that_does_not_fit_is_refused() {
    let refused = |desc: PoolDesc| Pool::new(desc, Isa::detect()).unwrap_err();
    assert_eq!(
        refused(square(PoolKind::Max, 1, 2, 2, 0)),
        ShapeError::WindowTooLarge { op: "pool", axis: "height", window: 2, padded: 1 }
    );
    assert_eq!(
        refused(PoolDesc { pw: 2, kh: 1, ..square(AVERAGE, 4, 3, 2, 0) }),
        ShapeError::PaddingTooLarge { op: "pool", axis: "width", padding: 2, window: 3 }
    );
    assert_eq!(
        refused(PoolDesc { sw: 0, ..square(AVERAGE, 4, 3, 2, 0) }),
        ShapeError::Zero { op: "pool", field: "sw" }
    );
}

proptest! {
    #[test]
    fn slopes_taken_along_are_those_of_a_layer_before(desc in descs(), mb in 1_usize..4, seed: u64) {
        let (src, dst) = (desc.src(), desc.dst().unwrap());
        let mut random = Random(seed);
        let (x, diff_dst) = (random.reals(mb * src.len()), random.reals(mb * dst.len()));
        on_every_isa(|isa| {
            for kind in KINDS {
                let y = applied(kind, src, isa, &x);
                let apart = backward(desc, isa, &y, &diff_dst);
                let desc = PoolDesc { src_activation: Some(kind), ..desc };
                let along = backward(desc, isa, &y, &diff_dst);
                assert_eq!(bits(&along), bits(&differentiated(kind, src, isa, [&y, &apart])));
                if desc.kind == PoolKind::Max && Pool::new(desc, isa).unwrap().is_tiled() {
                    let in_place = backward_in_place(desc, isa, &y, &diff_dst);
                    assert_eq!(bits(&in_place), bits(&along));
                }
            }
        });
    }
}
