//! Gradients summed over slices in one pass have the bits of the slices' own gradients added in a balanced tree, and the slices
//! of half a minibatch are a branch of that tree: that is why any number of ranks can have the same sums.

use std::ops::Range;

use lockstep_ops::{
    BatchNorm, BatchNormDesc, Bias, BiasBackwardWeights, BiasDesc, Conv2d, Conv2dBackwardWeights,
    Conv2dDesc, Layout, Linear, LinearBackwardWeights, LinearDesc, Maps, SampleSlices, Tiles,
};
use proptest::prelude::*;

use crate::{Random, Tensor, difference, on_every_isa, run};

/// How the samples of a pass are summed: as one, or slice by slice.
enum Sum<'a> {
    Plain(Range<usize>),
    Sliced(usize, &'a SampleSlices),
}

impl Sum<'_> {
    /// The samples, and the first of them.
    fn samples(&self) -> (usize, usize) {
        match self {
            Sum::Plain(samples) => (samples.start, samples.len()),
            Sum::Sliced(first, slices) => (*first, slices.mb()),
        }
    }
}

fn tree(gradients: &[Vec<f32>]) -> Vec<f32> {
    let [one] = gradients else {
        let (left, right) = gradients.split_at(gradients.len() / 2);
        return tree(left).iter().zip(tree(right)).map(|(a, b)| a + b).collect();
    };
    one.clone()
}

/// Cuts `mb` samples into 8 slices at random, some of which may be empty.
fn random_ends(mb: usize, random: &mut Random) -> Vec<usize> {
    let mut ends: Vec<_> = (0..7).map(|_| random.below(mb + 1)).collect();
    ends.push(mb);
    ends.sort_unstable();
    ends
}

/// Compares the ways to compute a gradient over slices. `gradient` gives that of some samples.
#[track_caller]
fn check(what: &str, ends: &[usize], gradient: impl Fn(Sum<'_>) -> Vec<f32>) {
    let whole = SampleSlices::new(ends.iter().copied());
    let got = gradient(Sum::Sliced(0, &whole));
    assert!(got.iter().all(|x| !x.is_nan()), "{what}: everything is written");
    let alone: Vec<_> = whole_slices(&whole).map(|slice| gradient(Sum::Plain(slice))).collect();
    let at = difference(&got, &tree(&alone));
    assert!(at.is_none(), "{what}: element {at:?} is not the sum of the slices {ends:?}");
    for ranks in [2, 4, 8] {
        let mut first = 0;
        let parts: Vec<_> = ends
            .chunks(8 / ranks)
            .map(|ends| {
                let slices = SampleSlices::new(ends.iter().map(|end| end - first));
                let part = gradient(Sum::Sliced(first, &slices));
                first = ends[ends.len() - 1];
                part
            })
            .collect();
        let at = difference(&got, &tree(&parts));
        assert!(at.is_none(), "{what}: element {at:?} differs on {ranks} ranks, slices {ends:?}");
    }
}

fn whole_slices(slices: &SampleSlices) -> impl Iterator<Item = Range<usize>> {
    (0..slices.count()).map(|index| slices.slice(index))
}

fn check_linear(desc: LinearDesc, mb: usize, seed: u64) {
    on_every_isa(|isa| {
        let linear = Linear::new(desc, isa).expect("the shape is possible");
        let random = &mut Random(seed);
        let maps = |c| Maps { c, h: 1, w: 1 };
        let all_src = random.blocked(maps(desc.in_features), isa, mb);
        let all_diff = random.blocked(maps(desc.out_features), isa, mb);
        let ends = random_ends(mb, random);
        check(&format!("{desc:?} on {}", isa.name()), &ends, |sum| {
            let (first, mb) = sum.samples();
            let (src, diff_dst) = (all_src.from(first), all_diff.from(first));
            let plain = linear.backward_weights_scratch_len();
            let sliced = linear.sliced_backward_weights_scratch_len(mb);
            let mut scratch = vec![f32::NAN; plain.max(sliced)];
            let mut bias = vec![f32::NAN; linear.bia_len()];
            let blocks = linear.backward_weights_blocks(mb);
            let mut sums = run(blocks, linear.wei_len(), |block, diff_wei| {
                let diff_bia = desc.bias.then(|| Tiles::from(&mut bias[..]).into());
                let diff_wei = diff_wei.into();
                let scratch = &mut scratch;
                let io = LinearBackwardWeights { mb, src, diff_dst, diff_wei, diff_bia, scratch };
                match &sum {
                    Sum::Plain(_) => linear.backward_weights(block, io),
                    Sum::Sliced(_, slices) => linear.sliced_backward_weights(block, slices, io),
                }
            });
            sums.extend(bias);
            sums
        });
    });
}

fn check_convolution(desc: Conv2dDesc, mb: usize, seed: u64) {
    on_every_isa(|isa| {
        let plain = desc.ic < 4 && desc.groups == 1;
        let src_layout = if plain { Layout::Plain } else { Layout::Blocked(isa.lanes()) };
        let desc = Conv2dDesc { src_layout, ..desc };
        let conv = Conv2d::new(desc, isa).expect("the shape is possible");
        let random = &mut Random(seed);
        let all_src = random.tensor(conv.src_layout(), mb);
        let all_diff = random.tensor(conv.dst_layout(), mb);
        let ends = random_ends(mb, random);
        check(&format!("{desc:?} on {}", isa.name()), &ends, |sum| {
            let (first, mb) = sum.samples();
            let (src, diff_dst) = (all_src.from(first), all_diff.from(first));
            let mut scratch = vec![f32::NAN; conv.sliced_backward_weights_scratch_len(8)];
            let mut bias = vec![f32::NAN; conv.bia_len()];
            let blocks = conv.backward_weights_blocks(mb);
            let mut sums = run(blocks, conv.wei_len(), |block, diff_wei| {
                let diff_bia = desc.bias.then(|| Tiles::from(&mut bias[..]).into());
                let diff_wei = diff_wei.into();
                let scratch = &mut scratch;
                let io = Conv2dBackwardWeights { mb, src, diff_dst, diff_wei, diff_bia, scratch };
                match &sum {
                    Sum::Plain(_) => conv.backward_weights(block, io),
                    Sum::Sliced(_, slices) => conv.sliced_backward_weights(block, slices, io),
                }
            });
            if desc.bias {
                sums.extend(bias);
            }
            sums
        });
    });
}

fn convolution([ic, oc]: [usize; 2], size: usize, kernel: usize, groups: usize) -> Conv2dDesc {
    Conv2dDesc {
        ic,
        oc,
        ih: size,
        iw: size + 1,
        kh: kernel,
        kw: kernel,
        sh: 1,
        sw: 1,
        ph: kernel / 2,
        pw: kernel / 2,
        groups,
        bias: true,
        src_layout: Layout::Plain,
        src_activation: None,
        dst_activation: None,
    }
}

const fn linear(in_features: usize, out_features: usize, bias: bool) -> LinearDesc {
    LinearDesc { in_features, out_features, bias, src_activation: None, dst_activation: None }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn slices_of_any_linear_layer(
        in_features in 1..300_usize,
        out_features in 1..300_usize,
        mb in 0..90_usize,
        bias in any::<bool>(),
        seed in any::<u64>(),
    ) {
        check_linear(linear(in_features, out_features, bias), mb, seed);
    }

    #[test]
    fn slices_of_any_convolution(
        channels in [1..40_usize, 1..40_usize],
        size in 3..12_usize,
        kernel in 1..4_usize,
        stride in 1..3_usize,
        mb in 0..20_usize,
        seed in any::<u64>(),
    ) {
        let desc = convolution(channels, size, kernel, 1);
        check_convolution(Conv2dDesc { sh: stride, sw: stride, ..desc }, mb, seed);
    }
}

#[test]
fn slices_of_linear_layers_with_several_blocks_and_of_many_samples() {
    check_linear(linear(800, 500, true), 64, 1);
    check_linear(linear(1100, 70, true), 300, 2);
    // So many samples that a strip of a few inputs is longer than all strips of a panel are.
    check_linear(linear(40, 50, true), 13_000, 3);
}

#[test]
fn slices_of_convolutions_with_groups() {
    check_convolution(convolution([24, 24], 7, 3, 24), 9, 1);
    check_convolution(convolution([12, 18], 5, 3, 3), 11, 2);
    check_convolution(convolution([32, 64], 6, 3, 2), 13, 3);
}

#[test]
fn slices_of_a_bias() {
    let maps = Maps { c: 21, h: 5, w: 4 };
    on_every_isa(|isa| {
        let bias = Bias::new(BiasDesc { maps, dst_activation: None }, isa).unwrap();
        let random = &mut Random(1);
        let all_diff = random.blocked(maps, isa, 13);
        check("bias", &random_ends(13, random), |sum| {
            let (first, mb) = sum.samples();
            let diff_dst = all_diff.from(first);
            run(bias.backward_weights_blocks(mb), bias.bia_len(), |block, diff_bia| {
                let io = BiasBackwardWeights { mb, diff_dst, diff_bia };
                match &sum {
                    Sum::Plain(_) => bias.backward_weights(block, io),
                    Sum::Sliced(_, slices) => bias.sliced_backward_weights(block, slices, io),
                }
            })
        });
    });
}

#[test]
fn slices_of_a_normalization() {
    let maps = Maps { c: 21, h: 1, w: 1 };
    on_every_isa(|isa| {
        let norm = BatchNorm::new(
            BatchNormDesc {
                maps,
                eps: 1e-5,
                momentum: 0.1,
                src_activation: None,
                dst_activation: None,
            },
            isa,
        )
        .unwrap();
        let rows = Random(3).reals(8 * norm.stats_len());
        let gradients = |slices: Range<usize>| {
            let sums = &rows[slices.start * norm.stats_len()..slices.end * norm.stats_len()];
            let (mut wei, mut bia) = (vec![0.0; norm.channels()], vec![0.0; norm.channels()]);
            norm.sliced_parameter_gradients(
                sums,
                Tiles::from(&mut wei[..]),
                Tiles::from(&mut bia[..]),
            );
            wei.extend(bia);
            wei
        };
        let whole = gradients(0..8);
        for ranks in [2, 4, 8] {
            let slices = 8 / ranks;
            let parts: Vec<_> =
                (0..ranks).map(|rank| gradients(rank * slices..(rank + 1) * slices)).collect();
            assert_eq!(difference(&whole, &tree(&parts)), None, "{ranks} ranks");
        }
    });
}

impl Tensor {
    /// What lies from a sample on.
    fn from(&self, first: usize) -> &[f32] {
        &self.values[first * self.sample_len..]
    }
}
