//! What a convolution computes.

use crate::{ActivationKind, Layout, Maps, ShapeError};

/// A two-dimensional convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Conv2dDesc {
    /// Input channels.
    pub ic: usize,
    /// Output channels.
    pub oc: usize,
    /// Input height.
    pub ih: usize,
    /// Input width.
    pub iw: usize,
    /// Kernel height.
    pub kh: usize,
    /// Kernel width.
    pub kw: usize,
    /// Vertical stride.
    pub sh: usize,
    /// Horizontal stride.
    pub sw: usize,
    /// Rows of zeros above and below the input.
    pub ph: usize,
    /// Columns of zeros left and right of the input.
    pub pw: usize,
    /// Groups of channels that see only each other; 1 joins all, `ic` is a depthwise convolution.
    pub groups: usize,
    /// Whether a bias is added to each output channel.
    pub bias: bool,
    /// How the source lies in memory: plain only for a first layer of fewer channels than a vector has lanes.
    pub src_layout: Layout,
    /// The activation function that the source is the value of: backward data then returns the gradient of its input.
    pub src_activation: Option<ActivationKind>,
    /// The activation function that the forward pass applies to what it writes.
    pub dst_activation: Option<ActivationKind>,
}

const OP: &str = "conv2d";

impl Conv2dDesc {
    /// Output height: `floor((ih + 2 ph - kh) / sh) + 1`; call it after [`Conv2dDesc::validate`].
    pub fn oh(&self) -> usize {
        (self.ih + 2 * self.ph - self.kh) / self.sh + 1
    }

    /// Output width: `floor((iw + 2 pw - kw) / sw) + 1`; call it after [`Conv2dDesc::validate`].
    pub fn ow(&self) -> usize {
        (self.iw + 2 * self.pw - self.kw) / self.sw + 1
    }

    /// The source's shape.
    pub fn src_maps(&self) -> Maps {
        Maps { c: self.ic, h: self.ih, w: self.iw }
    }

    /// The destination's shape.
    pub fn dst_maps(&self) -> Maps {
        Maps { c: self.oc, h: self.oh(), w: self.ow() }
    }

    /// Elements of the weights in plain OIHW order: oc (ic / groups) kh kw.
    pub fn plain_wei_len(&self) -> usize {
        self.oc * (self.ic / self.groups) * self.kh * self.kw
    }

    /// Floating-point operations of each pass for `mb` samples, two a multiplication with addition.
    pub fn flops(&self, mb: usize) -> u64 {
        2 * (mb * self.oh() * self.ow()) as u64 * self.plain_wei_len() as u64
    }

    /// Checks the descriptor for vectors of `lanes` lanes.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] naming the field at fault: a size of zero, a kernel larger than the padded map, groups that do not
    /// divide the channels, a plain source of many channels, or a blocked one of other lanes.
    pub fn validate(&self, lanes: usize) -> Result<(), ShapeError> {
        let sizes = [
            ("ic", self.ic),
            ("oc", self.oc),
            ("ih", self.ih),
            ("iw", self.iw),
            ("kh", self.kh),
            ("kw", self.kw),
            ("sh", self.sh),
            ("sw", self.sw),
            ("groups", self.groups),
        ];
        if let Some(&(field, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(ShapeError::Zero { op: OP, field });
        }
        for (axis, window, padded) in
            [("height", self.kh, self.ih + 2 * self.ph), ("width", self.kw, self.iw + 2 * self.pw)]
        {
            if window > padded {
                return Err(ShapeError::WindowTooLarge { op: OP, axis, window, padded });
            }
        }
        let groups = self.groups;
        for (field, channels) in [("ic", self.ic), ("oc", self.oc)] {
            if !channels.is_multiple_of(groups) {
                return Err(ShapeError::GroupsDoNotDivide { op: OP, field, groups, channels });
            }
        }
        match self.src_layout {
            Layout::Plain if groups > 1 || self.ic >= lanes => {
                Err(ShapeError::PlainSource { op: OP, lanes, groups, channels: self.ic })
            }
            Layout::Blocked(got) if got != lanes => {
                Err(ShapeError::Lanes { op: OP, expected: lanes, got })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Conv2dDesc = Conv2dDesc {
        ic: 1,
        oc: 20,
        ih: 28,
        iw: 28,
        kh: 5,
        kw: 5,
        sh: 1,
        sw: 1,
        ph: 0,
        pw: 0,
        groups: 1,
        bias: true,
        src_layout: Layout::Plain,
        src_activation: None,
        dst_activation: None,
    };

    #[test]
    fn output_sizes_round_down() {
        let strided = Conv2dDesc { sh: 3, sw: 2, ph: 1, ..FIRST };
        assert_eq!((strided.oh(), strided.ow()), ((28 + 2 - 5) / 3 + 1, 12));
        assert_eq!(FIRST.flops(2), 2 * 2 * 24 * 24 * 20 * 25);
    }

    #[test]
    fn faults_are_named() {
        let refused = |desc: Conv2dDesc| desc.validate(8).expect_err("the shape is impossible");
        assert_eq!(
            refused(Conv2dDesc { sw: 0, ..FIRST }),
            ShapeError::Zero { op: "conv2d", field: "sw" }
        );
        assert_eq!(
            refused(Conv2dDesc { kw: 31, pw: 1, ..FIRST }),
            ShapeError::WindowTooLarge { op: "conv2d", axis: "width", window: 31, padded: 30 }
        );
        assert_eq!(
            refused(Conv2dDesc {
                ic: 4,
                groups: 4,
                oc: 6,
                src_layout: Layout::Blocked(8),
                ..FIRST
            }),
            ShapeError::GroupsDoNotDivide { op: "conv2d", field: "oc", groups: 4, channels: 6 }
        );
        assert_eq!(
            refused(Conv2dDesc { ic: 8, ..FIRST }),
            ShapeError::PlainSource { op: "conv2d", lanes: 8, groups: 1, channels: 8 }
        );
        assert_eq!(
            refused(Conv2dDesc { src_layout: Layout::Blocked(16), ..FIRST }),
            ShapeError::Lanes { op: "conv2d", expected: 8, got: 16 }
        );
        assert_eq!(FIRST.validate(8), Ok(()));
    }
}
