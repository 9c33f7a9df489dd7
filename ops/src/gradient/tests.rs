//! Tests of the arithmetic on gradients.

use proptest::prelude::*;

use super::*;
use crate::Isa;
use crate::trial::{Random, bits, on_every_isa};

#[test]
fn adding_by_hand() {
    on_every_isa(|isa| {
        for len in [0, 1, 7, 8, 16, 19, 40] {
            let mut dst: Vec<f32> = (0..len).map(|i| i as f32).collect();
            add(isa, &mut dst, &vec![0.5; len]);
            let want: Vec<f32> = (0..len).map(|i| i as f32 + 0.5).collect();
            assert_eq!(dst, want);
        }
    });
}

#[test]
#[should_panic(expected = "gradient add: src holds 1 elements, 2 are needed")]
fn a_short_term_is_refused() {
    add(Isa::detect(), &mut [0.0, 0.0], &[1.0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn sums_of_squares_have_the_same_bits_however_they_are_cut(
        len in 0..2000_usize,
        cuts in prop::collection::vec(0..125_usize, 0..6),
        exponent in -60..60_i32,
        seed in any::<u64>(),
    ) {
        let factor = 2.0_f32.powi(exponent);
        let mut random = Random(seed);
        // Numbers of very different sizes, so that any order of rounding would show.
        let sizes = random.reals(len);
        let values: Vec<f32> = random.reals(len).iter().zip(&sizes)
            .map(|(x, size)| x * factor * (size * 20.0).exp2()).collect();
        let want = reference::sum_of_squares(&values);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| (cut * 16).min(len)).collect();
        cuts.extend([0, len]);
        cuts.sort_unstable();
        let whole = sum_of_squares(Isa::detect(), &values);
        // Sums of 2000 terms, none of which is negative, rounded once each.
        prop_assert!((whole - want).abs() <= want * 2000.0 * f64::EPSILON, "{whole} {want}");
        on_every_isa(|isa| {
            let pieces: Vec<&[f32]> = cuts.windows(2).map(|cut| &values[cut[0]..cut[1]]).collect();
            let mut forward = SquareSum::default();
            let mut merged = SquareSum::default();
            let mut written = [0.0; SquareSum::LEN];
            for piece in &pieces {
                forward.add(isa, piece);
                let mut alone = SquareSum::default();
                alone.add(isa, piece);
                merged.merge(&alone);
                let mut digits = [0.0; SquareSum::LEN];
                alone.write(&mut digits);
                add(isa, &mut written, &digits);
            }
            let mut backward = SquareSum::default();
            pieces.iter().rev().for_each(|piece| backward.add(isa, piece));
            for sum in [forward, merged, backward, SquareSum::read(&written)] {
                assert_eq!(sum.value().to_bits(), whole.to_bits(), "{}", isa.name());
            }
        });
    }
}

#[test]
fn the_sum_is_exact_where_f64_is() {
    on_every_isa(|isa| {
        assert_eq!(sum_of_squares(isa, &[]), 0.0);
        assert_eq!(sum_of_squares(isa, &[3.0, -4.0]), 25.0);
        assert_eq!(sum_of_squares(isa, &[1.5; 1000]), 2250.0);
        // The largest and the least square.
        let largest = f64::from(f32::MAX) * f64::from(f32::MAX);
        assert_eq!(sum_of_squares(isa, &[f32::MAX]), largest);
        let least = f32::MIN_POSITIVE;
        assert_eq!(sum_of_squares(isa, &[least]), f64::from(least) * f64::from(least));
        assert_eq!(sum_of_squares(isa, &[f32::MAX, least]), largest);
    });
}

#[test]
fn sums_of_many_ranks_are_exact() {
    on_every_isa(|isa| {
        let mut one = SquareSum::default();
        one.add(isa, &[0.999_999; 33]);
        let mut digits = [0.0; SquareSum::LEN];
        one.write(&mut digits);
        let (mut sum, mut merged) = ([0.0; SquareSum::LEN], SquareSum::default());
        for _ in 0..SquareSum::MOST_RANKS {
            add(isa, &mut sum, &digits);
            merged.merge(&one);
        }
        assert_eq!(SquareSum::read(&sum), merged);
    });
}

#[test]
fn an_infinity_and_a_nan_are_not_lost() {
    for (x, is_nan) in [(f32::INFINITY, false), (f32::NEG_INFINITY, false), (f32::NAN, true)] {
        on_every_isa(|isa| {
            let mut sum = SquareSum::default();
            sum.add(isa, &[1.0; 32]);
            sum.add(isa, &[0.0, x]);
            let mut digits = [0.0; SquareSum::LEN];
            sum.write(&mut digits);
            for value in [sum.value(), SquareSum::read(&digits).value()] {
                assert_eq!((value.is_nan(), value.is_infinite()), (is_nan, !is_nan));
            }
        });
    }
}

#[test]
fn clipping_shortens_gradients_that_are_too_long_alone() {
    for (reach, max_norm) in [(0.01, 1.0), (1.0, 1.0), (100.0, 0.5)] {
        let mut random = Random(5);
        let mut gradients =
            [random.reals(100), random.reals(33)].map(|g| g.iter().map(|x| x * reach).collect());
        on_every_isa(|isa| {
            let mut clipped = gradients.clone();
            let mut sum = SquareSum::default();
            clipped.iter().for_each(|gradient: &Vec<f32>| sum.add(isa, gradient));
            let coefficient = clip_coefficient(sum.value(), max_norm);
            clipped.iter_mut().flatten().for_each(|value| *value *= coefficient);
            let mut want = gradients.clone();
            reference::clip(&mut want, f64::from(max_norm));
            for (got, want) in clipped.iter().flatten().zip(want.iter().flatten()) {
                // The coefficient and the product are rounded.
                assert!((got - want).abs() <= 2.0 * f32::EPSILON * want.abs(), "{got} {want}");
            }
            if reach < 0.1 {
                assert_eq!(bits(&clipped[0]), bits(&gradients[0]), "short gradients stay");
            }
        });
        gradients[0][0] = f32::NAN;
        let sum = sum_of_squares(Isa::detect(), &gradients[0]);
        assert!(clip_coefficient(sum, max_norm).is_nan());
    }
    assert_eq!(clip_coefficient(f64::INFINITY, 1.0), 0.0);
    assert_eq!(clip_coefficient(0.0, 1.0), 1.0);
}
