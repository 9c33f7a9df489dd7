//! Batch normalization against its reference, on one rank and on several, and at its limits.

use proptest::prelude::*;

use super::reference::{Gradients, Training};
use super::*;
use crate::activation::along::{KINDS, applied, differentiated};
use crate::trial::{
    CHANNELS, Random, Watched, assert_close, bits, block, blocked, dot, on_every_isa, run_blocks,
    unblock,
};
use crate::{Isa, Maps, ShapeError, Tiles};

/// One value, with what most tests have.
const PLAIN: BatchNormDesc = BatchNormDesc {
    maps: Maps { c: 1, h: 1, w: 1 },
    eps: 1e-5,
    momentum: 0.1,
    src_activation: None,
    dst_activation: None,
};

/// A layer's inputs: samples of all ranks in plain layout, and how many of them each rank has.
#[derive(Debug, Clone)]
struct Case {
    desc: BatchNormDesc,
    ranks: Vec<usize>,
    src: Vec<f32>,
    diff_dst: Vec<f32>,
    wei: Vec<f32>,
    bia: Vec<f32>,
    running_mean: Vec<f32>,
    running_variance: Vec<f32>,
}

impl Case {
    fn new(maps: Maps, ranks: &[usize], seed: u64) -> Case {
        let mut random = Random(seed);
        let len = ranks.iter().sum::<usize>() * maps.c * maps.h * maps.w;
        Case {
            desc: BatchNormDesc { maps, ..PLAIN },
            ranks: ranks.to_vec(),
            src: random.reals(len),
            diff_dst: random.reals(len),
            wei: random.reals(maps.c),
            bia: random.reals(maps.c),
            running_mean: random.reals(maps.c),
            running_variance: random.reals(maps.c).iter().map(|v| v.abs() + 0.5).collect(),
        }
    }

    /// A channel-wise row, padded with zeros.
    fn row(&self, values: &[f32], isa: Isa) -> Vec<f32> {
        block(values, Maps { c: values.len(), h: 1, w: 1 }, isa)
    }

    fn unrow(&self, values: &[f32], isa: Isa) -> Vec<f32> {
        unblock(values, Maps { c: self.desc.maps.c, h: 1, w: 1 }, isa)
    }

    fn running(&self, isa: Isa) -> Vec<f32> {
        [self.row(&self.running_mean, isa), self.row(&self.running_variance, isa)].concat()
    }

    /// Each rank's samples of a plain tensor, in blocked layout.
    fn shards(&self, plain: &[f32], isa: Isa) -> Vec<Vec<f32>> {
        let Maps { c, h, w } = self.desc.maps;
        let mut rest = plain;
        let mut shard = |mb: &usize| {
            let (own, others) = rest.split_at(mb * c * h * w);
            rest = others;
            block(own, self.desc.maps, isa)
        };
        self.ranks.iter().map(&mut shard).collect()
    }

    fn counts(&self) -> Vec<u64> {
        let pixels = self.desc.maps.h * self.desc.maps.w;
        self.ranks.iter().map(|mb| (mb * pixels) as u64).collect()
    }

    /// Values a channel of every slice of a rank with `mb` samples.
    fn slice_counts(&self, plan: &BatchNorm, mb: usize) -> Vec<u64> {
        let count = |slice| {
            let region = plan.stats_region(slice, mb);
            assert_eq!(region.slice, slice, "the first blocks have the slices in order");
            (region.samples.len() * region.rows.len() * self.desc.maps.w) as u64
        };
        (0..plan.stats_slices(mb)).map(count).collect()
    }

    /// Both passes on every rank with the exchanges in between; ranks must agree on what they share.
    fn train(&self, isa: Isa) -> (Training, Gradients) {
        let plan = BatchNorm::new(self.desc, isa).unwrap();
        let (srcs, diff_dsts) = (self.shards(&self.src, isa), self.shards(&self.diff_dst, isa));
        let (wei, bia) = (self.row(&self.wei, isa), self.row(&self.bia, isa));
        let counts = self.counts();
        let of_ranks = |of_rank: &dyn Fn(usize, usize) -> Vec<f32>| {
            let ranks = self.ranks.iter().enumerate();
            ranks.flat_map(|(rank, &mb)| of_rank(rank, mb)).collect::<Vec<f32>>()
        };
        let stats = of_ranks(&|rank, mb| {
            let len = plan.stats_slices(mb) * plan.stats_len();
            let slices = run_blocks(plan.stats_blocks(mb), len, |block, stats| {
                plan.stats(block, BatchNormStats { mb, src: &srcs[rank], stats });
            });
            // One rank hands its slices on, several merge theirs.
            if self.ranks.len() == 1 {
                return slices;
            }
            let (slices, counts) = (&slices[..], &self.slice_counts(&plan, mb)[..]);
            run_blocks(1, plan.stats_len(), |_, merged| {
                plan.merge_stats(BatchNormMerge { slices, counts, merged });
            })
        });
        let counts = match self.ranks[..] {
            [mb] => self.slice_counts(&plan, mb),
            _ => counts,
        };
        let mut agreed = None;
        let mut dst = Vec::new();
        for (rank, &mb) in self.ranks.iter().enumerate() {
            let mut saved = Watched::new(plan.stats_len());
            let mut running = Watched::holding(self.running(isa));
            let len = blocked(self.desc.maps, isa).len(mb);
            let own = run_blocks(plan.forward_blocks(mb), len, |block, dst| {
                let io = BatchNormForward {
                    mb,
                    src: &srcs[rank],
                    wei: &wei,
                    bia: &bia,
                    stats: &stats,
                    counts: &counts,
                    dst,
                    saved: saved.block(),
                    running: running.block(),
                };
                plan.forward(block, io);
            });
            dst.extend(unblock(&own, self.desc.maps, isa));
            let moves = counts.iter().any(|count| *count > 0);
            let running = if moves { running.finish() } else { running.into_values() };
            let shared = (saved.finish(), running);
            let first = agreed.get_or_insert_with(|| shared.clone());
            assert_eq!(bits(&first.0), bits(&shared.0), "rank {rank}");
            assert_eq!(bits(&first.1), bits(&shared.1), "rank {rank}");
        }
        let (saved, running) = agreed.unwrap();
        let sums = of_ranks(&|rank, mb| {
            let len = plan.stats_slices(mb) * plan.stats_len();
            let slices = run_blocks(plan.backward_stats_blocks(mb), len, |block, sums| {
                let (src, diff_dst) = (&srcs[rank], &diff_dsts[rank]);
                let io = BatchNormBackwardStats { mb, src, diff_dst, saved: &saved, sums };
                plan.backward_stats(block, io);
            });
            if self.ranks.len() == 1 {
                return slices;
            }
            run_blocks(1, plan.stats_len(), |_, merged| plan.merge_sums(&slices, merged))
        });
        let diff_src = of_ranks(&|rank, mb| {
            // In place: the gradient of the output is where that of the input will be.
            let mut diff_src = Watched::holding(diff_dsts[rank].clone());
            for block in 0..plan.backward_blocks(mb) {
                let io = BatchNormBackward {
                    mb,
                    src: &srcs[rank],
                    wei: &wei,
                    saved: &saved,
                    sums: &sums,
                    counts: &counts,
                    diff_dst: None,
                    diff_src: diff_src.block(),
                };
                plan.backward(block, io);
            }
            unblock(&diff_src.finish(), self.desc.maps, isa)
        });
        let mut total = vec![0.0; plan.stats_len()];
        sums.chunks(plan.stats_len()).for_each(|s| (0..s.len()).for_each(|i| total[i] += s[i]));
        let split = |rows: &[f32]| {
            let (first, second) = rows.split_at(plan.channels());
            (self.unrow(first, isa), self.unrow(second, isa))
        };
        let ((mean, inverse_std), (diff_bia, diff_wei)) = (split(&saved), split(&total));
        let (running_mean, running_variance) = split(&running);
        (
            Training { dst, mean, inverse_std, running_mean, running_variance },
            Gradients { diff_src, diff_wei, diff_bia },
        )
    }

    fn eval(&self, isa: Isa) -> Vec<f32> {
        let plan = BatchNorm::new(self.desc, isa).unwrap();
        let mb = self.ranks.iter().sum();
        let (wei, bia, running) =
            (self.row(&self.wei, isa), self.row(&self.bia, isa), self.running(isa));
        let src = block(&self.src, self.desc.maps, isa);
        let eval = |src: Option<&[f32]>, block: usize, dst: Tiles<'_>| {
            let io = BatchNormEval { mb, src, wei: &wei, bia: &bia, running: &running, dst };
            plan.eval(block, io);
        };
        let dst = run_blocks(plan.eval_blocks(mb), src.len(), |b, dst| eval(Some(&src), b, dst));
        let mut in_place = Watched::holding(src.clone());
        (0..plan.eval_blocks(mb)).for_each(|b| eval(None, b, in_place.block()));
        assert_eq!(bits(&in_place.finish()), bits(&dst));
        unblock(&dst, self.desc.maps, isa)
    }

    /// Compares everything with the reference. Inputs are of size 1, so that a sum of n terms is off by n eps at most,
    /// and a normalized value by the error of the mean times 1/std.
    #[track_caller]
    fn check(&self) {
        let running = (&self.running_mean[..], &self.running_variance[..]);
        let want = reference::train(&self.desc, &self.src, &self.wei, &self.bia, running);
        let grads = reference::backward(&self.desc, &self.src, &self.wei, &self.diff_dst);
        let n = self.counts().iter().sum::<u64>() as f32;
        let steep = want.inverse_std.iter().fold(1.0, |a: f32, b| a.max(*b));
        let eps = 8.0 * f32::EPSILON * steep;
        on_every_isa(|isa| {
            let (got, got_grads) = self.train(isa);
            assert_close(&got.mean, &want.mean, eps);
            assert_close(&got.inverse_std, &want.inverse_std, eps * steep * steep);
            assert_close(&got.dst, &want.dst, eps * steep);
            assert_close(&got.running_mean, &want.running_mean, eps);
            assert_close(&got.running_variance, &want.running_variance, eps);
            assert_close(&got_grads.diff_bia, &grads.diff_bia, eps * n);
            assert_close(&got_grads.diff_wei, &grads.diff_wei, eps * n * steep);
            assert_close(&got_grads.diff_src, &grads.diff_src, 4.0 * eps * steep * steep);
            let want = reference::eval(&self.desc, &self.src, &self.wei, &self.bia, running);
            assert_close(&self.eval(isa), &want, eps);
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_split_over_ranks_is_the_reference(
        c in prop::sample::select(&CHANNELS[..]), h in 1_usize..7, w in 1_usize..7,
        ranks in prop::collection::vec(0_usize..5, 1..4), seed: u64,
    ) {
        prop_assume!(ranks.iter().sum::<usize>() * h * w > 1);
        Case::new(Maps { c, h, w }, &ranks, seed).check();
    }
}

#[test]
fn many_samples_and_large_maps_are_the_reference() {
    // More than one group of samples, more than one run of pixels, more than one block of samples.
    Case::new(Maps { c: 3, h: 60, w: 61 }, &[5, 0, 4], 1).check();
    Case::new(Maps { c: 17, h: 1, w: 1 }, &[5000], 2).check();
}

#[test]
fn a_mean_far_from_zero_costs_no_accuracy() {
    let mut case = Case::new(Maps { c: 9, h: 4, w: 4 }, &[3, 5], 3);
    // Exact in f32: eighths at an offset of 2^17.
    case.src.iter_mut().for_each(|v| *v = (*v * 8.0).round() / 8.0 + 131_072.0);
    let near: Vec<f32> = case.src.iter().map(|v| v - 131_072.0).collect();
    let running = (&case.running_mean[..], &case.running_variance[..]);
    let want = reference::train(&case.desc, &near, &case.wei, &case.bia, running);
    on_every_isa(|isa| {
        let (got, _) = case.train(isa);
        // The mean itself is a number near 2^17: it is off by half of 2^-6 at most.
        assert_close(&got.dst, &want.dst, 2.0_f32.powi(-7) * 2.5);
        // So is the distance between the means of the two ranks, about 1/2, whose square is in the variance.
        assert_close(&got.inverse_std, &want.inverse_std, 2.0_f32.powi(-8) * 2.5);
    });
}

#[test]
fn one_value_a_channel_is_normalized_to_the_shift() {
    let case = Case::new(Maps { c: 3, h: 1, w: 1 }, &[0, 1], 4);
    on_every_isa(|isa| {
        let (got, grads) = case.train(isa);
        assert_eq!(got.dst, case.bia);
        assert_eq!(got.mean, case.src);
        let variances = got.running_variance.iter().zip(&case.running_variance);
        variances.for_each(|(new, old)| assert_eq!(*new, *old * (1.0 - 0.1)));
        assert_eq!(grads.diff_src, [0.0; 3]);
        assert_eq!(grads.diff_wei, [0.0; 3]);
    });
}

#[test]
fn without_samples_nothing_moves() {
    let case = Case::new(Maps { c: 3, h: 2, w: 2 }, &[0, 0], 5);
    on_every_isa(|isa| {
        let (got, grads) = case.train(isa);
        assert_eq!(got.running_mean, case.running_mean);
        assert_eq!(got.running_variance, case.running_variance);
        assert_eq!((grads.diff_wei, grads.diff_bia), (vec![0.0; 3], vec![0.0; 3]));
    });
}

#[test]
fn padding_stays_zero_without_eps() {
    let mut case = Case::new(Maps { c: 5, h: 3, w: 3 }, &[2], 6);
    case.desc.eps = 0.0;
    case.check();
}

#[test]
fn nan_spoils_its_channel_and_no_other() {
    let mut case = Case::new(Maps { c: 3, h: 2, w: 2 }, &[1, 1], 7);
    case.src[5] = f32::NAN;
    on_every_isa(|isa| {
        let (got, grads) = case.train(isa);
        for i in 0..case.src.len() {
            assert_eq!(got.dst[i].is_nan(), i / 4 % 3 == 1, "dst {i}");
            assert_eq!(grads.diff_src[i].is_nan(), i / 4 % 3 == 1, "diff_src {i}");
        }
        assert!(got.running_mean[1].is_nan() && !got.running_mean[0].is_nan());
        assert!(case.eval(isa)[5].is_nan());
    });
}

#[test]
fn the_gradient_agrees_with_central_differences() {
    let case = Case::new(Maps { c: 2, h: 2, w: 3 }, &[2, 1], 8);
    let running = (&case.running_mean[..], &case.running_variance[..]);
    let objective = |src: &[f32]| {
        dot(&reference::train(&case.desc, src, &case.wei, &case.bia, running).dst, &case.diff_dst)
    };
    let h = 1.0 / 64.0;
    on_every_isa(|isa| {
        let (_, grads) = case.train(isa);
        for i in 0..case.src.len() {
            let moved = |by: f32| {
                let mut src = case.src.clone();
                src[i] += by;
                objective(&src)
            };
            let slope = (moved(h) - moved(-h)) / (2.0 * f64::from(h));
            // The third derivative is of size 1/std^3, and h^2/6 times that is about 5e-4.
            assert!((slope - f64::from(grads.diff_src[i])).abs() < 2e-3, "element {i}");
        }
    });
}

#[test]
fn the_gradient_of_evaluation_is_the_scale() {
    let desc = BatchNormDesc { eps: 0.0, ..PLAIN };
    on_every_isa(|isa| {
        let plan = BatchNorm::new(desc, isa).unwrap();
        let row = |value: f32| block(&[value], desc.maps, isa);
        let saved = [row(5.0), row(0.25)].concat();
        let diff_src = run_blocks(plan.backward_blocks(1), isa.lanes(), |b, diff_src| {
            let io = BatchNormBackward {
                mb: 1,
                src: &row(7.0),
                wei: &row(3.0),
                saved: &saved,
                sums: &[],
                counts: &[],
                diff_dst: Some(&row(2.0)),
                diff_src,
            };
            plan.backward(b, io);
        });
        assert_eq!(unblock(&diff_src, desc.maps, isa), [1.5]);
    });
}

#[test]
fn parameters_outside_their_range_are_refused() {
    let maps = Maps { c: 1, h: 1, w: 1 };
    let refused = |maps, eps, momentum| {
        BatchNorm::new(BatchNormDesc { maps, eps, momentum, ..PLAIN }, Isa::detect()).unwrap_err()
    };
    assert!(matches!(refused(maps, -1.0, 0.1), ShapeError::OutOfRange { field: "eps", .. }));
    assert!(matches!(
        refused(maps, 0.0, f32::NAN),
        ShapeError::OutOfRange { field: "momentum", .. }
    ));
    let empty = Maps { h: 0, ..maps };
    assert_eq!(refused(empty, 0.0, 0.1), ShapeError::Zero { op: "batch_norm", field: "h" });
}

#[test]
fn activations_taken_along_are_those_of_layers_before_and_after() {
    for c in CHANNELS {
        let maps = Maps { c, h: 3, w: 5 };
        let given = Case::new(maps, &[2, 1], c as u64);
        on_every_isa(|isa| {
            for kind in KINDS {
                let mut case = given.clone();
                case.src = applied(kind, maps, isa, &given.src);
                case.desc = BatchNormDesc { maps, ..PLAIN };
                let (apart, apart_diff) = case.train(isa);
                let apart_eval = case.eval(isa);
                case.desc = BatchNormDesc {
                    src_activation: Some(kind),
                    dst_activation: Some(kind),
                    ..case.desc
                };
                let (along, along_diff) = case.train(isa);
                assert_eq!(bits(&along.dst), bits(&applied(kind, maps, isa, &apart.dst)));
                assert_eq!(bits(&case.eval(isa)), bits(&applied(kind, maps, isa, &apart_eval)));
                let pair = [&case.src[..], &apart_diff.diff_src];
                let want = differentiated(kind, maps, isa, pair);
                assert_eq!(bits(&along_diff.diff_src), bits(&want));
            }
        });
    }
}

#[test]
fn large_maps_are_cut_into_slices_of_rows() {
    let case = Case::new(Maps { c: 17, h: 70, w: 71 }, &[2], 9);
    on_every_isa(|isa| {
        let plan = BatchNorm::new(case.desc, isa).unwrap();
        assert!(plan.stats_slices(2) > 2 && plan.stats_blocks(2) > 2);
    });
    case.check();
}

#[test]
fn who_writes_the_input_computes_the_same_statistics() {
    let case = Case::new(Maps { c: 19, h: 70, w: 71 }, &[2], 10);
    on_every_isa(|isa| {
        let plan = BatchNorm::new(case.desc, isa).unwrap();
        let mut src = block(&case.src, case.desc.maps, isa);
        let (blocks, len) = (plan.stats_blocks(2), plan.stats_slices(2) * plan.stats_len());
        let apart = run_blocks(blocks, len, |block, stats| {
            plan.stats(block, BatchNormStats { mb: 2, src: &src, stats });
        });
        let dst = Tiles::from(&mut src[..]);
        let along = run_blocks(blocks, len, |block, stats| {
            plan.stats_of(&plan.stats_region(block, 2), &dst, stats);
        });
        assert_eq!(bits(&along), bits(&apart));
    });
}
