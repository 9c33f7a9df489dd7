//! All passes against the reference, on every instruction set: exactly, because the inputs are small integers.

use proptest::prelude::*;

use super::*;
use crate::trial::{Random, Watched, bits, block, dot, on_every_isa, run_blocks, unblock};
use crate::{Isa, Layout, Tiles};

/// A unit-stride convolution without padding; the layout is filled in for each instruction set.
pub(super) fn desc([ic, oc]: [usize; 2], [ih, iw]: [usize; 2], [kh, kw]: [usize; 2]) -> Conv2dDesc {
    let (sh, sw, ph, pw, groups) = (1, 1, 0, 0, 1);
    let src_layout = Layout::Plain;
    Conv2dDesc {
        ic,
        oc,
        ih,
        iw,
        kh,
        kw,
        sh,
        sw,
        ph,
        pw,
        groups,
        bias: true,
        src_layout,
        src_activation: None,
        dst_activation: None,
    }
}

/// The plans of a convolution on an instruction set: blocked, and plain where that is possible.
fn plans(desc: Conv2dDesc, isa: Isa) -> Vec<Conv2d> {
    let layouts = [Layout::Blocked(isa.lanes()), Layout::Plain];
    let planned = layouts.map(|src_layout| Conv2d::new(Conv2dDesc { src_layout, ..desc }, isa));
    assert!(planned[0].is_ok(), "{desc:?}: {:?}", planned[0]);
    planned.into_iter().filter_map(Result::ok).collect()
}

/// Plain tensors, and what a plan makes of them.
pub(super) struct Trial {
    pub(super) conv: Conv2d,
    pub(super) isa: Isa,
    pub(super) mb: usize,
}

impl Trial {
    fn is_plain(&self) -> bool {
        self.conv.desc().src_layout == Layout::Plain
    }

    fn src(&self, plain: &[f32]) -> Vec<f32> {
        if self.is_plain() {
            return plain.to_vec();
        }
        block(plain, self.conv.desc().src_maps(), self.isa)
    }

    fn wei(&self, plain: &[f32]) -> Vec<f32> {
        let mut packed = vec![f32::NAN; self.conv.wei_len()];
        self.conv.pack_weights(plain, &mut packed);
        packed
    }

    pub(super) fn forward(&self, src: &[f32], wei: &[f32], bia: &[f32]) -> Vec<f32> {
        let Trial { conv, isa, mb } = self;
        let (src, mut wei) = (self.src(src), self.wei(wei));
        if conv.prepares_forward() {
            let (blocks, len) = (conv.pack_forward_blocks(), conv.forward_wei_len());
            wei = run_blocks(blocks, len, |block, dst| conv.pack_forward(block, &wei, dst));
        }
        let mut packed_bia = vec![f32::NAN; conv.bia_len()];
        conv.pack_bias(bia, &mut packed_bia);
        let mut scratch = vec![f32::NAN; conv.forward_scratch_len()];
        let len = conv.dst_layout().len(*mb);
        let dst = run_blocks(conv.forward_blocks(*mb), len, |block, dst| {
            let (src, wei, bia, scratch) = (&src, &wei, Some(&packed_bia[..]), &mut scratch[..]);
            conv.forward(block, Conv2dForward { mb: *mb, src, wei, bia, dst, scratch });
        });
        unblock(&dst, conv.desc().dst_maps(), *isa)
    }

    /// `src` is the plain source, where it is the value of an activation.
    pub(super) fn backward_data(
        &self,
        src: Option<&[f32]>,
        diff_dst: &[f32],
        wei: &[f32],
    ) -> Vec<f32> {
        let Trial { conv, isa, mb } = self;
        let src = src.map(|src| self.src(src));
        let diff_dst = block(diff_dst, conv.desc().dst_maps(), *isa);
        let packed = self.wei(wei);
        let wei = run_blocks(conv.pack_backward_blocks(), conv.backward_wei_len(), |block, dst| {
            conv.pack_backward(block, &packed, dst);
        });
        let mut scratch = vec![f32::NAN; conv.backward_data_scratch_len()];
        let len = conv.src_layout().len(*mb);
        let diff_src = run_blocks(conv.backward_data_blocks(*mb), len, |block, diff_src| {
            let (diff_dst, wei, scratch) = (&diff_dst, &wei, &mut scratch[..]);
            let src = src.as_deref();
            let io = Conv2dBackwardData { mb: *mb, diff_dst, wei, src, diff_src, scratch };
            conv.backward_data(block, io);
        });
        unblock(&diff_src, conv.desc().src_maps(), *isa)
    }

    pub(super) fn backward_weights(&self, src: &[f32], diff_dst: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let Trial { conv, isa, mb } = self;
        let src = self.src(src);
        let diff_dst = block(diff_dst, conv.desc().dst_maps(), *isa);
        let mut scratch = vec![f32::NAN; conv.backward_weights_scratch_len()];
        let (mut wei, mut bia) = (Watched::new(conv.wei_len()), Watched::new(conv.bia_len()));
        for block in 0..conv.backward_weights_blocks(*mb) {
            let io = Conv2dBackwardWeights {
                mb: *mb,
                src: &src,
                diff_dst: &diff_dst,
                diff_wei: wei.block().into(),
                diff_bia: Some(bia.block().into()),
                scratch: &mut scratch,
            };
            conv.backward_weights(block, io);
        }
        let mut diff_wei = vec![f32::NAN; conv.desc().plain_wei_len()];
        let mut diff_bia = vec![f32::NAN; conv.desc().oc];
        let (packed_wei, packed_bia) = (wei.finish(), bia.finish());
        conv.unpack_weights(&packed_wei, &mut diff_wei);
        conv.unpack_bias(&packed_bia, &mut diff_bia);
        assert!(bits(&self.wei(&diff_wei)) == bits(&packed_wei), "padding is not zero");
        (diff_wei, diff_bia)
    }
}

/// Compares every pass with the reference.
#[track_caller]
fn check(desc: Conv2dDesc, mb: usize, isa: Isa) {
    let dst_len = mb * desc.dst_maps().len();
    let mut random = Random(1);
    let src = random.integers(mb * desc.src_maps().len(), 3);
    let wei = random.integers(desc.plain_wei_len(), 3);
    let bia = random.integers(desc.oc, 9);
    let diff_dst = random.integers(dst_len, 3);
    for conv in plans(desc, isa) {
        let trial = Trial { conv, isa, mb };
        let case = || format!("{:?} mb {mb} on {}", trial.conv.desc(), isa.name());
        let dst = reference::forward(&desc, mb, &src, &wei, &bia);
        assert!(trial.forward(&src, &wei, &bia) == dst, "forward {}", case());
        let gradients = reference::backward_weights(&desc, mb, &src, &diff_dst);
        let got = trial.backward_weights(&src, &diff_dst);
        assert!(got.0 == gradients.0, "backward weights {}", case());
        assert!(got.1 == gradients.1, "backward bias {}", case());
        if !trial.is_plain() {
            let diff_src = reference::backward_data(&desc, mb, &diff_dst, &wei);
            assert!(
                trial.backward_data(None, &diff_dst, &wei) == diff_src,
                "backward data {}",
                case()
            );
        }
    }
}

#[track_caller]
fn check_all(desc: Conv2dDesc, mb: usize) {
    on_every_isa(|isa| check(desc, mb, isa));
}

#[test]
fn lenet() {
    check_all(desc([1, 20], [28, 28], [5, 5]), 3);
    check_all(desc([20, 50], [12, 12], [5, 5]), 3);
}

#[test]
fn channels_at_and_across_block_borders() {
    for ic in [1, 3, 15, 16, 17, 33] {
        for oc in [1, 7, 16, 31, 33, 48] {
            check_all(Conv2dDesc { ph: 1, pw: 1, ..desc([ic, oc], [5, 6], [3, 3]) }, 2);
        }
    }
}

#[test]
fn last_blocks_of_any_number_of_channels() {
    for tail in 1..=16 {
        for (whole, inner, stride) in [(0, 18, 1), (16, 7, 2), (32, 33, 1)] {
            let plain = desc([whole + tail, inner], [4, 7], [3, 2]);
            check_all(Conv2dDesc { ph: 1, pw: 1, sh: stride, sw: stride, ..plain }, 2);
            check_all(desc([inner, whole + tail], [3, 9], [2, 3]), 3);
        }
    }
}

#[test]
fn last_blocks_of_few_channels_in_the_weights_pass() {
    for (channels, kernel) in [
        ([33, 17], [1, 1]),
        ([50, 18], [3, 3]),
        ([17, 20], [2, 5]),
        ([50, 23], [3, 1]),
        ([20, 33], [5, 5]),
        ([64, 24], [3, 3]),
        ([33, 50], [4, 3]),
        ([48, 6], [1, 5]),
    ] {
        for (stride, pad) in [(1, 0), (1, 1), (2, 0), (2, 2)] {
            let plain = desc(channels, [7, 8], kernel);
            check_all(Conv2dDesc { sh: stride, sw: stride, ph: pad, pw: pad, ..plain }, 3);
        }
    }
}

#[test]
fn short_lines_without_padding() {
    for mb in [1, 2, 5] {
        for (channels, ih, kh) in
            [([20, 50], 12, 5), ([16, 5], 3, 1), ([5, 17], 7, 2), ([45, 33], 5, 5), ([32, 3], 1, 1)]
        {
            check_all(desc(channels, [ih, 12], [kh, 5]), mb);
            check_all(Conv2dDesc { ph: 1, ..desc(channels, [ih, 12], [kh, 5]) }, mb);
        }
    }
}

#[test]
fn widths_at_and_across_register_tiles() {
    for iw in 1..=30 {
        check_all(Conv2dDesc { ph: 1, pw: 1, ..desc([4, 18], [3, iw], [3, 3]) }, 2);
    }
}

#[test]
fn lines_whose_tiles_leave_out_columns() {
    for (widths, kernel, pads) in [
        (vec![7, 12, 13, 14, 27, 28, 41], [3, 3], vec![0, 1, 2]),
        (vec![24, 25, 26, 27, 28, 38], [2, 5], vec![0, 1, 2, 4]),
        (vec![14, 27], [1, 1], vec![0, 1]),
        (vec![13, 28], [2, 7], vec![3, 6]),
    ] {
        for (width, pad) in widths.into_iter().flat_map(|w| pads.iter().map(move |pad| (w, *pad))) {
            let plain = desc([33, 35], [3, width], kernel);
            check_all(Conv2dDesc { ph: 1, pw: pad, ..plain }, 1 + width % 3);
        }
    }
}

#[test]
fn maps_of_one_pixel() {
    for mb in [1, 2, 13] {
        check_all(desc([17, 35], [1, 1], [1, 1]), mb);
        check_all(Conv2dDesc { ph: 2, pw: 1, ..desc([3, 20], [1, 1], [5, 3]) }, mb);
    }
}

#[test]
fn pointwise_convolutions_of_long_lines() {
    check_all(desc([20, 40], [23, 29], [1, 1]), 2);
}

#[test]
fn strides_below_at_and_above_the_kernel() {
    for stride in 1..=4 {
        for kernel in 1..=5 {
            for pad in 0..=2 {
                let plain = desc([5, 18], [9, 11], [kernel, kernel]);
                check_all(Conv2dDesc { sh: stride, sw: stride, ph: pad, pw: pad, ..plain }, 2);
            }
        }
    }
    check_all(Conv2dDesc { sw: 4, ph: 2, pw: 2, ..desc([3, 20], [31, 31], [11, 11]) }, 1);
}

#[test]
fn samples_of_many_rows_are_cut() {
    // A sample is more than a block's work, and more lines than a chunk of the weights pass.
    check_all(Conv2dDesc { ph: 1, pw: 1, ..desc([32, 64], [40, 36], [3, 3]) }, 1);
}

#[test]
fn groups_of_whole_blocks_and_of_parts() {
    for (ic, oc, groups) in
        [(32, 64, 2), (6, 4, 2), (18, 18, 18), (9, 27, 9), (20, 40, 4), (40, 20, 20)]
    {
        let joined = desc([ic, oc], [6, 7], [3, 3]);
        check_all(Conv2dDesc { ph: 1, sw: 2, groups, ..joined }, 2);
    }
}

#[test]
fn no_samples_give_no_blocks_and_zero_gradients() {
    check_all(desc([3, 20], [6, 6], [3, 3]), 0);
    check_all(Conv2dDesc { groups: 3, ..desc([3, 6], [6, 6], [3, 3]) }, 0);
}

#[test]
fn a_layer_without_bias_needs_none() {
    let isa = Isa::detect();
    let wanted = Conv2dDesc { bias: false, ..desc([1, 1], [1, 1], [1, 1]) };
    let conv = Conv2d::new(wanted, isa).expect("the shape is possible");
    let mut dst = vec![f32::NAN; conv.dst_layout().len(1)];
    let mut wei = vec![0.0; conv.wei_len()];
    conv.pack_weights(&[2.0], &mut wei);
    let (src, wei, dst_tiles) = (&[3.0][..], &wei, Tiles::from(&mut dst[..]));
    let io = Conv2dForward { mb: 1, src, wei, bia: None, dst: dst_tiles, scratch: &mut [] };
    conv.forward(0, io);
    assert_eq!(dst[..2], [6.0, 0.0]);
}

#[test]
fn a_nan_or_infinity_reaches_no_padded_lane_of_few_channels() {
    for desc in [desc([20, 35], [12, 12], [5, 5]), desc([34, 20], [3, 7], [3, 2])] {
        on_every_isa(|isa| {
            let conv = plans(desc, isa).remove(0);
            let trial = Trial { conv, isa, mb: 1 };
            let wei = vec![1.0; desc.plain_wei_len()];
            let mut src = vec![1.0; desc.src_maps().len()];
            src[0] = f32::INFINITY;
            // `unblock` checks the padded lanes.
            let dst = trial.forward(&src, &wei, &vec![0.0; desc.oc]);
            assert!(!dst[0].is_finite() && dst[1].is_finite());
            let mut diff_dst = vec![1.0; desc.dst_maps().len()];
            diff_dst[0] = f32::INFINITY;
            let diff_src = trial.backward_data(None, &diff_dst, &wei);
            assert!(!diff_src[0].is_finite() && diff_src[desc.kw].is_finite());
        });
    }
}

#[test]
fn a_nan_or_infinity_reaches_what_it_should_and_no_padded_lane() {
    let desc = Conv2dDesc { ph: 1, pw: 1, ..desc([3, 5], [4, 4], [3, 3]) };
    for bad in [f32::NAN, f32::INFINITY] {
        on_every_isa(|isa| {
            for conv in plans(desc, isa) {
                let trial = Trial { conv, isa, mb: 1 };
                let mut src = vec![1.0; desc.src_maps().len()];
                src[5] = bad;
                let wei = vec![1.0; desc.plain_wei_len()];
                // `unblock` checks the padded lanes.
                let dst = trial.forward(&src, &wei, &[0.0; 5]);
                assert!(!dst[0].is_finite() && !dst[10].is_finite() && dst[15].is_finite());
                let mut diff_dst = vec![1.0; desc.dst_maps().len()];
                diff_dst[5] = bad;
                let (diff_wei, diff_bia) = trial.backward_weights(&src, &diff_dst);
                assert!(!diff_wei[0].is_finite() && !diff_bia[0].is_finite());
                if !trial.is_plain() {
                    let diff_src = trial.backward_data(None, &diff_dst, &wei);
                    assert!(!diff_src[5].is_finite() && diff_src[15].is_finite());
                }
            }
        });
    }
}

#[test]
fn the_backward_passes_are_adjoint_to_the_forward_pass() {
    let wanted = Conv2dDesc { sh: 2, sw: 2, ph: 2, pw: 1, ..desc([19, 21], [9, 10], [5, 4]) };
    let mb = 2;
    let mut random = Random(3);
    let src = random.reals(mb * wanted.src_maps().len());
    let wei = random.reals(wanted.plain_wei_len());
    let diff_dst = random.reals(mb * wanted.dst_maps().len());
    let no_bias = vec![0.0; wanted.oc];
    on_every_isa(|isa| {
        let conv = plans(wanted, isa).swap_remove(0);
        let trial = Trial { conv, isa, mb };
        let forward = dot(&trial.forward(&src, &wei, &no_bias), &diff_dst);
        let data = dot(&src, &trial.backward_data(None, &diff_dst, &wei));
        let weights = dot(&wei, &trial.backward_weights(&src, &diff_dst).0);
        // Each is a sum of this many products of numbers up to 1, of which every element was rounded as a sum of at
        // most 19 channels by 20 taps.
        let products = wanted.flops(mb) as f64 / 2.0;
        let terms = f64::from(19 * 20);
        let tolerance = products * terms * f64::from(f32::EPSILON);
        assert!((forward - data).abs() <= tolerance, "{forward} {data}");
        assert!((forward - weights).abs() <= tolerance, "{forward} {weights}");
    });
}

prop_compose! {
    fn any_desc()(
        groups in prop_oneof![4 => Just(1_usize), 1 => 2..=4_usize],
        channels in [1..=20_usize, 1..=36_usize],
        input in [1..=13_usize, 1..=18_usize],
        kernel in [1..=5_usize, 1..=5_usize],
        stride in [1..=3_usize, 1..=3_usize],
        pad in [0..=3_usize, 0..=3_usize],
    ) -> Conv2dDesc {
        let [ic, oc] = channels.map(|c| c * groups);
        let [ih, iw] = input;
        // A kernel may exceed the map, but not the padded one.
        let [kh, kw] = [kernel[0].min(ih + 2 * pad[0]), kernel[1].min(iw + 2 * pad[1])];
        let [sh, sw] = stride;
        let [ph, pw] = pad;
        Conv2dDesc {
            ic, oc, ih, iw, kh, kw, sh, sw, ph, pw, groups, bias: true, src_layout: Layout::Plain,
            src_activation: None, dst_activation: None,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_shape_agrees_with_the_reference(desc in any_desc(), mb in 1..=3_usize) {
        check_all(desc, mb);
    }
}

#[test]
fn fused_activations_give_the_bits_of_layers_of_their_own() {
    use crate::ActivationKind::{Relu, Sigmoid, Tanh};
    use crate::{Activation, ActivationBackward, ActivationDesc, ActivationForward};
    let shapes = [
        Conv2dDesc { ph: 1, pw: 1, sh: 2, sw: 2, ..desc([20, 35], [7, 9], [3, 3]) },
        Conv2dDesc { groups: 6, ..desc([6, 12], [5, 4], [2, 3]) },
        Conv2dDesc { groups: 20, ph: 1, pw: 1, ..desc([20, 20], [6, 11], [3, 3]) },
    ];
    for (kind, plain) in [Relu, Sigmoid, Tanh].into_iter().flat_map(|k| shapes.map(|s| (k, s))) {
        on_every_isa(|isa| {
            let mb = 2;
            let plan = |desc| Trial { conv: plans(desc, isa).remove(0), isa, mb };
            let alone = plan(plain);
            let fused = plan(Conv2dDesc {
                src_activation: Some(kind),
                dst_activation: Some(kind),
                ..plain
            });
            let mut random = Random(7);
            let (src_maps, dst_maps) = (plain.src_maps(), plain.dst_maps());
            let src = random.reals(mb * src_maps.len());
            let wei = random.reals(plain.plain_wei_len());
            let bia = random.reals(plain.oc);
            let diff_dst = random.reals(mb * dst_maps.len());

            let layer = |maps| Activation::new(ActivationDesc { kind, maps }, isa).unwrap();
            let mut dst = block(&alone.forward(&src, &wei, &bia), dst_maps, isa);
            for index in 0..layer(dst_maps).forward_blocks(mb) {
                let dst = Tiles::from(&mut dst[..]);
                layer(dst_maps).forward(index, ActivationForward { mb, src: None, dst });
            }
            assert_eq!(bits(&fused.forward(&src, &wei, &bia)), bits(&unblock(&dst, dst_maps, isa)));

            let value = block(&src, src_maps, isa);
            let mut diff = block(&alone.backward_data(None, &diff_dst, &wei), src_maps, isa);
            for index in 0..layer(src_maps).backward_blocks(mb) {
                let diff_src = Tiles::from(&mut diff[..]);
                let io = ActivationBackward { mb, dst: &value, diff_dst: None, diff_src };
                layer(src_maps).backward(index, io);
            }
            let got = fused.backward_data(Some(&src), &diff_dst, &wei);
            assert_eq!(bits(&got), bits(&unblock(&diff, src_maps, isa)));
        });
    }
}

#[test]
fn depthwise_layers_of_any_edge() {
    for channels in [2, 5, 16, 33] {
        for (kernel, stride, pad) in
            [([3, 3], 1, 1), ([3, 3], 2, 1), ([5, 5], 1, 2), ([1, 3], 3, 0), ([2, 4], 2, 3)]
        {
            let [sh, sw, ph, pw] = [stride, stride, pad.min(kernel[0]), pad];
            let plain = desc([channels, channels], [7, 21], kernel);
            check_all(Conv2dDesc { groups: channels, sh, sw, ph, pw, ..plain }, 2);
        }
    }
}
