//! The slope of an activation, multiplied into a gradient that another op has just written.

use std::ops::Range;

use super::ActivationKind;
use super::backward::Gradients;
use crate::Isa;
use crate::extent::expect_len;

/// The activation that an op's source is the value of, if it is, with that value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slope<'a>(Option<(ActivationKind, &'a [f32])>);

impl<'a> Slope<'a> {
    /// No activation.
    pub(crate) fn none() -> Slope<'a> {
        Slope(None)
    }

    /// Checks that the source is there, with `len` elements, where the op `op` was planned for an activation.
    #[track_caller]
    pub(crate) fn new(
        op: &'static str,
        planned: Option<ActivationKind>,
        src: Option<&'a [f32]>,
        len: usize,
    ) -> Slope<'a> {
        let needed = if planned.is_some() { len } else { 0 };
        expect_len(op, "src", src.map_or(0, <[f32]>::len), needed);
        Slope(planned.zip(src))
    }

    /// Multiplies the gradient of the elements `at`, whole vectors, by the slope.
    pub(crate) fn apply(self, isa: Isa, at: Range<usize>, diff_src: &mut [f32]) {
        if let Some((kind, src)) = self.0 {
            Gradients { dst: &src[at], diff_dst: None, diff_src }.dispatch(kind, isa);
        }
    }
}
