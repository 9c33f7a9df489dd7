//! A sum bound to an ISA: what one block does.

use std::ops::Range;

use crate::extent::{expect_len, expect_maps, expect_positive};
use crate::grain::Grain;
use crate::simd::{Kernel, Simd};
use crate::{ActivationKind, Isa, Layout, Maps, ShapeError, TensorLayout, Tiles};

/// Elements that are summed up over all terms before the next ones: 4 KiB, so that partial sums stay in cache.
const STRIP: usize = 1024;

/// A sum of `terms` tensors of one shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AddDesc {
    /// The shape of a sample.
    pub maps: Maps,
    /// How many tensors are added: one at least (the sum of one is a copy).
    pub terms: usize,
    /// What is done with the sum before it is written.
    pub finish: AddFinish,
}

/// What is done with a sum while it is in cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddFinish {
    /// Nothing.
    Sum,
    /// An activation function whose value at zero is zero, so that padding stays zero: not the sigmoid.
    Activate(ActivationKind),
    /// The sum is the gradient of an activation's output; it is multiplied by the slope, which gives that of its input.
    Differentiate(ActivationKind),
}

impl AddDesc {
    fn validate(&self) -> Result<(), ShapeError> {
        expect_maps("add", self.maps)?;
        if self.finish == AddFinish::Activate(ActivationKind::Sigmoid) {
            return Err(ShapeError::PaddingNotKept { op: "add" });
        }
        expect_positive("add", &[("terms", self.terms)])
    }
}

/// Adds tensors element by element, from left to right: `((a + b) + c) + d`.
///
/// Its gradient is the gradient of the output, once a term: the same buffer, or a copy, which is the sum of one.
///
/// # Shapes
///
/// All tensors (mb, c, h, w), blocked alike.
///
/// # Cost
///
/// Memory bound: each tensor crosses the bus once. No scratch.
///
/// # Examples
///
/// ```
/// use lockstep_ops::{Add, AddDesc, AddFinish, AddForward, Isa, Maps};
///
/// let isa = Isa::named("portable")?;
/// let desc = AddDesc { maps: Maps { c: 8, h: 1, w: 1 }, terms: 2, finish: AddFinish::Sum };
/// let add = Add::new(desc, isa)?;
/// let (a, b, mut dst) = ([1.0; 8], [2.0; 8], [0.0; 8]);
/// let dst_tiles = dst.as_mut_slice().into();
/// add.forward(0, AddForward { mb: 1, src: Some(&a), others: &[&b], value: None, dst: dst_tiles });
/// assert_eq!(dst, [3.0; 8]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Add {
    desc: AddDesc,
    isa: Isa,
    layout: TensorLayout,
    grain: Grain,
}

/// The tensors of a block.
#[derive(Debug)]
pub struct AddForward<'a> {
    /// Samples.
    pub mb: usize,
    /// The first term, or `None` where `dst` holds it already.
    pub src: Option<&'a [f32]>,
    /// The other terms, in the order of their addition.
    pub others: &'a [&'a [f32]],
    /// The output of the activation by whose slope the sum is multiplied; `None` where it is not.
    pub value: Option<&'a [f32]>,
    /// The sum.
    pub dst: Tiles<'a>,
}

impl Add {
    /// Plans the sum.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] if a size, or the number of terms, is zero, or if sigmoids of the sum are asked for.
    pub fn new(desc: AddDesc, isa: Isa) -> Result<Add, ShapeError> {
        desc.validate()?;
        let layout = TensorLayout { maps: desc.maps, layout: Layout::Blocked(isa.lanes()) };
        let strip_bytes = size_of::<f32>() * STRIP * (desc.terms + 1);
        Ok(Add { desc, isa, layout, grain: Grain::new(strip_bytes) })
    }

    /// What was planned.
    pub fn desc(&self) -> &AddDesc {
        &self.desc
    }

    /// The number of blocks.
    pub fn forward_blocks(&self, mb: usize) -> usize {
        self.grain.blocks(self.layout.len(mb).div_ceil(STRIP))
    }

    /// Computes one block of the sum.
    ///
    /// # Panics
    ///
    /// If the number of terms is not the plan's, or a buffer is missing or shorter than `mb` samples.
    pub fn forward(&self, block: usize, io: AddForward<'_>) {
        let AddForward { mb, src, others, value, mut dst } = io;
        let (terms, planned) = (1 + others.len(), self.desc.terms);
        assert!(terms == planned, "add: {terms} terms given, planned for {planned}");
        let len = self.layout.len(mb);
        expect_len("add", "dst", dst.len(), len);
        let value_len = match self.desc.finish {
            AddFinish::Differentiate(_) => len,
            AddFinish::Sum | AddFinish::Activate(_) => 0,
        };
        expect_len("add", "the activation", value.map_or(0, <[f32]>::len), value_len);
        for src in src.iter().chain(others) {
            expect_len("add", "a term", src.len(), len);
        }
        let strips = self.grain.pieces(block, len.div_ceil(STRIP));
        for strip in strips {
            let range = strip * STRIP..((strip + 1) * STRIP).min(len);
            let src = src.map(|src| &src[range.clone()]);
            self.isa.dispatch(AddStrip {
                src,
                others,
                finish: self.desc.finish,
                value: value.map_or(&[], |value| &value[range.clone()]),
                dst: dst.tile(range.clone()),
                range,
            });
        }
    }
}

/// A strip of the tensors.
struct AddStrip<'a> {
    src: Option<&'a [f32]>,
    /// Whole tensors, of which `range` is meant.
    others: &'a [&'a [f32]],
    finish: AddFinish,
    /// The same strip of the activation, or nothing.
    value: &'a [f32],
    range: Range<usize>,
    dst: &'a mut [f32],
}

impl Kernel for AddStrip<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let AddStrip { src, others, finish, value, range, dst } = self;
        let (mut left, mut others) = (others.len(), others.iter());
        let mut next = || {
            left = left.saturating_sub(1);
            let finish = if left == 0 { finish } else { AddFinish::Sum };
            others.next().map(|other| (&other[range.clone()], finish))
        };
        match (src, next()) {
            (Some(a), Some((b, finish))) => {
                let values = finish.values(value, a).chunks_exact(S::LANES);
                let terms = a.chunks_exact(S::LANES).zip(b.chunks_exact(S::LANES));
                let terms = terms.zip(values);
                for (dst, ((a, b), value)) in dst.chunks_exact_mut(S::LANES).zip(terms) {
                    let sum = simd.add(simd.load(a), simd.load(b));
                    simd.store(dst, finish.of(simd, sum, value));
                }
            }
            (None, Some((b, finish))) => add_to(simd, finish, value, b, dst),
            (Some(a), None) => {
                let values = finish.values(value, a).chunks_exact(S::LANES);
                let terms = a.chunks_exact(S::LANES).zip(values);
                for (dst, (a, value)) in dst.chunks_exact_mut(S::LANES).zip(terms) {
                    simd.store(dst, finish.of(simd, simd.load(a), value));
                }
            }
            (None, None) => match finish {
                AddFinish::Sum => {}
                AddFinish::Activate(kind) => {
                    for dst in dst.chunks_exact_mut(S::LANES) {
                        simd.store(dst, kind.apply(simd, simd.load(dst)));
                    }
                }
                AddFinish::Differentiate(kind) => kind.differentiate(simd, value, dst),
            },
        }
        while let Some((other, finish)) = next() {
            add_to(simd, finish, value, other, dst);
        }
    }
}

/// Adds one more term to what `dst` holds.
#[inline(always)]
fn add_to<S: Simd>(simd: S, finish: AddFinish, value: &[f32], term: &[f32], dst: &mut [f32]) {
    let values = finish.values(value, term).chunks_exact(S::LANES);
    let terms = term.chunks_exact(S::LANES).zip(values);
    for (dst, (term, value)) in dst.chunks_exact_mut(S::LANES).zip(terms) {
        let sum = simd.add(simd.load(dst), simd.load(term));
        simd.store(dst, finish.of(simd, sum, value));
    }
}

impl AddFinish {
    /// The activation where it is needed, else something as long that is at hand.
    #[inline(always)]
    fn values<'a>(self, value: &'a [f32], term: &'a [f32]) -> &'a [f32] {
        match self {
            AddFinish::Differentiate(_) => value,
            AddFinish::Sum | AddFinish::Activate(_) => term,
        }
    }

    #[inline(always)]
    fn of<S: Simd>(self, simd: S, sum: S::F32, value: &[f32]) -> S::F32 {
        match self {
            AddFinish::Sum => sum,
            AddFinish::Activate(kind) => kind.apply(simd, sum),
            AddFinish::Differentiate(kind) => kind.gradient(simd, simd.load(value), sum),
        }
    }
}
