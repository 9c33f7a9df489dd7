//! What the tests of the ops share: tensors in both layouts, and outputs that watch how blocks partition them.

use crate::{Isa, Layout, Maps, TensorLayout, Tiles, TouchLog, block_samples, unblock_samples};

/// Channel counts below, at and across the borders of channel blocks.
pub(crate) const CHANNELS: [usize; 7] = [1, 3, 7, 8, 16, 17, 35];

/// Runs a check on every ISA of this machine.
#[track_caller]
pub(crate) fn on_every_isa(check: impl Fn(Isa)) {
    Isa::all_available().into_iter().for_each(check);
}

/// A small random number generator (SplitMix64), so that a failing case is named by its seed.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Integers from `-reach` to `reach`, whose sums are exact and which often tie.
    pub(crate) fn integers(&mut self, len: usize, reach: u64) -> Vec<f32> {
        (0..len).map(|_| (self.next() % (2 * reach + 1)) as f32 - reach as f32).collect()
    }

    /// Numbers from -1 to 1.
    pub(crate) fn reals(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
    }
}

/// The layout of an activation on this ISA.
pub(crate) fn blocked(maps: Maps, isa: Isa) -> TensorLayout {
    TensorLayout { maps, layout: Layout::Blocked(isa.lanes()) }
}

/// Lays a plain NCHW tensor out in channel blocks, with zeros in padded lanes.
pub(crate) fn block(plain: &[f32], maps: Maps, isa: Isa) -> Vec<f32> {
    let layout = blocked(maps, isa);
    let mut out = vec![0.0; layout.len(plain.len() / maps.len())];
    block_samples(layout, plain, &mut out);
    out
}

/// The plain NCHW tensor of a blocked one, whose padded lanes must be zero.
#[track_caller]
pub(crate) fn unblock(values: &[f32], maps: Maps, isa: Isa) -> Vec<f32> {
    let layout = blocked(maps, isa);
    let mut out = vec![0.0; values.len() / layout.sample_len() * maps.len()];
    unblock_samples(layout, values, &mut out);
    let same = block(&out, maps, isa).iter().zip(values).all(|(a, b)| a == b || a.is_nan());
    assert!(same, "padding is not zero on {}", isa.name());
    out
}

/// An output that starts as NaN everywhere and notes which parts each block takes.
#[derive(Debug)]
pub(crate) struct Watched {
    values: Vec<f32>,
    log: TouchLog,
    blocks: usize,
}

impl Watched {
    pub(crate) fn new(len: usize) -> Watched {
        Watched::holding(vec![f32::NAN; len])
    }

    /// An output that already holds what is to be replaced in place.
    pub(crate) fn holding(values: Vec<f32>) -> Watched {
        Watched { values, log: TouchLog::new(), blocks: 0 }
    }

    /// The output as one more block sees it.
    pub(crate) fn block(&mut self) -> Tiles<'_> {
        self.log.begin(self.blocks);
        self.blocks += 1;
        Tiles::recording(&mut self.values, &self.log)
    }

    /// The values, after a check that no two blocks took the same element and all together took every one.
    #[track_caller]
    pub(crate) fn finish(self) -> Vec<f32> {
        self.log.assert_partition(self.values.len());
        self.values
    }

    /// The values, whoever took them.
    pub(crate) fn into_values(self) -> Vec<f32> {
        self.values
    }
}

/// Runs all blocks of a pass with one output of `len` elements.
#[track_caller]
pub(crate) fn run_blocks(
    blocks: usize,
    len: usize,
    mut pass: impl FnMut(usize, Tiles<'_>),
) -> Vec<f32> {
    let mut output = Watched::new(len);
    (0..blocks).for_each(|block| pass(block, output.block()));
    output.finish()
}

/// Asserts that each value is within `tolerance` of the other or both are NaN or equal.
#[track_caller]
pub(crate) fn assert_close(got: &[f32], want: &[f32], tolerance: f32) {
    assert_eq!(got.len(), want.len());
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let close =
            (got - want).abs() <= tolerance || got == want || (got.is_nan() && want.is_nan());
        assert!(close, "element {i}: got {got}, want {want} within {tolerance}");
    }
}

/// Bits, in which NaN equals itself.
pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// The sum of products, in f64: for the adjoint identity.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}
