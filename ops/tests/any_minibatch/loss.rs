//! The loss, with all classes or some of them.

use std::ops::Range;

use lockstep_ops::{
    Maps, SoftmaxCrossEntropy, SoftmaxCrossEntropyDesc, SoftmaxCrossEntropyForward,
    SoftmaxCrossEntropyForwardBackward, SplitSoftmaxCrossEntropy, SplitSoftmaxCrossEntropyDesc,
    SplitSoftmaxCrossEntropyLoss, SplitSoftmaxCrossEntropyStatistics, Tiles,
};

use crate::{Random, check, on_every_isa, run};

#[test]
fn samples_of_the_loss() {
    for (classes, mb) in [(10, 64), (1000, 300), (37, 5)] {
        on_every_isa(|isa| {
            let random = &mut Random(classes as u64);
            let desc = SoftmaxCrossEntropyDesc { classes, label_smoothing: 0.1 };
            let plan = SoftmaxCrossEntropy::new(desc, isa).expect("a loss");
            let src = random.blocked(Maps { c: classes, h: 1, w: 1 }, isa, mb);
            let labels: Vec<u32> = (0..mb).map(|_| random.below(classes) as u32).collect();
            let both = |samples: Range<usize>| {
                let (mb, labels, src) = (samples.len(), &labels[samples.clone()], src.of(&samples));
                let [mut losses, mut correct] = [(); 2].map(|()| vec![f32::NAN; mb]);
                let diff = run(plan.forward_backward_blocks(mb), src.len(), |block, diff_src| {
                    let (losses, correct) =
                        (Tiles::from(&mut losses[..]), (&mut correct[..]).into());
                    let forward = SoftmaxCrossEntropyForward { mb, src, labels, losses, correct };
                    let io = SoftmaxCrossEntropyForwardBackward { forward, scale: 0.3, diff_src };
                    plan.forward_backward(block, io);
                });
                [losses, correct, diff]
            };
            for output in 0..3 {
                check("loss", mb, random, |samples| both(samples)[output].clone());
            }
        });
    }
}

#[test]
fn samples_of_a_split_loss() {
    let (classes, mb) = (50, 300);
    on_every_isa(|isa| {
        let random = &mut Random(4);
        let labels: Vec<u32> = (0..mb).map(|_| random.below(classes) as u32).collect();
        let part = |first_class, classes_here| {
            let desc = SplitSoftmaxCrossEntropyDesc {
                classes_here,
                first_class,
                classes,
                label_smoothing: 0.1,
            };
            SplitSoftmaxCrossEntropy::new(desc, isa).expect("a loss")
        };
        let plans = [part(0, 16), part(16, 34)];
        let srcs = [16, 34].map(|c| random.blocked(Maps { c, h: 1, w: 1 }, isa, mb));
        let statistics = |member: usize, samples: &Range<usize>| {
            let (plan, src) = (&plans[member], srcs[member].of(samples));
            let (mb, labels) = (samples.len(), &labels[samples.clone()]);
            run(plan.statistics_blocks(mb), plan.statistics_len(mb), |block, stats| {
                plan.statistics(
                    block,
                    SplitSoftmaxCrossEntropyStatistics { mb, src, labels, stats },
                );
            })
        };
        for member in 0..2 {
            check("statistics", mb, random, |samples| statistics(member, &samples));
            let outputs = |samples: Range<usize>| {
                let gathered = [statistics(0, &samples), statistics(1, &samples)].concat();
                let (mb, labels) = (samples.len(), &labels[samples.clone()]);
                let (plan, src) = (&plans[member], srcs[member].of(&samples));
                let [mut losses, mut correct] = [(); 2].map(|()| vec![f32::NAN; mb]);
                let diff = run(plan.forward_backward_blocks(mb), src.len(), |block, diff_src| {
                    let io = SplitSoftmaxCrossEntropyLoss {
                        mb,
                        src,
                        labels,
                        gathered: &gathered,
                        members: 2,
                        member_stride: plan.statistics_len(mb),
                        losses: (&mut losses[..]).into(),
                        correct: (&mut correct[..]).into(),
                        gradient: Some((0.3, diff_src)),
                    };
                    plan.forward_backward(block, io);
                });
                [losses, correct, diff]
            };
            for output in 0..3 {
                check("split loss", mb, random, |samples| outputs(samples)[output].clone());
            }
        }
    });
}
