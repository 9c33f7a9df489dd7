//! The statistics and the loss of a few samples, of which some of the classes are here.

use std::ops::Range;

use super::SplitSoftmaxCrossEntropyDesc;
use super::row::{Row, logarithm, one_exponential};
use crate::simd::{Kernel, Simd};

/// Elements of a sample's statistics.
pub(super) const STATISTICS: usize = 6;

/// What a member tells of a sample.
#[derive(Debug, Clone, Copy)]
struct Statistics {
    /// The largest logit; NaN if there is one, minus infinity without classes.
    max: f32,
    /// The sum of e^(x - max), of e^x where the largest logit is minus infinity.
    exponentials: f32,
    /// The sum of max - x, of -x where the largest logit is minus infinity.
    distances: f32,
    /// The number of classes that were added up.
    classes: f32,
    /// The logit of the label, if its class is here.
    label_logit: f32,
    /// One of the constants below.
    label: f32,
}

/// The label's class is another member's.
const LABEL_ELSEWHERE: f32 = 0.0;
/// The label's class is here, and its logit is not the first largest.
const LABEL_HERE: f32 = 1.0;
/// The label's logit is the first largest here.
const LABEL_FIRST: f32 = 2.0;

impl Statistics {
    #[inline(always)]
    fn load(from: &[f32]) -> Statistics {
        let [max, exponentials, distances, classes, label_logit, label] =
            *from.first_chunk().expect("the statistics of a sample");
        Statistics { max, exponentials, distances, classes, label_logit, label }
    }

    #[inline(always)]
    fn store(self, to: &mut [f32]) {
        let Statistics { max, exponentials, distances, classes, label_logit, label } = self;
        let all: [f32; STATISTICS] = [max, exponentials, distances, classes, label_logit, label];
        to.copy_from_slice(&all);
    }
}

/// The place of a label among the classes here, if it is there.
#[inline(always)]
fn place(desc: &SplitSoftmaxCrossEntropyDesc, label: u32) -> Option<usize> {
    let place = (label as usize).checked_sub(desc.first_class)?;
    (place < desc.classes_here).then_some(place)
}

/// A block of samples whose statistics are wanted.
pub(super) struct StatisticsOfSamples<'a> {
    pub(super) desc: &'a SplitSoftmaxCrossEntropyDesc,
    pub(super) sample_len: usize,
    pub(super) src: &'a [f32],
    pub(super) labels: &'a [u32],
    pub(super) stats: &'a mut [f32],
}

impl Kernel for StatisticsOfSamples<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let StatisticsOfSamples { desc, sample_len, src, labels, stats } = self;
        let samples = labels.iter().zip(stats.chunks_exact_mut(STATISTICS)).enumerate();
        for (sample, (&label, stats)) in samples {
            let logits = &src[sample * sample_len..][..sample_len];
            let row = Row { logits, classes: desc.classes_here };
            let max = row.max(simd);
            // Where all logits are minus infinity, others' may not be, and then these count as zero.
            let sums =
                row.exponentials(simd, if max == f32::NEG_INFINITY { 0.0 } else { max }, None);
            let (label_logit, label) = match place(desc, label) {
                None => (f32::NEG_INFINITY, LABEL_ELSEWHERE),
                Some(place) => {
                    let logit = logits[place];
                    // Nothing is less than a NaN, nor equal to it.
                    let first = logit == max && logits[..place].iter().all(|&x| x < max);
                    (logit, if first { LABEL_FIRST } else { LABEL_HERE })
                }
            };
            Statistics {
                max,
                exponentials: sums.exponentials,
                distances: sums.distances,
                classes: desc.classes_here as f32,
                label_logit,
                label,
            }
            .store(stats);
        }
    }
}

/// A block of samples whose loss is wanted.
pub(super) struct LossOfSamples<'a> {
    pub(super) desc: &'a SplitSoftmaxCrossEntropyDesc,
    pub(super) sample_len: usize,
    pub(super) src: &'a [f32],
    pub(super) labels: &'a [u32],
    /// The members' statistics, from those of the block's first sample on.
    pub(super) gathered: &'a [f32],
    pub(super) members: usize,
    pub(super) member_stride: usize,
    pub(super) losses: &'a mut [f32],
    pub(super) correct: &'a mut [f32],
    /// The scale, and the gradient of `src`.
    pub(super) gradient: Option<(f32, &'a mut [f32])>,
}

impl Kernel for LossOfSamples<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let LossOfSamples { desc, sample_len, src, labels, gathered, .. } = self;
        let LossOfSamples { members, member_stride, losses, correct, mut gradient, .. } = self;
        let uniform = desc.label_smoothing / desc.classes as f32;
        let certain = 1.0 - desc.label_smoothing;
        for (sample, &label) in labels.iter().enumerate() {
            let starts = (0..members).map(|member| member * member_stride + sample * STATISTICS);
            let all = starts.map(|start| Statistics::load(&gathered[start..]));
            let total = Total::of(simd, all);
            // As in the loss that is not split, sums of the same terms.
            let mut loss = logarithm(simd, total.exponentials) + certain * total.label_distance;
            if uniform > 0.0 {
                loss += uniform * total.distances;
            }
            losses[sample] = loss;
            correct[sample] = f32::from(u8::from(total.correct));

            if let Some((scale, diff_src)) = &mut gradient {
                let at: Range<usize> = sample * sample_len..(sample + 1) * sample_len;
                let row = Row { logits: &src[at.clone()], classes: desc.classes_here };
                let diff_src = &mut diff_src[at];
                row.exponentials(simd, total.max, Some(&mut *diff_src));
                let inverse = 1.0 / total.exponentials;
                row.subtract_uniform(simd, diff_src, *scale * inverse, *scale * uniform);
                if let Some(place) = place(desc, label) {
                    diff_src[place] -= *scale * certain;
                }
            }
        }
    }
}

/// What all members' statistics of a sample say together.
struct Total {
    max: f32,
    /// The sum of e^(x - max) over all classes.
    exponentials: f32,
    /// The sum of max - x.
    distances: f32,
    /// max - the label's logit.
    label_distance: f32,
    /// Whether the label's logit is the first largest.
    correct: bool,
}

impl Total {
    /// Merges the members in their order.
    #[inline(always)]
    fn of<S: Simd>(simd: S, members: impl Iterator<Item = Statistics> + Clone) -> Total {
        let larger = |max, x: f32| if x > max || x.is_nan() { x } else { max };
        let max = members.clone().map(|member| member.max).fold(f32::NEG_INFINITY, larger);
        let mut total = Total {
            max,
            exponentials: 0.0,
            distances: 0.0,
            label_distance: f32::INFINITY,
            correct: false,
        };
        let mut below = true;
        for member in members.filter(|member| member.classes > 0.0) {
            let weight = one_exponential(simd, member.max - max);
            let shift = max - member.max;
            total.exponentials += member.exponentials * weight;
            total.distances += member.distances + member.classes * shift;
            if member.label != LABEL_ELSEWHERE {
                total.label_distance = max - member.label_logit;
                total.correct = below && member.label == LABEL_FIRST && member.max == max;
            }
            below &= member.max < max;
        }
        total
    }
}
