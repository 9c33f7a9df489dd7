//! Tests of the update rule.

use proptest::prelude::*;

use super::*;
use crate::trial::{Random, assert_close, bits, on_every_isa};

const PLAIN: SgdHyper = SgdHyper { lr: 0.1, momentum: 0.0, weight_decay: 0.0, nesterov: false };

#[test]
fn three_steps_by_hand() {
    // v = 0.5 v + (g + 0.25 w), w = w - 0.5 v: all numbers are exact.
    let hyper = SgdHyper { lr: 0.5, momentum: 0.5, weight_decay: 0.25, nesterov: false };
    on_every_isa(|isa| {
        let (mut wei, mut velocity) = ([4.0, -8.0], [0.0, 0.0]);
        update(isa, hyper, &mut wei, &[1.0, 0.0], Some(&mut velocity));
        assert_eq!((wei, velocity), ([3.0, -7.0], [2.0, -2.0]));
        update(isa, hyper, &mut wei, &[0.25, 0.75], Some(&mut velocity));
        assert_eq!((wei, velocity), ([2.0, -6.0], [2.0, -2.0]));
        update(isa, hyper, &mut wei, &[0.5, 0.5], Some(&mut velocity));
        assert_eq!((wei, velocity), ([1.0, -5.0], [2.0, -2.0]));
    });
}

#[test]
fn nesterov_looks_a_step_ahead() {
    let hyper = SgdHyper { lr: 0.5, momentum: 0.5, weight_decay: 0.0, nesterov: true };
    on_every_isa(|isa| {
        let (mut wei, mut velocity) = ([1.0], [2.0]);
        update(isa, hyper, &mut wei, &[1.0], Some(&mut velocity));
        assert_eq!((wei, velocity), ([0.0], [2.0]));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn steps_agree_with_the_reference(
        len in 0..70_usize,
        momentum in prop_oneof![Just(0.0_f32), 0.1..0.99_f32],
        weight_decay in prop_oneof![Just(0.0_f32), 1e-4..0.1_f32],
        nesterov in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let hyper = SgdHyper { lr: 0.05, momentum, weight_decay, nesterov };
        let mut random = Random(seed);
        let (start, diff) = (random.reals(len), random.reals(len));
        let wide = |values: &[f32]| values.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
        let (mut want, mut want_velocity) = (wide(&start), vec![0.0; len]);
        for _ in 0..3 {
            reference::update(hyper, &mut want, &wide(&diff), &mut want_velocity);
        }
        let want: Vec<f32> = want.iter().map(|&x| x as f32).collect();
        on_every_isa(|isa| {
            let (mut wei, mut velocity) = (start.clone(), vec![0.0; len]);
            for _ in 0..3 {
                let velocity = (momentum != 0.0).then_some(&mut velocity[..]);
                update(isa, hyper, &mut wei, &diff, velocity);
            }
            // Three steps of four roundings of numbers below 8.
            assert_close(&wei, &want, 3.0 * 4.0 * 8.0 * f32::EPSILON);
        });
    }

    #[test]
    fn cuts_do_not_show(cut in 0..50_usize, seed in any::<u64>()) {
        let hyper = SgdHyper { lr: 0.3, momentum: 0.9, weight_decay: 0.01, nesterov: true };
        let mut random = Random(seed);
        let (start, diff, start_velocity) = (random.reals(50), random.reals(50), random.reals(50));
        let (mut one_lane, mut velocity) = (start.clone(), start_velocity.clone());
        for i in 0..50 {
            let velocity = Some(&mut velocity[i..=i]);
            update(crate::Isa::detect(), hyper, &mut one_lane[i..=i], &diff[i..=i], velocity);
        }
        on_every_isa(|isa| {
            let (mut wei, mut velocity) = (start.clone(), start_velocity.clone());
            let (left, right) = wei.split_at_mut(cut);
            let (left_velocity, right_velocity) = velocity.split_at_mut(cut);
            update(isa, hyper, left, &diff[..cut], Some(left_velocity));
            update(isa, hyper, right, &diff[cut..], Some(right_velocity));
            assert_eq!(bits(&wei), bits(&one_lane), "{}", isa.name());
        });
    }
}

#[test]
fn scaled_gradients_are_those_that_were_scaled_before() {
    let hyper = SgdHyper { lr: 0.3, momentum: 0.9, weight_decay: 0.01, nesterov: true };
    let mut random = Random(2);
    let (start, diff, start_velocity) = (random.reals(43), random.reals(43), random.reals(43));
    for hyper in [hyper, SgdHyper { momentum: 0.0, ..hyper }, PLAIN] {
        on_every_isa(|isa| {
            let step = |scale: Option<f32>, diff: &[f32]| {
                let (mut wei, mut velocity) = (start.clone(), start_velocity.clone());
                let kept = (hyper.momentum != 0.0).then_some(&mut velocity[..]);
                match scale {
                    Some(scale) => update_scaled(isa, hyper, scale, &mut wei, diff, kept),
                    None => update(isa, hyper, &mut wei, diff, kept),
                }
                [bits(&wei), bits(&velocity)]
            };
            let scaled: Vec<f32> = diff.iter().map(|&value| value * 0.37).collect();
            assert_eq!(step(Some(0.37), &diff), step(None, &scaled));
            assert_eq!(step(Some(1.0), &diff), step(None, &diff));
            assert_ne!(step(Some(0.37), &diff), step(None, &diff));
        });
    }
}

#[test]
fn nan_and_infinity_stay_where_they_are() {
    on_every_isa(|isa| {
        let mut wei = [f32::INFINITY, 1.0, 1.0, f32::NAN];
        update(isa, PLAIN, &mut wei, &[1.0, f32::NAN, 1.0, 0.0], None);
        assert_eq!(wei[0], f32::INFINITY, "nothing decays, so nothing is multiplied by 0");
        assert!(wei[1].is_nan() && wei[3].is_nan());
        assert_eq!(wei[2], 0.9);
    });
}

#[test]
#[should_panic(expected = "sgd: momentum needs a velocity")]
fn momentum_without_velocity_is_refused() {
    let hyper = SgdHyper { momentum: 0.9, ..PLAIN };
    update(crate::Isa::detect(), hyper, &mut [1.0], &[1.0], None);
}
