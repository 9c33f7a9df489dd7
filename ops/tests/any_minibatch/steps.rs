//! Weights that make their step along with their gradient have the bits of an update after it.

use lockstep_ops::sgd::{GradientSink, SgdHyper, SgdStep, update};
use lockstep_ops::{
    Conv2d, Conv2dBackwardWeights, Conv2dDesc, Isa, Layout, Linear, LinearBackwardWeights,
    LinearDesc, Maps, SampleSlices, Tiles,
};

use crate::{Random, difference, on_every_isa};

/// Without momentum, with it, and looking ahead; with and without decay.
const HYPERS: [SgdHyper; 3] = [
    SgdHyper { lr: 0.1, momentum: 0.0, weight_decay: 0.01, nesterov: false },
    SgdHyper { lr: 0.1, momentum: 0.9, weight_decay: 0.0, nesterov: false },
    SgdHyper { lr: 0.1, momentum: 0.9, weight_decay: 0.01, nesterov: true },
];

/// Weights and velocity, then biases and velocity.
type State = [Vec<f32>; 4];

fn sink<'a>(hyper: SgdHyper, wei: &'a mut [f32], velocity: &'a mut [f32]) -> GradientSink<'a> {
    let velocity = (hyper.momentum != 0.0).then(|| Tiles::from(velocity));
    GradientSink::Step(SgdStep { hyper, wei: Tiles::from(wei), velocity })
}

/// Compares steps with updates, for all samples in one slice and in several. `pass` computes a block of the gradients of weights
/// and bias.
#[track_caller]
fn check(
    what: &str,
    isa: Isa,
    [mb, blocks]: [usize; 2],
    start: &State,
    pass: impl Fn(&SampleSlices, usize, [GradientSink<'_>; 2]),
) {
    for hyper in HYPERS {
        for slices in [SampleSlices::whole(mb), SampleSlices::new([0, mb / 2, mb / 2, mb])] {
            let mut want = start.clone();
            let (mut wei, mut bia) = (vec![0.0; start[0].len()], vec![0.0; start[2].len()]);
            for block in 0..blocks {
                let stored = [Tiles::from(&mut wei[..]).into(), Tiles::from(&mut bia[..]).into()];
                pass(&slices, block, stored);
            }
            let [w, v, b, vb] = &mut want;
            update(isa, hyper, w, &wei, Some(v));
            update(isa, hyper, b, &bia, Some(vb));
            let mut got = start.clone();
            let [w, v, b, vb] = &mut got;
            for block in 0..blocks {
                pass(&slices, block, [sink(hyper, w, v), sink(hyper, b, vb)]);
            }
            for (got, want) in got.iter().zip(&want) {
                let at = difference(got, want);
                assert!(at.is_none(), "{what}: element {at:?} on {}, {hyper:?}", isa.name());
            }
            assert!(difference(&got[0], &start[0]).is_some(), "{what}: nothing happened");
        }
    }
}

fn check_linear(desc: LinearDesc, mb: usize) {
    on_every_isa(|isa| {
        let linear = Linear::new(desc, isa).expect("the shape is possible");
        let random = &mut Random(1);
        let maps = |c| Maps { c, h: 1, w: 1 };
        let src = random.blocked(maps(desc.in_features), isa, mb).values;
        let diff_dst = random.blocked(maps(desc.out_features), isa, mb).values;
        let mut packed = || {
            let mut wei = vec![0.0; linear.wei_len()];
            linear.pack_weights(&random.reals(desc.in_features * desc.out_features), &mut wei);
            let mut bia = vec![0.0; linear.bia_len()];
            linear.pack_bias(&random.reals(desc.out_features), &mut bia);
            (wei, bia)
        };
        let ((wei, bia), (velocity, bia_velocity)) = (packed(), packed());
        let start = [wei, velocity, bia, bia_velocity];
        let (what, blocks) =
            (format!("{desc:?}, {mb} samples"), linear.backward_weights_blocks(mb));
        check(&what, isa, [mb, blocks], &start, |slices, block, [diff_wei, diff_bia]| {
            let mut scratch = vec![f32::NAN; linear.sliced_backward_weights_scratch_len(mb)];
            let (diff_bia, scratch) = (Some(diff_bia), &mut scratch[..]);
            let (src, diff_dst) = (&src[..], &diff_dst[..]);
            let io = LinearBackwardWeights { mb, src, diff_dst, diff_wei, diff_bia, scratch };
            linear.sliced_backward_weights(block, slices, io);
        });
    });
}

fn check_convolution([ic, oc]: [usize; 2], groups: usize) {
    on_every_isa(|isa| {
        let mb = 5;
        let desc = Conv2dDesc {
            ic,
            oc,
            ih: 6,
            iw: 7,
            kh: 3,
            kw: 3,
            sh: 1,
            sw: 1,
            ph: 1,
            pw: 1,
            groups,
            bias: true,
            src_layout: Layout::Blocked(isa.lanes()),
            src_activation: None,
            dst_activation: None,
        };
        let conv = Conv2d::new(desc, isa).expect("the shape is possible");
        let random = &mut Random(2);
        let src = random.tensor(conv.src_layout(), mb).values;
        let diff_dst = random.tensor(conv.dst_layout(), mb).values;
        let mut packed = || {
            let mut wei = vec![0.0; conv.wei_len()];
            conv.pack_weights(&random.reals(desc.plain_wei_len()), &mut wei);
            let mut bia = vec![0.0; conv.bia_len()];
            conv.pack_bias(&random.reals(oc), &mut bia);
            (wei, bia)
        };
        let ((wei, bia), (velocity, bia_velocity)) = (packed(), packed());
        let start = [wei, velocity, bia, bia_velocity];
        let (what, blocks) = (format!("{desc:?}"), conv.backward_weights_blocks(mb));
        check(&what, isa, [mb, blocks], &start, |slices, block, [diff_wei, diff_bia]| {
            let len = conv.sliced_backward_weights_scratch_len(slices.count());
            let mut scratch = vec![f32::NAN; len];
            let (diff_bia, scratch) = (Some(diff_bia), &mut scratch[..]);
            let (src, diff_dst) = (&src[..], &diff_dst[..]);
            let io = Conv2dBackwardWeights { mb, src, diff_dst, diff_wei, diff_bia, scratch };
            conv.sliced_backward_weights(block, slices, io);
        });
    });
}

#[test]
fn steps_of_linear_layers() {
    let layer = |in_features, out_features| LinearDesc {
        in_features,
        out_features,
        bias: true,
        src_activation: None,
        dst_activation: None,
    };
    for (in_features, out_features, mb) in [(37, 19, 5), (800, 500, 20), (70, 45, 300), (13, 33, 1)]
    {
        check_linear(layer(in_features, out_features), mb);
    }
}

#[test]
fn steps_of_convolutions() {
    check_convolution([20, 35], 1);
    check_convolution([32, 64], 2);
    check_convolution([12, 18], 3);
    check_convolution([21, 21], 21);
}
