//! How far the passes of a convolution are from sums in f64: the direct method's and Winograd's.

use lockstep::ops::{
    Arena, Conv2d, Conv2dBackwardData, Conv2dBackwardWeights, Conv2dDesc, Conv2dForward, Tiles,
};

/// Elements of each result that are compared.
const SAMPLES: usize = 600;

/// The largest difference of each pass's result, as a fraction of its largest value: forward, backward data, backward weights.
pub(super) type Errors = [f64; 3];

/// The operands of a layer of `mb` samples, values between -1 and 1 as if drawn at random.
pub(super) struct Operands {
    mb: usize,
    src: Arena,
    diff_dst: Arena,
    plain_wei: Vec<f32>,
    wanted: [Vec<(usize, f64)>; 3],
}

fn random(len: usize, mut state: u64) -> impl Iterator<Item = f32> {
    (0..len).map(move |_| {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
    })
}

fn random_arena(len: usize, seed: u64) -> Arena {
    let mut arena = Arena::new(len);
    arena.as_slice_mut().iter_mut().zip(random(len, seed)).for_each(|(to, from)| *to = from);
    arena
}

/// Kernel taps that an output pixel sees, with the input pixel of each.
fn seen(at: usize, [len, pad, stride, taps]: [usize; 4]) -> impl Iterator<Item = (usize, usize)> {
    let inputs = (0..taps).map(move |tap| (tap, (at * stride + tap).wrapping_sub(pad)));
    inputs.filter(move |(_, input)| *input < len)
}

/// Output pixels that see an input pixel, with the tap of each.
fn seeing(at: usize, [len, pad, stride, taps]: [usize; 4]) -> impl Iterator<Item = (usize, usize)> {
    let outputs = (0..taps).filter(move |tap| at + pad >= *tap);
    let outputs = outputs.filter(move |tap| (at + pad - tap).is_multiple_of(stride));
    outputs.map(move |tap| (tap, (at + pad - tap) / stride)).filter(move |(_, out)| *out < len)
}

/// Evenly spread numbers below `len`.
fn spread(len: usize) -> impl Iterator<Item = usize> {
    let step = (len / SAMPLES).max(1) | 1;
    (0..len).step_by(step)
}

impl Operands {
    /// Operands of a layer with one group and a blocked source, and samples of the wanted results.
    pub(super) fn new(conv: &Conv2d, mb: usize) -> Self {
        let desc = *conv.desc();
        let (src_layout, dst_layout) = (conv.src_layout(), conv.dst_layout());
        let mut src = random_arena(src_layout.len(mb), 1);
        let mut diff_dst = random_arena(dst_layout.len(mb), 2);
        let plain_wei: Vec<f32> = random(desc.plain_wei_len(), 3).collect();
        let Conv2dDesc { ic, oc, ih, iw, kh, kw, sh, sw, ph, pw, .. } = desc;
        let (oh, ow) = (desc.oh(), desc.ow());
        let (s, d) = (&*src.as_slice_mut(), &*diff_dst.as_slice_mut());
        let s = |n, c, y, x| f64::from(s[src_layout.index(n, c, y, x)]);
        let d = |n, c, y, x| f64::from(d[dst_layout.index(n, c, y, x)]);
        let w = |o: usize, c: usize, ky: usize, kx: usize| {
            f64::from(plain_wei[((o * ic + c) * kh + ky) * kw + kx])
        };
        let (rows, columns) = ([ih, ph, sh, kh], [iw, pw, sw, kw]);
        let (out_rows, out_columns) = ([oh, ph, sh, kh], [ow, pw, sw, kw]);
        let forward = spread(mb * oc * oh * ow).map(|at| {
            let (x, y, o, n) = (at % ow, at / ow % oh, at / ow / oh % oc, at / ow / oh / oc);
            let taps =
                seen(y, rows).flat_map(move |row| seen(x, columns).map(move |col| (row, col)));
            let term =
                |((ky, y), (kx, x))| (0..ic).map(|c| s(n, c, y, x) * w(o, c, ky, kx)).sum::<f64>();
            (dst_layout.index(n, o, y, x), taps.map(term).sum::<f64>())
        });
        let data = spread(mb * ic * ih * iw).map(|at| {
            let (x, y, c, n) = (at % iw, at / iw % ih, at / iw / ih % ic, at / iw / ih / ic);
            let taps = seeing(y, out_rows)
                .flat_map(move |row| seeing(x, out_columns).map(move |col| (row, col)));
            let term =
                |((ky, y), (kx, x))| (0..oc).map(|o| d(n, o, y, x) * w(o, c, ky, kx)).sum::<f64>();
            (src_layout.index(n, c, y, x), taps.map(term).sum::<f64>())
        });
        let weights = spread(plain_wei.len()).map(|at| {
            let (kx, ky, c, o) = (at % kw, at / kw % kh, at / kw / kh % ic, at / kw / kh / ic);
            let of = |out: usize, k: usize, stride: usize, pad: usize| {
                (out * stride + k).wrapping_sub(pad)
            };
            let mut sum = 0.0;
            for (n, y) in (0..mb).flat_map(|n| (0..oh).map(move |y| (n, y))) {
                let row = of(y, ky, sh, ph);
                if row < ih {
                    let pixels =
                        (0..ow).map(|x| (x, of(x, kx, sw, pw))).filter(|(_, col)| *col < iw);
                    sum += pixels.map(|(x, col)| s(n, c, row, col) * d(n, o, y, x)).sum::<f64>();
                }
            }
            (at, sum)
        });
        let wanted = [forward.collect(), data.collect(), weights.collect()];
        Self { mb, src, diff_dst, plain_wei, wanted }
    }

    /// The errors of a plan of the layer.
    pub(super) fn errors(&mut self, conv: &Conv2d) -> Errors {
        let mb = self.mb;
        let (src, diff_dst) = (&*self.src.as_slice_mut(), &*self.diff_dst.as_slice_mut());
        let mut wei = Arena::new(conv.wei_len());
        let wei = wei.as_slice_mut();
        conv.pack_weights(&self.plain_wei, wei);

        let mut prepared = Arena::new(conv.forward_wei_len());
        for block in 0..conv.pack_forward_blocks() {
            conv.pack_forward(block, wei, Tiles::from(prepared.as_slice_mut()));
        }
        let forward_wei = if conv.prepares_forward() { prepared.as_slice_mut() } else { &mut *wei };
        let bia = vec![0.0; conv.bia_len()];
        let mut scratch = Arena::new(conv.forward_scratch_len());
        let mut dst = Arena::new(diff_dst.len());
        for block in 0..conv.forward_blocks(mb) {
            let (dst, scratch) = (Tiles::from(dst.as_slice_mut()), scratch.as_slice_mut());
            let (bia, wei) = (Some(&bia[..]), &*forward_wei);
            conv.forward(block, Conv2dForward { mb, src, wei, bia, dst, scratch });
        }

        let mut turned = Arena::new(conv.backward_wei_len());
        for block in 0..conv.pack_backward_blocks() {
            conv.pack_backward(block, wei, Tiles::from(turned.as_slice_mut()));
        }
        let mut scratch = Arena::new(conv.backward_data_scratch_len());
        let mut diff_src = Arena::new(src.len());
        for block in 0..conv.backward_data_blocks(mb) {
            let (diff_src, scratch) =
                (Tiles::from(diff_src.as_slice_mut()), scratch.as_slice_mut());
            let wei = &*turned.as_slice_mut();
            let io = Conv2dBackwardData { mb, diff_dst, wei, src: None, diff_src, scratch };
            conv.backward_data(block, io);
        }

        let mut scratch = Arena::new(conv.backward_weights_scratch_len());
        let (mut diff_wei, mut diff_bia) = (vec![0.0; wei.len()], vec![0.0; bia.len()]);
        for block in 0..conv.backward_weights_blocks(mb) {
            let io = Conv2dBackwardWeights {
                mb,
                src,
                diff_dst,
                diff_wei: Tiles::from(&mut diff_wei[..]).into(),
                diff_bia: Some(Tiles::from(&mut diff_bia[..]).into()),
                scratch: scratch.as_slice_mut(),
            };
            conv.backward_weights(block, io);
        }
        let mut plain = vec![0.0; self.plain_wei.len()];
        conv.unpack_weights(&diff_wei, &mut plain);
        let got = [&*dst.as_slice_mut(), &*diff_src.as_slice_mut(), &plain];
        std::array::from_fn(|pass| error(got[pass], &self.wanted[pass]))
    }
}

fn error(got: &[f32], wanted: &[(usize, f64)]) -> f64 {
    let largest = wanted.iter().map(|(_, value)| value.abs()).fold(0.0, f64::max);
    let differences = wanted.iter().map(|&(at, value)| (f64::from(got[at]) - value).abs());
    differences.fold(0.0, f64::max) / largest
}
