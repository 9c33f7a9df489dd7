//! The search over all block sizes.

use std::fmt;

use super::budget::CacheBudget;
use super::shape::ConvShape;
use super::traffic::{Block, Counts, Traversal, layer_bytes, paper_bytes};

/// Block sizes with what they cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Blocking {
    /// Sizes of a block; the last one along a loop may be smaller.
    pub block: Block,
    /// The order that the sizes were chosen for.
    pub traversal: Traversal,
    /// Bytes that cross into the cache for each floating-point operation of a pass.
    pub bytes_per_flop: f64,
    /// Bytes that a full block touches. More than the budget only where the smallest block does not fit.
    pub block_bytes: usize,
}

impl fmt::Display for Blocking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Block { mb, ic, oc, oh, ow } = self.block;
        write!(f, "mb {mb} ic {ic} oc {oc} oh {oh} ow {ow}, {} kept: ", self.traversal.name())?;
        write!(f, "{:.4} bytes/flop, {} bytes", self.bytes_per_flop, self.block_bytes)
    }
}

/// Which sizes a block may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sizes {
    /// Any: the last block along a loop may be smaller than the others.
    Any,
    /// Those that divide the loop: all blocks are alike.
    Dividing,
}

/// What blocks must be, apart from fitting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Constraints {
    /// Input channels come in multiples of this many, or all at once.
    pub ic_lanes: usize,
    /// Output channels likewise.
    pub oc_lanes: usize,
    /// Which sizes are allowed.
    pub sizes: Sizes,
}

/// The blocking that moves the fewest bytes for the whole layer, over all block sizes and all orders of blocks, with
/// channels in vectors of `lanes` lanes.
///
/// What is kept from block to block is counted once. Of equal blockings the one with the most output, then input channels is
/// taken: fewer blocks add to the same results. Some milliseconds at most for channels in vectors.
///
/// # Panics
/// A size of the shape, or `lanes`, is zero.
///
/// # Examples
/// ```
/// use lockstep_ops::blocking::{CacheBudget, ConvShape, search};
///
/// // The last convolution of OverFeat-FAST in half of 128 KB.
/// let shape =
///     ConvShape { mb: 1, ic: 1024, oc: 1024, oh: 12, ow: 12, kh: 3, kw: 3, sh: 1, sw: 1 };
/// assert!((shape.unblocked_bytes_per_flop() - 0.539).abs() < 0.001);
/// let blocking = search(&shape, CacheBudget::double_buffered(128 << 10), 8);
/// assert!(blocking.bytes_per_flop < 0.021);
/// assert!(blocking.block_bytes <= 64 << 10);
/// ```
///
/// # Source
/// Das et al. 2016, section 2.1.
#[must_use]
pub fn search(shape: &ConvShape, budget: CacheBudget, lanes: usize) -> Blocking {
    let constraints = Constraints { ic_lanes: lanes, oc_lanes: lanes, sizes: Sizes::Any };
    [Traversal::OutputKept, Traversal::InputKept, Traversal::WeightsKept]
        .map(|traversal| {
            let goal = Goal { traversal, bytes: layer_bytes, of_equals: OfEquals::Last };
            minimize(shape, budget, constraints, goal)
        })
        .into_iter()
        .min_by(|a, b| a.bytes_per_flop.total_cmp(&b.bytes_per_flop))
        .expect("there are three orders")
}

/// The blocking with the fewest bytes per operation as the paper counts them: BS / CPB of one block among others of the same
/// kind, without the operand that is kept. Of equal blockings the first by `oc`, `ic`, `mb`, `oh`.
///
/// # Panics
/// A size of the shape, or a number of lanes, is zero.
///
/// # Source
/// Das et al. 2016, section 2.1.
#[must_use]
pub fn search_traversal(
    shape: &ConvShape,
    budget: CacheBudget,
    constraints: Constraints,
    traversal: Traversal,
) -> Blocking {
    let goal = Goal { traversal, bytes: paper_bytes, of_equals: OfEquals::First };
    minimize(shape, budget, constraints, goal)
}

/// Sizes along one loop, ascending.
///
/// Bytes depend on the number of blocks alone, so of all sizes that give one number only the smallest is of interest.
fn candidates(len: usize, lanes: usize, sizes: Sizes) -> Vec<usize> {
    assert!(len > 0 && lanes > 0, "a loop of {len} in steps of {lanes} has no blocks");
    let steps = len.div_ceil(lanes);
    let mut found: Vec<usize> = match sizes {
        Sizes::Any => (1..=steps).map(|n| (steps.div_ceil(n) * lanes).min(len)).collect(),
        Sizes::Dividing => {
            (1..=steps).map(|n| n * lanes).filter(|n| len.is_multiple_of(*n)).collect()
        }
    };
    if found.is_empty() {
        found.push(len);
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Which of several blockings of the same bytes is taken, as they are tried in ascending order.
#[derive(Debug, Clone, Copy, PartialEq)]
enum OfEquals {
    First,
    Last,
}

/// What is minimized.
#[derive(Debug, Clone, Copy)]
struct Goal {
    traversal: Traversal,
    /// The bytes of a layer, a function that does not fall when a count of blocks grows. Whole numbers below 2^53, so that
    /// equal ones are equal.
    bytes: fn(&ConvShape, &Counts, Traversal) -> f64,
    of_equals: OfEquals,
}

fn minimize(
    shape: &ConvShape,
    budget: CacheBudget,
    constraints: Constraints,
    goal: Goal,
) -> Blocking {
    let Goal { traversal, bytes, of_equals } = goal;
    let Constraints { ic_lanes, oc_lanes, sizes } = constraints;
    let mbs = candidates(shape.mb, 1, sizes);
    let ics = candidates(shape.ic, ic_lanes, sizes);
    let ocs = candidates(shape.oc, oc_lanes, sizes);
    let ohs = candidates(shape.oh, 1, sizes);
    let ows = candidates(shape.ow, 1, sizes);
    let fits = |block: &Block| block.bytes(shape) <= budget.live_bytes as f64;
    let rated = |block: Block| (bytes(shape, &block.counts(shape), traversal), block);
    // Where nothing fits the smallest block overflows the cache least.
    let smallest = Block { mb: mbs[0], ic: ics[0], oc: ocs[0], oh: ohs[0], ow: ows[0] };
    let largest = |block: Block| Block { oh: shape.oh, ow: shape.ow, ..block };
    let mut best = rated(smallest);
    for &oc in &ocs {
        for &ic in &ics {
            // A block grows with each of its sizes: once the smallest does not fit, no later one will.
            let least = Block { ic, oc, ..smallest };
            if !fits(&least) {
                break;
            }
            if rated(Block { mb: shape.mb, ..largest(least) }).0 > best.0 {
                continue;
            }
            for &mb in &mbs {
                let least = Block { mb, ic, oc, ..smallest };
                if !fits(&least) {
                    break;
                }
                // Not even whole maps would beat the best, fitting or not.
                if rated(largest(least)).0 > best.0 {
                    continue;
                }
                for &oh in &ohs {
                    // Bytes do not rise with the width, so the widest block that fits stands for all.
                    let block = |ow| Block { mb, ic, oc, oh, ow };
                    let fitting = ows.partition_point(|&ow| fits(&block(ow)));
                    let Some(last) = fitting.checked_sub(1) else { break };
                    let candidate = rated(block(ows[last]));
                    let equal = candidate.0 == best.0 && of_equals == OfEquals::Last;
                    if candidate.0 < best.0 || equal {
                        best = candidate;
                    }
                }
            }
        }
    }
    let (bytes, block) = best;
    Blocking {
        block,
        traversal,
        bytes_per_flop: bytes / shape.flops(),
        block_bytes: block.bytes(shape) as usize,
    }
}
