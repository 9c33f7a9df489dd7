//! The two operands of a register-blocked kernel, bounds checked once instead of once an element.
//!
//! A kernel keeps a tile of accumulators in registers and walks along a common axis `i`. At every step it broadcasts
//! `R * C` scalars of one tensor ([`Broadcasts`]) and reads `NV` vectors of another ([`Vectors`]). Both views check their
//! farthest element when they are made; their iterators then hand out one step at a time and cannot leave the bounds.

use super::Simd;

/// The scalars `src[lines[r] + c * c_step + i * i_step]` for `r < R`, `c < C`, step by step along `i`, each with the
/// `G - 1` that follow it.
#[derive(Debug, Clone)]
pub struct Broadcasts<'a, const R: usize, const C: usize, const G: usize = 1> {
    src: &'a [f32],
    lines: [usize; R],
    c_step: usize,
    i_step: usize,
    steps: usize,
}

/// The scalars of one step.
#[derive(Debug, Clone, Copy)]
pub struct Column<'a, const R: usize, const C: usize, const G: usize = 1> {
    src: &'a [f32],
    lines: [usize; R],
    c_step: usize,
}

impl<'a, const R: usize, const C: usize, const G: usize> Broadcasts<'a, R, C, G> {
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
    ) -> Broadcasts<'a, R, C, G> {
        const { assert!(R > 0 && C > 0 && G > 0) };
        if steps > 0 {
            // Saturation makes a view that would wrap around exceed the slice instead.
            let reach =
                (steps - 1).saturating_mul(i_step).saturating_add((C - 1).saturating_mul(c_step));
            for line in lines {
                let last = line.saturating_add(reach).saturating_add(G - 1);
                assert!(last < src.len(), "scalar {last} of {}", src.len());
            }
        }
        Broadcasts { src, lines, c_step, i_step, steps }
    }

    /// The scalars of each step together with the vectors of the same step, counted by one counter.
    ///
    /// # Panics
    ///
    /// If the views have different numbers of steps.
    #[inline(always)]
    pub fn with<S: Simd, const NV: usize>(
        self,
        vectors: Vectors<'a, S, NV>,
    ) -> Pairs<'a, S, R, C, NV, G> {
        assert_eq!(self.steps, vectors.steps, "steps of scalars and vectors");
        Pairs { scalars: self, vectors, at: 0 }
    }
}

impl<'a, const R: usize, const C: usize, const G: usize> Iterator for Broadcasts<'a, R, C, G> {
    type Item = Column<'a, R, C, G>;

    #[inline(always)]
    fn next(&mut self) -> Option<Column<'a, R, C, G>> {
        self.steps = self.steps.checked_sub(1)?;
        let column = Column { src: self.src, lines: self.lines, c_step: self.c_step };
        for line in &mut self.lines {
            *line = line.wrapping_add(self.i_step);
        }
        Some(column)
    }
}

impl<const R: usize, const C: usize, const G: usize> Column<'_, R, C, G> {
    /// Scalar `(r, c)` of this step, and those that follow it.
    ///
    /// # Panics
    ///
    /// If `r >= R` or `c >= C`; with constant indices the check costs nothing.
    #[inline(always)]
    pub fn group(&self, r: usize, c: usize) -> &[f32; G] {
        assert!(c < C, "column {c} of {C}");
        let at = self.lines[r] + c * self.c_step;
        debug_assert!(at + G <= self.src.len(), "scalars at {at} of {}", self.src.len());
        // SAFETY: `Broadcasts::new` checked the last scalar of the last line, last column and last step; only steps that it
        // counted are handed out, and `r` and `c` are in range.
        let group = unsafe { self.src.get_unchecked(at..at + G) };
        group.first_chunk().expect("a whole group")
    }

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

/// Scalars and vectors of the same steps.
#[derive(Debug, Clone)]
pub struct Pairs<'a, S, const R: usize, const C: usize, const NV: usize, const G: usize = 1> {
    scalars: Broadcasts<'a, R, C, G>,
    vectors: Vectors<'a, S, NV>,
    at: usize,
}

impl<'a, S: Simd, const R: usize, const C: usize, const NV: usize, const G: usize> Iterator
    for Pairs<'a, S, R, C, NV, G>
{
    type Item = (Column<'a, R, C, G>, [S::F32; NV]);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let Pairs { scalars: Broadcasts { src, lines, c_step, i_step, steps }, vectors, at } = self;
        if *at >= *steps {
            return None;
        }
        let i = *at;
        *at += 1;
        let lines = lines.map(|line| line + i * *i_step);
        let vectors = vectors.starts.map(|start| {
            let at = start + i * vectors.step;
            debug_assert!(at + S::LANES <= vectors.src.len(), "vector at {at}");
            // SAFETY: `Vectors::new` checked the end of the last step's vector, and both views have as many steps.
            vectors.simd.load(unsafe { vectors.src.get_unchecked(at..at + S::LANES) })
        });
        Some((Column { src, lines, c_step: *c_step }, vectors))
    }
}

/// [`Broadcasts`] of many lines, checked together: line `[a, b]` begins `a * line_steps[0] + b * line_steps[1]` elements
/// further on.
#[derive(Debug, Clone)]
pub struct BroadcastLines<'a, const R: usize, const C: usize, const G: usize = 1> {
    first: Broadcasts<'a, R, C, G>,
    counts: [usize; 2],
    line_steps: [usize; 2],
}

impl<'a, const R: usize, const C: usize, const G: usize> BroadcastLines<'a, R, C, G> {
    /// `counts[0] * counts[1]` lines, of which `first` is the first.
    ///
    /// # Panics
    ///
    /// If an element of any line lies outside of the slice of `first`.
    #[inline(always)]
    pub fn new(
        first: Broadcasts<'a, R, C, G>,
        counts: [usize; 2],
        line_steps: [usize; 2],
    ) -> BroadcastLines<'a, R, C, G> {
        if counts[0] > 0 && counts[1] > 0 {
            let Broadcasts { src, lines, c_step, i_step, steps } = first;
            let to_last = last_line(counts, line_steps);
            let lines = lines.map(|line| line.saturating_add(to_last));
            Broadcasts::<R, C, G>::new(src, lines, [c_step, i_step], steps);
        }
        BroadcastLines { first, counts, line_steps }
    }

    /// Line `[a, b]`.
    ///
    /// # Panics
    ///
    /// If there is no such line.
    #[inline(always)]
    pub fn line(&self, at: [usize; 2]) -> Broadcasts<'a, R, C, G> {
        assert!(at[0] < self.counts[0] && at[1] < self.counts[1], "line {at:?}");
        // Between the first and the last line, which both were checked.
        let shift = at[0] * self.line_steps[0] + at[1] * self.line_steps[1];
        let lines = self.first.lines.map(|line| line + shift);
        Broadcasts { lines, ..self.first }
    }
}

/// [`Vectors`] of many lines, checked together: line `[a, b]` begins `a * line_steps[0] + b * line_steps[1]` elements
/// further on.
#[derive(Debug, Clone)]
pub struct VectorLines<'a, S, const NV: usize> {
    first: Vectors<'a, S, NV>,
    counts: [usize; 2],
    line_steps: [usize; 2],
}

impl<'a, S: Simd, const NV: usize> VectorLines<'a, S, NV> {
    /// `counts[0] * counts[1]` lines, of which `first` is the first.
    ///
    /// # Panics
    ///
    /// If a vector of any line reaches outside of the slice of `first`.
    #[inline(always)]
    pub fn new(
        first: Vectors<'a, S, NV>,
        counts: [usize; 2],
        line_steps: [usize; 2],
    ) -> VectorLines<'a, S, NV> {
        if counts[0] > 0 && counts[1] > 0 {
            let Vectors { simd, src, starts, step, steps } = first;
            let to_last = last_line(counts, line_steps);
            let starts = starts.map(|start| start.saturating_add(to_last));
            Vectors::new(simd, src, starts, step, steps);
        }
        VectorLines { first, counts, line_steps }
    }

    /// Line `[a, b]`.
    ///
    /// # Panics
    ///
    /// If there is no such line.
    #[inline(always)]
    pub fn line(&self, at: [usize; 2]) -> Vectors<'a, S, NV> {
        assert!(at[0] < self.counts[0] && at[1] < self.counts[1], "line {at:?}");
        // Between the first and the last line, which both were checked.
        let shift = at[0] * self.line_steps[0] + at[1] * self.line_steps[1];
        let starts = self.first.starts.map(|start| start + shift);
        Vectors { starts, ..self.first }
    }
}

/// Elements from the first to the last of the lines, of which there is one at least.
#[inline(always)]
fn last_line(counts: [usize; 2], line_steps: [usize; 2]) -> usize {
    let along = |axis: usize| (counts[axis] - 1).saturating_mul(line_steps[axis]);
    along(0).saturating_add(along(1))
}

/// The vectors at `dst[start + c * step..]` for `c < C`, to be read and written one at a time.
#[derive(Debug)]
pub struct Outputs<'a, S, const C: usize> {
    simd: S,
    dst: &'a mut [f32],
    step: usize,
}

impl<'a, S: Simd, const C: usize> Outputs<'a, S, C> {
    /// A view of vectors, the first at the start of `dst`.
    ///
    /// # Panics
    ///
    /// If a vector reaches outside of `dst`.
    #[inline(always)]
    pub fn new(simd: S, dst: &'a mut [f32], step: usize) -> Outputs<'a, S, C> {
        const { assert!(C > 0) };
        let end = (C - 1).saturating_mul(step).saturating_add(S::LANES);
        assert!(end <= dst.len(), "vector up to {end} of {}", dst.len());
        Outputs { simd, dst, step }
    }

    /// Vector `c`.
    ///
    /// # Panics
    ///
    /// If `c >= C`; with a constant index the check costs nothing.
    #[inline(always)]
    pub fn get(&self, c: usize) -> S::F32 {
        assert!(c < C, "vector {c} of {C}");
        let at = c * self.step;
        // SAFETY: `new` checked the end of the last vector, and `c` is in range.
        self.simd.load(unsafe { self.dst.get_unchecked(at..at + S::LANES) })
    }

    /// Replaces vector `c`.
    ///
    /// # Panics
    ///
    /// If `c >= C`; with a constant index the check costs nothing.
    #[inline(always)]
    pub fn set(&mut self, c: usize, v: S::F32) {
        assert!(c < C, "vector {c} of {C}");
        let at = c * self.step;
        // SAFETY: `new` checked the end of the last vector, and `c` is in range.
        self.simd.store(unsafe { self.dst.get_unchecked_mut(at..at + S::LANES) }, v);
    }
}
