//! The sum of the squares of a gradient's elements: the same bits however the gradient is cut and in whatever order the
//! pieces come.
//!
//! The squares of [`GROUP`] neighbors are summed in f64, in a fixed tree. The groups' sums are then added up without any
//! rounding, as integers, so that neither the order nor the number of workers or ranks among whom they are dealt out
//! matters:
//!
//! ```text
//! sum = sum over i of digits[i] * 2^(16 i - 416)        an f64 covers at most 5 digits, whatever its exponent
//! ```
//!
//! Digits are carried when the sum is asked for: an integer of 64 bits has room for those of 2^48 groups.

use crate::Isa;
use crate::simd::{Kernel, Simd};

/// Neighbors whose squares are summed first. Cuts of a gradient must not divide them.
const GROUP: usize = 16;

/// Bits of a digit.
const DIGIT_BITS: u32 = 16;

/// The exponent of the first digit. The least square of an f32 is 2^-298, whose last bit as an f64 is 2^-350.
const FIRST_EXPONENT: i32 = -416;

/// Digits up to 2^320: a square is less than 2^256, and there are less than 2^60 of them.
const DIGITS: usize = 46;

/// The sum of squares of any number of pieces of gradients.
///
/// # Examples
///
/// ```
/// use lockstep_ops::{Isa, gradient::SquareSum};
///
/// // Two ranks have a piece each, and add up the digits of both.
/// let (isa, gradient) = (Isa::detect(), [0.1; 80]);
/// let mut whole = SquareSum::default();
/// whole.add(isa, &gradient);
/// let mut sums = [0.0; SquareSum::LEN];
/// for piece in [&gradient[..48], &gradient[48..]] {
///     let mut part = SquareSum::default();
///     part.add(isa, piece);
///     let mut digits = [0.0; SquareSum::LEN];
///     part.write(&mut digits);
///     sums.iter_mut().zip(digits).for_each(|(sum, digit)| *sum += digit);
/// }
/// assert_eq!(SquareSum::read(&sums).value().to_bits(), whole.value().to_bits());
/// assert!((whole.value() - 0.8).abs() < 1e-7);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SquareSum {
    digits: [u64; DIGITS],
    /// Whether there was an infinity, or a square that is not a number.
    infinite: bool,
    nan: bool,
}

impl Default for SquareSum {
    fn default() -> SquareSum {
        SquareSum { digits: [0; DIGITS], infinite: false, nan: false }
    }
}

impl SquareSum {
    /// Elements of a sum as [written](Self::write).
    pub const LEN: usize = DIGITS + 2;

    /// Sums that can be added up as written: elements then stay below 2^24, up to which an f32 counts exactly.
    pub const MOST_RANKS: usize = 256;

    /// Adds the squares of a piece of a gradient.
    ///
    /// Pieces give the same sum as the whole if each of them begins a multiple of 16 elements from the gradient's start.
    pub fn add(&mut self, isa: Isa, piece: &[f32]) {
        isa.dispatch(AddSquares { sum: self, piece });
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &SquareSum) {
        for (digit, other) in self.digits.iter_mut().zip(other.digits) {
            *digit += other;
        }
        self.carry();
        self.infinite |= other.infinite;
        self.nan |= other.nan;
    }

    /// The sum: within rounding to f64 of the exact sum of the groups.
    pub fn value(&self) -> f64 {
        if self.nan {
            return f64::NAN;
        }
        if self.infinite {
            return f64::INFINITY;
        }
        let mut carried = self.clone();
        carried.carry();
        // From the least digit on, each partial sum is rounded less than the next one's last bit.
        let digits = carried.digits.iter().zip(0..);
        digits.fold(0.0, |sum, (digit, at)| sum + *digit as f64 * power_of_two(at))
    }

    /// Writes the sum as integers that may be added up, element by element, over up to [`MOST_RANKS`](Self::MOST_RANKS)
    /// ranks, in any order, without rounding.
    ///
    /// # Panics
    ///
    /// If `to` has less than [`LEN`](Self::LEN) elements.
    pub fn write(&self, to: &mut [f32]) {
        let mut carried = self.clone();
        carried.carry();
        for (to, digit) in to[..DIGITS].iter_mut().zip(carried.digits) {
            *to = digit as f32;
        }
        to[DIGITS] = f32::from(u8::from(self.infinite));
        to[DIGITS + 1] = f32::from(u8::from(self.nan));
    }

    /// The sum that [`write`](Self::write) wrote, or the sum of several.
    ///
    /// # Panics
    ///
    /// If `from` has less than [`LEN`](Self::LEN) elements.
    pub fn read(from: &[f32]) -> SquareSum {
        let from = &from[..SquareSum::LEN];
        let mut sum = SquareSum::default();
        for (digit, from) in sum.digits.iter_mut().zip(from) {
            *digit = *from as u64;
        }
        sum.infinite = from[DIGITS] > 0.0;
        sum.nan = from[DIGITS + 1] > 0.0;
        sum.carry();
        sum
    }

    /// Adds the sum of a group's squares, which is never negative.
    #[inline(always)]
    fn add_group(&mut self, x: f64) {
        const MANTISSA_BITS: u32 = 52;
        let bits = x.to_bits();
        let exponent = (bits >> MANTISSA_BITS) as i32;
        if exponent >= 0x7ff {
            self.nan |= x.is_nan();
            self.infinite |= !x.is_nan();
            return;
        }
        if exponent == 0 {
            // Zero: no sum of squares is denormal.
            return;
        }
        let mantissa = bits & ((1 << MANTISSA_BITS) - 1) | 1 << MANTISSA_BITS;
        let from_first = (exponent - 1023 - MANTISSA_BITS as i32 - FIRST_EXPONENT).unsigned_abs();
        let (first, shift) = ((from_first / DIGIT_BITS) as usize, from_first % DIGIT_BITS);
        let shifted = u128::from(mantissa) << shift;
        for (i, digit) in self.digits[first..first + 5].iter_mut().enumerate() {
            *digit += (shifted >> (DIGIT_BITS * i as u32)) as u64 & 0xffff;
        }
    }

    /// Brings every digit but the last below 2^16.
    fn carry(&mut self) {
        let mut carry = 0;
        let (last, digits) = self.digits.split_last_mut().expect("there are digits");
        for digit in digits {
            *digit += carry;
            carry = *digit >> DIGIT_BITS;
            *digit &= (1 << DIGIT_BITS) - 1;
        }
        *last += carry;
    }
}

/// The value of a one in a digit's place.
fn power_of_two(digit: i32) -> f64 {
    let exponent = FIRST_EXPONENT + digit * DIGIT_BITS as i32;
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// The sum of the squares of a whole gradient; see [`SquareSum`] for pieces of one.
///
/// # Cost
///
/// Memory bound: reads `values` once.
pub fn sum_of_squares(isa: Isa, values: &[f32]) -> f64 {
    let mut sum = SquareSum::default();
    sum.add(isa, values);
    sum.value()
}

struct AddSquares<'a> {
    sum: &'a mut SquareSum,
    piece: &'a [f32],
}

impl Kernel for AddSquares<'_> {
    type Output = ();

    // Doubles are not among the vectors of `Simd`. The compiler makes vectors of these loops, of the width of the
    // instruction set, and the order of the additions is written out, so that bits do not depend on it.
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let mut groups = self.piece.chunks_exact(GROUP);
        for group in &mut groups {
            self.sum.add_group(squares(group.first_chunk().expect("a whole group")));
        }
        let rest = groups.remainder();
        if !rest.is_empty() {
            let mut group = [0.0; GROUP];
            group[..rest.len()].copy_from_slice(rest);
            self.sum.add_group(squares(&group));
        }
    }
}

/// The sum of a group's squares, halves added to halves.
#[inline(always)]
fn squares(group: &[f32; GROUP]) -> f64 {
    let mut sums = [0.0; GROUP];
    for (sum, &x) in sums.iter_mut().zip(group) {
        *sum = f64::from(x) * f64::from(x);
    }
    let mut width = GROUP;
    while width > 1 {
        width /= 2;
        for i in 0..width {
            sums[i] += sums[i + width];
        }
    }
    sums[0]
}
