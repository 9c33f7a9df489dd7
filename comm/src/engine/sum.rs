//! Adding contributions in a fixed order.

/// Elements added at a time: the accumulator stays in the first-level cache (4 KiB) whatever the number of contributions.
const BLOCK: usize = 1024;

/// Adds contributions to the one that `dst` holds, in this order whatever the timing:
///
///   dst = ((before\[0\] + before\[1\] + ..) + dst) + after\[0\] + after\[1\] + ..
///
/// NaN and infinities propagate as IEEE addition has it. Contributions may be longer than `dst`; the rest is ignored.
pub(super) fn add_in_order(dst: &mut [f32], before: &[&[f32]], after: &[&[f32]]) {
    let mut prefix = [0.0; BLOCK];
    for (block, dst) in dst.chunks_mut(BLOCK).enumerate() {
        let range = block * BLOCK..block * BLOCK + dst.len();
        if let Some((first, rest)) = before.split_first() {
            let prefix = &mut prefix[..dst.len()];
            prefix.copy_from_slice(&first[range.clone()]);
            rest.iter().for_each(|next| add(prefix, &next[range.clone()]));
            add(dst, prefix);
        }
        after.iter().for_each(|next| add(dst, &next[range.clone()]));
    }
}

/// `dst += src`. Addition of two numbers commutes to the bit, so the order of the operands is free.
fn add(dst: &mut [f32], src: &[f32]) {
    for (dst, src) in dst.iter_mut().zip(src) {
        *dst += src;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_ascending_with_the_own_value_at_its_place() {
        // Of (1e8 + 1) - 1e8 = 0 and (1e8 - 1e8) + 1 = 1 only the order decides.
        let mut dst = [1.0];
        add_in_order(&mut dst, &[&[1e8]], &[&[-1e8]]);
        assert_eq!(dst, [0.0]);
        let mut dst = [1.0];
        add_in_order(&mut dst, &[&[1e8], &[-1e8]], &[]);
        assert_eq!(dst, [1.0]);
        let mut dst = [1e8];
        add_in_order(&mut dst, &[], &[&[-1e8], &[1.0]]);
        assert_eq!(dst, [1.0]);
    }

    #[test]
    fn blocks_do_not_show() {
        let terms: Vec<Vec<f32>> =
            (0..3).map(|k| (0..2500).map(|i| (i * (k + 1)) as f32).collect()).collect();
        let mut dst = vec![1.0; 2500];
        add_in_order(&mut dst, &[&terms[0], &terms[1]], &[&terms[2]]);
        assert!(dst.iter().enumerate().all(|(i, &sum)| sum == (6 * i + 1) as f32));
    }

    #[test]
    fn nan_propagates() {
        let mut dst = [0.0, f32::NAN, 0.0];
        add_in_order(&mut dst, &[&[f32::NAN, 0.0, 0.0]], &[&[0.0; 3]]);
        assert!(dst[0].is_nan() && dst[1].is_nan() && dst[2] == 0.0);
    }
}
