//! Tests of the split loss: against the loss that is not split, and against the reference.

use proptest::prelude::*;

use super::*;
use crate::trial::{Random, Watched, assert_close, bits, block, on_every_isa, unblock};
use crate::{Isa, Maps};

/// What all members compute, in plain layout.
struct Results {
    losses: Vec<f32>,
    correct: Vec<f32>,
    diff_src: Vec<f32>,
}

/// A loss of (mb, classes) plain logits.
#[derive(Debug, Clone)]
struct Problem {
    classes: usize,
    label_smoothing: f32,
    scale: f32,
    src: Vec<f32>,
    labels: Vec<u32>,
}

fn maps(c: usize) -> Maps {
    Maps { c, h: 1, w: 1 }
}

impl Problem {
    fn mb(&self) -> usize {
        self.labels.len()
    }

    /// The loss with all classes at hand.
    fn whole(&self, isa: Isa) -> Results {
        let Problem { classes, label_smoothing, scale, .. } = *self;
        let (mb, labels) = (self.mb(), &self.labels[..]);
        let plan =
            SoftmaxCrossEntropy::new(SoftmaxCrossEntropyDesc { classes, label_smoothing }, isa)
                .unwrap();
        let src = block(&self.src, maps(classes), isa);
        let [mut losses, mut correct, mut diff_src] = [mb, mb, src.len()].map(Watched::new);
        for block in 0..plan.forward_backward_blocks(mb) {
            let (losses, correct) = (losses.block(), correct.block());
            let forward = SoftmaxCrossEntropyForward { mb, src: &src, labels, losses, correct };
            let diff_src = diff_src.block();
            let io = SoftmaxCrossEntropyForwardBackward { forward, scale, diff_src };
            plan.forward_backward(block, io);
        }
        Results {
            losses: losses.finish(),
            correct: correct.finish(),
            diff_src: unblock(&diff_src.finish(), maps(classes), isa),
        }
    }

    /// The plain logits of some classes.
    fn columns(&self, first: usize, count: usize) -> Vec<f32> {
        let rows = self.src.chunks_exact(self.classes);
        rows.flat_map(|row| row[first..first + count].to_vec()).collect()
    }

    /// The loss with the classes split into `parts`; every member must find the same losses.
    fn split(&self, parts: &[usize], isa: Isa) -> Results {
        let Problem { classes, label_smoothing, scale, .. } = *self;
        let (mb, labels) = (self.mb(), &self.labels[..]);
        let mut members = Vec::new();
        let mut first_class = 0;
        for &classes_here in parts {
            let desc = SplitSoftmaxCrossEntropyDesc {
                classes_here,
                first_class,
                classes,
                label_smoothing,
            };
            let plan = SplitSoftmaxCrossEntropy::new(desc, isa).unwrap();
            let plain = self.columns(first_class, classes_here);
            let src =
                if classes_here == 0 { vec![] } else { block(&plain, maps(classes_here), isa) };
            members.push((plan, src));
            first_class += classes_here;
        }
        assert_eq!(first_class, classes, "the parts are all classes");

        // Room for more samples than there are, as in a buffer made for the largest share.
        let member_stride = (mb + 3) * SplitSoftmaxCrossEntropy::STATISTICS;
        let mut gathered = vec![f32::NAN; parts.len() * member_stride];
        for ((plan, src), gathered) in members.iter().zip(gathered.chunks_exact_mut(member_stride))
        {
            let mut stats = Watched::new(plan.statistics_len(mb));
            for block in 0..plan.statistics_blocks(mb) {
                let stats = stats.block();
                let io = SplitSoftmaxCrossEntropyStatistics { mb, src, labels, stats };
                plan.statistics(block, io);
            }
            gathered[..plan.statistics_len(mb)].copy_from_slice(&stats.finish());
        }

        let mut results: Option<Results> = None;
        let mut diff_src = vec![0.0; self.src.len()];
        for (plan, src) in &members {
            let desc = plan.desc();
            let run = |with_gradient: bool| {
                let [mut losses, mut correct, mut diff] = [mb, mb, src.len()].map(Watched::new);
                for block in 0..plan.forward_backward_blocks(mb) {
                    let gradient = with_gradient.then(|| (scale, diff.block()));
                    plan.forward_backward(
                        block,
                        SplitSoftmaxCrossEntropyLoss {
                            mb,
                            src,
                            labels,
                            gathered: &gathered,
                            members: parts.len(),
                            member_stride,
                            losses: losses.block(),
                            correct: correct.block(),
                            gradient,
                        },
                    );
                }
                let diff = if with_gradient { diff.finish() } else { vec![] };
                (losses.finish(), correct.finish(), diff)
            };
            let (losses, correct, diff) = run(true);
            let (losses_alone, correct_alone, _) = run(false);
            assert_eq!(bits(&losses_alone), bits(&losses), "the gradient changes nothing");
            assert_eq!(correct_alone, correct);
            if desc.classes_here > 0 {
                let diff = unblock(&diff, maps(desc.classes_here), isa);
                for (to, from) in
                    diff_src.chunks_exact_mut(classes).zip(diff.chunks_exact(desc.classes_here))
                {
                    to[desc.first_class..][..desc.classes_here].copy_from_slice(from);
                }
            }
            if let Some(first) = &results {
                assert_eq!(bits(&losses), bits(&first.losses), "all members find the same losses");
                assert_eq!(correct, first.correct);
            }
            results = Some(Results { losses, correct, diff_src: vec![] });
        }
        Results { diff_src, ..results.expect("there is a member") }
    }

    /// The largest finite logit, in size.
    fn size(&self) -> f32 {
        self.src.iter().filter(|x| x.is_finite()).fold(1.0, |size, x| size.max(x.abs()))
    }

    /// Compares a split with the whole.
    fn check(&self, parts: &[usize]) {
        on_every_isa(|isa| {
            let (whole, split) = (self.whole(isa), self.split(parts, isa));
            assert_eq!(split.correct, whole.correct, "{parts:?} on {}", isa.name());
            for (got, want) in split.losses.iter().zip(&whole.losses) {
                // A loss is a difference of logits: relative to the larger of both.
                assert_close(&[*got], &[*want], 1e-6 * want.abs().max(self.size()));
            }
            // Both exponentials are the same; their sums are of up to 1000 terms.
            assert_close(&split.diff_src, &whole.diff_src, 1e-6 * self.scale);
        });
    }
}

/// Shares of whole groups of 16 classes, but for the last: some members may have none.
fn shares(classes: usize, members: usize) -> Vec<usize> {
    let groups = classes.div_ceil(16);
    let start = |member: usize| (member * groups / members * 16).min(classes);
    (0..members).map(|member| start(member + 1) - start(member)).collect()
}

#[test]
fn shares_are_what_they_should_be() {
    assert_eq!(shares(50, 3), [16, 16, 18]);
    assert_eq!(shares(10, 2), [0, 10]);
}

#[test]
fn split_losses_agree_with_the_whole() {
    for classes in [1, 10, 16, 17, 50, 96, 1000] {
        for label_smoothing in [0.0, 0.1, 1.0] {
            for reach in [1e-3, 8.0, 1e4] {
                let mut random = Random(classes as u64);
                let mb = 9;
                let src = random.reals(mb * classes).iter().map(|x| x * reach).collect();
                // Labels at both ends and at the borders of shares.
                let borders = [0, 15, 16, 31, 32, classes / 2, classes - 1, 47, 48];
                let labels = borders.map(|label: usize| label.min(classes - 1) as u32).to_vec();
                let problem = Problem { classes, label_smoothing, scale: 0.25, src, labels };
                for members in 1..=5 {
                    problem.check(&shares(classes, members));
                }
            }
        }
    }
}

#[test]
fn one_member_has_the_bits_of_the_whole() {
    let src = Random(3).reals(40 * 37).iter().map(|x| x * 20.0).collect();
    let labels = (0..40).map(|n| n % 37).collect();
    let problem = Problem { classes: 37, label_smoothing: 0.1, scale: 1.0 / 40.0, src, labels };
    on_every_isa(|isa| {
        let (whole, split) = (problem.whole(isa), problem.split(&[37], isa));
        assert_eq!(bits(&split.losses), bits(&whole.losses));
        assert_eq!(bits(&split.diff_src), bits(&whole.diff_src));
        assert_eq!(split.correct, whole.correct);
    });
}

#[test]
fn split_losses_agree_with_the_reference() {
    let (classes, parts, mb) = (70, [16, 32, 22], 6);
    let src: Vec<f32> = Random(8).reals(mb * classes).iter().map(|x| x * 8.0).collect();
    let labels = vec![0, 15, 16, 47, 48, 69];
    let problem = Problem { classes, label_smoothing: 0.0, scale: 0.5, src, labels };
    let mut starts = Vec::new();
    let mut statistics = Vec::new();
    for (member, &count) in parts.iter().enumerate() {
        let start = parts[..member].iter().sum();
        starts.push(start);
        let plain = problem.columns(start, count);
        statistics.push(reference::split_statistics(count, &plain, mb));
    }
    let logarithms: Vec<f64> = (0..mb)
        .map(|n| reference::merge_statistics(&[0, 1, 2].map(|member: usize| statistics[member][n])))
        .collect();
    let logits = (0..mb).map(|n| problem.src[n * classes + problem.labels[n] as usize]);
    let losses: Vec<f32> =
        logits.zip(&logarithms).map(|(x, log)| (log - f64::from(x)) as f32).collect();
    on_every_isa(|isa| {
        let got = problem.split(&parts, isa);
        assert_close(&got.losses, &losses, 16.0 * 4.0 * f32::EPSILON);
        for (&first_class, &classes_here) in starts.iter().zip(&parts) {
            let desc = SplitSoftmaxCrossEntropyDesc {
                classes_here,
                first_class,
                classes,
                label_smoothing: 0.0,
            };
            let plain = problem.columns(first_class, classes_here);
            let want = reference::split_backward(&desc, 0.5, &plain, &problem.labels, &logarithms);
            let rows = got.diff_src.chunks_exact(classes);
            let part: Vec<f32> =
                rows.flat_map(|row| row[first_class..][..classes_here].to_vec()).collect();
            assert_close(&part, &want, 0.5 * 24.0 * f32::EPSILON);
        }
    });
}

#[test]
fn the_first_maximum_wins_across_members_and_nan_is_never_correct() {
    let classes = 48;
    let ties = |sample: &[(usize, f32)]| {
        let mut row = vec![0.0; classes];
        sample.iter().for_each(|&(class, x)| row[class] = x);
        row
    };
    let rows = [
        // Ties of two members, the label being the first's, then the second's.
        (ties(&[(7, 2.0), (40, 2.0)]), 7, 1.0),
        (ties(&[(7, 2.0), (40, 2.0)]), 40, 0.0),
        // Ties within a member.
        (ties(&[(33, 2.0), (40, 2.0)]), 40, 0.0),
        (ties(&[(33, 2.0), (40, 2.0)]), 33, 1.0),
        // All alike.
        (ties(&[]), 0, 1.0),
        (ties(&[]), 16, 0.0),
        // NaN with the label, with another class of its member, and with another member.
        (ties(&[(20, f32::NAN)]), 20, 0.0),
        (ties(&[(20, f32::NAN), (16, 3.0)]), 16, 0.0),
        (ties(&[(20, f32::NAN), (1, 3.0)]), 1, 0.0),
    ];
    let src: Vec<f32> = rows.iter().flat_map(|(row, ..)| row.clone()).collect();
    let labels = rows.iter().map(|(_, label, _)| *label).collect();
    let problem = Problem { classes, label_smoothing: 0.0, scale: 1.0, src, labels };
    let want: Vec<f32> = rows.iter().map(|(.., correct)| *correct).collect();
    for parts in [&[16, 16, 16][..], &[0, 16, 32], &[16, 0, 32], &[48, 0]] {
        problem.check(parts);
        on_every_isa(|isa| {
            let got = problem.split(parts, isa);
            assert_eq!(got.correct, want, "{parts:?}");
            assert!(got.losses[6..].iter().all(|x| x.is_nan()));
            assert!(got.diff_src[6 * classes..].iter().all(|x| x.is_nan()));
            assert!(got.diff_src[..6 * classes].iter().all(|x| x.is_finite()));
        });
    }
}

#[test]
fn infinite_and_huge_logits_are_as_in_the_whole() {
    let classes = 32;
    let mut src = Vec::new();
    let low = f32::NEG_INFINITY;
    // All of a member masked out, all of both, a plus infinity, and numbers that would overflow.
    src.extend((0..32).map(|class| if class < 16 { low } else { class as f32 }));
    src.extend([low; 32]);
    src.extend((0..32).map(|class| if class == 20 { f32::INFINITY } else { 0.0 }));
    src.extend((0..32).map(|class| if class == 3 { 3e38 } else { -1e30 }));
    src.extend((0..32).map(|class| if class == 17 { 1e8 } else { 1e8 - 64.0 }));
    for label_smoothing in [0.0, 0.1] {
        for label in [3, 20] {
            let labels = vec![label; 5];
            let src = src.clone();
            let problem = Problem { classes, label_smoothing, scale: 1.0, src, labels };
            on_every_isa(|isa| {
                let (whole, split) = (problem.whole(isa), problem.split(&[16, 16], isa));
                for (got, want) in split.losses.iter().zip(&whole.losses) {
                    assert_close(&[*got], &[*want], 1e-6 * want.abs());
                }
                assert_close(&split.diff_src, &whole.diff_src, 1e-6);
                assert_eq!(split.correct, whole.correct);
            });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_split_agrees_with_the_whole(
        parts in prop::collection::vec(0..70_usize, 1..=5),
        label_smoothing in prop_oneof![Just(0.0_f32), 0.01..1.0_f32],
        mb in 1..6_usize,
        seed in any::<u64>(),
    ) {
        let classes: usize = parts.iter().sum();
        prop_assume!(classes > 0);
        let mut random = Random(seed);
        let src = random.reals(mb * classes).iter().map(|x| x * 10.0).collect();
        let labels = (0..mb).map(|n| (seed as usize / (n + 1) % classes) as u32).collect();
        let problem = Problem { classes, label_smoothing, scale: 1.0, src, labels };
        problem.check(&parts);
    }
}

#[test]
fn many_samples_make_several_blocks() {
    let (classes, mb) = (1000, 300);
    let src = Random(1).reals(mb * classes);
    let labels = (0..mb as u32).collect();
    let problem = Problem { classes, label_smoothing: 0.0, scale: 1.0, src, labels };
    problem.check(&[512, 488]);
    let desc = SplitSoftmaxCrossEntropyDesc {
        classes_here: 488,
        first_class: 512,
        classes,
        label_smoothing: 0.0,
    };
    on_every_isa(|isa| {
        let plan = SplitSoftmaxCrossEntropy::new(desc, isa).unwrap();
        assert!(plan.statistics_blocks(mb) > 2);
        assert_eq!(plan.forward_backward_blocks(0), 0);
    });
}

#[test]
fn classes_beyond_all_are_refused() {
    let desc = |first_class| SplitSoftmaxCrossEntropyDesc {
        classes_here: 16,
        first_class,
        classes: 40,
        label_smoothing: 0.0,
    };
    assert!(SplitSoftmaxCrossEntropy::new(desc(24), Isa::detect()).is_ok());
    let error = SplitSoftmaxCrossEntropy::new(desc(32), Isa::detect()).unwrap_err();
    let message = "split_softmax_cross_entropy: classes 32..48 are not among 40 classes";
    assert_eq!(error.to_string(), message);
}

#[test]
#[should_panic(expected = "label Some(40) is none of 40 classes")]
fn a_label_that_is_no_class_is_refused() {
    let desc = SplitSoftmaxCrossEntropyDesc {
        classes_here: 16,
        first_class: 0,
        classes: 40,
        label_smoothing: 0.0,
    };
    let plan = SplitSoftmaxCrossEntropy::new(desc, Isa::detect()).unwrap();
    let mut stats = vec![0.0; plan.statistics_len(1)];
    let stats = (&mut stats[..]).into();
    let io = SplitSoftmaxCrossEntropyStatistics { mb: 1, src: &[0.0; 16], labels: &[40], stats };
    plan.statistics(0, io);
}
