//! Adding contributions in a fixed order: a balanced tree over the contributors.

/// Elements added at a time: all contributions of a block stay in the second-level cache until it is summed (4 KiB each).
const BLOCK: usize = 1024;

/// Sums `terms` into `terms[own]`, in an order that depends on their number alone:
///
///   tree(lo..hi) = tree(lo..mid) + tree(mid..hi),   mid = lo + the largest power of two below hi - lo
///
/// so of five terms ((0 + 1) + (2 + 3)) + 4. It is the order in which recursive halving adds, for which the result is the same to
/// the bit. The other terms are used up as intermediate sums. NaN and infinities propagate as IEEE addition has it.
/// All terms are as long as `terms[own]` or longer; the rest is ignored.
pub(super) fn add_in_tree(terms: &mut [&mut [f32]], own: usize) {
    let len = terms[own].len();
    for start in (0..len).step_by(BLOCK) {
        let block = (start, len.min(start + BLOCK));
        tree(terms, own, (0, terms.len()), block);
    }
}

/// Sums the terms from `lo` to `hi` in a block, and returns which of them holds the sum: `own`, if it is among them.
fn tree(
    terms: &mut [&mut [f32]],
    own: usize,
    (lo, hi): (usize, usize),
    block: (usize, usize),
) -> usize {
    let n = hi - lo;
    if n == 1 {
        return lo;
    }
    let mid = lo + n.next_power_of_two() / 2;
    let (left, right) = (tree(terms, own, (lo, mid), block), tree(terms, own, (mid, hi), block));
    // Addition of two numbers commutes to the bit, so the sum may go where the result is wanted.
    let into_right = right == own;
    let (lower, upper) = terms.split_at_mut(mid);
    let left_part = &mut lower[left][block.0..block.1];
    let right_part = &mut upper[right - mid][block.0..block.1];
    if into_right {
        add(right_part, left_part);
        right
    } else {
        add(left_part, right_part);
        left
    }
}

/// `dst += src`.
fn add(dst: &mut [f32], src: &[f32]) {
    for (dst, src) in dst.iter_mut().zip(src) {
        *dst += src;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of `values`, each as a tensor of `len` equal elements, with the result in place of the `own`th.
    fn sum(values: &[f32], own: usize, len: usize) -> Vec<f32> {
        let mut tensors: Vec<Vec<f32>> = values.iter().map(|&value| vec![value; len]).collect();
        let mut terms: Vec<&mut [f32]> = tensors.iter_mut().map(Vec::as_mut_slice).collect();
        add_in_tree(&mut terms, own);
        tensors.swap_remove(own)
    }

    #[test]
    fn the_order_is_a_balanced_tree_wherever_the_result_goes() {
        // Of 1e8 + 1 the 1 is lost, so only the order decides: (1e8 + 1) + (-1e8 + 1) = 0 and (1e8 - 1e8) + (1 + 1) = 2.
        for own in 0..4 {
            assert_eq!(sum(&[1e8, 1.0, -1e8, 1.0], own, 3), [0.0; 3]);
            assert_eq!(sum(&[1e8, -1e8, 1.0, 1.0], own, 3), [2.0; 3]);
        }
        // ((0 + 1) + (2 + 3)) + 4, and (0 + 1) + 2.
        assert_eq!(sum(&[1e8, 1.0, -1e8, 1.0, 5.0], 4, 1), [5.0]);
        assert_eq!(sum(&[1e8, -1e8, 5.0], 1, 1), [5.0]);
        assert_eq!(sum(&[1e8, 3.0, -1e8], 1, 1), [0.0]);
        assert_eq!(sum(&[7.0], 0, 2), [7.0; 2]);
    }

    #[test]
    fn blocks_do_not_show() {
        let mut tensors: Vec<Vec<f32>> =
            (0..4).map(|k| (0..2500).map(|i| (i * k) as f32).collect()).collect();
        let mut terms: Vec<&mut [f32]> = tensors.iter_mut().map(Vec::as_mut_slice).collect();
        add_in_tree(&mut terms, 2);
        assert!(tensors[2].iter().enumerate().all(|(i, &sum)| sum == (6 * i) as f32));
    }

    #[test]
    fn nan_propagates() {
        let (mut a, mut b) = ([0.0, f32::NAN, 0.0], [f32::NAN, 0.0, 0.0]);
        add_in_tree(&mut [&mut a, &mut b], 0);
        assert!(a[0].is_nan() && a[1].is_nan() && a[2] == 0.0);
    }
}
