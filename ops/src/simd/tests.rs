//! Every operation on every instruction set of this CPU, lane by lane against scalar arithmetic.

use super::*;
use crate::IsaError;

const SPECIAL: [f32; 12] = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    2.5,
    3.5,
    -2.5,
    1e30,
    -1e-30,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

/// Compares a binary vector function with a scalar one on all pairs of special values.
struct Pairs<F>(F, &'static str);

trait Binary {
    fn vector<S: Simd>(&self, simd: S, a: S::F32, b: S::F32) -> S::F32;
    fn scalar(&self, a: f32, b: f32) -> f32;
}

impl<F: Binary> Kernel for &Pairs<F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for b in SPECIAL {
            let mut a: Vec<f32> = SPECIAL.to_vec();
            a.resize(a.len().next_multiple_of(S::LANES), 7.0);
            for chunk in a.chunks(S::LANES) {
                let mut got = vec![0.0; S::LANES];
                simd.store(&mut got, self.0.vector(simd, simd.load(chunk), simd.splat(b)));
                for (a, got) in chunk.iter().zip(got) {
                    let expected = self.0.scalar(*a, b);
                    let same = got == expected || got.is_nan() && expected.is_nan();
                    assert!(same, "{}({a}, {b}) on {} lanes is {got}", self.1, S::LANES);
                }
            }
        }
    }
}

macro_rules! binary_tests {
    ($($name:ident: |$simd:ident, $a:ident, $b:ident| $vector:expr, $scalar:expr;)*) => {$(
        #[test]
        fn $name() {
            struct Case;
            impl Binary for Case {
                #[inline(always)]
                fn vector<S: Simd>(&self, $simd: S, $a: S::F32, $b: S::F32) -> S::F32 { $vector }
                fn scalar(&self, $a: f32, $b: f32) -> f32 { $scalar }
            }
            for isa in Isa::all_available() {
                isa.dispatch(&Pairs(Case, stringify!($name)));
            }
        }
    )*};
}

binary_tests! {
    add: |simd, a, b| simd.add(a, b), a + b;
    sub: |simd, a, b| simd.sub(a, b), a - b;
    mul: |simd, a, b| simd.mul(a, b), a * b;
    div: |simd, a, b| simd.div(a, b), a / b;
    mul_add: |simd, a, b| simd.mul_add(a, b, b), a.mul_add(b, b);
    sqrt: |simd, a, _b| simd.sqrt(a), a.sqrt();
    round: |simd, a, _b| simd.round(a), a.round_ties_even();
    max_propagates_nan: |simd, a, b| simd.max(a, b), if a.is_nan() || b.is_nan() { f32::NAN } else { a.max(b) };
    min_propagates_nan: |simd, a, b| simd.min(a, b), if a.is_nan() || b.is_nan() { f32::NAN } else { a.min(b) };
    select_gt: |simd, a, b| simd.select_gt(a, b, simd.splat(1.0), simd.splat(2.0)), if a > b { 1.0 } else { 2.0 };
    select_unordered: |simd, a, b| simd.select_unordered(a, b, a), if a.is_nan() { b } else { a };
}

struct Partial;

impl Kernel for Partial {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let src: Vec<f32> = (1..=20).map(|i| i as f32).collect();
        for n in 0..=S::LANES + 2 {
            let expected: Vec<f32> =
                (0..S::LANES).map(|i| if i < n { src[i] } else { 0.0 }).collect();
            let mut got = vec![9.0; S::LANES];
            simd.store(&mut got, simd.load_partial(&src[..n]));
            assert_eq!(got, expected, "load of {n}");
            simd.store(&mut got, simd.keep_first(simd.load(&src), n));
            assert_eq!(got, expected, "keep {n}");
            let mut written = vec![0.0; n];
            simd.store_partial(&mut written, simd.load(&src));
            assert_eq!(written[..n.min(S::LANES)], src[..n.min(S::LANES)], "store of {n}");
        }
        let sum: usize = (1..=S::LANES).sum();
        assert_eq!(simd.reduce_add(simd.load(&src)), sum as f32);
    }
}

#[test]
fn partial_vectors_and_sums() {
    for isa in Isa::all_available() {
        isa.dispatch(Partial);
    }
}

struct Interleave;

impl Kernel for Interleave {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let n = S::LANES;
        let src: Vec<f32> = (0..2 * n).map(|i| i as f32).collect();
        let (lower, upper) = simd.interleave(simd.load(&src), simd.load(&src[n..]));
        let mut got = vec![0.0; 2 * n];
        simd.store(&mut got, lower);
        simd.store(&mut got[n..], upper);
        let expected: Vec<f32> = (0..n).flat_map(|i| [i as f32, (n + i) as f32]).collect();
        assert_eq!(got, expected);
    }
}

#[test]
fn interleaving_takes_lanes_in_turn() {
    for isa in Isa::all_available() {
        isa.dispatch(Interleave);
    }
}

struct Groups;

impl Kernel for Groups {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        check_groups::<S, 1>(simd);
        check_groups::<S, 2>(simd);
        check_groups::<S, 4>(simd);
    }
}

#[inline(always)]
fn check_groups<S: Simd, const G: usize>(simd: S) {
    let values: Vec<f32> = (0..S::LANES).map(|i| 1.1_f32.powi(7 * i as i32)).collect();
    let stored = |v| {
        let mut lanes = vec![f32::NAN; S::LANES];
        simd.store(&mut lanes, v);
        lanes
    };
    let group = values.first_chunk::<G>().expect("a vector has 4 lanes and more");
    let expected: Vec<f32> = values[..G].iter().copied().cycle().take(S::LANES).collect();
    assert_eq!(stored(simd.splat_group(group)), expected, "splat");
    let mut expected: Vec<f32> = (values.chunks_exact(G))
        .map(|x| match x {
            [a] => *a,
            [a, b] => a + b,
            _ => (x[0] + x[2]) + (x[1] + x[3]),
        })
        .collect();
    expected.resize(S::LANES, 0.0);
    assert_eq!(stored(simd.sum_groups::<G>(simd.load(&values))), expected, "sum");
}

#[test]
fn groups_of_lanes_are_filled_and_summed() {
    for isa in Isa::all_available() {
        isa.dispatch(Groups);
    }
}

struct SumOrder;

impl Kernel for SumOrder {
    type Output = (usize, f32);

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> (usize, f32) {
        let values: Vec<f32> = (0..S::LANES).map(|i| 1.1_f32.powi(7 * i as i32)).collect();
        (S::LANES, simd.reduce_add(simd.load(&values)))
    }
}

#[test]
fn sums_of_equal_lanes_have_equal_bits() {
    let sums: Vec<_> = Isa::all_available().iter().map(|isa| isa.dispatch(SumOrder)).collect();
    for (lanes, sum) in &sums {
        assert!(sums.iter().all(|(l, s)| l != lanes || s.to_bits() == sum.to_bits()));
    }
}

struct Map<'a, const LN: bool>(&'a mut [f32]);

impl<const LN: bool> Kernel for Map<'_, LN> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for chunk in self.0.chunks_mut(S::LANES) {
            let x = simd.load_partial(chunk);
            simd.store_partial(chunk, if LN { ln(simd, x) } else { exp(simd, x) });
        }
    }
}

#[track_caller]
fn check_accuracy(isa: Isa, inputs: &[f32], got: &[f32], exact: impl Fn(f64) -> f64) {
    for (x, got) in inputs.iter().zip(got) {
        let expected = exact(f64::from(*x));
        let ulp = f64::from((expected as f32).abs().max(f32::MIN_POSITIVE) * f32::EPSILON);
        let error = (f64::from(*got) - expected).abs() / ulp;
        assert!(error <= 2.0, "{}: f({x}) = {got}, off by {error} ulp", isa.name());
    }
}

#[test]
fn exp_is_within_two_ulp() {
    let inputs: Vec<f32> = (-87_000..88_700).map(|i| i as f32 * 1e-3).collect();
    for isa in Isa::all_available() {
        let mut got = inputs.clone();
        isa.dispatch(Map::<false>(&mut got));
        check_accuracy(isa, &inputs, &got, f64::exp);
    }
}

#[test]
fn ln_is_within_two_ulp() {
    let near_one = (0..40_000).map(|i| 0.8 + i as f32 * 1e-5);
    let inputs: Vec<f32> =
        (-126_000..127_900).map(|i| 2.0_f32.powf(i as f32 * 1e-3)).chain(near_one).collect();
    for isa in Isa::all_available() {
        let mut got = inputs.clone();
        isa.dispatch(Map::<true>(&mut got));
        check_accuracy(isa, &inputs, &got, f64::ln);
    }
}

#[test]
fn exp_and_ln_at_the_ends() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let exps =
        [(inf, inf), (-inf, 0.0), (nan, nan), (0.0, 1.0), (1e8, inf), (-1e8, 0.0), (88.8, inf)];
    let lns =
        [(inf, inf), (0.0, -inf), (-0.0, -inf), (-1.0, nan), (-inf, nan), (nan, nan), (1.0, 0.0)];
    for isa in Isa::all_available() {
        for (cases, is_ln) in [(exps, false), (lns, true)] {
            for (x, expected) in cases {
                let mut got = [x];
                if is_ln {
                    isa.dispatch(Map::<true>(&mut got));
                } else {
                    isa.dispatch(Map::<false>(&mut got));
                }
                let same = got[0] == expected || got[0].is_nan() && expected.is_nan();
                assert!(same, "{}: f({x}) = {}, not {expected}", isa.name(), got[0]);
            }
        }
    }
}

#[test]
fn names_lead_back_to_their_set() {
    for isa in Isa::all_available() {
        assert_eq!(Isa::named(isa.name()), Ok(isa));
    }
    assert!(matches!(Isa::named("sse9"), Err(IsaError::Unknown { .. })));
}

#[test]
fn views_hand_out_what_they_say() {
    let src: Vec<f32> = (0..40).map(|i| i as f32).collect();
    let view = Broadcasts::<2, 3, 1>::new(&src, [0, 20], [4, 1], 5);
    let got: Vec<f32> = view.map(|column| column.get(1, 2) - column.get(0, 1)).collect();
    assert_eq!(got, [24.0; 5]);
}

#[test]
#[should_panic(expected = "scalar 40 of 40")]
fn a_view_beyond_its_slice_is_refused() {
    let _view = Broadcasts::<2, 3, 1>::new(&[0.0; 40], [0, 28], [4, 1], 5);
}

#[test]
#[should_panic(expected = "scalar 18446744073709551615 of 4")]
fn a_view_that_wraps_around_is_refused() {
    let _view = Broadcasts::<1, 3, 1>::new(&[0.0; 4], [1], [usize::MAX / 2 + 1, 1], 2);
}

#[test]
fn lines_of_views_are_handed_out_in_step() {
    let simd = portable::Portable::<8>;
    let src: Vec<f32> = (0..80).map(|i| i as f32).collect();
    let scalars = Broadcasts::<1, 2, 1>::new(&src, [1], [1, 4], 2);
    let vectors = Vectors::<_, 1>::new(simd, &src, [0], 8, 2);
    let scalars = BroadcastLines::new(scalars, [2, 3], [40, 10]);
    let vectors = VectorLines::new(vectors, [2, 3], [32, 16]);
    let pairs = scalars.line([1, 2]).with(vectors.line([1, 2]));
    let got: Vec<_> = pairs.map(|(scalar, [vector])| (scalar.get(0, 1), vector[0])).collect();
    assert_eq!(got, [(62.0, 64.0), (66.0, 72.0)]);
}

#[test]
#[should_panic(expected = "scalar 80 of 80")]
fn scalars_of_a_line_beyond_the_slice_are_refused() {
    let src = [0.0; 80];
    let first = Broadcasts::<1, 2, 1>::new(&src, [5], [1, 4], 2);
    let _lines = BroadcastLines::new(first, [3, 2], [30, 10]);
}

#[test]
#[should_panic(expected = "vector up to 81 of 80")]
fn vectors_of_a_line_beyond_the_slice_are_refused() {
    let src = [0.0; 80];
    let first = Vectors::<_, 1>::new(portable::Portable::<8>, &src, [1], 8, 2);
    let _lines = VectorLines::new(first, [2, 3], [32, 16]);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn denormals_are_flushed_in_the_calling_thread_only() {
    std::thread::spawn(|| {
        assert!(!denormals_flushed());
        flush_denormals();
        assert!(denormals_flushed());
        let tiny = std::hint::black_box(f32::MIN_POSITIVE);
        assert_eq!(tiny * std::hint::black_box(0.5), 0.0);
    })
    .join()
    .expect("the thread's assertions hold");
    assert!(!denormals_flushed());
}
