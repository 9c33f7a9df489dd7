//! Batch normalization, in training and in evaluation.

use lockstep::ops::{
    BatchNorm, BatchNormBackward, BatchNormBackwardStats, BatchNormDesc, BatchNormEval,
    BatchNormForward, BatchNormMerge, BatchNormStats, Isa, TensorRegion, Tiles,
};

use super::Case;
use super::tensors::{blocked, padded, plain, run};

pub(super) fn check(case: &Case, isa: Isa) {
    let x = case.tensor("x");
    let desc = BatchNormDesc {
        maps: x.maps(),
        eps: case.parameter("eps"),
        momentum: case.parameter("momentum"),
        src_activation: None,
        dst_activation: None,
    };
    let plan = BatchNorm::new(desc, isa).expect("PyTorch took it");
    let row = |name: &str| padded(&case.tensor(name).values, isa);
    let layer = Layer { case, isa, plan: &plan, src: blocked(x, isa), wei: row("weight") };
    let (bia, running) = (row("bias"), [row("running_mean"), row("running_var")].concat());
    if case.flag("training") {
        layer.check_training(&bia, running);
    } else {
        layer.check_evaluation(&bia, &running);
    }
}

struct Layer<'a> {
    case: &'a Case,
    isa: Isa,
    plan: &'a BatchNorm,
    src: Vec<f32>,
    wei: Vec<f32>,
}

impl Layer<'_> {
    fn check_training(&self, bia: &[f32], mut running: Vec<f32>) {
        let Layer { case, plan, src, wei, .. } = self;
        let (mb, maps) = (case.tensor("x").mb(), plan.desc().maps);
        let counts = &[(mb * maps.h * maps.w) as u64];
        let len = plan.stats_slices(mb) * plan.stats_len();
        let slices = &run(plan.stats_blocks(mb), len, |block, stats| {
            plan.stats(block, BatchNormStats { mb, src, stats });
        })[..];
        let regions = (0..plan.stats_slices(mb)).map(|slice| plan.stats_region(slice, mb));
        let count = |r: TensorRegion| (r.samples.len() * r.rows.len() * maps.w) as u64;
        let slice_counts = &regions.map(count).collect::<Vec<_>>()[..];
        let stats = &run(1, plan.stats_len(), |_, merged| {
            plan.merge_stats(BatchNormMerge { slices, counts: slice_counts, merged });
        });
        let mut saved = vec![f32::NAN; plan.stats_len()];
        let dst = run(plan.forward_blocks(mb), src.len(), |block, dst| {
            let (saved, running) = (Tiles::from(&mut saved[..]), Tiles::from(&mut running[..]));
            let io = BatchNormForward { mb, src, wei, bia, stats, counts, dst, saved, running };
            plan.forward(block, io);
        });
        case.compare("out", &plain(&dst, maps, self.isa));
        let (mean, variance) = running.split_at(plan.channels());
        case.compare("new_running_mean", &mean[..maps.c]);
        case.compare("new_running_var", &variance[..maps.c]);
        self.check_gradients(&saved, counts);
    }

    fn check_evaluation(&self, bia: &[f32], running: &[f32]) {
        let Layer { case, plan, src, wei, .. } = self;
        let (mb, maps) = (case.tensor("x").mb(), plan.desc().maps);
        let dst = run(plan.eval_blocks(mb), src.len(), |block, dst| {
            plan.eval(block, BatchNormEval { mb, src: Some(src), wei, bia, running, dst });
        });
        case.compare("out", &plain(&dst, maps, self.isa));
        let mut saved = running.to_vec();
        for value in &mut saved[plan.channels()..][..maps.c] {
            *value = 1.0 / (*value + plan.desc().eps).sqrt();
        }
        self.check_gradients(&saved, &[]);
    }

    /// Without `counts` the statistics are constants.
    fn check_gradients(&self, saved: &[f32], counts: &[u64]) {
        let Layer { case, plan, src, wei, .. } = self;
        let (mb, maps) = (case.tensor("x").mb(), plan.desc().maps);
        let diff_dst = &blocked(case.tensor("d_out"), self.isa);
        let len = plan.stats_slices(mb) * plan.stats_len();
        let slices = run(plan.backward_stats_blocks(mb), len, |block, sums| {
            plan.backward_stats(block, BatchNormBackwardStats { mb, src, diff_dst, saved, sums });
        });
        let sums = run(1, plan.stats_len(), |_, merged| plan.merge_sums(&slices, merged));
        let (diff_bia, diff_wei) = sums.split_at(plan.channels());
        case.compare("d_bias", &diff_bia[..maps.c]);
        case.compare("d_weight", &diff_wei[..maps.c]);

        let sums = &sums[..counts.len() * plan.stats_len()];
        let diff_src = run(plan.backward_blocks(mb), src.len(), |block, diff_src| {
            let diff_dst = Some(&diff_dst[..]);
            let io = BatchNormBackward { mb, src, wei, saved, sums, counts, diff_dst, diff_src };
            plan.backward(block, io);
        });
        case.compare("d_x", &plain(&diff_src, maps, self.isa));
    }
}
