//! Concatenation and its split against their reference, for channel counts that fill vectors and that do not.

use proptest::prelude::*;

use super::*;
use crate::trial::{CHANNELS, Random, block, blocked, on_every_isa, run_blocks, unblock};
use crate::{Isa, ShapeError};

fn forward(desc: &ConcatDesc, isa: Isa, mb: usize, srcs: &[Vec<f32>]) -> Vec<f32> {
    let concat = Concat::new(desc.clone(), isa).unwrap();
    let srcs: Vec<_> =
        srcs.iter().enumerate().map(|(i, src)| block(src, desc.src(i), isa)).collect();
    let srcs: Vec<&[f32]> = srcs.iter().map(Vec::as_slice).collect();
    let len = blocked(desc.dst(), isa).len(mb);
    let dst = run_blocks(concat.forward_blocks(mb), len, |block, dst| {
        concat.forward(block, ConcatForward { mb, srcs: &srcs, dst });
    });
    unblock(&dst, desc.dst(), isa)
}

fn backward(desc: &ConcatDesc, isa: Isa, mb: usize, input: usize, diff_dst: &[f32]) -> Vec<f32> {
    let concat = Concat::new(desc.clone(), isa).unwrap();
    let diff_dst = block(diff_dst, desc.dst(), isa);
    let len = blocked(desc.src(input), isa).len(mb);
    let diff_src = run_blocks(concat.backward_blocks(input, mb), len, |block, diff_src| {
        concat.backward(block, ConcatBackward { mb, input, diff_dst: &diff_dst, diff_src });
    });
    unblock(&diff_src, desc.src(input), isa)
}

/// Nothing is computed, so all is equal to the bit, and the split undoes the concatenation.
#[track_caller]
fn check(desc: &ConcatDesc, mb: usize, seed: u64) {
    let mut random = Random(seed);
    let pixels = desc.h * desc.w;
    let srcs: Vec<_> = desc.channels.iter().map(|c| random.reals(mb * c * pixels)).collect();
    let slices: Vec<&[f32]> = srcs.iter().map(Vec::as_slice).collect();
    on_every_isa(|isa| {
        let dst = forward(desc, isa, mb, &srcs);
        assert_eq!(dst, reference::forward(desc, mb, &slices), "{}", isa.name());
        for (input, src) in srcs.iter().enumerate() {
            let diff_src = backward(desc, isa, mb, input, &dst);
            assert_eq!(diff_src, reference::backward(desc, mb, input, &dst), "input {input}");
            assert_eq!(diff_src, *src, "input {input}");
        }
    });
}

proptest! {
    #[test]
    fn both_passes_are_the_reference(
        channels in prop::collection::vec(prop::sample::select(&CHANNELS[..]), 1..6), h in 1_usize..5, w in 1_usize..5,
        mb in 0_usize..4, seed: u64,
    ) {
        check(&ConcatDesc { channels, h, w }, mb, seed);
    }

    #[test]
    fn even_channels_too(
        channels in prop::collection::vec(prop::sample::select(&[2_usize, 4, 6, 8, 12, 24][..]), 1..6), seed: u64,
    ) {
        check(&ConcatDesc { channels, h: 3, w: 2 }, 2, seed);
    }
}

#[test]
fn many_planes_are_shared_out_among_blocks() {
    let desc = ConcatDesc { channels: vec![64, 20, 32], h: 28, w: 28 };
    assert!(Concat::new(desc.clone(), Isa::detect()).unwrap().forward_blocks(3) > 2);
    check(&desc, 3, 1);
}

#[test]
fn nan_moves_like_any_value() {
    let desc = ConcatDesc { channels: vec![3, 2], h: 1, w: 1 };
    on_every_isa(|isa| {
        let dst = forward(&desc, isa, 1, &[vec![0.0; 3], vec![1.0, f32::NAN]]);
        assert!(dst[4].is_nan() && dst[..4] == [0.0, 0.0, 0.0, 1.0]);
    });
}

#[test]
fn an_empty_input_is_refused() {
    let refused = |channels| Concat::new(ConcatDesc { channels, h: 1, w: 1 }, Isa::detect());
    let zero = |field| ShapeError::Zero { op: "concat", field };
    assert_eq!(refused(vec![]).unwrap_err(), zero("inputs"));
    assert_eq!(refused(vec![3, 0]).unwrap_err(), zero("channels"));
}
