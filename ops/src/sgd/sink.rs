//! What becomes of a weight gradient while it is in the cache: it is written, or the weights make their step at once.

use std::ops::Range;

use super::update::{Rule, SgdHyper, update};
use crate::extent::expect_len;
use crate::simd::Simd;
use crate::{Isa, Tiles};

/// Elements of a cache line.
const LINE: usize = 16;

/// Where a pass puts the gradient of some parameters.
#[derive(Debug)]
pub enum GradientSink<'a> {
    /// Into memory, which is overwritten.
    Store(Tiles<'a>),
    /// Nowhere: the parameters make their step with it, as [`update`] does, bit for bit. Nobody may read them meanwhile.
    Step(SgdStep<'a>),
}

/// Parameters that make a step.
#[derive(Debug)]
pub struct SgdStep<'a> {
    /// The hyperparameters.
    pub hyper: SgdHyper,
    /// The parameters, packed.
    pub wei: Tiles<'a>,
    /// Their velocity, in the same order; neither read nor written if momentum is 0, when it may be missing.
    pub velocity: Option<Tiles<'a>>,
}

impl<'a> From<Tiles<'a>> for GradientSink<'a> {
    fn from(gradient: Tiles<'a>) -> GradientSink<'a> {
        GradientSink::Store(gradient)
    }
}

impl GradientSink<'_> {
    /// Elements of the gradient.
    pub fn len(&self) -> usize {
        match self {
            GradientSink::Store(gradient) => gradient.len(),
            GradientSink::Step(step) => step.wei.len(),
        }
    }

    /// Whether the gradient has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Panics if less than `len` elements can be put there.
    #[track_caller]
    pub(crate) fn expect_len(&self, op: &'static str, what: &'static str, len: usize) {
        expect_len(op, what, self.len(), len);
        if let GradientSink::Step(SgdStep { hyper, velocity, .. }) = self
            && hyper.momentum != 0.0
        {
            expect_len(op, "velocity", velocity.as_ref().map_or(0, Tiles::len), len);
        }
    }

    /// The same for a shorter time.
    pub(crate) fn reborrow(&mut self) -> GradientSink<'_> {
        match self {
            GradientSink::Store(gradient) => GradientSink::Store(gradient.reborrow()),
            GradientSink::Step(SgdStep { hyper, wei, velocity }) => GradientSink::Step(SgdStep {
                hyper: *hyper,
                wei: wei.reborrow(),
                velocity: velocity.as_mut().map(Tiles::reborrow),
            }),
        }
    }

    /// The same for one more block of the pass, as [`Tiles::for_another_block`].
    pub(crate) fn for_another_block(&self) -> GradientSink<'_> {
        match self {
            GradientSink::Store(gradient) => GradientSink::Store(gradient.for_another_block()),
            GradientSink::Step(SgdStep { hyper, wei, velocity }) => GradientSink::Step(SgdStep {
                hyper: *hyper,
                wei: wei.for_another_block(),
                velocity: velocity.as_ref().map(Tiles::for_another_block),
            }),
        }
    }

    /// Asks for what is to be written soon.
    #[inline(always)]
    pub(crate) fn fetch<S: Simd>(&self, simd: S, at: Range<usize>) {
        match self {
            GradientSink::Store(gradient) => fetch(simd, gradient, at),
            GradientSink::Step(step) => step.fetch(simd, at),
        }
    }

    /// Puts the gradient of a run of parameters.
    pub(crate) fn put(&mut self, isa: Isa, at: Range<usize>, gradient: &[f32]) {
        match self {
            GradientSink::Store(tiles) => tiles.tile(at).copy_from_slice(gradient),
            GradientSink::Step(SgdStep { hyper, wei, velocity }) => {
                let velocity = velocity.as_mut().map(|tiles| tiles.tile(at.clone()));
                update(isa, *hyper, wei.tile(at), gradient, velocity);
            }
        }
    }
}

impl SgdStep<'_> {
    /// Asks for parameters of this block that are to make their step soon, and for their velocity.
    #[inline(always)]
    pub(crate) fn fetch<S: Simd>(&self, simd: S, at: Range<usize>) {
        let velocity = self.velocity.as_ref().filter(|_| self.hyper.momentum != 0.0);
        for tiles in [Some(&self.wei), velocity].into_iter().flatten() {
            fetch(simd, tiles, at.clone());
        }
    }

    /// The step of a vector of parameters.
    #[inline(always)]
    pub(crate) fn vector<S: Simd>(&mut self, simd: S, rule: &Rule<S>, at: usize, diff: S::F32) {
        let at = at..at + S::LANES;
        let wei = self.wei.tile(at.clone());
        match self.velocity.as_mut().filter(|_| rule.has_momentum()) {
            Some(velocity) => rule.step_with_momentum(simd, wei, velocity.tile(at), diff),
            None => rule.step(simd, wei, diff),
        }
    }
}

#[inline(always)]
fn fetch<S: Simd>(simd: S, tiles: &Tiles<'_>, at: Range<usize>) {
    let elements = tiles.read(at);
    for line in (0..elements.len()).step_by(LINE) {
        simd.prefetch(elements, line);
    }
}
