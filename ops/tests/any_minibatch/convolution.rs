//! Convolutions of all kinds: strides, groups, few channels, a plain source, weights that exceed the caches.

use std::ops::Range;

use lockstep_ops::blocking::Caches;
use lockstep_ops::{
    ActivationKind, Conv2d, Conv2dBackwardData, Conv2dBackwardWeights, Conv2dDesc, Conv2dForward,
    Layout, Tiles, WinogradTile,
};
use proptest::prelude::*;

use crate::{Random, Tensor, check, check_sums, difference, on_every_isa, run};

/// A layer with its weights, and tensors of a minibatch.
struct Layer {
    conv: Conv2d,
    bia: Vec<f32>,
    turned: Vec<f32>,
    /// The weights as the forward pass reads them.
    prepared: Vec<f32>,
    src: Tensor,
    diff_dst: Tensor,
}

impl Layer {
    fn new(conv: Conv2d, mb: usize, seed: u64) -> Layer {
        let (desc, random) = (*conv.desc(), &mut Random(seed));
        let mut wei = vec![0.0; conv.wei_len()];
        conv.pack_weights(&random.reals(desc.plain_wei_len()), &mut wei);
        let mut bia = vec![0.0; conv.bia_len()];
        conv.pack_bias(&random.reals(desc.oc), &mut bia);
        let is_plain = desc.src_layout == Layout::Plain;
        let (blocks, len) =
            if is_plain { (0, 0) } else { (conv.pack_backward_blocks(), conv.backward_wei_len()) };
        let turned = run(blocks, len, |block, turned| conv.pack_backward(block, &wei, turned));
        let mut prepared = wei.clone();
        if conv.prepares_forward() {
            let (blocks, len) = (conv.pack_forward_blocks(), conv.forward_wei_len());
            prepared = run(blocks, len, |block, dst| conv.pack_forward(block, &wei, dst));
        }
        let src = random.tensor(conv.src_layout(), mb);
        let diff_dst = random.tensor(conv.dst_layout(), mb);
        Layer { conv, bia, turned, prepared, src, diff_dst }
    }

    fn forward(&self, samples: Range<usize>) -> Vec<f32> {
        let (conv, mb) = (&self.conv, samples.len());
        let mut scratch = vec![f32::NAN; conv.forward_scratch_len()];
        run(conv.forward_blocks(mb), conv.dst_layout().len(mb), |block, dst| {
            let (src, wei, bia) = (self.src.of(&samples), &self.prepared, Some(&self.bia[..]));
            let scratch = &mut scratch;
            conv.forward(block, Conv2dForward { mb, src, wei, bia, dst, scratch });
        })
    }

    fn backward_data(&self, samples: Range<usize>) -> Vec<f32> {
        let (conv, mb) = (&self.conv, samples.len());
        let mut scratch = vec![f32::NAN; conv.backward_data_scratch_len()];
        run(conv.backward_data_blocks(mb), conv.src_layout().len(mb), |block, diff_src| {
            let (diff_dst, wei, scratch) = (self.diff_dst.of(&samples), &self.turned, &mut scratch);
            let src = conv.desc().src_activation.map(|_| self.src.of(&samples));
            let io = Conv2dBackwardData { mb, diff_dst, wei, src, diff_src, scratch };
            conv.backward_data(block, io);
        })
    }

    /// The gradients of weights and bias, one after the other.
    fn backward_weights(&self, samples: Range<usize>, alone: Option<usize>) -> Vec<f32> {
        let (conv, mb) = (&self.conv, samples.len());
        let (src, diff_dst) = (&self.src, &self.diff_dst);
        let copies =
            alone.map(|skip| (skip, src.alone(&samples, skip), diff_dst.alone(&samples, skip)));
        let (src, diff_dst) = match &copies {
            Some((skip, src, diff_dst)) => (&src[*skip..], &diff_dst[*skip..]),
            // All that follows may be there.
            None => (
                &src.values[samples.start * src.sample_len..],
                &diff_dst.values[samples.start * diff_dst.sample_len..],
            ),
        };
        let mut scratch = vec![f32::NAN; conv.backward_weights_scratch_len()];
        let mut diff_bia = vec![f32::NAN; conv.bia_len()];
        let blocks = conv.backward_weights_blocks(mb);
        let mut sums = run(blocks, conv.wei_len(), |block, diff_wei| {
            let (diff_wei, diff_bia) =
                (diff_wei.into(), Some(Tiles::from(&mut diff_bia[..]).into()));
            let scratch = &mut scratch;
            let io = Conv2dBackwardWeights { mb, src, diff_dst, diff_wei, diff_bia, scratch };
            conv.backward_weights(block, io);
        });
        sums.extend(diff_bia);
        sums
    }
}

const SMALL_CACHES: Caches = Caches { l1_bytes: 16 << 10, l2_bytes: 48 << 10 };

fn check_layer(desc: Conv2dDesc, mb: usize, seed: u64) {
    check_method(desc, None, mb, seed);
}

fn check_method(desc: Conv2dDesc, tile: Option<WinogradTile>, mb: usize, seed: u64) {
    on_every_isa(|isa| {
        let is_plain = desc.src_layout == Layout::Plain;
        let layout = if is_plain { Layout::Plain } else { Layout::Blocked(isa.lanes()) };
        let desc = Conv2dDesc { src_layout: layout, ..desc };
        if desc.validate(isa.lanes()).is_err() {
            return;
        }
        let layer = |caches, workers| {
            let conv = match tile {
                Some(tile) => Conv2d::winograd(desc, tile, isa, caches),
                None => Conv2d::for_caches(desc, isa, caches),
            };
            Layer::new(conv.expect("the shape is possible").for_workers(workers), mb, seed)
        };
        let (layer, small) = (layer(Caches::default(), 2), layer(SMALL_CACHES, 13));
        let random = &mut Random(seed);
        let what = |pass: &str| format!("{pass} of {desc:?} on {}", isa.name());
        check(&what("forward"), mb, random, |samples| layer.forward(samples));
        check_sums(&what("weights"), mb, random, |samples, alone| {
            layer.backward_weights(samples, alone)
        });
        // Blocks are cut for caches and workers, which other ranks may have more or less of.
        assert_eq!(difference(&layer.forward(0..mb), &small.forward(0..mb)), None);
        let weights = |layer: &Layer| layer.backward_weights(0..mb, None);
        assert_eq!(difference(&weights(&layer), &weights(&small)), None);
        if !is_plain {
            check(&what("backward data"), mb, random, |samples| layer.backward_data(samples));
            let data = |layer: &Layer| layer.backward_data(0..mb);
            assert_eq!(difference(&data(&layer), &data(&small)), None);
        }
    });
}

fn desc([ic, oc]: [usize; 2], [ih, iw]: [usize; 2], [kh, kw]: [usize; 2]) -> Conv2dDesc {
    Conv2dDesc {
        ic,
        oc,
        ih,
        iw,
        kh,
        kw,
        sh: 1,
        sw: 1,
        ph: 0,
        pw: 0,
        groups: 1,
        bias: true,
        src_layout: Layout::Blocked(8),
        src_activation: None,
        dst_activation: None,
    }
}

prop_compose! {
    fn any_desc()(
        // One group, several, or as many as channels.
        (groups, depthwise) in prop_oneof![
            4 => Just((1_usize, false)), 1 => (2..=4_usize).prop_map(|g| (g, false)),
            1 => (1..=40_usize).prop_map(|g| (g, true)),
        ],
        channels in [1..=40_usize, 1..=70_usize],
        input in [1..=15_usize, 1..=20_usize],
        kernel in [1..=5_usize, 1..=5_usize],
        stride in [1..=3_usize, 1..=3_usize],
        pad in [0..=3_usize, 0..=3_usize],
        is_plain in any::<bool>(),
        activation in prop_oneof![Just(None), Just(Some(ActivationKind::Relu))],
    ) -> Conv2dDesc {
        let channels = if depthwise { [1, 1] } else { channels.map(|c| c.div_ceil(groups)) };
        let [ic, oc] = channels.map(|c| c * groups);
        let [ih, iw] = input;
        // A kernel may exceed the map, but not the padded one.
        let [kh, kw] = [kernel[0].min(ih + 2 * pad[0]), kernel[1].min(iw + 2 * pad[1])];
        let [ph, pw] = [pad[0].min(kh - 1), pad[1].min(kw - 1)];
        let [kh, kw] = [kh.min(ih + 2 * ph), kw.min(iw + 2 * pw)];
        let is_plain = is_plain && groups == 1 && ic < 8;
        Conv2dDesc {
            ic, oc, ih, iw, kh, kw, sh: stride[0], sw: stride[1], ph, pw, groups, bias: true,
            src_layout: if is_plain { Layout::Plain } else { Layout::Blocked(8) },
            src_activation: activation.filter(|_| !is_plain),
            dst_activation: activation,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn samples_of_any_convolution(desc in any_desc(), mb in 2..=40_usize, seed in any::<u64>()) {
        check_layer(desc, mb, seed);
    }
}

#[test]
fn samples_of_a_first_layer() {
    let plain = desc([3, 64], [31, 31], [11, 11]);
    check_layer(
        Conv2dDesc { sh: 4, sw: 4, ph: 2, pw: 2, src_layout: Layout::Plain, ..plain },
        13,
        1,
    );
    let plain = desc([1, 20], [28, 28], [5, 5]);
    check_layer(Conv2dDesc { src_layout: Layout::Plain, ..plain }, 64, 2);
}

#[test]
fn samples_whose_weights_exceed_the_caches() {
    check_layer(Conv2dDesc { ph: 1, pw: 1, ..desc([300, 40], [6, 6], [3, 3]) }, 9, 3);
    check_layer(desc([520, 36], [5, 5], [1, 1]), 35, 4);
}

#[test]
fn samples_of_short_lines_without_padding() {
    check_layer(desc([20, 50], [12, 12], [5, 5]), 13, 7);
    check_layer(Conv2dDesc { ph: 2, ..desc([38, 17], [7, 12], [3, 5]) }, 6, 8);
}

#[test]
fn samples_of_lines_whose_tiles_leave_out_columns() {
    check_layer(Conv2dDesc { ph: 1, pw: 1, ..desc([70, 66], [5, 7], [3, 3]) }, 7, 9);
    check_layer(Conv2dDesc { ph: 1, pw: 2, ..desc([66, 70], [2, 27], [3, 5]) }, 5, 10);
    check_layer(desc([66, 64], [2, 28], [2, 5]), 3, 11);
}

#[test]
fn samples_of_minimal_filtering() {
    for (tile, seed) in [(WinogradTile::Two, 7), (WinogradTile::Four, 8)] {
        let relu = Some(ActivationKind::Relu);
        let desc = Conv2dDesc { ph: 1, pw: 1, ..desc([150, 40], [9, 14], [3, 3]) };
        let desc = Conv2dDesc { src_activation: relu, dst_activation: relu, ..desc };
        check_method(desc, Some(tile), 7, seed);
    }
}

#[test]
fn samples_of_long_lines() {
    check_layer(Conv2dDesc { ph: 1, pw: 1, ..desc([16, 32], [40, 60], [3, 3]) }, 3, 5);
    check_layer(Conv2dDesc { ph: 1, sw: 2, groups: 48, ..desc([48, 48], [20, 30], [3, 3]) }, 5, 6);
}
