//! What a sample's results are does not depend on the minibatch that it is part of, nor on its place there: that is why
//! data-parallel training can have the same bits on any number of ranks.

mod convolution;
mod fully_connected;
mod loss;
mod normalization;
mod per_sample;
mod slices;
mod steps;

use std::ops::Range;

use lockstep_ops::{Isa, Layout, Maps, TensorLayout, Tiles, block_samples};

/// A small random number generator (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// Numbers from -1 to 1, whose sums are rounded.
    fn reals(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
    }

    /// A tensor of `mb` samples, in blocked layout.
    fn blocked(&mut self, maps: Maps, isa: Isa, mb: usize) -> Tensor {
        self.tensor(TensorLayout { maps, layout: Layout::Blocked(isa.lanes()) }, mb)
    }

    fn tensor(&mut self, layout: TensorLayout, mb: usize) -> Tensor {
        let mut values = vec![0.0; layout.len(mb)];
        block_samples(layout, &self.reals(mb * layout.maps.len()), &mut values);
        Tensor { sample_len: layout.sample_len(), values }
    }
}

/// Samples one after the other.
#[derive(Clone)]
struct Tensor {
    sample_len: usize,
    values: Vec<f32>,
}

impl Tensor {
    /// Some of the samples, where they lie.
    fn of(&self, samples: &Range<usize>) -> &[f32] {
        &self.values[samples.start * self.sample_len..samples.end * self.sample_len]
    }

    /// The same samples in other memory, with nothing but NaN around them.
    fn alone(&self, samples: &Range<usize>, before: usize) -> Vec<f32> {
        let mut values = vec![f32::NAN; before];
        values.extend(self.of(samples));
        values.extend(vec![f32::NAN; 1000]);
        values
    }
}

fn on_every_isa(check: impl Fn(Isa)) {
    Isa::all_available().into_iter().for_each(check);
}

/// What the blocks of a pass write to an output of `len` elements.
fn run(blocks: usize, len: usize, mut pass: impl FnMut(usize, Tiles<'_>)) -> Vec<f32> {
    let mut output = vec![f32::NAN; len];
    (0..blocks).for_each(|block| pass(block, Tiles::from(&mut output[..])));
    output
}

/// The first place where bits differ.
fn difference(got: &[f32], want: &[f32]) -> Option<usize> {
    assert_eq!(got.len(), want.len());
    (0..got.len()).find(|&i| got[i].to_bits() != want[i].to_bits())
}

/// Checks that a pass that writes samples gives each the same bits in the whole minibatch and in unequal parts of it.
/// `pass` computes some samples as a minibatch of their own.
#[track_caller]
fn check(what: &str, mb: usize, random: &mut Random, pass: impl Fn(Range<usize>) -> Vec<f32>) {
    let whole = pass(0..mb);
    assert!(whole.iter().all(|x| !x.is_nan()), "{what}: everything is written");
    let sample_len = whole.len() / mb.max(1);
    for _ in 0..2 {
        let mut start = 0;
        while start < mb {
            let end = start + 1 + random.below(mb - start);
            let part = pass(start..end);
            let want = &whole[start * sample_len..end * sample_len];
            if let Some(at) = difference(&part, want) {
                let sample = start + at / sample_len;
                panic!(
                    "{what}: element {} of sample {sample} is {} among samples {start}..{end}, {} among {mb}",
                    at % sample_len,
                    part[at],
                    want[at],
                );
            }
            start = end;
        }
    }
}

/// Checks that a pass that sums over samples depends on these samples alone: not on where they are in a minibatch, or on
/// what lies around them. `pass` sums over some samples that lie in the minibatch or, if told so, in memory of their own.
#[track_caller]
fn check_sums(
    what: &str,
    mb: usize,
    random: &mut Random,
    pass: impl Fn(Range<usize>, Option<usize>) -> Vec<f32>,
) {
    for _ in 0..3 {
        let start = random.below(mb);
        let samples = start..start + 1 + random.below(mb - start);
        let (there, alone) = (pass(samples.clone(), None), pass(samples.clone(), Some(1)));
        assert!(there.iter().all(|x| !x.is_nan()), "{what}: everything is written");
        let at = difference(&there, &alone);
        assert!(
            at.is_none(),
            "{what}: element {at:?} of the sums over {samples:?} of {mb} differs"
        );
    }
}

#[test]
#[should_panic(expected = "element 0 of sample")]
fn results_that_depend_on_the_minibatch_are_noticed() {
    let values = Random(1).reals(20);
    check("sums", 20, &mut Random(2), |samples| {
        let whole: f32 = values[samples.clone()].iter().sum();
        values[samples].iter().map(|x| x + whole * 1e-6).collect()
    });
}

#[test]
#[should_panic(expected = "of the sums over")]
fn sums_that_depend_on_the_place_are_noticed() {
    check_sums("sums", 20, &mut Random(2), |samples, alone| {
        vec![if alone.is_some() { 0.0 } else { samples.start as f32 + 1.0 }]
    });
}
