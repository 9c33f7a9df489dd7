//! Tests of the three passes of a fully connected layer.

use proptest::prelude::*;

use super::*;
use crate::trial::{
    Random, Watched, assert_close, bits, block, dot, on_every_isa, run_blocks, unblock,
};
use crate::{
    Activation, ActivationBackward, ActivationDesc, ActivationForward, ActivationKind, Isa, Maps,
    Tiles,
};

fn maps(features: usize) -> Maps {
    Maps { c: features, h: 1, w: 1 }
}

/// A layer with plain tensors.
#[derive(Debug, Clone)]
struct Problem {
    desc: LinearDesc,
    src: Vec<f32>,
    wei: Vec<f32>,
    bia: Option<Vec<f32>>,
    diff_dst: Vec<f32>,
    workers: usize,
}

impl Problem {
    fn new(desc: LinearDesc, mb: usize, mut draw: impl FnMut(usize) -> Vec<f32>) -> Problem {
        let LinearDesc { in_features, out_features, bias, .. } = desc;
        Problem {
            desc,
            src: draw(mb * in_features),
            wei: draw(in_features * out_features),
            bia: bias.then(|| draw(out_features)),
            diff_dst: draw(mb * out_features),
            workers: 4,
        }
    }

    /// Values whose sums of products are exact in any order.
    fn of_integers(desc: LinearDesc, mb: usize, seed: u64) -> Problem {
        let mut random = Random(seed);
        Problem::new(desc, mb, |len| random.integers(len, 4))
    }

    fn of_reals(desc: LinearDesc, mb: usize, seed: u64) -> Problem {
        let mut random = Random(seed);
        Problem::new(desc, mb, |len| random.reals(len))
    }

    fn mb(&self) -> usize {
        self.src.len() / self.desc.in_features
    }

    fn plan(&self, isa: Isa) -> Linear {
        Linear::new(self.desc, isa).unwrap().for_workers(self.workers)
    }

    fn packed_weights(&self, isa: Isa) -> Vec<f32> {
        let plan = self.plan(isa);
        let mut packed = vec![f32::NAN; plan.wei_len()];
        plan.pack_weights(&self.wei, &mut packed);
        packed
    }

    fn packed_bias(&self, isa: Isa) -> Option<Vec<f32>> {
        let plan = self.plan(isa);
        self.bia.as_ref().map(|bia| {
            let mut packed = vec![f32::NAN; plan.bia_len()];
            plan.pack_bias(bia, &mut packed);
            packed
        })
    }

    fn forward(&self, isa: Isa) -> Vec<f32> {
        let (plan, mb) = (self.plan(isa), self.mb());
        let src = block(&self.src, maps(self.desc.in_features), isa);
        let (wei, bia) = (self.packed_weights(isa), self.packed_bias(isa));
        let mut scratch = vec![f32::NAN; plan.forward_scratch_len()];
        let dst = run_blocks(plan.forward_blocks(mb), mb * plan.oc.padded(), |block, dst| {
            let (bia, scratch) = (bia.as_deref(), &mut scratch[..]);
            plan.forward(block, LinearForward { mb, src: &src, wei: &wei, bia, dst, scratch });
        });
        unblock(&dst, maps(self.desc.out_features), isa)
    }

    fn backward_data(&self, isa: Isa) -> Vec<f32> {
        let (plan, mb) = (self.plan(isa), self.mb());
        let src = block(&self.src, maps(self.desc.in_features), isa);
        let diff_dst = block(&self.diff_dst, maps(self.desc.out_features), isa);
        let wei = self.packed_weights(isa);
        let mut scratch = vec![f32::NAN; plan.backward_data_scratch_len()];
        let blocks = plan.backward_data_blocks(mb);
        let diff_src = run_blocks(blocks, mb * plan.ic.padded(), |block, diff_src| {
            let (diff_dst, wei, scratch) = (&diff_dst, &wei, &mut scratch);
            let src = self.desc.src_activation.and(Some(&src[..]));
            let io = LinearBackwardData { mb, diff_dst, wei, src, diff_src, scratch };
            plan.backward_data(block, io);
        });
        unblock(&diff_src, maps(self.desc.in_features), isa)
    }

    fn backward_weights(&self, isa: Isa) -> (Vec<f32>, Vec<f32>) {
        let (plan, mb) = (self.plan(isa), self.mb());
        let src = block(&self.src, maps(self.desc.in_features), isa);
        let diff_dst = block(&self.diff_dst, maps(self.desc.out_features), isa);
        let mut weights = Watched::new(plan.wei_len());
        let mut bias = Watched::new(plan.bia_len());
        let mut scratch = vec![f32::NAN; plan.backward_weights_scratch_len()];
        for block in 0..plan.backward_weights_blocks(mb) {
            let scratch = &mut scratch[..];
            let diff_bia = self.desc.bias.then(|| bias.block().into());
            let (src, diff_dst, diff_wei) = (&src, &diff_dst, weights.block().into());
            let io = LinearBackwardWeights { mb, src, diff_dst, diff_wei, diff_bia, scratch };
            plan.backward_weights(block, io);
        }
        let (weights, bias) = (weights.finish(), bias.finish());
        let mut diff_wei = vec![f32::NAN; self.wei.len()];
        let mut diff_bia = vec![f32::NAN; self.bia.as_ref().map_or(0, Vec::len)];
        plan.unpack_weights(&weights, &mut diff_wei);
        plan.unpack_bias(&bias, &mut diff_bia);

        let mut again = vec![f32::NAN; plan.wei_len()];
        plan.pack_weights(&diff_wei, &mut again);
        assert_eq!(bits(&weights), bits(&again), "padding of weights is zero");
        assert_eq!(bias.iter().skip(diff_bia.len()).find(|&&x| x != 0.0), None);
        (diff_wei, diff_bia)
    }
}

fn any_problem() -> impl Strategy<Value = Problem> {
    // Borders of vectors, of groups of 32, and of panels of 128 and 256.
    let features = || prop_oneof![1..70_usize, 120..136_usize, 250..262_usize];
    (features(), features(), 0..20_usize, any::<bool>(), any::<u64>()).prop_map(
        |(in_features, out_features, mb, bias, seed)| {
            Problem::of_integers(layer(in_features, out_features, bias), mb, seed)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn all_passes_equal_the_reference(problem in any_problem()) {
        let Problem { desc, src, wei, bia, diff_dst, .. } = &problem;
        let dst = reference::forward(desc, src, wei, bia.as_deref());
        let diff_src = reference::backward_data(desc, diff_dst, wei);
        let (diff_wei, diff_bia) = reference::backward_weights(desc, src, diff_dst);
        on_every_isa(|isa| {
            assert_eq!(problem.forward(isa), dst, "forward on {}", isa.name());
            assert_eq!(problem.backward_data(isa), diff_src, "backward data on {}", isa.name());
            let (got_wei, got_bia) = problem.backward_weights(isa);
            assert_eq!(got_wei, diff_wei, "diff_wei on {}", isa.name());
            assert_eq!(got_bia, if desc.bias { diff_bia.clone() } else { vec![] });
        });
    }
}

/// Every register tile has odd rows, odd vectors and odd depths here.
#[test]
fn sizes_around_the_tiles_one_by_one_equal_the_reference() {
    for size in 13..=35 {
        for (in_features, out_features, mb) in
            [(size, 40, 9), (33, size, 17), (50, 23, size), (size, 257 + size, 2 * size)]
        {
            let desc = layer(in_features, out_features, true);
            let problem = Problem::of_integers(desc, mb, size as u64);
            let Problem { src, wei, bia, diff_dst, .. } = &problem;
            let dst = reference::forward(&desc, src, wei, bia.as_deref());
            let diff_src = reference::backward_data(&desc, diff_dst, wei);
            let gradients = reference::backward_weights(&desc, src, diff_dst);
            on_every_isa(|isa| {
                let at = format!("{in_features} to {out_features}, {mb} samples, {}", isa.name());
                assert_eq!(problem.forward(isa), dst, "forward, {at}");
                assert_eq!(problem.backward_data(isa), diff_src, "backward data, {at}");
                assert_eq!(problem.backward_weights(isa), gradients, "backward weights, {at}");
            });
        }
    }
}

/// More than one block, panel and chunk of everything.
#[test]
fn large_sizes_equal_the_reference() {
    for (in_features, out_features, mb) in [(1000, 10, 300), (429, 1031, 70), (1100, 1300, 7)] {
        let desc = layer(in_features, out_features, true);
        let problem = Problem::of_integers(desc, mb, 1);
        let Problem { src, wei, bia, diff_dst, .. } = &problem;
        let dst = reference::forward(&desc, src, wei, bia.as_deref());
        let diff_src = reference::backward_data(&desc, diff_dst, wei);
        let gradients = reference::backward_weights(&desc, src, diff_dst);
        on_every_isa(|isa| {
            assert_eq!(problem.forward(isa), dst, "forward on {}", isa.name());
            assert_eq!(problem.backward_data(isa), diff_src, "backward data on {}", isa.name());
            assert_eq!(problem.backward_weights(isa), gradients, "weights on {}", isa.name());
        });
    }
}

const fn layer(in_features: usize, out_features: usize, bias: bool) -> LinearDesc {
    LinearDesc { in_features, out_features, bias, src_activation: None, dst_activation: None }
}

const LENET: LinearDesc = layer(800, 500, true);
const SPEECH: LinearDesc = layer(429, 65, true);

/// The largest error of a sum of `terms` products of numbers up to 1, and a bias, in any order.
fn rounding(terms: usize) -> f32 {
    let sum = terms as f32 + 1.0;
    sum * f32::EPSILON * sum
}

#[test]
fn sums_of_real_numbers_are_off_by_rounding_alone() {
    let aliased = layer(256, 512, true);
    for (desc, mb) in [(LENET, 64), (SPEECH, 300), (aliased, 150)] {
        let problem = Problem::of_reals(desc, mb, 1);
        let Problem { src, wei, bia, diff_dst, .. } = &problem;
        let dst = reference::forward(&desc, src, wei, bia.as_deref());
        let diff_src = reference::backward_data(&desc, diff_dst, wei);
        let (diff_wei, diff_bia) = reference::backward_weights(&desc, src, diff_dst);
        on_every_isa(|isa| {
            assert_close(&problem.forward(isa), &dst, rounding(desc.in_features));
            assert_close(&problem.backward_data(isa), &diff_src, rounding(desc.out_features));
            let (got_wei, got_bia) = problem.backward_weights(isa);
            assert_close(&got_wei, &diff_wei, rounding(mb));
            assert_close(&got_bia, &diff_bia, rounding(mb));
        });
    }
}

#[test]
fn both_gradients_are_adjoint_to_the_forward_pass() {
    let desc = LinearDesc { bias: false, ..SPEECH };
    let problem = Problem::of_integers(desc, 7, 3);
    on_every_isa(|isa| {
        let product = dot(&problem.forward(isa), &problem.diff_dst);
        assert_eq!(dot(&problem.src, &problem.backward_data(isa)), product);
        assert_eq!(dot(&problem.wei, &problem.backward_weights(isa).0), product);
    });
}

#[test]
fn a_sample_has_the_same_bits_in_any_company() {
    let problem = Problem::of_reals(SPEECH, 131, 5);
    on_every_isa(|isa| {
        let (dst, diff_src) = (problem.forward(isa), problem.backward_data(isa));
        for sample in [0, 5, 128, 130] {
            let mut alone = problem.clone();
            alone.src = problem.src[sample * SPEECH.in_features..][..SPEECH.in_features].to_vec();
            alone.diff_dst =
                problem.diff_dst[sample * SPEECH.out_features..][..SPEECH.out_features].to_vec();
            let want = &dst[sample * SPEECH.out_features..][..SPEECH.out_features];
            assert_eq!(bits(&alone.forward(isa)), bits(want));
            let want = &diff_src[sample * SPEECH.in_features..][..SPEECH.in_features];
            assert_eq!(bits(&alone.backward_data(isa)), bits(want));
        }
    });
}

#[test]
fn without_samples_the_gradients_of_weights_are_zero() {
    let problem = Problem::of_integers(SPEECH, 0, 1);
    on_every_isa(|isa| {
        assert_eq!(problem.plan(isa).forward_blocks(0), 0);
        assert_eq!(problem.plan(isa).backward_data_blocks(0), 0);
        let (diff_wei, diff_bia) = problem.backward_weights(isa);
        assert_eq!(diff_wei, vec![0.0; 429 * 65]);
        assert_eq!(diff_bia, vec![0.0; 65]);
    });
}

#[test]
fn nan_and_infinity_reach_what_depends_on_them_and_no_padding() {
    // `unblock` and `backward_weights` above check the padding.
    let mut problem = Problem::of_integers(SPEECH, 3, 1);
    problem.src[SPEECH.in_features + 2] = f32::INFINITY;
    problem.src[3] = f32::NAN;
    problem.diff_dst[2 * SPEECH.out_features + 1] = f32::NAN;
    problem.diff_dst[0] = f32::INFINITY;
    on_every_isa(|isa| {
        let dst = problem.forward(isa);
        let (oc, ic) = (SPEECH.out_features, SPEECH.in_features);
        assert!(dst[..oc].iter().all(|x| x.is_nan()));
        assert!(dst[oc..2 * oc].iter().all(|x| !x.is_finite()));
        assert!(dst[2 * oc..].iter().all(|x| x.is_finite()));
        let diff_src = problem.backward_data(isa);
        assert!(diff_src[..ic].iter().all(|x| !x.is_finite()));
        assert!(diff_src[ic..2 * ic].iter().all(|x| x.is_finite()));
        assert!(diff_src[2 * ic..].iter().all(|x| x.is_nan()));
        let (diff_wei, diff_bia) = problem.backward_weights(isa);
        assert!(diff_wei[ic..2 * ic].iter().all(|x| x.is_nan()));
        assert!(diff_bia[0].is_infinite() && diff_bia[1].is_nan() && diff_bia[2].is_finite());
    });
}

#[test]
fn a_layer_of_lenet_keeps_several_workers_busy() {
    on_every_isa(|isa| {
        let plan = Linear::new(LENET, isa).unwrap();
        for blocks in [
            plan.forward_blocks(64),
            plan.backward_data_blocks(64),
            plan.backward_weights_blocks(64),
        ] {
            assert!((8..100).contains(&blocks), "{blocks} blocks on {}", isa.name());
        }
    });
}

#[test]
fn blocks_for_any_number_of_workers_have_the_same_bits() {
    let desc = LinearDesc { in_features: 700, out_features: 1100, ..SPEECH };
    let problem = Problem::of_reals(desc, 40, 12);
    on_every_isa(|isa| {
        let passes = |workers| {
            let problem = Problem { workers, ..problem.clone() };
            let (diff_wei, diff_bia) = problem.backward_weights(isa);
            let plan = problem.plan(isa);
            let results = [problem.forward(isa), problem.backward_data(isa), diff_wei, diff_bia]
                .map(|x| bits(&x));
            (plan.forward_blocks(40), results)
        };
        let (few, want) = passes(1);
        for workers in [2, 3, 16] {
            let (blocks, found) = passes(workers);
            assert!(blocks >= few, "{blocks} blocks for {workers} workers, {few} for one");
            assert_eq!(found, want, "{workers} workers on {}", isa.name());
        }
    });
}

#[test]
fn a_fused_activation_has_the_bits_of_a_layer_of_its_own() {
    for kind in [ActivationKind::Relu, ActivationKind::Sigmoid, ActivationKind::Tanh] {
        let plain = Problem::of_reals(SPEECH, 9, 11);
        let mut fused = plain.clone();
        fused.desc.src_activation = Some(kind);
        fused.desc.dst_activation = Some(kind);
        on_every_isa(|isa| {
            let activation = |features| {
                let desc = ActivationDesc { kind, maps: maps(features) };
                Activation::new(desc, isa).unwrap()
            };
            let mb = plain.mb();
            let mut dst = block(&plain.forward(isa), maps(SPEECH.out_features), isa);
            let plan = activation(SPEECH.out_features);
            for block in 0..plan.forward_blocks(mb) {
                let dst = Tiles::from(&mut dst[..]);
                plan.forward(block, ActivationForward { mb, src: None, dst });
            }
            // `unblock` in `forward` checks that padding is zero, which sigmoid(0) is not.
            let want = unblock(&dst, maps(SPEECH.out_features), isa);
            assert_eq!(bits(&fused.forward(isa)), bits(&want), "{kind:?} on {}", isa.name());

            let src = block(&plain.src, maps(SPEECH.in_features), isa);
            let mut diff = block(&plain.backward_data(isa), maps(SPEECH.in_features), isa);
            let plan = activation(SPEECH.in_features);
            for block in 0..plan.backward_blocks(mb) {
                let diff_src = Tiles::from(&mut diff[..]);
                plan.backward(
                    block,
                    ActivationBackward { mb, dst: &src, diff_dst: None, diff_src },
                );
            }
            let want = unblock(&diff, maps(SPEECH.in_features), isa);
            assert_eq!(bits(&fused.backward_data(isa)), bits(&want), "{kind:?} on {}", isa.name());
        });
    }
}

#[test]
#[should_panic(expected = "linear backward data: src given and activation planned differ")]
fn an_activation_gradient_without_the_activations_value_is_refused() {
    let desc = LinearDesc { src_activation: Some(ActivationKind::Relu), ..LENET };
    let plan = Linear::new(desc, Isa::detect()).unwrap();
    let wei = vec![0.0; plan.wei_len()];
    let mut scratch = vec![0.0; plan.backward_data_scratch_len()];
    let (diff_dst, mut diff_src) = (vec![0.0; plan.oc.padded()], vec![0.0; plan.ic.padded()]);
    let diff_src = Tiles::from(&mut diff_src[..]);
    let io = LinearBackwardData {
        mb: 1,
        diff_dst: &diff_dst,
        wei: &wei,
        src: None,
        diff_src,
        scratch: &mut scratch,
    };
    plan.backward_data(0, io);
}

#[test]
fn a_layer_without_features_is_refused() {
    let desc = LinearDesc { in_features: 0, ..LENET };
    let error = Linear::new(desc, Isa::detect()).unwrap_err();
    assert_eq!(error.to_string(), "linear: in_features is 0, at least 1 is needed");
}
