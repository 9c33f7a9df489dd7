//! Tests of the loss and its gradient.

use super::*;
use crate::trial::{Random, Watched, assert_close, block, on_every_isa, unblock};
use crate::{Isa, Maps};

/// What the blocks of a plan compute, in plain layout.
struct Results {
    losses: Vec<f32>,
    correct: Vec<f32>,
    diff_src: Vec<f32>,
}

fn run(
    desc: SoftmaxCrossEntropyDesc,
    isa: Isa,
    scale: f32,
    src: &[f32],
    labels: &[u32],
) -> Results {
    let plan = SoftmaxCrossEntropy::new(desc, isa).unwrap();
    let (maps, mb) = (Maps { c: desc.classes, h: 1, w: 1 }, labels.len());
    let src = block(src, maps, isa);
    let outputs = || [mb, mb, src.len()].map(Watched::new);
    let [mut losses, mut correct, mut diff_src] = outputs();
    for block in 0..plan.forward_backward_blocks(mb) {
        let (losses, correct) = (losses.block(), correct.block());
        let forward = SoftmaxCrossEntropyForward { mb, src: &src, labels, losses, correct };
        let diff_src = diff_src.block();
        let io = SoftmaxCrossEntropyForwardBackward { forward, scale, diff_src };
        plan.forward_backward(block, io);
    }
    let (losses, correct) = (losses.finish(), correct.finish());
    let [mut losses_alone, mut correct_alone, _] = outputs();
    for block in 0..plan.forward_blocks(mb) {
        let (losses, correct) = (losses_alone.block(), correct_alone.block());
        plan.forward(block, SoftmaxCrossEntropyForward { mb, src: &src, labels, losses, correct });
    }
    assert_close(&losses_alone.finish(), &losses, 0.0);
    assert_close(&correct_alone.finish(), &correct, 0.0);
    Results { losses, correct, diff_src: unblock(&diff_src.finish(), maps, isa) }
}

fn desc(classes: usize, label_smoothing: f32) -> SoftmaxCrossEntropyDesc {
    SoftmaxCrossEntropyDesc { classes, label_smoothing }
}

#[test]
fn losses_and_gradients_agree_with_the_reference() {
    for classes in [1, 2, 7, 8, 10, 16, 17, 1000] {
        for smoothing in [0.0, 0.1, 1.0] {
            let desc = desc(classes, smoothing);
            let mut random = Random(classes as u64);
            let src: Vec<f32> = random.reals(9 * classes).iter().map(|x| x * 8.0).collect();
            let labels: Vec<u32> = (0..9).map(|i| (i * 37 % classes) as u32).collect();
            let losses = reference::forward(&desc, &src, &labels);
            let diff_src = reference::backward(&desc, 0.25, &src, &labels);
            on_every_isa(|isa| {
                let got = run(desc, isa, 0.25, &src, &labels);
                // Logits are within 16 of each other: some roundings of numbers of that size.
                assert_close(&got.losses, &losses, 16.0 * 4.0 * f32::EPSILON);
                // A probability is off by its exponent's rounding and that of a sum of all.
                assert_close(&got.diff_src, &diff_src, 0.25 * 24.0 * f32::EPSILON);
            });
        }
    }
}

#[test]
fn logits_of_any_size_give_finite_results() {
    let ln_2 = std::f32::consts::LN_2;
    for (src, label, loss, diff_src) in [
        (&[1e8, 1e8][..], 0, ln_2, &[-0.5, 0.5][..]),
        (&[-1e8, -1e8], 1, ln_2, &[0.5, -0.5]),
        (&[1000.0, -1000.0], 1, 2000.0, &[1.0, -1.0]),
        (&[1000.0, -1000.0], 0, 0.0, &[0.0, 0.0]),
        (&[-431.0, 279.0, 427.0], 1, 148.0, &[0.0, -1.0, 1.0]),
        (&[f32::NEG_INFINITY, 3.0], 1, 0.0, &[0.0, 0.0]),
    ] {
        on_every_isa(|isa| {
            let got = run(desc(src.len(), 0.0), isa, 1.0, src, &[label]);
            assert_close(&got.losses, &[loss], 2.0 * f32::EPSILON);
            assert_close(&got.diff_src, diff_src, 2.0 * f32::EPSILON);
        });
    }
}

#[test]
fn the_first_maximum_wins_and_nan_is_never_correct() {
    let mut src = vec![0.0; 5 * 20];
    src[7] = 2.0;
    src[19] = 2.0;
    src[20 + 7] = 2.0;
    src[20 + 19] = 2.0;
    src[40 + 18] = -0.5;
    src[60 + 3] = f32::NAN;
    src[80 + 3] = f32::NAN;
    let labels = [7, 19, 0, 3, 0];
    on_every_isa(|isa| {
        let got = run(desc(20, 0.0), isa, 1.0, &src, &labels);
        assert_eq!(got.correct, [1.0, 0.0, 1.0, 0.0, 0.0]);
        assert!(got.losses[3].is_nan() && got.losses[4].is_nan());
        assert!(got.diff_src[60..].iter().all(|x| x.is_nan()));
        assert!(got.diff_src[..60].iter().all(|x| x.is_finite()));
    });
}

#[test]
fn the_gradient_is_the_slope_of_the_loss() {
    let desc = desc(5, 0.2);
    let src = Random(4).reals(5);
    let loss = |class: usize, step: f32| {
        let mut src = src.clone();
        src[class] += step;
        f64::from(reference::forward(&desc, &src, &[2])[0])
    };
    on_every_isa(|isa| {
        let got = run(desc, isa, 1.0, &src, &[2]);
        for class in 0..5 {
            let slope = (loss(class, 1.0 / 64.0) - loss(class, -1.0 / 64.0)) * 32.0;
            // The third derivative of the loss is at most 1/10, and losses are rounded to f32.
            let tolerance = (1.0 / 64.0_f64).powi(2) / 60.0 + 32.0 * 4.0 * f64::from(f32::EPSILON);
            assert!((f64::from(got.diff_src[class]) - slope).abs() <= tolerance);
        }
    });
}

#[test]
fn many_samples_make_several_blocks() {
    let desc = desc(1000, 0.0);
    let src = Random(1).reals(300 * 1000);
    let labels: Vec<u32> = (0..300).collect();
    on_every_isa(|isa| {
        assert!(SoftmaxCrossEntropy::new(desc, isa).unwrap().forward_blocks(300) > 2);
        let got = run(desc, isa, 1.0, &src, &labels);
        assert_close(&got.losses, &reference::forward(&desc, &src, &labels), 16.0 * f32::EPSILON);
    });
}

#[test]
fn without_samples_there_are_no_blocks() {
    let plan = SoftmaxCrossEntropy::new(desc(10, 0.0), Isa::detect()).unwrap();
    assert_eq!((plan.forward_blocks(0), plan.forward_backward_blocks(0)), (0, 0));
}

#[test]
fn smoothing_of_more_than_everything_is_refused() {
    for smoothing in [-0.1, 1.5, f32::NAN] {
        assert!(SoftmaxCrossEntropy::new(desc(10, smoothing), Isa::detect()).is_err());
    }
}
