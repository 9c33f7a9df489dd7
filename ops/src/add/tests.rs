//! Sums against their reference, and the order of addition.

use proptest::prelude::*;

use super::*;
use crate::activation::along::{KINDS, applied, differentiated};
use crate::trial::{
    CHANNELS, Random, Watched, bits, block, blocked, on_every_isa, run_blocks, unblock,
};
use crate::{ActivationKind, Isa, Maps, ShapeError};

fn forward(maps: Maps, isa: Isa, srcs: &[Vec<f32>]) -> Vec<f32> {
    let add = Add::new(AddDesc { maps, terms: srcs.len(), finish: AddFinish::Sum }, isa).unwrap();
    let srcs: Vec<_> = srcs.iter().map(|src| block(src, maps, isa)).collect();
    let slices: Vec<&[f32]> = srcs.iter().map(Vec::as_slice).collect();
    let mb = srcs[0].len() / blocked(maps, isa).sample_len();
    let (src, others) = (Some(slices[0]), &slices[1..]);
    let dst = run_blocks(add.forward_blocks(mb), srcs[0].len(), |block, dst| {
        add.forward(block, AddForward { mb, src, others, value: None, dst });
    });
    if srcs.len() > 1 {
        let mut in_place = Watched::holding(srcs[0].clone());
        for block in 0..add.forward_blocks(mb) {
            add.forward(
                block,
                AddForward { mb, src: None, others, value: None, dst: in_place.block() },
            );
        }
        assert_eq!(bits(&in_place.finish()), bits(&dst));
    }
    unblock(&dst, maps, isa)
}

proptest! {
    #[test]
    fn any_number_of_terms_is_the_reference(
        c in prop::sample::select(&CHANNELS[..]), h in 1_usize..12, w in 1_usize..12, mb in 0_usize..3, terms in 1_usize..6,
        seed: u64,
    ) {
        let mut random = Random(seed);
        let srcs: Vec<_> = (0..terms).map(|_| random.integers(mb * c * h * w, 1000)).collect();
        let slices: Vec<&[f32]> = srcs.iter().map(Vec::as_slice).collect();
        on_every_isa(|isa| {
            assert_eq!(forward(Maps { c, h, w }, isa, &srcs), reference::forward(&slices));
        });
    }
}

#[test]
fn terms_are_added_from_left_to_right() {
    let maps = Maps { c: 1, h: 1, w: 1 };
    on_every_isa(|isa| {
        // Each 1 is lost next to 2^24, but not next to its opposite.
        let sum = |terms: [f32; 4]| forward(maps, isa, &terms.map(|t| vec![t]))[0];
        let big = 16_777_216.0;
        assert_eq!(sum([big, 1.0, 1.0, -big]), 0.0);
        assert_eq!(sum([big, -big, 1.0, 1.0]), 2.0);
        assert_eq!(sum([1.0, 1.0, big, -big]), 2.0);
    });
}

#[test]
fn many_elements_are_shared_out_among_blocks() {
    let maps = Maps { c: 17, h: 50, w: 51 };
    let mut random = Random(1);
    let srcs = [random.integers(3 * 17 * 2550, 9), random.integers(3 * 17 * 2550, 9)];
    on_every_isa(|isa| {
        assert!(
            Add::new(AddDesc { maps, terms: 2, finish: AddFinish::Sum }, isa)
                .unwrap()
                .forward_blocks(3)
                > 2
        );
        assert_eq!(forward(maps, isa, &srcs), reference::forward(&[&srcs[0], &srcs[1]]));
    });
}

#[test]
fn nan_in_any_term_is_nan_in_the_sum() {
    let maps = Maps { c: 3, h: 1, w: 1 };
    on_every_isa(|isa| {
        for at in 0..3 {
            let mut srcs = vec![vec![1.0; 3]; 3];
            srcs[at][1] = f32::NAN;
            let nans: Vec<_> = forward(maps, isa, &srcs[..]).iter().map(|v| v.is_nan()).collect();
            assert_eq!(nans, [false, true, false], "term {at}");
        }
    });
}

#[test]
fn a_sum_of_nothing_is_refused() {
    let desc = AddDesc { maps: Maps { c: 3, h: 1, w: 1 }, terms: 0, finish: AddFinish::Sum };
    let error = Add::new(desc, Isa::detect()).unwrap_err();
    assert_eq!(error, ShapeError::Zero { op: "add", field: "terms" });
}

#[test]
#[should_panic(expected = "add: 1 terms given, planned for 2")]
fn a_missing_term_is_a_panic() {
    let add = Add::new(
        AddDesc { maps: Maps { c: 1, h: 1, w: 1 }, terms: 2, finish: AddFinish::Sum },
        Isa::detect(),
    );
    let mut dst = [0.0; 16];
    let dst = dst.as_mut_slice().into();
    add.unwrap().forward(0, AddForward { mb: 1, src: None, others: &[], value: None, dst });
}

/// Sums plain terms, and finishes them.
fn finished(
    maps: Maps,
    isa: Isa,
    finish: AddFinish,
    terms: &[Vec<f32>],
    value: Option<&[f32]>,
) -> Vec<f32> {
    let add = Add::new(AddDesc { maps, terms: terms.len(), finish }, isa).unwrap();
    let terms: Vec<_> = terms.iter().map(|term| block(term, maps, isa)).collect();
    let others: Vec<&[f32]> = terms[1..].iter().map(Vec::as_slice).collect();
    let (others, value) = (&others[..], value.map(|value| block(value, maps, isa)));
    let (value, mb) = (value.as_deref(), terms[0].len() / blocked(maps, isa).sample_len());
    let dst = run_blocks(add.forward_blocks(mb), terms[0].len(), |block, dst| {
        add.forward(block, AddForward { mb, src: Some(&terms[0]), others, value, dst });
    });
    let mut in_place = Watched::holding(terms[0].clone());
    for block in 0..add.forward_blocks(mb) {
        add.forward(block, AddForward { mb, src: None, others, value, dst: in_place.block() });
    }
    assert_eq!(bits(&in_place.finish()), bits(&dst));
    unblock(&dst, maps, isa)
}

#[test]
fn activations_and_slopes_taken_along_are_those_of_a_layer() {
    let maps = Maps { c: 17, h: 9, w: 11 };
    let mut random = Random(3);
    let terms: Vec<_> = (0..4).map(|_| random.reals(2 * 17 * 99)).collect();
    let x = random.reals(2 * 17 * 99);
    on_every_isa(|isa| {
        for n in 1..=4 {
            let sum = finished(maps, isa, AddFinish::Sum, &terms[..n], None);
            for kind in KINDS {
                if kind != ActivationKind::Sigmoid {
                    let finish = AddFinish::Activate(kind);
                    let along = finished(maps, isa, finish, &terms[..n], None);
                    assert_eq!(bits(&along), bits(&applied(kind, maps, isa, &sum)));
                }
                let y = applied(kind, maps, isa, &x);
                let finish = AddFinish::Differentiate(kind);
                let along = finished(maps, isa, finish, &terms[..n], Some(&y));
                assert_eq!(bits(&along), bits(&differentiated(kind, maps, isa, [&y, &sum])));
            }
        }
    });
}

#[test]
fn the_sigmoid_of_a_sum_is_refused() {
    let finish = AddFinish::Activate(ActivationKind::Sigmoid);
    let desc = AddDesc { maps: Maps { c: 3, h: 1, w: 1 }, terms: 2, finish };
    let error = Add::new(desc, Isa::detect()).unwrap_err();
    assert_eq!(error, ShapeError::PaddingNotKept { op: "add" });
}
