//! `lockstep bench ops`: each pass of convolutions and linear layers, on one core.
#![expect(clippy::print_stdout, reason = "the result is what the command is for")]

use std::time::Instant;

use clap::Args as ClapArgs;
use lockstep::RunError;
use lockstep::ops::{
    Conv2d, Conv2dBackwardData, Conv2dBackwardWeights, Conv2dDesc, Conv2dForward, Isa, Layout,
    Linear, LinearBackwardData, LinearBackwardWeights, LinearDesc, LinearForward, Maps,
    TensorLayout, Tiles, flush_denormals, peak,
};

use super::rows::{OpRow, write_json};
use super::{Common, PEAK_TIME, median};
use crate::cli::{at_least_one, inputs};

/// Arguments of `lockstep bench ops`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Samples of a convolution
    #[arg(long, default_value_t = 8, value_name = "B")]
    batch: usize,
    /// Samples of a linear layer
    #[arg(long, default_value_t = 256, value_name = "B")]
    linear_batch: usize,
    /// Only layers whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// A convolution: name, ic, oc, map, kernel, stride, pad.
type ConvCase = (&'static str, usize, usize, usize, usize, usize, usize);

/// Layers of LeNet, and of the networks that the paper measures.
const CONVS: [ConvCase; 8] = [
    ("lenet conv1", 1, 20, 28, 5, 1, 0),
    ("lenet conv2", 20, 50, 12, 5, 1, 0),
    ("overfeat c1 11x11s4", 3, 96, 231, 11, 4, 0),
    ("overfeat c5 3x3", 1024, 1024, 12, 3, 1, 1),
    ("vgg c1 3x3", 3, 64, 224, 3, 1, 1),
    ("vgg c2 3x3", 64, 128, 112, 3, 1, 1),
    ("resnet 1x1", 64, 256, 56, 1, 1, 0),
    ("resnet 3x3", 128, 128, 28, 3, 1, 1),
];

/// A linear layer: name, inputs, outputs.
const LINEARS: [(&str, usize, usize); 3] =
    [("lenet fc1", 800, 500), ("fc 2048", 2048, 2048), ("fc 4096", 4096, 4096)];

/// Measures.
pub(super) fn run(args: &Args) -> Result<(), RunError> {
    at_least_one(&[
        ("--batch", Some(args.batch)),
        ("--linear-batch", Some(args.linear_batch)),
        ("--runs", Some(args.common.runs)),
    ])?;
    flush_denormals();
    let isa = inputs::isa()?;
    let mut bench =
        Bench { isa, peak: peak::gflops(isa, PEAK_TIME), runs: args.common.runs, rows: vec![] };
    println!("{}: peak of one core {:.1} GFLOP/s", isa.name(), bench.peak);
    println!("{}", OpRow::HEADER);
    let wanted = |name: &str| args.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    for case in CONVS.iter().filter(|case| wanted(case.0)) {
        bench.conv(case, args.batch)?;
    }
    for case in LINEARS.iter().filter(|case| wanted(case.0)) {
        bench.linear(case, args.linear_batch)?;
    }
    write_json(args.common.json.as_deref(), &bench.rows)
}

struct Bench {
    isa: Isa,
    peak: f64,
    runs: usize,
    rows: Vec<OpRow>,
}

/// Values between -1 and 1, none of them special.
fn values(len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919) % 2003) as f32 / 1001.5 - 1.0).collect()
}

impl Bench {
    /// Times a pass and keeps a row.
    fn row(
        &mut self,
        layer: &str,
        pass: &'static str,
        batch: usize,
        flops: f64,
        mut pass_once: impl FnMut(),
    ) {
        pass_once();
        let mut gflops: Vec<f64> = (0..self.runs)
            .map(|_| {
                // Enough repetitions that the clock's grain does not matter.
                let (began, mut n) = (Instant::now(), 0);
                while n == 0 || began.elapsed().as_millis() < 100 {
                    pass_once();
                    n += 1;
                }
                flops * f64::from(n) / began.elapsed().as_secs_f64() / 1e9
            })
            .collect();
        let middle = median(&mut gflops);
        let row = OpRow {
            layer: layer.to_owned(),
            pass,
            batch,
            isa: self.isa.name(),
            gflops: middle,
            gflops_range: (gflops[0], gflops[gflops.len() - 1]),
            peak_gflops: self.peak,
            peak_fraction: middle / self.peak,
        };
        row.print();
        self.rows.push(row);
    }

    fn conv(&mut self, case: &ConvCase, mb: usize) -> Result<(), RunError> {
        let &(name, ic, oc, map, k, s, p) = case;
        let plain = ic < self.isa.lanes();
        let src_layout = if plain { Layout::Plain } else { Layout::Blocked(self.isa.lanes()) };
        let desc = Conv2dDesc {
            ic,
            oc,
            ih: map,
            iw: map,
            kh: k,
            kw: k,
            sh: s,
            sw: s,
            ph: p,
            pw: p,
            groups: 1,
            bias: true,
            src_layout,
        };
        let conv = Conv2d::new(desc, self.isa).map_err(|source| {
            lockstep::scheduler::ScheduleError::Kernel { layer: name.to_owned(), source }
        })?;
        let out = (map + 2 * p - k) / s + 1;
        let flops = 2.0 * (mb * oc * out * out * ic * k * k) as f64;
        let src_maps = TensorLayout { maps: Maps { c: ic, h: map, w: map }, layout: src_layout };
        let dst_maps = TensorLayout {
            maps: Maps { c: oc, h: out, w: out },
            layout: Layout::Blocked(self.isa.lanes()),
        };
        let src = values(src_maps.len(mb));
        let diff_dst = values(dst_maps.len(mb));
        let mut dst = vec![0.0; dst_maps.len(mb)];
        let mut wei = vec![0.0; conv.wei_len()];
        conv.pack_weights(&values(oc * ic * k * k), &mut wei);
        let bia = vec![0.5; conv.bia_len()];
        let mut scratch = vec![0.0; conv.forward_scratch_len()];
        self.row(name, "forward", mb, flops, || {
            for block in 0..conv.forward_blocks(mb) {
                let (bia, dst) = (Some(&bia[..]), Tiles::from(&mut dst[..]));
                let io =
                    Conv2dForward { mb, src: &src, wei: &wei, bia, dst, scratch: &mut scratch };
                conv.forward(block, io);
            }
        });
        if !plain {
            let mut wei_t = vec![0.0; conv.backward_wei_len()];
            for block in 0..conv.pack_backward_blocks() {
                conv.pack_backward(block, &wei, Tiles::from(&mut wei_t[..]));
            }
            let mut diff_src = vec![0.0; src_maps.len(mb)];
            let mut scratch = vec![0.0; conv.backward_data_scratch_len()];
            self.row(name, "backward_data", mb, flops, || {
                for block in 0..conv.backward_data_blocks(mb) {
                    let diff_src = Tiles::from(&mut diff_src[..]);
                    let (diff_dst, wei, scratch) = (&diff_dst[..], &wei_t[..], &mut scratch[..]);
                    conv.backward_data(
                        block,
                        Conv2dBackwardData { mb, diff_dst, wei, diff_src, scratch },
                    );
                }
            });
        }
        let mut diff_wei = vec![0.0; conv.wei_len()];
        let mut diff_bia = vec![0.0; conv.bia_len()];
        let mut scratch = vec![0.0; conv.backward_weights_scratch_len()];
        self.row(name, "backward_weights", mb, flops, || {
            for block in 0..conv.backward_weights_blocks(mb) {
                let diff_wei = Tiles::from(&mut diff_wei[..]);
                let diff_bia = Some(Tiles::from(&mut diff_bia[..]));
                let (src, diff_dst, scratch) = (&src[..], &diff_dst[..], &mut scratch[..]);
                let io = Conv2dBackwardWeights { mb, src, diff_dst, diff_wei, diff_bia, scratch };
                conv.backward_weights(block, io);
            }
        });
        Ok(())
    }

    fn linear(&mut self, case: &(&str, usize, usize), mb: usize) -> Result<(), RunError> {
        let &(name, in_features, out_features) = case;
        let desc = LinearDesc { in_features, out_features, bias: true };
        let linear = Linear::new(desc, self.isa).map_err(|source| {
            lockstep::scheduler::ScheduleError::Kernel { layer: name.to_owned(), source }
        })?;
        let flops = 2.0 * (mb * in_features * out_features) as f64;
        let padded = |n: usize| n.next_multiple_of(self.isa.lanes());
        let src = values(mb * padded(in_features));
        let diff_dst = values(mb * padded(out_features));
        let mut dst = vec![0.0; mb * padded(out_features)];
        let mut diff_src = vec![0.0; mb * padded(in_features)];
        let mut wei = vec![0.0; linear.wei_len()];
        linear.pack_weights(&values(in_features * out_features), &mut wei);
        let bia = vec![0.5; linear.bia_len()];
        self.row(name, "forward", mb, flops, || {
            for block in 0..linear.forward_blocks(mb) {
                let (bia, dst) = (Some(&bia[..]), Tiles::from(&mut dst[..]));
                let io = LinearForward { mb, src: &src, wei: &wei, bia, dst };
                linear.forward(block, io);
            }
        });
        let mut scratch = vec![0.0; linear.backward_data_scratch_len()];
        self.row(name, "backward_data", mb, flops, || {
            for block in 0..linear.backward_data_blocks(mb) {
                let diff_src = Tiles::from(&mut diff_src[..]);
                let (diff_dst, wei, scratch) = (&diff_dst[..], &wei[..], &mut scratch[..]);
                linear.backward_data(
                    block,
                    LinearBackwardData { mb, diff_dst, wei, diff_src, scratch },
                );
            }
        });
        let mut diff_wei = vec![0.0; linear.wei_len()];
        let mut diff_bia = vec![0.0; linear.bia_len()];
        let mut scratch = vec![0.0; linear.backward_weights_scratch_len()];
        self.row(name, "backward_weights", mb, flops, || {
            for block in 0..linear.backward_weights_blocks(mb) {
                let diff_wei = Tiles::from(&mut diff_wei[..]);
                let diff_bia = Some(Tiles::from(&mut diff_bia[..]));
                let (src, diff_dst, scratch) = (&src[..], &diff_dst[..], &mut scratch[..]);
                let io = LinearBackwardWeights { mb, src, diff_dst, diff_wei, diff_bia, scratch };
                linear.backward_weights(block, io);
            }
        });
        Ok(())
    }
}
