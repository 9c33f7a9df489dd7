//! A sum bound to an ISA: what one block does.

use std::ops::Range;

use crate::extent::{expect_len, expect_maps, expect_positive};
use crate::grain::Grain;
use crate::simd::{Kernel, Simd};
use crate::{Isa, Layout, Maps, ShapeError, TensorLayout, Tiles};

/// Elements that are summed up over all terms before the next ones: 4 KiB, so that partial sums stay in cache.
const STRIP: usize = 1024;

/// A sum of `terms` tensors of one shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AddDesc {
    /// The shape of a sample.
    pub maps: Maps,
    /// How many tensors are added: one at least (the sum of one is a copy).
    pub terms: usize,
}

impl AddDesc {
    fn validate(&self) -> Result<(), ShapeError> {
        expect_maps("add", self.maps)?;
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
/// use lockstep_ops::{Add, AddDesc, AddForward, Isa, Maps};
///
/// let isa = Isa::named("portable")?;
/// let add = Add::new(AddDesc { maps: Maps { c: 8, h: 1, w: 1 }, terms: 2 }, isa)?;
/// let (a, b, mut dst) = ([1.0; 8], [2.0; 8], [0.0; 8]);
/// let dst_tiles = dst.as_mut_slice().into();
/// add.forward(0, AddForward { mb: 1, src: Some(&a), others: &[&b], dst: dst_tiles });
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
    /// The sum.
    pub dst: Tiles<'a>,
}

impl Add {
    /// Plans the sum.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] if a size, or the number of terms, is zero.
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
    /// If the number of terms is not the plan's, or a buffer is shorter than `mb` samples.
    pub fn forward(&self, block: usize, io: AddForward<'_>) {
        let AddForward { mb, src, others, mut dst } = io;
        let (terms, planned) = (1 + others.len(), self.desc.terms);
        assert!(terms == planned, "add: {terms} terms given, planned for {planned}");
        let len = self.layout.len(mb);
        expect_len("add", "dst", dst.len(), len);
        for src in src.iter().chain(others) {
            expect_len("add", "a term", src.len(), len);
        }
        let strips = self.grain.pieces(block, len.div_ceil(STRIP));
        for strip in strips {
            let range = strip * STRIP..((strip + 1) * STRIP).min(len);
            let src = src.map(|src| &src[range.clone()]);
            self.isa.dispatch(AddStrip { src, others, dst: dst.tile(range.clone()), range });
        }
    }
}

/// A strip of the tensors.
struct AddStrip<'a> {
    src: Option<&'a [f32]>,
    /// Whole tensors, of which `range` is meant.
    others: &'a [&'a [f32]],
    range: Range<usize>,
    dst: &'a mut [f32],
}

impl Kernel for AddStrip<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let AddStrip { src, others, range, dst } = self;
        let mut others = others.iter().map(|other| &other[range.clone()]);
        if let Some(a) = src {
            match others.next() {
                Some(b) => {
                    let terms = a.chunks_exact(S::LANES).zip(b.chunks_exact(S::LANES));
                    for (dst, (a, b)) in dst.chunks_exact_mut(S::LANES).zip(terms) {
                        simd.store(dst, simd.add(simd.load(a), simd.load(b)));
                    }
                }
                None => dst.copy_from_slice(a),
            }
        }
        for other in others {
            for (dst, b) in dst.chunks_exact_mut(S::LANES).zip(other.chunks_exact(S::LANES)) {
                simd.store(dst, simd.add(simd.load(dst), simd.load(b)));
            }
        }
    }
}
