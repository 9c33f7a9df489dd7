//! GFLOP/s of the three passes of convolutions on one core, and the fraction of its FMA peak measured in the same run.
//!
//! `cargo bench -p lockstep-ops --bench conv2d [-- NAME]`

use std::time::{Duration, Instant};

use lockstep_ops::{
    Conv2d, Conv2dBackwardData, Conv2dBackwardWeights, Conv2dDesc, Conv2dForward, Isa, Layout,
    Tiles, flush_denormals, peak,
};

/// Name, minibatch, ic, oc, height and width, kernel, stride, padding.
type Case = (&'static str, usize, usize, usize, usize, usize, usize, usize);

const CASES: &[Case] = &[
    ("lenet.conv1", 64, 1, 20, 28, 5, 1, 0),
    ("lenet.conv2", 64, 20, 50, 12, 5, 1, 0),
    ("vgg.conv1", 2, 3, 64, 224, 3, 1, 1),
    ("vgg.conv2", 2, 64, 64, 112, 3, 1, 1),
    ("vgg.conv3", 2, 256, 256, 56, 3, 1, 1),
    ("vgg.conv4", 2, 512, 512, 28, 3, 1, 1),
    ("vgg.conv5", 4, 512, 512, 14, 3, 1, 1),
    ("alexnet.conv1", 4, 3, 96, 227, 11, 4, 0),
    ("resnet.conv1", 4, 3, 64, 224, 7, 2, 3),
    ("resnet.stride", 4, 128, 128, 56, 3, 2, 1),
    ("resnet.reduce", 4, 256, 64, 56, 1, 1, 0),
    ("resnet.last", 8, 512, 512, 7, 3, 1, 1),
    ("resnet.short", 4, 256, 512, 56, 1, 2, 0),
    ("cifar.32", 16, 32, 32, 32, 5, 1, 2),
];

fn desc(&(_, _, ic, oc, size, kernel, stride, pad): &Case, isa: Isa) -> Conv2dDesc {
    let lanes = isa.lanes();
    Conv2dDesc {
        ic,
        oc,
        ih: size,
        iw: size,
        kh: kernel,
        kw: kernel,
        sh: stride,
        sw: stride,
        ph: pad,
        pw: pad,
        groups: 1,
        bias: true,
        src_layout: if ic < lanes { Layout::Plain } else { Layout::Blocked(lanes) },
        src_activation: None,
        dst_activation: None,
    }
}

/// Seconds of all blocks: the sum of each block's shortest of several runs, so that other programs disturb little.
fn shortest(blocks: usize, mut act: impl FnMut(usize)) -> f64 {
    let began = Instant::now();
    let mut best = vec![f64::INFINITY; blocks];
    let mut runs = 0;
    while runs < 3 || began.elapsed() < Duration::from_millis(300) {
        for (block, best) in best.iter_mut().enumerate() {
            let start = Instant::now();
            act(block);
            *best = best.min(start.elapsed().as_secs_f64());
        }
        runs += 1;
    }
    best.iter().sum()
}

fn values(len: usize) -> Vec<f32> {
    (0..len).map(|i| (i * 7 % 23) as f32 * 0.01 - 0.1).collect()
}

/// Seconds of forward, backward data, backward weights, and of turning the weights around.
fn measure(conv: &Conv2d, mb: usize) -> [f64; 4] {
    let (src_len, dst_len) = (conv.src_layout().len(mb), conv.dst_layout().len(mb));
    let (src, diff_dst) = (values(src_len), values(dst_len));
    let (mut wei, mut bia) = (vec![0.0; conv.wei_len()], vec![0.0; conv.bia_len()]);
    conv.pack_weights(&values(conv.desc().plain_wei_len()), &mut wei);
    conv.pack_bias(&values(conv.desc().oc), &mut bia);
    let mut out = vec![0.0; src_len.max(dst_len)];
    let scratch_len = [
        conv.forward_scratch_len(),
        conv.backward_data_scratch_len(),
        conv.backward_weights_scratch_len(),
    ];
    let mut scratch = vec![0.0; scratch_len.into_iter().max().unwrap_or(0)];
    let forward = shortest(conv.forward_blocks(mb), |block| {
        let (src, wei, bia) = (&src, &wei, Some(&bia[..]));
        let dst = Tiles::from(&mut out[..]);
        let scratch = &mut scratch;
        conv.forward(block, Conv2dForward { mb, src, wei, bia, dst, scratch });
    });
    let mut turned = vec![0.0; conv.backward_wei_len()];
    let turning = shortest(conv.pack_backward_blocks(), |block| {
        conv.pack_backward(block, &wei, Tiles::from(&mut turned[..]));
    });
    let backward_data = shortest(conv.backward_data_blocks(mb), |block| {
        let (diff_dst, wei, diff_src) = (&diff_dst, &turned, Tiles::from(&mut out[..]));
        let scratch = &mut scratch;
        conv.backward_data(
            block,
            Conv2dBackwardData { mb, diff_dst, wei, src: None, diff_src, scratch },
        );
    });
    let (mut diff_wei, mut diff_bia) = (vec![0.0; wei.len()], vec![0.0; bia.len()]);
    let backward_weights = shortest(conv.backward_weights_blocks(mb), |block| {
        let io = Conv2dBackwardWeights {
            mb,
            src: &src,
            diff_dst: &diff_dst,
            diff_wei: Tiles::from(&mut diff_wei[..]),
            diff_bia: Some(Tiles::from(&mut diff_bia[..])),
            scratch: &mut scratch,
        };
        conv.backward_weights(block, io);
    });
    [forward, backward_data, backward_weights, turning]
}

#[expect(clippy::print_stdout, reason = "a bench prints its table")]
fn main() {
    flush_denormals();
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    for isa in Isa::all_available().into_iter().rev().filter(|isa| !isa.name().starts_with("port"))
    {
        let top = peak::gflops(isa, Duration::from_millis(100));
        println!("{} on one core: {top:.0} GFLOP/s at most", isa.name());
        println!("{:<14} {:>20} {:>20} {:>20} {:>8}", "", "forward", "data", "weights", "turn");
        for case in CASES.iter().filter(|case| case.0.contains(&wanted)) {
            let conv = Conv2d::new(desc(case, isa), isa).expect("the cases are possible");
            let flops = conv.desc().flops(case.1) as f64;
            let seconds = measure(&conv, case.1);
            let [forward, data, weights, _] = seconds.map(|seconds| {
                if seconds == 0.0 {
                    return "none".to_owned();
                }
                let rate = flops / seconds * 1e-9;
                format!("{rate:.0} {:3.0}% {:6.3} ms", 100.0 * rate / top, seconds * 1e3)
            });
            let turn = seconds[3] * 1e3;
            println!("{:<14} {forward:>20} {data:>20} {weights:>20} {turn:8.3}", case.0);
        }
    }
}
