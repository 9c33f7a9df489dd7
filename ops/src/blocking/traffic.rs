//! How many bytes cross into the cache for a layer that is cut into blocks.

use super::shape::ConvShape;

/// Bytes of a value.
const VALUE_BYTES: f64 = size_of::<f32>() as f64;

/// Sizes of a block. Kernels are never cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Block {
    /// Samples.
    pub mb: usize,
    /// Input channels.
    pub ic: usize,
    /// Output channels.
    pub oc: usize,
    /// Output rows.
    pub oh: usize,
    /// Output columns.
    pub ow: usize,
}

/// In which order blocks follow one another, and so what the next one finds in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Traversal {
    /// Nothing: each block brings all that it touches.
    Isolated,
    /// The results: the next block has the same, and other input channels.
    OutputKept,
    /// The input: the next block has other output channels.
    InputKept,
    /// The weights: the next block has other pixels or samples.
    WeightsKept,
}

impl Traversal {
    /// A word for tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Isolated => "isolated",
            Self::OutputKept => "output",
            Self::InputKept => "input",
            Self::WeightsKept => "weights",
        }
    }
}

/// Blocks along each loop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    pub(super) mb: f64,
    pub(super) ic: f64,
    pub(super) oc: f64,
    pub(super) oh: f64,
    pub(super) ow: f64,
}

impl Block {
    /// Bytes that the block touches in a layer of `shape`: BS of the paper.
    #[must_use]
    pub fn bytes(&self, shape: &ConvShape) -> f64 {
        let [mb, ic, oc, oh, ow] =
            [self.mb, self.ic, self.oc, self.oh, self.ow].map(|size| size as f64);
        let output = mb * oc * oh * ow;
        let input = mb * ic * shape.rows(oh, 1.0) * shape.columns(ow, 1.0);
        let weights = ic * oc * (shape.kh * shape.kw) as f64;
        VALUE_BYTES * (output + input + weights)
    }

    /// Blocks that a layer of `shape` is cut into.
    #[must_use]
    pub fn count(&self, shape: &ConvShape) -> usize {
        let Counts { mb, ic, oc, oh, ow } = self.counts(shape);
        (mb * ic * oc * oh * ow) as usize
    }

    pub(super) fn counts(&self, shape: &ConvShape) -> Counts {
        let parts = |len: usize, size: usize| len.div_ceil(size) as f64;
        Counts {
            mb: parts(shape.mb, self.mb),
            ic: parts(shape.ic, self.ic),
            oc: parts(shape.oc, self.oc),
            oh: parts(shape.oh, self.oh),
            ow: parts(shape.ow, self.ow),
        }
    }
}

/// Values of a whole layer's operands, each counted as often as blocks that share it would load it.
struct Loads {
    /// Once for every block of input channels.
    output: f64,
    /// Once for every block of output channels, with rows and columns that neighbors share.
    input: f64,
    /// Once for every block of samples and pixels.
    weights: f64,
}

fn loads(shape: &ConvShape, counts: &Counts) -> Loads {
    let [mb, ic, oc, oh, ow] =
        [shape.mb, shape.ic, shape.oc, shape.oh, shape.ow].map(|size| size as f64);
    let pixels = shape.rows(oh, counts.oh) * shape.columns(ow, counts.ow);
    Loads {
        output: counts.ic * mb * oc * oh * ow,
        input: counts.oc * mb * ic * pixels,
        weights: counts.mb * counts.oh * counts.ow * ic * oc * (shape.kh * shape.kw) as f64,
    }
}

/// Bytes of a whole layer as the paper counts them: the sum of BS over all blocks, less the operand that is kept, which is
/// not counted at all; partial results that are put aside are written and read again.
///
/// Divided by the operations it is BS / CPB, for blocks that do not divide the layer as well.
///
/// Source: Das et al. 2016, section 2.1.
pub(super) fn paper_bytes(shape: &ConvShape, counts: &Counts, traversal: Traversal) -> f64 {
    let Loads { output, input, weights } = loads(shape, counts);
    VALUE_BYTES
        * match traversal {
            Traversal::Isolated => output + input + weights,
            Traversal::OutputKept => input + weights,
            Traversal::InputKept => 2.0 * output + weights,
            Traversal::WeightsKept => 2.0 * output + input,
        }
}

/// Bytes of a whole layer: as above, but what is kept is counted once, and results are read back only where a block was
/// not their first. Comparable between traversals, which the paper's count is not.
pub(super) fn layer_bytes(shape: &ConvShape, counts: &Counts, traversal: Traversal) -> f64 {
    let once = |loads: f64, times: f64, kept| if kept { loads / times } else { loads };
    let Loads { output, input, weights } = loads(shape, counts);
    let again = if traversal == Traversal::OutputKept { 0.0 } else { counts.ic - 1.0 };
    let results = output / counts.ic;
    let output = results + 2.0 * again * results;
    let input = once(input, counts.oc, traversal == Traversal::InputKept);
    let spread = counts.mb * counts.oh * counts.ow;
    let weights = once(weights, spread, traversal == Traversal::WeightsKept);
    VALUE_BYTES * (output + input + weights)
}
