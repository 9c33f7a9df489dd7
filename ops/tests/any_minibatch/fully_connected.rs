//! Fully connected layers, for few samples and for many.

use std::ops::Range;

use lockstep_ops::{
    ActivationKind, Isa, Linear, LinearBackwardData, LinearBackwardWeights, LinearDesc,
    LinearForward, Maps, Tiles,
};
use proptest::prelude::*;

use crate::{Random, Tensor, check, check_sums, on_every_isa, run};

/// A layer with its weights, and tensors of a minibatch.
struct Layer {
    linear: Linear,
    wei: Vec<f32>,
    bia: Vec<f32>,
    src: Tensor,
    diff_dst: Tensor,
}

impl Layer {
    fn new(desc: LinearDesc, isa: Isa, mb: usize, seed: u64) -> Layer {
        let random = &mut Random(seed);
        let linear = Linear::new(desc, isa).expect("the shape is possible");
        let mut wei = vec![0.0; linear.wei_len()];
        linear.pack_weights(&random.reals(desc.in_features * desc.out_features), &mut wei);
        let mut bia = vec![0.0; linear.bia_len()];
        linear.pack_bias(&random.reals(desc.out_features), &mut bia);
        let maps = |c| Maps { c, h: 1, w: 1 };
        let src = random.blocked(maps(desc.in_features), isa, mb);
        let diff_dst = random.blocked(maps(desc.out_features), isa, mb);
        Layer { linear, wei, bia, src, diff_dst }
    }

    fn forward(&self, samples: Range<usize>) -> Vec<f32> {
        let (linear, mb) = (&self.linear, samples.len());
        let mut scratch = vec![f32::NAN; linear.forward_scratch_len()];
        run(linear.forward_blocks(mb), mb * self.diff_dst.sample_len, |block, dst| {
            let (src, wei, bia) = (self.src.of(&samples), &self.wei, Some(&self.bia[..]));
            let scratch = &mut scratch;
            linear.forward(block, LinearForward { mb, src, wei, bia, dst, scratch });
        })
    }

    fn backward_data(&self, samples: Range<usize>) -> Vec<f32> {
        let (linear, mb) = (&self.linear, samples.len());
        let mut scratch = vec![f32::NAN; linear.backward_data_scratch_len()];
        run(linear.backward_data_blocks(mb), mb * self.src.sample_len, |block, diff_src| {
            let (diff_dst, wei, scratch) = (self.diff_dst.of(&samples), &self.wei, &mut scratch);
            let src = linear.desc().src_activation.map(|_| self.src.of(&samples));
            let io = LinearBackwardData { mb, diff_dst, wei, src, diff_src, scratch };
            linear.backward_data(block, io);
        })
    }

    /// The gradients of weights and bias, one after the other.
    fn backward_weights(&self, samples: Range<usize>, alone: Option<usize>) -> Vec<f32> {
        let (linear, mb) = (&self.linear, samples.len());
        let (src, diff_dst) = (&self.src, &self.diff_dst);
        let copies =
            alone.map(|skip| (skip, src.alone(&samples, skip), diff_dst.alone(&samples, skip)));
        let (src, diff_dst) = match &copies {
            Some((skip, src, diff_dst)) => (&src[*skip..], &diff_dst[*skip..]),
            None => (
                &src.values[samples.start * src.sample_len..],
                &diff_dst.values[samples.start * diff_dst.sample_len..],
            ),
        };
        let mut scratch = vec![f32::NAN; linear.backward_weights_scratch_len()];
        let mut diff_bia = vec![f32::NAN; linear.bia_len()];
        let blocks = linear.backward_weights_blocks(mb);
        let mut sums = run(blocks, linear.wei_len(), |block, diff_wei| {
            let (diff_wei, diff_bia) =
                (diff_wei.into(), Some(Tiles::from(&mut diff_bia[..]).into()));
            let scratch = &mut scratch;
            let io = LinearBackwardWeights { mb, src, diff_dst, diff_wei, diff_bia, scratch };
            linear.backward_weights(block, io);
        });
        sums.extend(diff_bia);
        sums
    }
}

fn check_layer(desc: LinearDesc, mb: usize, seed: u64) {
    on_every_isa(|isa| {
        let layer = Layer::new(desc, isa, mb, seed);
        let random = &mut Random(seed);
        let what = |pass: &str| format!("{pass} of {desc:?} on {}", isa.name());
        check(&what("forward"), mb, random, |samples| layer.forward(samples));
        check(&what("backward data"), mb, random, |samples| layer.backward_data(samples));
        check_sums(&what("weights"), mb, random, |samples, alone| {
            layer.backward_weights(samples, alone)
        });
    });
}

fn layer(in_features: usize, out_features: usize) -> LinearDesc {
    LinearDesc {
        in_features,
        out_features,
        bias: true,
        src_activation: Some(ActivationKind::Relu),
        dst_activation: Some(ActivationKind::Tanh),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn samples_of_any_layer(
        in_features in 1..400_usize,
        out_features in 1..400_usize,
        mb in 1..=300_usize,
        seed in any::<u64>(),
    ) {
        check_layer(layer(in_features, out_features), mb, seed);
    }
}

#[test]
fn samples_of_layers_with_several_blocks_and_panels() {
    check_layer(layer(800, 500), 70, 1);
    check_layer(layer(429, 1100), 5, 2);
    check_layer(layer(1100, 10), 300, 3);
}
