//! Sums of contiguous pieces of gradients.

use crate::Isa;
use crate::extent::expect_len;
use crate::simd::{Kernel, Simd};

/// Adds `src` to `dst`, element by element. Where the pieces begin and end changes no bit.
///
/// # Panics
///
/// If `src` is shorter than `dst`.
pub fn add(isa: Isa, dst: &mut [f32], src: &[f32]) {
    expect_len("gradient add", "src", src.len(), dst.len());
    isa.dispatch(Add { dst, src });
}

struct Add<'a> {
    dst: &'a mut [f32],
    src: &'a [f32],
}

impl Kernel for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let src = &self.src[..self.dst.len()];
        let mut dst = self.dst.chunks_exact_mut(S::LANES);
        let mut src = src.chunks_exact(S::LANES);
        for (dst, src) in (&mut dst).zip(&mut src) {
            simd.store(dst, simd.add(simd.load(dst), simd.load(src)));
        }
        for (dst, src) in dst.into_remainder().iter_mut().zip(src.remainder()) {
            *dst += src;
        }
    }
}
