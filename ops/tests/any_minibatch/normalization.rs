//! Batch normalization with given statistics, and statistics of given samples.

use std::ops::Range;

use lockstep_ops::{
    ActivationKind, BatchNorm, BatchNormBackward, BatchNormBackwardStats, BatchNormDesc,
    BatchNormEval, BatchNormForward, BatchNormMerge, BatchNormRange, BatchNormStats, Isa, Maps,
    Tiles,
};

use crate::{Random, Tensor, check, check_sums, difference, on_every_isa, run};

/// A layer with what its passes read.
struct Layer {
    norm: BatchNorm,
    wei: Vec<f32>,
    bia: Vec<f32>,
    /// Means, and positive numbers: running statistics, or what a forward pass saved.
    saved: Vec<f32>,
    src: Tensor,
    diff_dst: Tensor,
}

impl Layer {
    fn new(maps: Maps, isa: Isa, mb: usize) -> Layer {
        let random = &mut Random((maps.c + maps.h) as u64);
        let desc = BatchNormDesc {
            maps,
            eps: 1e-5,
            momentum: 0.1,
            src_activation: Some(ActivationKind::Relu),
            dst_activation: None,
        };
        let norm = BatchNorm::new(desc, isa).expect("the shape is possible");
        let mut row = |offset: f32| {
            let mut row = vec![0.0; norm.channels()];
            let values = random.reals(maps.c);
            row.iter_mut().zip(values).for_each(|(to, value)| *to = value + offset);
            row
        };
        let (wei, bia, saved) = (row(0.0), row(0.0), [row(0.0), row(2.0)].concat());
        let (src, diff_dst) = (random.blocked(maps, isa, mb), random.blocked(maps, isa, mb));
        Layer { norm, wei, bia, saved, src, diff_dst }
    }

    fn eval(&self, samples: Range<usize>) -> Vec<f32> {
        let (norm, mb, src) = (&self.norm, samples.len(), self.src.of(&samples));
        run(norm.eval_blocks(mb), src.len(), |block, dst| {
            let (wei, bia, running) = (&self.wei, &self.bia, &self.saved);
            norm.eval(block, BatchNormEval { mb, src: Some(src), wei, bia, running, dst });
        })
    }

    /// The forward pass of training with the statistics of other samples.
    fn forward(&self, samples: Range<usize>) -> Vec<f32> {
        let (norm, mb, src) = (&self.norm, samples.len(), self.src.of(&samples));
        let [mut saved, mut running] = [(); 2].map(|()| vec![0.0; norm.stats_len()]);
        run(norm.forward_blocks(mb), src.len(), |block, dst| {
            let io = BatchNormForward {
                mb,
                src,
                wei: &self.wei,
                bia: &self.bia,
                stats: &self.saved,
                counts: &[40],
                dst,
                saved: Tiles::from(&mut saved[..]),
                running: Tiles::from(&mut running[..]),
            };
            norm.forward(block, io);
        })
    }

    fn backward(&self, samples: Range<usize>) -> Vec<f32> {
        let (norm, mb, src) = (&self.norm, samples.len(), self.src.of(&samples));
        let diff_dst = Some(self.diff_dst.of(&samples));
        run(norm.backward_blocks(mb), src.len(), |block, diff_src| {
            let (wei, saved, sums, counts) = (&self.wei, &self.saved, &self.saved, &[40]);
            let io = BatchNormBackward { mb, src, wei, saved, sums, counts, diff_dst, diff_src };
            norm.backward(block, io);
        })
    }

    /// Statistics and sums of some samples, in slices as the plan cuts them, or as one range.
    fn sums(&self, samples: &Range<usize>, alone: Option<usize>, as_range: bool) -> Vec<f32> {
        let (norm, mb) = (&self.norm, samples.len());
        let (src, diff_dst) = (&self.src, &self.diff_dst);
        let copies =
            alone.map(|skip| (skip, src.alone(samples, skip), diff_dst.alone(samples, skip)));
        let (src, diff_dst) = match &copies {
            Some((skip, src, diff_dst)) => (&src[*skip..], &diff_dst[*skip..]),
            None => (src.of(samples), diff_dst.of(samples)),
        };
        let range = BatchNormRange { samples: 0..mb, slice: 0 };
        let saved = &self.saved;
        let (blocks, slices) = if as_range {
            (norm.range_blocks(), 1)
        } else {
            (norm.stats_blocks(mb), norm.stats_slices(mb))
        };
        let len = slices * norm.stats_len();
        let stats = run(blocks, len, |block, stats| {
            let io = BatchNormStats { mb, src, stats };
            if as_range {
                norm.range_stats(block, &range, io);
            } else {
                norm.stats(block, io);
            }
        });
        let sums = run(blocks, len, |block, sums| {
            let io = BatchNormBackwardStats { mb, src, diff_dst, saved, sums };
            if as_range {
                norm.range_sums(block, &range, io);
            } else {
                norm.backward_stats(block, io);
            }
        });
        [stats, sums].concat()
    }
}

/// Small maps of which many samples are a slice, maps of which one sample is several slices, and what is between.
const SHAPES: [(Maps, usize); 4] = [
    (Maps { c: 35, h: 1, w: 1 }, 300),
    (Maps { c: 20, h: 7, w: 9 }, 64),
    (Maps { c: 17, h: 30, w: 33 }, 9),
    (Maps { c: 3, h: 80, w: 70 }, 4),
];

#[test]
fn samples_of_a_normalization() {
    for (maps, mb) in SHAPES {
        on_every_isa(|isa| {
            let layer = Layer::new(maps, isa, mb);
            let random = &mut Random(1);
            check("eval", mb, random, |samples| layer.eval(samples));
            check("forward", mb, random, |samples| layer.forward(samples));
            check("backward", mb, random, |samples| layer.backward(samples));
        });
    }
}

#[test]
fn statistics_depend_on_their_samples_alone() {
    for (maps, mb) in SHAPES {
        on_every_isa(|isa| {
            let layer = Layer::new(maps, isa, mb);
            for as_range in [false, true] {
                check_sums("statistics", mb, &mut Random(2), |samples, alone| {
                    layer.sums(&samples, alone, as_range)
                });
            }
        });
    }
}

#[test]
fn ranges_within_a_minibatch_have_the_bits_of_ranges_alone() {
    for (maps, mb) in SHAPES {
        on_every_isa(|isa| {
            let layer = Layer::new(maps, isa, mb);
            let norm = &layer.norm;
            let cut = mb / 3;
            let ranges = [0..cut, cut..cut, cut..mb];
            let (src, diff_dst, saved) = (&layer.src.values, &layer.diff_dst.values, &layer.saved);
            let len = norm.stats_len();
            let (mut all_stats, mut all_sums) = (vec![f32::NAN; 3 * len], vec![f32::NAN; 3 * len]);
            for (slice, samples) in ranges.iter().enumerate() {
                let range = BatchNormRange { samples: samples.clone(), slice };
                for block in 0..norm.range_blocks() {
                    let stats = (&mut all_stats[..]).into();
                    norm.range_stats(block, &range, BatchNormStats { mb, src, stats });
                    let sums = (&mut all_sums[..]).into();
                    let io = BatchNormBackwardStats { mb, src, diff_dst, saved, sums };
                    norm.range_sums(block, &range, io);
                }
                let here = slice * len..(slice + 1) * len;
                let got = [&all_stats[here.clone()], &all_sums[here]].concat();
                assert_eq!(difference(&got, &layer.sums(samples, Some(3), true)), None);
            }
            assert!(all_stats[len..2 * len].iter().all(|x| *x == 0.0), "nothing has no spread");

            // All ranges together are the minibatch, whatever its slices.
            let counts = ranges.map(|range| (range.len() * maps.h * maps.w) as u64);
            let merged = run(1, len, |_, merged| {
                norm.merge_stats(BatchNormMerge { slices: &all_stats, counts: &counts, merged });
            });
            let sliced = layer.sums(&(0..mb), None, true);
            for (channel, (got, want)) in merged.iter().zip(&sliced[..len]).enumerate() {
                // Both rows are sums of up to 6000 numbers up to 4, added up in runs.
                let terms = (mb * maps.h * maps.w) as f32;
                let tolerance = f32::EPSILON * terms.sqrt() * (1.0 + want.abs());
                assert!((got - want).abs() <= tolerance, "{channel}: {got} {want}");
            }
        });
    }
}
