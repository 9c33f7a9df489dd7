//! Sums over slices of a minibatch, which are added in a balanced tree: the same tree whatever part of the slices is summed
//! where, so that a gradient can have the same bits on any number of ranks.
//!
//! A pass computes the slices one after another. What it has of them lies on a stack, as the digits of a binary counter do:
//! after slice 5 of 8, say, the sums of slices 0 to 3 and of 4 and 5. A stack holds a block's part of the gradient alone,
//! which stays in the cache.

use std::ops::Range;

use crate::Isa;
use crate::simd::{Kernel, Simd};

/// The most slices of a minibatch.
pub const MAX_SLICES: usize = 8;

/// The most sums on a stack: one for each bit of a number of slices.
pub(crate) const MAX_LEVELS: usize = levels(MAX_SLICES);

/// Neighboring slices of a minibatch, whose gradients are computed apart and added in a balanced tree. A slice may be empty:
/// its gradient is zero.
///
/// # Examples
/// ```
/// use lockstep_ops::SampleSlices;
///
/// let slices = SampleSlices::new([2, 4, 4, 5]);
/// assert_eq!((slices.count(), slices.mb()), (4, 5));
/// assert_eq!(slices.slice(1), 2..4);
/// assert_eq!(SampleSlices::whole(5).slice(0), 0..5);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleSlices {
    ends: [usize; MAX_SLICES],
    count: usize,
}

impl SampleSlices {
    /// Slices that end where told, the first of which begins with sample 0.
    ///
    /// # Panics
    ///
    /// If their number is not a power of two up to [`MAX_SLICES`], or one ends before it begins.
    pub fn new(ends: impl IntoIterator<Item = usize>) -> SampleSlices {
        let mut slices = SampleSlices { ends: [0; MAX_SLICES], count: 0 };
        for end in ends {
            assert!(slices.count < MAX_SLICES, "more than {MAX_SLICES} slices of a minibatch");
            assert!(slices.mb() <= end, "a slice ends at {end}, before it begins");
            slices.ends[slices.count] = end;
            slices.count += 1;
        }
        assert!(slices.count.is_power_of_two(), "{} slices make no balanced tree", slices.count);
        slices
    }

    /// One slice, of all samples.
    pub fn whole(mb: usize) -> SampleSlices {
        SampleSlices::new([mb])
    }

    /// The number of slices.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Samples of all slices.
    pub fn mb(&self) -> usize {
        self.count.checked_sub(1).map_or(0, |last| self.ends[last])
    }

    /// The samples of a slice.
    ///
    /// # Panics
    ///
    /// If there are no more than `index` slices.
    #[inline]
    pub fn slice(&self, index: usize) -> Range<usize> {
        let ends = &self.ends[..self.count];
        let start = if index == 0 { 0 } else { ends[index - 1] };
        start..ends[index]
    }

    /// The slices in order.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<usize>> + Clone {
        (0..self.count).map(|index| self.slice(index))
    }

    /// Sums on the stack of a tree at most.
    pub(crate) fn levels(&self) -> usize {
        levels(self.count)
    }
}

/// Sums on the stack of a tree of `slices` at most.
pub(crate) const fn levels(slices: usize) -> usize {
    slices.ilog2() as usize + 1
}

/// Branches that are complete with slice `index`: how often what was put on the stack last is added to what lies below.
#[inline(always)]
pub(crate) fn merges_after(index: usize) -> usize {
    (index + 1).trailing_zeros() as usize
}

/// The stack of a block's partial sums, in scratch.
#[derive(Debug)]
pub(crate) struct SumStack<'a> {
    isa: Isa,
    memory: &'a mut [f32],
    len: usize,
    depth: usize,
}

impl<'a> SumStack<'a> {
    /// An empty stack of sums of `len` elements each; `memory` has room for as many as there are [levels].
    pub(crate) fn new(isa: Isa, memory: &'a mut [f32], len: usize) -> SumStack<'a> {
        SumStack { isa, memory, len, depth: 0 }
    }

    /// Where the next slice's sums are to be written; whatever lies there.
    pub(crate) fn next(&mut self) -> &mut [f32] {
        &mut self.memory[self.depth * self.len..][..self.len]
    }

    /// Puts what was written at [`next`](Self::next), the sums of slice `index`, on the stack.
    pub(crate) fn push(&mut self, index: usize) {
        let merges = merges_after(index);
        let first = self.depth - merges;
        let (isa, len) = (self.isa, self.len);
        let sums = &mut self.memory[first * len..][..(merges + 1) * len];
        match merges {
            0 => {}
            1 => isa.dispatch(AddUp::<1> { sums, len }),
            2 => isa.dispatch(AddUp::<2> { sums, len }),
            _ => isa.dispatch(AddUp::<MAX_MERGES> { sums, len }),
        }
        self.depth = first + 1;
    }

    /// The sum of all slices.
    pub(crate) fn total(&mut self) -> &mut [f32] {
        &mut self.memory[..self.len]
    }
}

/// The most merges at a time.
const MAX_MERGES: usize = MAX_LEVELS - 1;
const _: () = assert!(MAX_MERGES == 3);

/// Adds the last of `M + 1` sums to the one before, that to the one before it, and so on.
struct AddUp<'a, const M: usize> {
    sums: &'a mut [f32],
    len: usize,
}

impl<const M: usize> Kernel for AddUp<'_, M> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let AddUp { sums, len } = self;
        let (below, last) = sums.split_at_mut(M * len);
        let (first, between) = below.split_at_mut(len);
        let between: [&[f32]; M] = std::array::from_fn(|m| {
            if m + 1 < M { &between[m * len..(m + 1) * len] } else { &last[..len] }
        });
        // Whole vectors: what is summed has the length of padded tensors.
        for (at, first) in first.chunks_exact_mut(S::LANES).enumerate() {
            let at = at * S::LANES;
            let mut sum = simd.load(&between[M - 1][at..]);
            for m in (0..M - 1).rev() {
                sum = simd.add(simd.load(&between[m][at..]), sum);
            }
            simd.store(first, simd.add(simd.load(first), sum));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::{Random, bits, on_every_isa};

    fn tree(terms: &[Vec<f32>]) -> Vec<f32> {
        let [one] = terms else {
            let (left, right) = terms.split_at(terms.len() / 2);
            return tree(left).iter().zip(tree(right)).map(|(a, b)| a + b).collect();
        };
        one.clone()
    }

    #[test]
    fn a_stack_adds_in_a_balanced_tree() {
        let len = 48;
        for count in [1, 2, 4, 8] {
            let mut random = Random(count as u64);
            let terms: Vec<_> = (0..count).map(|_| random.reals(len)).collect();
            on_every_isa(|isa| {
                let mut memory = vec![f32::NAN; levels(count) * len];
                let mut stack = SumStack::new(isa, &mut memory, len);
                for (index, term) in terms.iter().enumerate() {
                    stack.next().copy_from_slice(term);
                    stack.push(index);
                }
                assert_eq!(bits(stack.total()), bits(&tree(&terms)), "{count} slices");
            });
        }
    }

    #[test]
    fn a_branch_of_the_tree_is_a_tree() {
        // Half of the slices on each of two ranks, then one sum: that of all slices in one place.
        let mut random = Random(1);
        let terms: Vec<_> = (0..8).map(|_| random.reals(16)).collect();
        let halves = [tree(&terms[..4]), tree(&terms[4..])];
        assert_eq!(bits(&tree(&halves)), bits(&tree(&terms)));
    }

    #[test]
    #[should_panic(expected = "3 slices make no balanced tree")]
    fn slices_that_make_no_tree_are_refused() {
        SampleSlices::new([1, 2, 3]);
    }
}
