//! What becomes of a strip of output blocks once it is swept, while it is in the cache.

use super::strips::Strip;
use super::sweep::Target;
use crate::simd::{Kernel, Simd};
use crate::{ActivationKind, Tiles};

/// What is applied to every output vector.
#[derive(Debug, Clone, Copy)]
pub(super) enum Epilogue<'a> {
    /// Nothing.
    None,
    /// An activation function. The sweep itself applies [`ActivationKind::Relu`].
    Activate(ActivationKind),
    /// The vector is the gradient of an activation function's value; the value lies at the same place in this tensor.
    Gradient(ActivationKind, &'a [f32]),
}

impl Epilogue<'_> {
    /// Whether the sweep's own maximum with zero is all there is to do.
    pub(super) fn is_relu(&self) -> bool {
        matches!(self, Epilogue::Activate(ActivationKind::Relu))
    }
}

/// Applies an epilogue, and makes padded lanes zero: zero weights do not where the source is infinite.
pub(super) struct Finish<'a> {
    pub(super) epilogue: Epilogue<'a>,
    pub(super) target: Target,
    pub(super) samples: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) strip: Strip,
    pub(super) dst: Tiles<'a>,
}

impl Finish<'_> {
    /// Whether there is anything to do.
    pub(super) fn is_needed(&self, lanes: usize) -> bool {
        let Strip { first, blocks, taps, .. } = self.strip;
        // The sweep of a narrow strip leaves zeros.
        let is_padded = (first + blocks) * lanes > self.target.channels && taps.together == 1;
        let is_swept = matches!(self.epilogue, Epilogue::None) || self.epilogue.is_relu();
        is_padded || !is_swept
    }
}

impl Kernel for Finish<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let Target { base, sample_step, block_step, row_step, column_step, channels } = self.target;
        let len = (self.columns - 1) * column_step + S::LANES;
        for block in self.strip.first..self.strip.first + self.strip.blocks {
            let real = channels - block * S::LANES;
            for line in 0..self.samples * self.rows {
                let (sample, row) = (line / self.rows, line % self.rows);
                let start = base + sample * sample_step + block * block_step + row * row_step;
                let pixels = self.dst.tile(start..start + len);
                for at in (0..len).step_by(column_step) {
                    let pixel = &mut pixels[at..at + S::LANES];
                    let x = simd.load(pixel);
                    let x = match self.epilogue {
                        Epilogue::Activate(kind) if !self.epilogue.is_relu() => kind.apply(simd, x),
                        Epilogue::None | Epilogue::Activate(_) => x,
                        Epilogue::Gradient(kind, value) => {
                            kind.gradient(simd, simd.load(&value[start + at..]), x)
                        }
                    };
                    simd.store(pixel, if real < S::LANES { simd.keep_first(x, real) } else { x });
                }
            }
        }
    }
}
