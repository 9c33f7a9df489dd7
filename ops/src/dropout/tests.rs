//! Dropout against its reference, and the mask's statistics.

use proptest::prelude::*;

use super::*;
use crate::activation::along::{applied, differentiated};
use crate::trial::{
    CHANNELS, Random, Watched, assert_close, block, blocked, on_every_isa, run_blocks, unblock,
};
use crate::{ActivationKind, Isa, Maps, ShapeError};

const KEY: DropoutKey = DropoutKey { seed: 1, layer: 2, step: 3 };

fn forward(desc: DropoutDesc, isa: Isa, samples: &[u64], src: &[f32]) -> Vec<f32> {
    let dropout = Dropout::new(desc, isa).unwrap();
    let (mb, src) = (samples.len(), block(src, desc.maps, isa));
    let dst = run_blocks(dropout.forward_blocks(mb), src.len(), |block, dst| {
        let io = DropoutForward { mb, key: KEY, samples, src: Some(&src), dst };
        dropout.forward(block, io);
    });
    unblock(&dst, desc.maps, isa)
}

/// In place.
fn backward(desc: DropoutDesc, isa: Isa, samples: &[u64], diff_dst: &[f32]) -> Vec<f32> {
    let dropout = Dropout::new(desc, isa).unwrap();
    let mb = samples.len();
    let mut diff_src = Watched::holding(block(diff_dst, desc.maps, isa));
    for block in 0..dropout.backward_blocks(mb) {
        let diff_src = diff_src.block();
        let io = DropoutBackward { mb, key: KEY, samples, dst: None, diff_dst: None, diff_src };
        dropout.backward(block, io);
    }
    unblock(&diff_src.finish(), desc.maps, isa)
}

proptest! {
    #[test]
    fn both_passes_are_the_reference(
        c in prop::sample::select(&CHANNELS[..]), h in 1_usize..6, w in 1_usize..6, first_channel in 0_usize..50,
        samples in prop::collection::vec(any::<u64>(), 0..4), p in 0.0_f32..=1.0, seed: u64,
    ) {
        let desc = DropoutDesc { maps: Maps { c, h, w }, first_channel, p, follows_relu: false };
        let src = Random(seed).reals(samples.len() * c * h * w);
        let want = reference::forward(&desc, KEY, &samples, &src);
        let largest = want.iter().fold(0.0, |a: f32, b| a.max(b.abs()));
        on_every_isa(|isa| {
            let dst = forward(desc, isa, &samples, &src);
            assert_close(&dst, &want, 2.0 * largest * f32::EPSILON);
            assert_eq!(backward(desc, isa, &samples, &src), dst);
        });
    }
}

#[test]
fn a_share_of_the_channels_gets_its_part_of_the_whole_mask() {
    let whole = DropoutDesc {
        maps: Maps { c: 20, h: 3, w: 2 },
        first_channel: 0,
        p: 0.5,
        follows_relu: false,
    };
    let part = DropoutDesc { maps: Maps { c: 13, ..whole.maps }, first_channel: 7, ..whole };
    on_every_isa(|isa| {
        let of_whole = forward(whole, isa, &[9], &[1.0; 120]);
        assert_eq!(forward(part, isa, &[9], &[1.0; 78]), of_whole[7 * 6..]);
    });
}

#[test]
fn many_planes_are_shared_out_among_blocks() {
    let desc = DropoutDesc {
        maps: Maps { c: 35, h: 30, w: 30 },
        first_channel: 0,
        p: 0.25,
        follows_relu: false,
    };
    let samples = [5, 3, 8, 1, 0, 2];
    let src = vec![3.0; 6 * 35 * 900];
    on_every_isa(|isa| {
        assert!(Dropout::new(desc, isa).unwrap().forward_blocks(6) > 2);
        let want = reference::forward(&desc, KEY, &samples, &src);
        assert_eq!(forward(desc, isa, &samples, &src), want);
    });
}

#[test]
fn nothing_is_dropped_at_0_and_all_at_1() {
    let desc = |p| DropoutDesc {
        maps: Maps { c: 5, h: 4, w: 4 },
        first_channel: 0,
        p,
        follows_relu: false,
    };
    let src = Random(5).reals(80);
    on_every_isa(|isa| {
        assert_eq!(forward(desc(0.0), isa, &[1], &src), src);
        assert!(forward(desc(1.0), isa, &[1], &src).iter().all(|v| *v == 0.0));
    });
}

#[test]
fn nan_is_not_dropped() {
    let desc = DropoutDesc {
        maps: Maps { c: 3, h: 2, w: 2 },
        first_channel: 0,
        p: 0.5,
        follows_relu: false,
    };
    on_every_isa(|isa| {
        assert!(forward(desc, isa, &[0], &[f32::NAN; 12]).iter().all(|v| v.is_nan()));
    });
}

/// The masks (1 or 0) of 2^16 elements for one key and sample.
fn mask(key: DropoutKey, sample: u64, p: f32) -> Vec<f32> {
    let desc = DropoutDesc {
        maps: Maps { c: 64, h: 32, w: 32 },
        first_channel: 0,
        p,
        follows_relu: false,
    };
    let dst = reference::forward(&desc, key, &[sample], &[1.0; 1 << 16]);
    dst.iter().map(|v| f32::from(u8::from(*v > 0.0))).collect()
}

#[test]
fn the_share_that_is_dropped_is_p() {
    for p in [0.01_f32, 0.2, 0.5, 0.9] {
        for sample in 0..8 {
            let kept = mask(KEY, sample, p).iter().sum::<f32>() / 65536.0;
            let deviation = (p * (1.0 - p) / 65536.0).sqrt();
            assert!((kept - (1.0 - p)).abs() < 5.0 * deviation, "p = {p}: {kept} kept");
        }
    }
}

#[test]
fn masks_of_neighbors_in_any_name_are_unrelated() {
    let base = mask(KEY, 4, 0.5);
    let others = [
        mask(DropoutKey { seed: 2, ..KEY }, 4, 0.5),
        mask(DropoutKey { layer: 3, ..KEY }, 4, 0.5),
        mask(DropoutKey { step: 4, ..KEY }, 4, 0.5),
        mask(DropoutKey { layer: 3, step: 2, ..KEY }, 4, 0.5),
        mask(KEY, 5, 0.5),
    ];
    // Agreement with itself and with others, also when shifted: one half, give or take five standard deviations.
    let agreement = |a: &[f32], b: &[f32]| {
        a.iter().zip(b).filter(|(a, b)| a == b).count() as f64 / a.len().min(b.len()) as f64
    };
    let unrelated = |a: &[f32], b: &[f32]| (agreement(a, b) - 0.5).abs() < 5.0 * 0.5 / 240.0;
    for (i, other) in others.iter().enumerate() {
        for shift in [0, 1, 2, 8, 32, 1024] {
            assert!(unrelated(&base, &other[shift..]), "mask {i}, shift {shift}");
        }
    }
    for shift in [1, 2, 3, 8, 16, 32, 1024] {
        assert!(unrelated(&base, &base[shift..]), "shift {shift}");
    }
}

#[test]
fn probabilities_outside_0_to_1_are_refused() {
    let refused = |p, h| {
        let desc = DropoutDesc {
            maps: Maps { c: 1, h, w: 1 << 16 },
            first_channel: 0,
            p,
            follows_relu: false,
        };
        Dropout::new(desc, Isa::detect()).unwrap_err()
    };
    assert!(matches!(refused(1.5, 1), ShapeError::OutOfRange { field: "p", .. }));
    assert!(matches!(refused(f32::NAN, 1), ShapeError::OutOfRange { field: "p", .. }));
    assert!(matches!(refused(0.5, 1 << 16), ShapeError::TooManyElements { op: "dropout", .. }));
}

#[test]
fn without_samples_there_are_no_blocks() {
    let desc = DropoutDesc {
        maps: Maps { c: 3, h: 1, w: 1 },
        first_channel: 0,
        p: 0.5,
        follows_relu: false,
    };
    on_every_isa(|isa| {
        let dropout = Dropout::new(desc, isa).unwrap();
        assert_eq!((dropout.forward_blocks(0), dropout.backward_blocks(0)), (0, 0));
        assert_eq!(blocked(desc.maps, isa).len(0), 0);
    });
}

#[test]
fn the_slope_of_a_relu_taken_along_is_that_of_a_layer_before() {
    for c in CHANNELS {
        let maps = Maps { c, h: 3, w: 5 };
        let desc = DropoutDesc { maps, first_channel: 0, p: 0.4, follows_relu: false };
        let (samples, mut random) = ([7, 8, 9], Random(c as u64));
        let (x, diff) = (random.reals(3 * c * 15), random.reals(3 * c * 15));
        on_every_isa(|isa| {
            let y = applied(ActivationKind::Relu, maps, isa, &x);
            let apart = backward(desc, isa, &samples, &diff);
            let want = differentiated(ActivationKind::Relu, maps, isa, [&y, &apart]);
            let dst = block(&forward(desc, isa, &samples, &y), maps, isa);
            let plan = Dropout::new(DropoutDesc { follows_relu: true, ..desc }, isa).unwrap();
            let diff = block(&diff, maps, isa);
            let along = run_blocks(plan.backward_blocks(3), dst.len(), |block, diff_src| {
                let (samples, dst, diff_dst) = (&samples[..], Some(&dst[..]), Some(&diff[..]));
                let io = DropoutBackward { mb: 3, key: KEY, samples, dst, diff_dst, diff_src };
                plan.backward(block, io);
            });
            // Not bit by bit: a zero may have either sign.
            assert_eq!(unblock(&along, maps, isa), want);
        });
    }
}
