//! Convolution as plain loops: what the kernels are tested against.

use crate::Conv2dDesc;

/// Visits every product of a convolution as plain positions (src, wei, dst).
fn each_product(desc: &Conv2dDesc, mb: usize, mut visit: impl FnMut(usize, usize, usize)) {
    let &Conv2dDesc { ic, oc, ih, iw, kh, kw, sh, sw, ph, pw, groups, .. } = desc;
    let (oh, ow) = (desc.oh(), desc.ow());
    let (group_ic, group_oc) = (ic / groups, oc / groups);
    for n in 0..mb {
        for o in 0..oc {
            for (y, x) in (0..oh).flat_map(|y| (0..ow).map(move |x| (y, x))) {
                let dst = ((n * oc + o) * oh + y) * ow + x;
                for i in 0..group_ic {
                    let c = o / group_oc * group_ic + i;
                    for (ky, kx) in (0..kh).flat_map(|ky| (0..kw).map(move |kx| (ky, kx))) {
                        let wei = ((o * group_ic + i) * kh + ky) * kw + kx;
                        let (py, px) = (y * sh + ky, x * sw + kx);
                        if (ph..ph + ih).contains(&py) && (pw..pw + iw).contains(&px) {
                            visit(((n * ic + c) * ih + py - ph) * iw + px - pw, wei, dst);
                        }
                    }
                }
            }
        }
    }
}

fn rounded(sums: Vec<f64>) -> Vec<f32> {
    sums.into_iter().map(|sum| sum as f32).collect()
}

/// The output, (mb, oc, oh, ow), of `src` (mb, ic, ih, iw), `wei` (oc, ic / groups, kh, kw) and `bia` (oc) or nothing.
pub fn forward(desc: &Conv2dDesc, mb: usize, src: &[f32], wei: &[f32], bia: &[f32]) -> Vec<f32> {
    let pixels = desc.oh() * desc.ow();
    let bias = |at: usize| bia.get(at / pixels % desc.oc).map_or(0.0, |b| f64::from(*b));
    let mut dst: Vec<f64> = (0..mb * desc.oc * pixels).map(bias).collect();
    each_product(desc, mb, |s, w, d| dst[d] += f64::from(src[s]) * f64::from(wei[w]));
    rounded(dst)
}

/// The gradient of the source, (mb, ic, ih, iw).
pub fn backward_data(desc: &Conv2dDesc, mb: usize, diff_dst: &[f32], wei: &[f32]) -> Vec<f32> {
    let mut diff_src = vec![0.0; mb * desc.ic * desc.ih * desc.iw];
    each_product(desc, mb, |s, w, d| diff_src[s] += f64::from(diff_dst[d]) * f64::from(wei[w]));
    rounded(diff_src)
}

/// The gradients of the weights, (oc, ic / groups, kh, kw), and of the bias, (oc).
pub fn backward_weights(
    desc: &Conv2dDesc,
    mb: usize,
    src: &[f32],
    diff_dst: &[f32],
) -> (Vec<f32>, Vec<f32>) {
    let mut diff_wei = vec![0.0; desc.plain_wei_len()];
    each_product(desc, mb, |s, w, d| diff_wei[w] += f64::from(src[s]) * f64::from(diff_dst[d]));
    let mut diff_bia = vec![0.0; desc.oc];
    for (at, d) in diff_dst.iter().enumerate() {
        diff_bia[at / (desc.oh() * desc.ow()) % desc.oc] += f64::from(*d);
    }
    (rounded(diff_wei), rounded(diff_bia))
}
