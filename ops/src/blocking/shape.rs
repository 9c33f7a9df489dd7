//! The loop nest that is blocked.

use crate::Conv2dDesc;

/// The sizes of a layer's loops; each at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConvShape {
    /// Samples.
    pub mb: usize,
    /// Input channels that one output channel sees.
    pub ic: usize,
    /// Output channels that see the same input channels.
    pub oc: usize,
    /// Output height.
    pub oh: usize,
    /// Output width.
    pub ow: usize,
    /// Kernel height.
    pub kh: usize,
    /// Kernel width.
    pub kw: usize,
    /// Vertical stride.
    pub sh: usize,
    /// Horizontal stride.
    pub sw: usize,
}

impl ConvShape {
    /// One group of a convolution of `mb` samples.
    #[must_use]
    pub fn of(desc: &Conv2dDesc, mb: usize) -> Self {
        let &Conv2dDesc { ic, oc, kh, kw, sh, sw, groups, .. } = desc;
        let (oh, ow) = (desc.oh(), desc.ow());
        Self { mb, ic: ic / groups, oc: oc / groups, oh, ow, kh, kw, sh, sw }
    }

    /// A linear layer of `mb` samples: every feature is a channel of one pixel.
    #[must_use]
    pub fn linear(mb: usize, in_features: usize, out_features: usize) -> Self {
        Self { mb, ic: in_features, oc: out_features, oh: 1, ow: 1, kh: 1, kw: 1, sh: 1, sw: 1 }
    }

    /// Floating-point operations of one pass; a multiply-add counts two.
    #[must_use]
    pub fn flops(&self) -> f64 {
        let Self { mb, ic, oc, oh, ow, kh, kw, .. } = *self;
        2.0 * [mb, ic, oc, oh, ow, kh, kw].iter().map(|&n| n as f64).product::<f64>()
    }

    /// Bytes per operation of loops that hold one input map, one output map and the kernel between them, and nothing
    /// beyond: `4 (oh ow + ih iw + kh kw) / (2 kh kw oh ow)`, padding counted as input.
    ///
    /// Source: Das et al. 2016, section 2.1; 0.54 for the last convolution of OverFeat-FAST.
    #[must_use]
    pub fn unblocked_bytes_per_flop(&self) -> f64 {
        let (oh, ow) = (self.oh as f64, self.ow as f64);
        let taps = (self.kh * self.kw) as f64;
        let input = self.rows(oh, 1.0) * self.columns(ow, 1.0);
        4.0 * (oh * ow + input + taps) / (2.0 * taps * oh * ow)
    }

    /// Input rows that `parts` blocks read for `oh` output rows between them.
    pub(super) fn rows(&self, oh: f64, parts: f64) -> f64 {
        reach(oh, parts, self.kh, self.sh)
    }

    /// Input columns that `parts` blocks read for `ow` output columns between them.
    pub(super) fn columns(&self, ow: f64, parts: f64) -> f64 {
        reach(ow, parts, self.kw, self.sw)
    }
}

/// A block of `b` outputs reads `(b - 1) s + k` inputs; where strides jump over inputs, only those that are used.
fn reach(outputs: f64, parts: f64, kernel: usize, stride: usize) -> f64 {
    (outputs - parts) * stride.min(kernel) as f64 + parts * kernel as f64
}
