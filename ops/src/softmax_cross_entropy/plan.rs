//! The loss bound to an ISA: what one block of samples does.

use super::kernel::Samples;
use crate::extent::{expect_len, expect_positive, expect_within};
use crate::grain::Grain;
use crate::{Isa, Layout, Maps, ShapeError, TensorLayout, Tiles};

/// A classifier's loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SoftmaxCrossEntropyDesc {
    /// Classes.
    pub classes: usize,
    /// How much of the target is spread evenly over all classes, from 0 (none) to 1.
    pub label_smoothing: f32,
}

/// Softmax followed by the cross-entropy with a label, per sample.
///
/// ```text
/// p[c]        = exp(src[n,c]) / sum over k of exp(src[n,k])
/// target[c]   = (1 - label_smoothing) * (c == label[n]) + label_smoothing / classes
/// losses[n]   = - sum over c of target[c] * ln p[c]
/// diff_src[n] = scale * (p - target)
/// ```
///
/// The largest logit is subtracted first, so logits of any size give finite results. The caller averages `losses`;
/// with `scale` one over the global minibatch, gradients add up to that of the mean, however samples are spread over
/// ranks.
///
/// # Shapes
///
/// `src`, `diff_src`: (mb, classes), blocked; `labels`, `losses`, `correct`: (mb).
///
/// # Cost
///
/// mb·classes exponentials. No scratch.
///
/// # Source
///
/// PyTorch's `cross_entropy` with `label_smoothing`; its mean is the caller's.
#[derive(Debug, Clone)]
pub struct SoftmaxCrossEntropy {
    desc: SoftmaxCrossEntropyDesc,
    isa: Isa,
    layout: TensorLayout,
    grain: Grain,
}

/// The tensors of a block, without gradient.
#[derive(Debug)]
pub struct SoftmaxCrossEntropyForward<'a> {
    /// Samples.
    pub mb: usize,
    /// The logits.
    pub src: &'a [f32],
    /// The class of each sample.
    pub labels: &'a [u32],
    /// The loss of each sample.
    pub losses: Tiles<'a>,
    /// 1 for each sample whose first largest logit is its label's, else 0. With a NaN among its logits it is 0.
    pub correct: Tiles<'a>,
}

/// The tensors of a block, with gradient.
#[derive(Debug)]
pub struct SoftmaxCrossEntropyForwardBackward<'a> {
    /// The loss.
    pub forward: SoftmaxCrossEntropyForward<'a>,
    /// What the gradient is multiplied by.
    pub scale: f32,
    /// The gradient of the logits.
    pub diff_src: Tiles<'a>,
}

impl SoftmaxCrossEntropy {
    /// Plans the loss.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] if there are no classes, or `label_smoothing` is not within 0 and 1.
    pub fn new(desc: SoftmaxCrossEntropyDesc, isa: Isa) -> Result<SoftmaxCrossEntropy, ShapeError> {
        let op = "softmax_cross_entropy";
        expect_positive(op, &[("classes", desc.classes)])?;
        expect_within(op, "label_smoothing", desc.label_smoothing, [0.0, 1.0])?;
        let maps = Maps { c: desc.classes, h: 1, w: 1 };
        let layout = TensorLayout { maps, layout: Layout::Blocked(isa.lanes()) };
        let grain = Grain::new(2 * size_of::<f32>() * layout.sample_len());
        Ok(SoftmaxCrossEntropy { desc, isa, layout, grain })
    }

    /// What was planned.
    pub fn desc(&self) -> &SoftmaxCrossEntropyDesc {
        &self.desc
    }

    /// The number of blocks.
    pub fn forward_blocks(&self, mb: usize) -> usize {
        self.grain.blocks(mb)
    }

    /// Computes the losses of one block of samples.
    ///
    /// # Panics
    ///
    /// If a buffer is shorter than `mb` samples, or a label is no class.
    pub fn forward(&self, block: usize, io: SoftmaxCrossEntropyForward<'_>) {
        self.block(block, io, None);
    }

    /// The number of blocks of the loss with its gradient.
    pub fn forward_backward_blocks(&self, mb: usize) -> usize {
        self.forward_blocks(mb)
    }

    /// Computes the losses of one block of samples and the gradients of their logits.
    ///
    /// # Panics
    ///
    /// As [`Self::forward`].
    pub fn forward_backward(&self, block: usize, io: SoftmaxCrossEntropyForwardBackward<'_>) {
        let SoftmaxCrossEntropyForwardBackward { forward, scale, diff_src } = io;
        self.block(block, forward, Some((scale, diff_src)));
    }

    fn block(
        &self,
        block: usize,
        io: SoftmaxCrossEntropyForward<'_>,
        mut gradient: Option<(f32, Tiles<'_>)>,
    ) {
        let SoftmaxCrossEntropyForward { mb, src, labels, mut losses, mut correct } = io;
        let op = "softmax_cross_entropy";
        expect_len(op, "src", src.len(), self.layout.len(mb));
        expect_len(op, "labels", labels.len(), mb);
        expect_len(op, "losses", losses.len(), mb);
        expect_len(op, "correct", correct.len(), mb);
        let samples = self.grain.pieces(block, mb);
        let at = self.layout.len(samples.start)..self.layout.len(samples.end);
        let gradient = gradient.as_mut().map(|(scale, diff_src)| {
            expect_len(op, "diff_src", diff_src.len(), self.layout.len(mb));
            (*scale, diff_src.tile(at.clone()))
        });
        self.isa.dispatch(Samples {
            desc: &self.desc,
            sample_len: self.layout.sample_len(),
            src: &src[at],
            labels: &labels[samples.clone()],
            losses: losses.tile(samples.clone()),
            correct: correct.tile(samples),
            gradient,
        });
    }
}
