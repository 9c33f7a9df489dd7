//! The two operands of a register-blocked kernel, bounds checked once instead of once an element.
//!
//! A kernel keeps a tile of accumulators in registers and walks along a common axis `i`. At every step it broadcasts
//! `R * C` scalars of one tensor ([`Broadcasts`]) and reads `NV` vectors of another ([`Vectors`]). Both views check their
//! farthest element when they are made; their iterators then hand out one step at a time and cannot leave the bounds.

use super::Simd;

/// The scalars `src[lines[r] + c * c_step + i * i_step]` for `r < R`, `c < C`, step by step along `i`.
#[derive(Debug, Clone)]
pub struct Broadcasts<'a, const R: usize, const C: usize> {
    src: &'a [f32],
    lines: [usize; R],
    c_step: usize,
    i_step: usize,
    steps: usize,
}

/// The scalars of one step.
#[derive(Debug, Clone, Copy)]
pub struct Column<'a, const R: usize, const C: usize> {
    src: &'a [f32],
    lines: [usize; R],
    c_step: usize,
}

impl<'a, const R: usize, const C: usize> Broadcasts<'a, R, C> {
    /// A view of `steps` steps.
    ///
    /// # Panics
    ///
    /// If an element lies outside of `src`.
    #[inline(always)]
    pub fn new(
        src: &'a [f32],
        lines: [usize; R],
        [c_step, i_step]: [usize; 2],
        steps: usize,
    ) -> Broadcasts<'a, R, C> {
        const { assert!(R > 0 && C > 0) };
        if steps > 0 {
            // Saturation makes a view that would wrap around exceed the slice instead.
            let reach =
                (steps - 1).saturating_mul(i_step).saturating_add((C - 1).saturating_mul(c_step));
            for line in lines {
                let last = line.saturating_add(reach);
                assert!(last < src.len(), "scalar {last} of {}", src.len());
            }
        }
        Broadcasts { src, lines, c_step, i_step, steps }
    }
}

impl<'a, const R: usize, const C: usize> Iterator for Broadcasts<'a, R, C> {
    type Item = Column<'a, R, C>;

    #[inline(always)]
    fn next(&mut self) -> Option<Column<'a, R, C>> {
        self.steps = self.steps.checked_sub(1)?;
        let column = Column { src: self.src, lines: self.lines, c_step: self.c_step };
        for line in &mut self.lines {
            *line = line.wrapping_add(self.i_step);
        }
        Some(column)
    }
}

impl<const R: usize, const C: usize> Column<'_, R, C> {
    /// Scalar `(r, c)` of this step.
    ///
    /// # Panics
    ///
    /// If `r >= R` or `c >= C`; with constant indices the check costs nothing.
    #[inline(always)]
    pub fn get(&self, r: usize, c: usize) -> f32 {
        assert!(c < C, "column {c} of {C}");
        let at = self.lines[r] + c * self.c_step;
        debug_assert!(at < self.src.len(), "scalar {at} of {}", self.src.len());
        // SAFETY: `Broadcasts::new` checked the element of the last line, last column and last step; only steps that it
        // counted are handed out, and `r` and `c` are in range.
        unsafe { *self.src.get_unchecked(at) }
    }
}

/// The vectors at `src[starts[n] + i * step..]` for `n < NV`, step by step along `i`.
#[derive(Debug, Clone)]
pub struct Vectors<'a, S, const NV: usize> {
    simd: S,
    src: &'a [f32],
    starts: [usize; NV],
    step: usize,
    steps: usize,
}

impl<'a, S: Simd, const NV: usize> Vectors<'a, S, NV> {
    /// A view of `steps` steps.
    ///
    /// # Panics
    ///
    /// If a vector reaches outside of `src`.
    #[inline(always)]
    pub fn new(
        simd: S,
        src: &'a [f32],
        starts: [usize; NV],
        step: usize,
        steps: usize,
    ) -> Vectors<'a, S, NV> {
        if steps > 0 {
            let reach = (steps - 1).saturating_mul(step).saturating_add(S::LANES);
            for start in starts {
                let end = start.saturating_add(reach);
                assert!(end <= src.len(), "vector up to {end} of {}", src.len());
            }
        }
        Vectors { simd, src, starts, step, steps }
    }
}

impl<S: Simd, const NV: usize> Iterator for Vectors<'_, S, NV> {
    type Item = [S::F32; NV];

    #[inline(always)]
    fn next(&mut self) -> Option<[S::F32; NV]> {
        self.steps = self.steps.checked_sub(1)?;
        let mut vectors = [self.simd.zero(); NV];
        for (vector, start) in vectors.iter_mut().zip(&mut self.starts) {
            let at = *start;
            debug_assert!(at + S::LANES <= self.src.len(), "vector at {at} of {}", self.src.len());
            // SAFETY: `Vectors::new` checked the end of the last step's vector, and only steps that it counted are taken.
            *vector = self.simd.load(unsafe { self.src.get_unchecked(at..at + S::LANES) });
            *start = at.wrapping_add(self.step);
        }
        Some(vectors)
    }
}
