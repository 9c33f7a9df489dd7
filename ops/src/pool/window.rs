//! Where the windows of a pooling layer lie along one axis.

use std::ops::Range;

/// Size, window, stride and padding along one axis, in pixels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) input: usize,
    pub(super) kernel: usize,
    pub(super) stride: usize,
    pub(super) pad: usize,
}

impl Span {
    /// The number of windows, or `None` where not even one fits; `stride` must not be zero.
    ///
    /// Floor mode counts the windows that lie inside the padded input. Ceil mode also counts one that sticks out on
    /// the right, provided that it starts inside the input or its left padding (PyTorch's rule).
    pub(super) fn windows(self, ceil: bool) -> Option<usize> {
        let padded = self.input + 2 * self.pad;
        let slack = if ceil { self.stride - 1 } else { 0 };
        let n = (padded + slack).checked_sub(self.kernel)? / self.stride + 1;
        let last_starts_outside = ceil && (n - 1) * self.stride >= self.input + self.pad;
        Some(n - usize::from(last_starts_outside))
    }
}

/// The windows along one axis, in both directions: which inputs an output reads, and which outputs read an input.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    /// Per output: the real inputs in its window. Never empty.
    pub(super) inputs: Vec<Range<usize>>,
    /// Per output: how many positions its window has inside the padded input (not those past the right padding).
    pub(super) padded: Vec<usize>,
    /// Per input: the outputs whose windows contain it. Empty where the stride is above the kernel.
    pub(super) outputs: Vec<Range<usize>>,
}

impl Axis {
    /// Lays `n` windows over the span.
    pub(super) fn new(span: Span, n: usize) -> Axis {
        let Span { input, kernel, stride, pad } = span;
        let start = |o: usize| o * stride;
        let end = |o: usize| (o * stride + kernel).min(input + 2 * pad);
        Axis {
            inputs: (0..n)
                .map(|o| start(o).saturating_sub(pad)..end(o).saturating_sub(pad).min(input))
                .collect(),
            padded: (0..n).map(|o| end(o) - start(o)).collect(),
            outputs: (0..input)
                .map(|i| {
                    let at = i + pad;
                    let first = (at + 1).saturating_sub(kernel).div_ceil(stride).min(n);
                    first..(at / stride + 1).min(n).max(first)
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(span: [usize; 4], ceil: bool, windows: Option<usize>) {
        let [input, kernel, stride, pad] = span;
        assert_eq!(Span { input, kernel, stride, pad }.windows(ceil), windows);
    }

    #[test]
    fn window_counts_follow_pytorch() {
        check([8, 2, 2, 0], false, Some(4));
        check([10, 3, 2, 0], false, Some(4));
        check([10, 3, 2, 0], true, Some(5));
        check([9, 3, 2, 1], false, Some(5));
        // A last window that would start in the right padding is not counted.
        check([7, 2, 3, 0], true, Some(3));
        check([5, 2, 3, 1], true, Some(2));
        check([1, 2, 2, 0], false, None);
        check([1, 2, 2, 0], true, Some(1));
        check([1, 3, 1, 0], true, None);
    }

    #[test]
    fn the_two_directions_agree_and_no_window_is_empty() {
        for input in 1..9 {
            for kernel in 1..6 {
                for stride in 1..5 {
                    for pad in 0..=kernel / 2 {
                        for ceil in [false, true] {
                            let span = Span { input, kernel, stride, pad };
                            let Some(n) = span.windows(ceil) else { continue };
                            let axis = Axis::new(span, n);
                            for o in 0..n {
                                assert!(!axis.inputs[o].is_empty(), "{span:?} {o}");
                                assert!(axis.padded[o] >= axis.inputs[o].len(), "{span:?} {o}");
                                for i in 0..input {
                                    let reads = axis.inputs[o].contains(&i);
                                    let read_by = axis.outputs[i].contains(&o);
                                    assert_eq!(reads, read_by, "{span:?} output {o}, input {i}");
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
