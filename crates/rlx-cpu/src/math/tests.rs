//! Accuracy against f64 over many arguments, and the special values.

use super::*;
use crate::testing::{Rng, ulp};

/// The error function in f64: its series near zero, the continued fraction of its complement beyond.
fn erf64(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() {
        return x;
    }
    if a < 2.5 {
        let (mut term, mut sum) = (a, a);
        for n in 1..200 {
            term *= -a * a / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return (sum * std::f64::consts::FRAC_2_SQRT_PI).copysign(x);
    }
    if a > 7.0 {
        return 1f64.copysign(x);
    }
    let tail = (1..200).rev().fold(a, |f, n| a + f64::from(n) / 2.0 / f);
    (1.0 - (-a * a).exp() / (tail * std::f64::consts::PI.sqrt())).copysign(x)
}

fn sigmoid64(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The function in f64.
fn exact(op: Unary, x: f64) -> f64 {
    match op {
        Unary::Function(Function::Exp) => x.exp(),
        Unary::Function(Function::Log) => x.ln(),
        Unary::Function(Function::Erf) => erf64(x),
        Unary::Function(Function::Tanh) => x.tanh(),
        Unary::Function(Function::Sigmoid) => sigmoid64(x),
        Unary::Function(Function::Gelu) => x / 2.0 * (1.0 + erf64(x / 2f64.sqrt())),
        Unary::Function(Function::GeluApprox) => {
            x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
        }
        Unary::Function(Function::Silu) => x * sigmoid64(x),
        Unary::Function(Function::Softplus) => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        Unary::Function(Function::Sin) => x.sin(),
        Unary::Function(Function::Cos) => x.cos(),
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Recip => 1.0 / x,
        Unary::Relu => {
            if x.is_nan() {
                x
            } else {
                x.max(0.0)
            }
        }
        Unary::LeakyRelu { alpha } => {
            if x < 0.0 {
                x * f64::from(alpha)
            } else {
                x
            }
        }
        Unary::Clip { lo, hi } => x.clamp(f64::from(lo), f64::from(hi)),
        Unary::HardSigmoid { alpha, beta } => (x * f64::from(alpha) + f64::from(beta)).clamp(0.0, 1.0),
        Unary::Function(Function::HardSwish) => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
        Unary::Abs => x.abs(),
        Unary::Neg => -x,
        Unary::Round => x.round_ties_even(),
        Unary::Floor => x.floor(),
        Unary::Ceil => x.ceil(),
        Unary::Function(other) => unreachable!("{other:?} is tested with all functions"),
    }
}

fn run(isa: Isa, op: Unary, x: &[f32]) -> Vec<f32> {
    let mut y = x.to_vec();
    apply_in_place(isa, op, &mut y);
    y
}

/// The largest error in ULP over evenly and logarithmically spread arguments; where it occurs.
fn worst(isa: Isa, op: Unary, lo: f32, hi: f32) -> (f64, f32) {
    let mut rng = Rng::new(11);
    let mut x: Vec<f32> = (0..200_000).map(|_| rng.uniform(lo, hi)).collect();
    x.extend((0..50_000).map(|_| f32::from_bits(rng.next() as u32)).filter(|v| (lo..hi).contains(v)));
    let y = run(isa, op, &x);
    let mut worst = (0.0, 0.0);
    for (&x, &y) in x.iter().zip(&y) {
        let e = ulp(y, exact(op, f64::from(x)));
        if e > worst.0 {
            worst = (e, x);
        }
    }
    worst
}

#[test]
fn errors_stay_within_their_bounds() {
    // Bounds with fused and with separate multiply-add.
    let cases = [
        (Unary::Function(Function::Exp), -104.0, 89.5, 1.0, 1.6),
        (Unary::Function(Function::Exp), -1.0, 1.0, 1.0, 1.6),
        (Unary::Function(Function::Log), 0.0, 4.0, 1.1, 2.5),
        (Unary::Function(Function::Log), 0.0, 1e30, 1.0, 1.5),
        (Unary::Function(Function::Erf), -5.0, 5.0, 1.1, 2.0),
        (Unary::Function(Function::Tanh), -10.0, 10.0, 1.5, 2.0),
        (Unary::Function(Function::Sigmoid), -87.0, 90.0, 2.5, 3.0),
        (Unary::Function(Function::Silu), -80.0, 90.0, 3.0, 3.5),
        (Unary::Function(Function::Softplus), -80.0, 90.0, 4.0, 4.5),
        (Unary::Function(Function::Sin), -100.0, 100.0, 1.5, 1.0),
        (Unary::Function(Function::Sin), -2e5, 2e5, 1.6, 1.0),
        (Unary::Function(Function::Cos), -100.0, 100.0, 1.5, 1.0),
        (Unary::Function(Function::Cos), -2e5, 2e5, 1.6, 1.0),
        (Unary::Sqrt, 0.0, 1e6, 0.5, 0.5),
        (Unary::Rsqrt, 0.0, 1e6, 1.5, 1.5),
        (Unary::Recip, -10.0, 10.0, 0.5, 0.5),
        (Unary::LeakyRelu { alpha: 0.01 }, -10.0, 10.0, 0.5, 0.5),
        (Unary::Relu, -10.0, 10.0, 0.0, 0.0),
        (Unary::Clip { lo: -1.0, hi: 6.0 }, -10.0, 10.0, 0.0, 0.0),
        (Unary::Abs, -10.0, 10.0, 0.0, 0.0),
        (Unary::Neg, -10.0, 10.0, 0.0, 0.0),
        (Unary::Round, -1e9, 1e9, 0.0, 0.0),
        (Unary::Floor, -10.0, 10.0, 0.0, 0.0),
        (Unary::Ceil, -10.0, 10.0, 0.0, 0.0),
    ];
    for isa in Isa::available() {
        for (op, lo, hi, fused, separate) in cases {
            let bound = if isa.kind() == crate::isa::IsaKind::Portable { separate } else { fused };
            let (err, at) = worst(isa, op, lo, hi);
            assert!(err <= bound, "{op:?} on {:?}: {err:.2} ULP at {at:e}, bound {bound}", isa.kind());
        }
    }
}

#[test]
fn functions_with_cancellation_keep_their_absolute_error() {
    let ops = [
        (Unary::Function(Function::Gelu), 5e-7),
        (Unary::Function(Function::GeluApprox), 7e-7),
        (Unary::Function(Function::HardSwish), 1e-6),
        (Unary::HardSigmoid { alpha: 0.2, beta: 0.5 }, 1e-7),
    ];
    let mut rng = Rng::new(12);
    let x: Vec<f32> = (0..100_000).map(|_| rng.uniform(-8.0, 8.0)).collect();
    for isa in Isa::available() {
        for (op, bound) in ops {
            for (&x, y) in x.iter().zip(run(isa, op, &x)) {
                let err = (f64::from(y) - exact(op, f64::from(x))).abs();
                assert!(
                    err <= bound * 1f64.max(f64::from(x).abs() / 2.0),
                    "{op:?}({x}) = {y}, off by {err:e}"
                );
            }
        }
    }
}

#[test]
fn special_values_are_those_of_the_functions() {
    let inf = f32::INFINITY;
    let tiny = f32::from_bits(1);
    let specials =
        [0.0, -0.0, inf, -inf, f32::NAN, tiny, -tiny, 1e-40, f32::MIN_POSITIVE, f32::MAX, f32::MIN];
    let ops = [
        Unary::Function(Function::Exp),
        Unary::Function(Function::Log),
        Unary::Function(Function::Erf),
        Unary::Function(Function::Tanh),
        Unary::Function(Function::Sigmoid),
        Unary::Function(Function::Softplus),
        Unary::Function(Function::Sin),
        Unary::Function(Function::Cos),
        Unary::Sqrt,
        Unary::Rsqrt,
        Unary::Recip,
        Unary::Relu,
        Unary::Abs,
        Unary::Neg,
        Unary::Round,
        Unary::Floor,
        Unary::Ceil,
        Unary::Clip { lo: -2.0, hi: 3.0 },
        Unary::LeakyRelu { alpha: 0.5 },
        Unary::HardSigmoid { alpha: 0.2, beta: 0.5 },
    ];
    for isa in Isa::available() {
        for op in ops {
            for (&x, y) in specials.iter().zip(run(isa, op, &specials)) {
                let want = exact(op, f64::from(x));
                assert!(ulp(y, want) <= 2.0, "{op:?}({x:e}) = {y:e}, expected {want:e} on {:?}", isa.kind());
            }
        }
    }
}

#[test]
fn odd_functions_keep_the_sign_of_zero() {
    for isa in Isa::available() {
        for op in [
            Unary::Function(Function::Erf),
            Unary::Function(Function::Tanh),
            Unary::Function(Function::Sin),
            Unary::Sqrt,
        ] {
            let y = run(isa, op, &[0.0, -0.0]);
            assert!(y[0].is_sign_positive() && y[1].is_sign_negative(), "{op:?} on {:?}", isa.kind());
        }
    }
}

#[test]
fn powers_are_right_also_in_the_corners() {
    let values = [
        0.0f32,
        -0.0,
        1.0,
        -1.0,
        2.0,
        -2.0,
        0.5,
        3.0,
        -3.5,
        1e30,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    for isa in Isa::available() {
        for y in values {
            let mut x = values.to_vec();
            pow_slices(isa, &mut x, &[y; 13]);
            for (&got, &base) in x.iter().zip(&values) {
                let want = f64::from(base).powf(f64::from(y));
                assert!(ulp(got, want) <= 0.51, "{base}^{y} = {got}, expected {want}");
            }
        }
        let mut rng = Rng::new(13);
        let mut x: Vec<f32> = (0..5000).map(|_| rng.uniform(0.0, 20.0)).collect();
        let y: Vec<f32> = (0..5000).map(|_| rng.uniform(-10.0, 10.0)).collect();
        let base = x.clone();
        pow_slices(isa, &mut x, &y);
        for i in 0..x.len() {
            assert!(ulp(x[i], f64::from(base[i]).powf(f64::from(y[i]))) <= 0.51);
        }
        // All sizes, with results that are denormal, 0 or infinite, too.
        let mut x: Vec<f32> = (0..50_000).map(|_| f32::from_bits((rng.next() >> 33) as u32)).collect();
        x.retain(|x| x.is_finite() && *x > 0.0);
        let y: Vec<f32> = x.iter().map(|_| rng.uniform(-2.5, 2.5)).collect();
        let base = x.clone();
        pow_slices(isa, &mut x, &y);
        for i in 0..x.len() {
            let want = f64::from(base[i]).powf(f64::from(y[i]));
            let same = x[i] == want as f32;
            assert!(
                same || ulp(x[i], want) <= 0.5001,
                "{:e}^{:e} = {:e}, expected {want:e}",
                base[i],
                y[i],
                x[i]
            );
        }
    }
}

#[test]
fn powers_have_the_same_bits_on_every_instruction_set() {
    let mut rng = Rng::new(14);
    let base: Vec<f32> = (0..5000).map(|_| rng.uniform(0.0, 20.0)).collect();
    let y: Vec<f32> = (0..5000).map(|_| rng.uniform(-10.0, 10.0)).collect();
    let of = |isa| {
        let mut x = base.clone();
        pow_slices(isa, &mut x, &y);
        x.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    let all = Isa::available();
    assert!(all.iter().all(|&isa| of(isa) == of(all[0])));
}

#[test]
fn tails_are_done_and_nothing_else() {
    for isa in Isa::available() {
        for n in 0..50 {
            let mut x = [1.0f32; 50];
            apply_in_place(isa, Unary::Neg, &mut x[..n]);
            assert!(x.iter().enumerate().all(|(i, &v)| v == if i < n { -1.0 } else { 1.0 }));
        }
    }
}

/// Every number of a 16-bit float: its function, as an epilogue computes it from f32, is off by 7·10⁻⁷ and 2⁻¹³ of itself, and as 16 bits by no more than rounding
/// adds to that.
#[test]
fn short_functions_are_as_accurate_as_16_bit_floats() {
    fn check<T: Packed>(number: fn(u16) -> T, digits: i32) {
        let numbers: Vec<T> = (0..=u16::MAX).map(number).collect();
        let wide: Vec<f32> = numbers.iter().map(|&x| x.widen()).collect();
        for op in [Function::Gelu, Function::GeluApprox, Function::Silu].map(Unary::Function) {
            for isa in Isa::available() {
                let (mut out, mut values) = (vec![T::zero(); numbers.len()], wide.clone());
                let len = values.len();
                // SAFETY: both are as long as that.
                unsafe { apply(isa, op, numbers.as_ptr(), out.as_mut_ptr(), len) };
                isa.run(Widened(op, &mut values));
                for ((&x, y), value) in wide.iter().zip(&out).zip(values) {
                    let (y, wanted) = (y.widen(), exact(op, f64::from(x)));
                    if wanted.is_nan() || wanted.is_infinite() {
                        let same = |y: f32| f64::from(y) == wanted || wanted.is_nan() && y.is_nan();
                        assert!(
                            same(y) && same(value),
                            "{op:?} of {x} on {isa}: {y} and {value} for {wanted}"
                        );
                        continue;
                    }
                    let unit = 2f64.powi(wanted.abs().max(1e-30).log2().floor() as i32 - digits);
                    let bound = 7e-7 + wanted.abs() / 8192.0;
                    let errors = [y, value].map(|y| (f64::from(y) - wanted).abs());
                    let right = errors[0] <= 0.5 * unit + bound && errors[1] <= bound;
                    assert!(right, "{op:?} of {x} on {isa}: {y} and {value} for {wanted}");
                }
            }
        }
    }
    check(half::bf16::from_bits, 7);
    check(half::f16::from_bits, 10);
}

/// A function of f32 that are rounded to 16 bits afterwards.
struct Widened<'a>(Unary, &'a mut [f32]);

impl Kernel for Widened<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: the slice is as long as that.
        unsafe { apply_to_widened(s, self.0, self.1.as_mut_ptr(), self.1.len()) }
    }
}

/// Lines of `len` elements, `stride` apart.
struct Lines<'a> {
    op: Unary,
    x: &'a mut [f32],
    len: usize,
    stride: usize,
}

impl Kernel for Lines<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let lines = self.x.len() / self.stride;
        // SAFETY: all lines are in the slice.
        unsafe { apply_to_lines(s, self.op, self.x.as_mut_ptr(), (lines, self.stride), self.len) }
    }
}

#[test]
fn lines_have_the_bits_of_single_ones_and_what_is_between_them_stays() {
    let functions =
        [Function::Silu, Function::Gelu, Function::Tanh, Function::Erf, Function::Sin, Function::Asinh];
    for isa in Isa::available() {
        for op in functions.map(Unary::Function).into_iter().chain([Unary::Floor]) {
            for (len, stride) in [(48, 50), (5, 16), (33, 64), (16, 16)] {
                let numbers: Vec<f32> = (0..4 * stride).map(|i| 0.37 * (i as f32 - 70.0)).collect();
                let mut lines = numbers.clone();
                isa.run(Lines { op, x: &mut lines, len, stride });
                let mut single = numbers;
                for line in single.chunks_mut(stride) {
                    apply_in_place(isa, op, &mut line[..len]);
                }
                let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&lines), bits(&single), "{isa} {op:?} {len} of {stride}");
            }
        }
    }
}
