//! The loss over classes that are split over several ranks: what one block of samples does.

use super::SplitSoftmaxCrossEntropyDesc;
use super::split_kernel::{LossOfSamples, StatisticsOfSamples};
use crate::extent::{expect_len, expect_positive, expect_within};
use crate::grain::Grain;
use crate::{Isa, Layout, Maps, ShapeError, TensorLayout, Tiles};

/// [`SoftmaxCrossEntropy`](super::SoftmaxCrossEntropy) where each of several *members* holds the logits of some of the
/// classes, and no member ever sees those of another.
///
/// A softmax needs of all classes together their largest logit and the sum of their exponentials alone. So a member boils
/// its classes down to [`STATISTICS`](Self::STATISTICS) numbers a sample; all members gather those of all; and each
/// computes the loss, and the gradient of its own logits:
///
/// ```text
/// statistics         src, labels            -> of each sample: m = max src, s = sum of exp(src - m), ..
/// (the caller gathers them)
/// forward_backward   src, labels, gathered  -> losses, correct, diff_src of the classes here
///     max = max of all m        sum = sum over members, in their order, of s * exp(m - max)
///     losses, diff_src as in SoftmaxCrossEntropy, with p[c] = exp(src[c] - max) / sum
/// ```
///
/// Every member computes the same bits of `losses` and `correct`, and for one member, who has all classes, they and the
/// gradient have the bits of the loss that is not split.
///
/// # Shapes
///
/// `src`, `diff_src`: (mb, `classes_here`), blocked; `labels`, `losses`, `correct`: (mb); statistics: (mb,
/// [`STATISTICS`](Self::STATISTICS)); `gathered`: those of every member, each `member_stride` elements after the one before.
///
/// # Cost
///
/// mb·`classes_here` exponentials for the statistics, as many for the gradient. Exchanged: 24 bytes a sample and member,
/// where gathering the logits would take 4·`classes_here`. No scratch.
///
/// # Source
///
/// Merging sums of exponentials: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax".
///
/// # Examples
///
/// ```
/// use lockstep_ops::{
///     Isa, SplitSoftmaxCrossEntropy, SplitSoftmaxCrossEntropyDesc, SplitSoftmaxCrossEntropyLoss,
///     SplitSoftmaxCrossEntropyStatistics,
/// };
///
/// // Two members with a class each, whose logits are equal; the label is the second one's.
/// let (isa, mb, labels) = (Isa::named("portable")?, 1, &[1][..]);
/// let (src, mut gathered) = ([0.0; 8], [0.0; 2 * SplitSoftmaxCrossEntropy::STATISTICS]);
/// let mut members = Vec::new();
/// for first_class in 0..2 {
///     let desc = SplitSoftmaxCrossEntropyDesc {
///         classes_here: 1, first_class, classes: 2, label_smoothing: 0.0,
///     };
///     members.push(SplitSoftmaxCrossEntropy::new(desc, isa)?);
/// }
/// let stride = SplitSoftmaxCrossEntropy::STATISTICS;
/// for (member, stats) in members.iter().zip(gathered.chunks_exact_mut(stride)) {
///     let stats = stats.into();
///     member.statistics(0, SplitSoftmaxCrossEntropyStatistics { mb, src: &src, labels, stats });
/// }
/// let (mut losses, mut correct, mut diff_src) = ([0.0], [0.0], [0.0; 8]);
/// members[1].forward_backward(0, SplitSoftmaxCrossEntropyLoss {
///     mb,
///     src: &src,
///     labels,
///     gathered: &gathered,
///     members: 2,
///     member_stride: stride,
///     losses: (&mut losses[..]).into(),
///     correct: (&mut correct[..]).into(),
///     gradient: Some((1.0, (&mut diff_src[..]).into())),
/// });
/// assert!((losses[0] - 2.0_f32.ln()).abs() < 1e-6);
/// // The first of two equal logits counts as the answer, and it is not the label's.
/// assert_eq!((correct[0], diff_src[0]), (0.0, -0.5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct SplitSoftmaxCrossEntropy {
    desc: SplitSoftmaxCrossEntropyDesc,
    isa: Isa,
    layout: TensorLayout,
    grain: Grain,
}

/// The tensors of a block of [`SplitSoftmaxCrossEntropy::statistics`].
#[derive(Debug)]
pub struct SplitSoftmaxCrossEntropyStatistics<'a> {
    /// Samples.
    pub mb: usize,
    /// The logits of the classes here.
    pub src: &'a [f32],
    /// The class of each sample, among all.
    pub labels: &'a [u32],
    /// What other members need to know of each sample.
    pub stats: Tiles<'a>,
}

/// The tensors of a block of [`SplitSoftmaxCrossEntropy::forward_backward`].
#[derive(Debug)]
pub struct SplitSoftmaxCrossEntropyLoss<'a> {
    /// Samples.
    pub mb: usize,
    /// The logits of the classes here.
    pub src: &'a [f32],
    /// The class of each sample, among all.
    pub labels: &'a [u32],
    /// The statistics of all members, those of the first classes first.
    pub gathered: &'a [f32],
    /// The number of members.
    pub members: usize,
    /// Elements from the statistics of one member to those of the next.
    pub member_stride: usize,
    /// The loss of each sample.
    pub losses: Tiles<'a>,
    /// 1 for each sample whose first largest logit, of all classes, is its label's, else 0.
    pub correct: Tiles<'a>,
    /// What the gradient is multiplied by, and the gradient of the logits here; `None` where no gradient is wanted.
    pub gradient: Option<(f32, Tiles<'a>)>,
}

impl SplitSoftmaxCrossEntropy {
    /// Elements of a sample's statistics.
    pub const STATISTICS: usize = super::split_kernel::STATISTICS;

    /// Plans the loss for the classes of one member. It may have none.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] if there are no classes, the classes here are not among them, or `label_smoothing` is not within 0
    /// and 1.
    pub fn new(
        desc: SplitSoftmaxCrossEntropyDesc,
        isa: Isa,
    ) -> Result<SplitSoftmaxCrossEntropy, ShapeError> {
        let op = "split_softmax_cross_entropy";
        expect_positive(op, &[("classes", desc.classes)])?;
        expect_within(op, "label_smoothing", desc.label_smoothing, [0.0, 1.0])?;
        let (start, end) = (desc.first_class, desc.first_class.saturating_add(desc.classes_here));
        if end > desc.classes {
            return Err(ShapeError::NotAmongClasses { op, start, end, classes: desc.classes });
        }
        let maps = Maps { c: desc.classes_here, h: 1, w: 1 };
        let layout = TensorLayout { maps, layout: Layout::Blocked(isa.lanes()) };
        // A member without classes still writes losses.
        let elements = 2 * layout.sample_len() + Self::STATISTICS;
        let grain = Grain::new(size_of::<f32>() * elements);
        Ok(SplitSoftmaxCrossEntropy { desc, isa, layout, grain })
    }

    /// What was planned.
    pub fn desc(&self) -> &SplitSoftmaxCrossEntropyDesc {
        &self.desc
    }

    /// Elements of the statistics of `mb` samples.
    pub fn statistics_len(&self, mb: usize) -> usize {
        mb * Self::STATISTICS
    }

    /// The number of blocks of the statistics.
    pub fn statistics_blocks(&self, mb: usize) -> usize {
        self.grain.blocks(mb)
    }

    /// Computes the statistics of one block of samples.
    ///
    /// # Panics
    ///
    /// If a buffer is shorter than `mb` samples, or a label is no class.
    pub fn statistics(&self, block: usize, io: SplitSoftmaxCrossEntropyStatistics<'_>) {
        let SplitSoftmaxCrossEntropyStatistics { mb, src, labels, mut stats } = io;
        let op = "split_softmax_cross_entropy statistics";
        expect_len(op, "src", src.len(), self.layout.len(mb));
        expect_len(op, "labels", labels.len(), mb);
        expect_len(op, "stats", stats.len(), self.statistics_len(mb));
        let samples = self.grain.pieces(block, mb);
        let labels = &labels[samples.clone()];
        self.expect_classes(op, labels);
        self.isa.dispatch(StatisticsOfSamples {
            desc: &self.desc,
            sample_len: self.layout.sample_len(),
            src: &src[self.layout.len(samples.start)..self.layout.len(samples.end)],
            labels,
            stats: stats.tile(self.statistics_len(samples.start)..self.statistics_len(samples.end)),
        });
    }

    /// The number of blocks of the loss, with or without gradient.
    pub fn forward_backward_blocks(&self, mb: usize) -> usize {
        self.grain.blocks(mb)
    }

    /// Computes the losses of one block of samples, and the gradients of their logits here if they are wanted.
    ///
    /// # Panics
    ///
    /// As [`Self::statistics`], and if `gathered` is too short or `member_stride` shorter than a member's statistics.
    pub fn forward_backward(&self, block: usize, io: SplitSoftmaxCrossEntropyLoss<'_>) {
        let SplitSoftmaxCrossEntropyLoss { mb, src, labels, gathered, .. } = io;
        let SplitSoftmaxCrossEntropyLoss { members, member_stride, .. } = io;
        let SplitSoftmaxCrossEntropyLoss { mut losses, mut correct, mut gradient, .. } = io;
        let op = "split_softmax_cross_entropy";
        expect_len(op, "src", src.len(), self.layout.len(mb));
        expect_len(op, "labels", labels.len(), mb);
        expect_len(op, "losses", losses.len(), mb);
        expect_len(op, "correct", correct.len(), mb);
        expect_len(op, "a member's stride", member_stride, self.statistics_len(mb));
        let needed = members.saturating_sub(1) * member_stride + self.statistics_len(mb);
        expect_len(op, "gathered", gathered.len(), needed);
        let samples = self.grain.pieces(block, mb);
        let labels = &labels[samples.clone()];
        self.expect_classes(op, labels);
        let at = self.layout.len(samples.start)..self.layout.len(samples.end);
        let gradient = gradient.as_mut().map(|(scale, diff_src)| {
            expect_len(op, "diff_src", diff_src.len(), self.layout.len(mb));
            (*scale, diff_src.tile(at.clone()))
        });
        self.isa.dispatch(LossOfSamples {
            desc: &self.desc,
            sample_len: self.layout.sample_len(),
            src: &src[at],
            labels,
            gathered: gathered.get(self.statistics_len(samples.start)..).unwrap_or_default(),
            members,
            member_stride,
            losses: losses.tile(samples.clone()),
            correct: correct.tile(samples),
            gradient,
        });
    }

    #[track_caller]
    fn expect_classes(&self, op: &str, labels: &[u32]) {
        let classes = self.desc.classes;
        let wrong = labels.iter().find(|label| **label as usize >= classes);
        assert!(wrong.is_none(), "{op}: label {wrong:?} is none of {classes} classes");
    }
}
