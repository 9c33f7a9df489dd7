//! What one core of this machine can do at most: the yardstick of every measurement.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::Isa;
use crate::linear::blocking::tile_rows;
use crate::linear::tile::{Lhs, Rhs, accumulate};
use crate::simd::{Kernel, Simd};

/// Independent sums of the loop: more than latency (4 to 5 cycles) times ports (2), fewer than registers.
const SUMS: usize = 12;

/// FMAs of each sum in one call of the kernel.
const STEPS: u32 = 20_000;

struct FmaLoop;

impl Kernel for FmaLoop {
    /// Floating-point operations done, and a value that depends on all of them.
    type Output = (u64, f32);

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> (u64, f32) {
        let (factor, term) = (simd.splat(black_box(0.999)), simd.splat(black_box(0.001)));
        let mut sums = [simd.splat(1.0); SUMS];
        for _ in 0..STEPS {
            for i in 0..SUMS {
                sums[i] = simd.mul_add(sums[i], factor, term);
            }
        }
        let mut total = simd.zero();
        for sum in sums {
            total = simd.add(total, sum);
        }
        (2 * (SUMS * S::LANES) as u64 * u64::from(STEPS), simd.reduce_add(total))
    }
}

/// Products of each sum of a fed tile: its operands take 25 KiB, or half as much with 8 lanes.
const FED_DEPTH: usize = 144;

/// Tiles in one call of the kernel.
const FED_TILES: u32 = 200;

/// Both operands of a register tile, so few that they stay in the first-level cache.
struct FedTile<'a> {
    rows: &'a [f32],
    vectors: &'a [f32],
}

impl FedTile<'_> {
    /// Sums of `R` rows by two vectors, as in a matrix product.
    #[inline(always)]
    fn multiply<S: Simd, const R: usize>(self, simd: S) -> (u64, f32) {
        let lhs = Lhs { src: self.rows, row_stride: FED_DEPTH, k_stride: 1 };
        let rhs = Rhs { src: self.vectors, k_stride: 2 * S::LANES };
        let mut total = simd.zero();
        for _ in 0..FED_TILES {
            // Every tile is computed, though all are the same.
            let lhs = Lhs { src: black_box(self.rows), ..lhs };
            let sums = accumulate(simd, [[simd.zero(); 2]; R], lhs, rhs, FED_DEPTH);
            for row in 0..R {
                for vector in 0..2 {
                    total = simd.add(total, sums[row][vector]);
                }
            }
        }
        let flops = 2 * (R * 2 * S::LANES * FED_DEPTH) as u64 * u64::from(FED_TILES);
        (flops, simd.reduce_add(total))
    }
}

impl Kernel for FedTile<'_> {
    /// As of the loop in registers.
    type Output = (u64, f32);

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> (u64, f32) {
        if tile_rows(S::LANES) == 12 {
            self.multiply::<S, { tile_rows(16) }>(simd)
        } else {
            self.multiply::<S, { tile_rows(8) }>(simd)
        }
    }
}

struct Triad<'a> {
    a: &'a mut [f32],
    b: &'a [f32],
    c: &'a [f32],
}

impl Kernel for Triad<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let factor = simd.splat(3.0);
        let sources = self.b.chunks_exact(S::LANES).zip(self.c.chunks_exact(S::LANES));
        for (a, (b, c)) in self.a.chunks_exact_mut(S::LANES).zip(sources) {
            simd.store(a, simd.mul_add(factor, simd.load(c), simd.load(b)));
        }
    }
}

/// The best rate, in units of 10^9 a second, of repeating `act`, which returns the units it did, for `time`.
fn best_rate(time: Duration, mut act: impl FnMut() -> u64) -> f64 {
    let began = Instant::now();
    let mut best = 0.0_f64;
    loop {
        let start = Instant::now();
        let units = act();
        best = best.max(units as f64 / start.elapsed().as_secs_f64() * 1e-9);
        if began.elapsed() >= time {
            return best;
        }
    }
}

/// The GFLOP/s of independent FMAs in registers on the calling thread, measured for `time` (50 ms are plenty).
///
/// A multiplication with addition counts as two operations.
pub fn gflops(isa: Isa, time: Duration) -> f64 {
    best_rate(time, || {
        let (flops, value) = isa.dispatch(FmaLoop);
        black_box(value);
        flops
    })
}

/// The GFLOP/s of a matrix product's register tile whose operands stay in the first-level cache, on the calling thread, measured
/// for `time`: what a kernel could reach that had nothing else to do.
///
/// Below [`gflops`] where a core that loads as well as multiplies has to lower its clock, or cannot do both at full rate.
pub fn fed_gflops(isa: Isa, time: Duration) -> f64 {
    // Values with all digits, of both signs, as data has: how many bits change shows in the power that a core takes.
    let value = |i: usize| (i as f32 * 0.618_034).fract() * 2.0 - 1.0;
    let operand = |len: usize| -> Vec<f32> { (0..len).map(value).collect() };
    let (rows, vectors) =
        (operand(tile_rows(isa.lanes()) * FED_DEPTH), operand(2 * isa.lanes() * FED_DEPTH));
    best_rate(time, || {
        let (rows, vectors) = (black_box(&rows[..]), black_box(&vectors[..]));
        let (flops, value) = isa.dispatch(FedTile { rows, vectors });
        black_box(value);
        flops
    })
}

/// The GB/s of `a[i] = b[i] + 3 c[i]` over three arrays of `len` elements on the calling thread, measured for `time`.
///
/// Three arrays count, the read of `a` that precedes its write in most caches does not. `len` decides which level is
/// measured: take arrays of at least four times the last cache for memory.
pub fn triad_gbytes(isa: Isa, len: usize, time: Duration) -> f64 {
    let (mut a, b, c) = (vec![0.0; len], vec![1.0; len], vec![2.0; len]);
    best_rate(time, || {
        isa.dispatch(Triad { a: &mut a, b: &b, c: &c });
        black_box(&mut a);
        3 * size_of_val(&b[..]) as u64
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_measured_on_every_isa() {
        for isa in Isa::all_available() {
            assert!(gflops(isa, Duration::ZERO) > 0.0);
            assert!(fed_gflops(isa, Duration::ZERO) > 0.0);
            assert!(triad_gbytes(isa, 1000, Duration::ZERO) > 0.0);
        }
    }

    #[test]
    fn a_fed_tile_multiplies_all_rows_by_all_vectors() {
        for isa in Isa::all_available() {
            let (rows, vectors) =
                (vec![0.5; tile_rows(16) * FED_DEPTH], vec![0.25; 32 * FED_DEPTH]);
            let (flops, total) = isa.dispatch(FedTile { rows: &rows, vectors: &vectors });
            // Each product is an eighth, and counts as two operations.
            assert_eq!(f64::from(total), flops as f64 / 16.0, "{}", isa.name());
        }
    }

    #[test]
    fn a_triad_adds_and_multiplies() {
        let mut a = [0.0; 16];
        Isa::detect().dispatch(Triad { a: &mut a, b: &[1.0; 16], c: &[2.0; 16] });
        assert_eq!(a, [7.0; 16]);
    }
}
