//! Every pass against the reference, on every instruction set: exactly for F(2x2, 3x3), whose maps keep small integers exact,
//! and within the rounding of F(4x4, 3x3).

use super::super::tests::{Trial, desc};
use super::super::{Conv2d, Conv2dForward, reference};
use super::*;
use crate::trial::{Random, bits, on_every_isa, run_blocks};
use crate::{Layout, ShapeError};

/// A layer of the given channels, map and padding.
fn layer(channels: [usize; 2], map: [usize; 2], [ph, pw]: [usize; 2]) -> Conv2dDesc {
    Conv2dDesc { ph, pw, ..desc(channels, map, [3, 3]) }
}

/// Layers of all kinds of edges: channels within and across vectors, pairs and chunks; maps of whole and partial tiles,
/// smaller than a tile, larger than a batch; padding from none to more than the kernel.
fn layers() -> Vec<Conv2dDesc> {
    let mut layers = Vec::new();
    for channels in [[1, 1], [16, 16], [17, 35], [35, 17], [40, 70], [150, 100]] {
        layers.push(layer(channels, [6, 7], [1, 1]));
    }
    for side in 1..=10 {
        layers.push(layer([5, 18], [side, 11 - side], [1, 1]));
    }
    for pad in [[0, 0], [0, 2], [2, 1], [3, 4]] {
        layers.push(layer([18, 5], [5, 9], pad));
    }
    layers.push(layer([33, 16], [45, 30], [1, 1]));
    layers
}

fn trial(desc: Conv2dDesc, tile: WinogradTile, isa: Isa, mb: usize) -> Trial {
    let desc = Conv2dDesc { src_layout: Layout::Blocked(isa.lanes()), ..desc };
    let conv = Conv2d::winograd(desc, tile, isa, Caches::default());
    Trial { conv: conv.expect("a 3x3 layer of stride 1"), isa, mb }
}

/// The largest difference, as a fraction of the largest wanted value.
fn error(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    let largest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let want_max = largest(&mut want.iter().map(|want| f64::from(want.abs())));
    let differences = got.iter().zip(want).map(|(got, want)| f64::from(got - want).abs());
    largest(&mut differences.map(|d| if d.is_nan() { f64::INFINITY } else { d })) / want_max
}

/// Differences of all passes from the reference.
fn errors(trial: &Trial, [src, wei, bia, diff_dst]: [&[f32]; 4]) -> [f64; 4] {
    let (desc, mb) = (trial.conv.desc(), trial.mb);
    let dst = reference::forward(desc, mb, src, wei, bia);
    let diff_src = reference::backward_data(desc, mb, diff_dst, wei);
    let gradients = reference::backward_weights(desc, mb, src, diff_dst);
    let got = trial.backward_weights(src, diff_dst);
    [
        error(&trial.forward(src, wei, bia), &dst),
        error(&trial.backward_data(None, diff_dst, wei), &diff_src),
        error(&got.0, &gradients.0),
        error(&got.1, &gradients.1),
    ]
}

#[test]
fn tiles_of_two_are_exact_for_small_integers() {
    for desc in layers() {
        let mb = 3;
        let mut random = Random(1);
        let src = random.integers(mb * desc.src_maps().len(), 3);
        let wei = random.integers(desc.plain_wei_len(), 3);
        let bia = random.integers(desc.oc, 9);
        let diff_dst = random.integers(mb * desc.dst_maps().len(), 3);
        on_every_isa(|isa| {
            let trial = trial(desc, WinogradTile::Two, isa, mb);
            let errors = errors(&trial, [&src, &wei, &bia, &diff_dst]);
            assert_eq!(errors, [0.0; 4], "{desc:?} on {}", isa.name());
        });
    }
}

#[test]
fn tiles_of_four_are_near() {
    for desc in layers() {
        let mb = 3;
        let mut random = Random(2);
        let src = random.reals(mb * desc.src_maps().len());
        let wei = random.reals(desc.plain_wei_len());
        let bia = random.reals(desc.oc);
        let diff_dst = random.reals(mb * desc.dst_maps().len());
        on_every_isa(|isa| {
            let trial = trial(desc, WinogradTile::Four, isa, mb);
            let errors = errors(&trial, [&src, &wei, &bia, &diff_dst]);
            assert!(
                errors.iter().all(|error| *error < TOLERANCE),
                "{errors:?} {desc:?} on {}",
                isa.name()
            );
        });
    }
}

/// Of the largest value: four times the largest error that was measured, 2.7e-6, of backward weights.
const TOLERANCE: f64 = 1e-5;

#[test]
fn fused_activations_are_applied() {
    use crate::ActivationKind::{Relu, Sigmoid};
    for (kind, tile) in [(Relu, WinogradTile::Two), (Sigmoid, WinogradTile::Four)] {
        let (plain, mb) = (layer([20, 35], [7, 9], [1, 1]), 2);
        let fused = Conv2dDesc { src_activation: Some(kind), dst_activation: Some(kind), ..plain };
        let mut random = Random(3);
        let src = random.reals(mb * plain.src_maps().len());
        let wei = random.reals(plain.plain_wei_len());
        let bia = random.reals(plain.oc);
        let diff_dst = random.reals(mb * plain.dst_maps().len());
        let value = |x: &f32| if kind == Relu { x.max(0.0) } else { 1.0 / (1.0 + (-x).exp()) };
        let slope = |y: f32| if kind == Relu { f32::from(y > 0.0) } else { y * (1.0 - y) };
        on_every_isa(|isa| {
            let [alone, fused] = [plain, fused].map(|desc| trial(desc, tile, isa, mb));
            let dst: Vec<f32> = alone.forward(&src, &wei, &bia).iter().map(value).collect();
            assert!(error(&fused.forward(&src, &wei, &bia), &dst) < 1e-6);
            let diff_src = alone.backward_data(None, &diff_dst, &wei);
            let diff_src: Vec<f32> =
                diff_src.iter().zip(&src).map(|(d, y)| d * slope(*y)).collect();
            assert!(error(&fused.backward_data(Some(&src), &diff_dst, &wei), &diff_src) < 1e-6);
        });
    }
}

#[test]
fn a_sample_has_the_same_bits_in_any_minibatch_and_for_any_cache() {
    let (desc, mb) = (layer([150, 40], [13, 13], [1, 1]), 5);
    let mut random = Random(4);
    let src = random.reals(mb * desc.src_maps().len());
    let wei = random.reals(desc.plain_wei_len());
    let bia = random.reals(desc.oc);
    on_every_isa(|isa| {
        let all = trial(desc, WinogradTile::Four, isa, mb);
        let mut alone = trial(desc, WinogradTile::Four, isa, 1);
        let caches = Caches { l1_bytes: 48 << 10, l2_bytes: 4 << 20 };
        alone.conv = Conv2d::winograd(*all.conv.desc(), WinogradTile::Four, isa, caches)
            .expect("a 3x3 layer of stride 1");
        let dst = all.forward(&src, &wei, &bia);
        for (src, dst) in src.chunks(src.len() / mb).zip(dst.chunks(dst.len() / mb)) {
            assert_eq!(bits(&alone.forward(src, &wei, &bia)), bits(dst));
        }
    });
}

#[test]
fn regions_are_what_blocks_write() {
    let isa = Isa::detect();
    let mb = 3;
    for desc in layers() {
        let conv = trial(desc, WinogradTile::Four, isa, mb).conv;
        let layout = conv.dst_layout();
        let src = vec![1.0; conv.src_layout().len(mb)];
        let (wei, bia) = (vec![1.0; conv.forward_wei_len()], vec![0.0; conv.bia_len()]);
        let mut scratch = vec![0.0; conv.forward_scratch_len()];
        let slices = conv.forward_slices(mb);
        let mut written = run_blocks(conv.forward_blocks(mb), layout.len(mb), |block, dst| {
            let (src, wei, bia, scratch) = (&src, &wei, Some(&bia[..]), &mut scratch[..]);
            conv.forward(block, Conv2dForward { mb, src, wei, bia, dst, scratch });
        });
        for block in 0..conv.forward_blocks(mb) {
            let region = conv.forward_region(block, mb).expect("one group has regions");
            assert_eq!(region.slice, block % slices);
            for n in region.samples {
                for c in region.channel_blocks.clone().map(|block| block * isa.lanes()) {
                    for y in region.rows.clone() {
                        let start = layout.index(n, c, y, 0);
                        written[start..start + desc.ow() * isa.lanes()].fill(f32::NAN);
                    }
                }
            }
        }
        assert!(written.iter().all(|x| x.is_nan()), "{desc:?}");
    }
}

#[test]
fn an_infinity_reaches_no_padded_lane() {
    for tile in [WinogradTile::Two, WinogradTile::Four] {
        on_every_isa(|isa| {
            let trial = trial(layer([3, 5], [4, 4], [1, 1]), tile, isa, 1);
            let mut src = vec![1.0; 48];
            src[5] = f32::INFINITY;
            // `Trial` checks the padded lanes.
            let dst = trial.forward(&src, &[1.0; 135], &[0.0; 5]);
            assert!(!dst[0].is_finite());
        });
    }
}

#[test]
fn other_layers_are_refused() {
    let isa = Isa::detect();
    let possible = layer([32, 32], [8, 8], [1, 1]);
    let possible = Conv2dDesc { src_layout: Layout::Blocked(isa.lanes()), ..possible };
    let plan = |desc| Conv2d::winograd(desc, WinogradTile::Four, isa, Caches::default());
    assert!(plan(possible).is_ok());
    let refused = plan(Conv2dDesc { sh: 2, groups: 2, ..possible }).expect_err("a stride of 2");
    assert_eq!(refused, ShapeError::NoWinograd { kh: 3, kw: 3, sh: 2, sw: 1, groups: 2 });
    assert!(plan(Conv2dDesc { kw: 5, pw: 2, ..possible }).is_err());
    let first = Conv2dDesc { ic: 3, src_layout: Layout::Plain, ..possible };
    assert!(plan(first).is_err());
}
