//! Functions of one element: the table, and the exact references of those that Rust has not.
//!
//! A line of the table is all that the graph language knows of a function: its name, its documentation, the method of traced
//! tensors, the element types it takes, its reference in f64, where random tests evaluate it, and whether short float types
//! lose too much of it. References are used by the oracle alone: how backends compute the function is in the crate
//! `rlx-math`, under the same name, and nothing is shared between the two.
//!
//! ```
//! use rlx_ir::{DType, Shape, trace};
//! let graph = trace("quantile", |t| {
//!     let p = t.input("p", Shape::new(&[8], DType::F32));
//!     vec![p.erfinv() * 2f32.sqrt()]
//! });
//! assert!(graph.to_string().contains("Activation.Erfinv"));
//! ```

use std::f64::consts::{FRAC_2_SQRT_PI, PI};
use std::ops::Range;
use std::sync::LazyLock;

use super::Takes;
use crate::ops::attr::named_variants;

/// Calls a macro with the table of functions of one element.
macro_rules! function_table {
    ($callback:ident) => {
        $callback! {
            /// `x·Φ(x)` with the exact normal distribution (erf).
            Gelu.gelu of Floats = gelu, -3.0..3.0;
            /// `x·Φ(x)` by the tanh approximation.
            GeluApprox.gelu_approx of Floats = gelu_approx, -3.0..3.0;
            /// `x·sigmoid(x)`.
            Silu.silu of Floats = |x| x * sigmoid(x), -3.0..3.0;
            /// `max(x, 0)`.
            Relu.relu of Numbers = relu, -3.0..3.0;
            /// `1 / (1 + e⁻ˣ)`.
            Sigmoid.sigmoid of Floats = sigmoid, -3.0..3.0;
            /// Hyperbolic tangent.
            Tanh.tanh of Floats = f64::tanh, -3.0..3.0;
            /// `eˣ`.
            Exp.exp of Floats = f64::exp, -3.0..3.0, delicate;
            /// Natural logarithm.
            Log.ln of Floats = f64::ln, 0.25..4.0, delicate;
            /// Square root.
            Sqrt.sqrt of Floats = f64::sqrt, 0.25..4.0;
            /// `1 / √x`.
            Rsqrt.rsqrt of Floats = |x| 1.0 / x.sqrt(), 0.25..4.0;
            /// `-x`.
            Neg.neg of Numbers = |x| -x, -3.0..3.0;
            /// `|x|`.
            Abs.abs of Numbers = f64::abs, -3.0..3.0;
            /// Sine.
            Sin.sin of Floats = f64::sin, -3.0..3.0;
            /// Cosine.
            Cos.cos of Floats = f64::cos, -3.0..3.0;
            /// Tangent.
            Tan.tan of Floats = f64::tan, -1.25..1.25;
            /// Arc tangent.
            Atan.atan of Floats = f64::atan, -3.0..3.0;
            /// To the nearest integer, ties to even.
            Round.round of Numbers = f64::round_ties_even, -3.0..3.0;
            /// To the integer below.
            Floor.floor of Numbers = f64::floor, -3.0..3.0;
            /// To the integer above.
            Ceil.ceil of Numbers = f64::ceil, -3.0..3.0;
            /// To the integer towards zero.
            Trunc.trunc of Numbers = f64::trunc, -3.0..3.0;
            /// `-1`, `0` or `1`; NaN stays.
            Sign.sign of Numbers = sign, -3.0..3.0;
            /// `1 / x`.
            Recip.recip of Floats = |x| 1.0 / x, 0.25..4.0;
            /// The error function.
            Erf.erf of Floats = erf, -3.0..3.0;
            /// Arc sine.
            Asin.asin of Floats = f64::asin, -0.875..0.875;
            /// Arc cosine.
            Acos.acos of Floats = f64::acos, -0.875..0.875;
            /// Hyperbolic sine.
            Sinh.sinh of Floats = f64::sinh, -3.0..3.0, delicate;
            /// Hyperbolic cosine.
            Cosh.cosh of Floats = f64::cosh, -3.0..3.0, delicate;
            /// Inverse hyperbolic sine.
            Asinh.asinh of Floats = f64::asinh, -3.0..3.0;
            /// Inverse hyperbolic cosine.
            Acosh.acosh of Floats = f64::acosh, 1.125..4.0;
            /// Inverse hyperbolic tangent.
            Atanh.atanh of Floats = f64::atanh, -0.875..0.875;
            /// `ln(1 + eˣ)`.
            Softplus.softplus of Floats = softplus, -3.0..3.0, delicate;
            /// `x / (1 + |x|)`.
            Softsign.softsign of Floats = |x| x / (1.0 + x.abs()), -3.0..3.0;
            /// `x·tanh(ln(1 + eˣ))`.
            Mish.mish of Floats = |x| x * softplus(x).tanh(), -3.0..3.0, delicate;
            /// `x·max(0, min(1, x/6 + 1/2))`.
            HardSwish.hard_swish of Floats = |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0), -3.0..3.0;
            /// `eˣ − 1`, also where `eˣ` is next to 1.
            Expm1.expm1 of Floats = f64::exp_m1, -3.0..3.0, delicate;
            /// `ln(1 + x)`, also where `1 + x` is next to 1; −∞ at −1, NaN below.
            Log1p.log1p of Floats = f64::ln_1p, -0.75..3.0, delicate;
            /// The cube root, also of negative numbers.
            Cbrt.cbrt of Floats = f64::cbrt, -3.0..3.0;
            /// The inverse of the error function; ±∞ at ±1, NaN beyond.
            Erfinv.erfinv of Floats = erfinv, -0.875..0.875, delicate;
            /// The gamma function; ±∞ at ±0, NaN at negative integers.
            Gamma.gamma of Floats = gamma, 0.25..6.0, delicate;
            /// The logarithm of the magnitude of the gamma function; +∞ at 0 and at negative integers.
            Lgamma.lgamma of Floats = lgamma, 0.25..6.0, delicate;
            /// The derivative of the logarithm of the gamma function; ∓∞ at ±0, NaN at negative integers.
            Digamma.digamma of Floats = digamma, 0.25..6.0, delicate;
            /// Logical not, of bools.
            Not.not of Bools = no_float, -3.0..3.0;
            /// Every bit inverted, of integers.
            BitNot.bit_not of Integers = no_float, -3.0..3.0;
        }
    };
}
pub(crate) use function_table;

macro_rules! define {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident.$method:ident of $takes:ident = $reference:expr, $range:expr $(, $delicate:ident)?;
    )*) => {
        named_variants! {
            /// Functions of one element.
            Activation, "activation" { $($(#[doc = $doc])* $name,)* }
        }

        impl Activation {
            /// Which element types it takes.
            pub(super) const fn takes(self) -> Takes {
                match self { $(Activation::$name => Takes::$takes,)* }
            }

            /// The exact reference, in `f64`; NaN for functions that take no floats.
            pub(crate) fn reference(self) -> fn(f64) -> f64 {
                match self { $(Activation::$name => $reference,)* }
            }

            /// Where random tests evaluate it.
            #[cfg_attr(not(feature = "testing"), allow(dead_code))]
            pub(super) const fn tested_over(self) -> Range<f64> {
                match self { $(Activation::$name => $range,)* }
            }

            /// Whether it grows, or shrinks, so much faster than its argument that a short float type loses too much.
            pub const fn is_delicate(self) -> bool {
                match self { $(Activation::$name => false $(|| define!(@ $delicate))?,)* }
            }
        }
    };
    (@ delicate) => { true };
}
function_table!(define);

/// The dtype rule keeps the function from floats.
fn no_float(_: f64) -> f64 {
    f64::NAN
}

fn gelu(x: f64) -> f64 {
    x * 0.5 * erfc(-x / std::f64::consts::SQRT_2)
}

fn gelu_approx(x: f64) -> f64 {
    let inner = (2.0 / PI).sqrt() * (x + 0.044715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

fn relu(x: f64) -> f64 {
    if x > 0.0 || x.is_nan() { x } else { 0.0 }
}

fn sign(x: f64) -> f64 {
    if x == 0.0 || x.is_nan() { x } else { x.signum() }
}

fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 { 1.0 / (1.0 + (-x).exp()) } else { x.exp() / (1.0 + x.exp()) }
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p() + if x.is_nan() { x } else { 0.0 }
}

/// The error function by its Maclaurin series near 0 and by [`erfc`]'s continued fraction beyond
/// (Abramowitz and Stegun 7.1.6 and 7.1.14), to about 1e-15.
fn erf(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x.abs() > 3.0 {
        return (1.0 - erfc(x.abs())).copysign(x);
    }
    // 7.1.6: erf(x) = 2/√π · e^(−x²) · Σ 2ⁿ x^(2n+1) / (2n+1)!!
    let (mut term, mut sum, mut n) = (x, x, 1.0);
    while term.abs() > 1e-18 * sum.abs() {
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
        n += 1.0;
    }
    FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// `1 − erf(x)` without cancellation for large `x`.
fn erfc(x: f64) -> f64 {
    if x < 3.0 {
        return 1.0 - erf(x);
    }
    // 7.1.14: √π·e^(x²)·erfc(x) = 1/(x+ (1/2)/(x+ 1/(x+ (3/2)/(x+ …)))), from the far end.
    let fraction = (1..=60).rev().fold(0.0, |tail, k| f64::from(k) / 2.0 / (x + tail));
    (-x * x).exp() / (PI.sqrt() * (x + fraction))
}

/// The inverse of the error function, by Newton's iteration on erfc: that keeps the digits of 1 − |x|.
fn erfinv(x: f64) -> f64 {
    let rest = 1.0 - x.abs();
    if rest.is_nan() || rest <= 0.0 || x == 0.0 {
        return if rest == 0.0 {
            f64::INFINITY.copysign(x)
        } else if x == 0.0 {
            x
        } else {
            f64::NAN
        };
    }
    // erfc falls ever more slowly than a tangent from the left, so that the iteration approaches the root from there.
    let mut y = 0.0f64;
    for _ in 0..200 {
        let miss = if y < 0.5 { x.abs() - erf(y) } else { erfc(y) - rest };
        let next = y + miss / (FRAC_2_SQRT_PI * (-y * y).exp());
        if (next - y).abs() <= 1e-16 * next {
            break;
        }
        y = next;
    }
    y.copysign(x)
}

fn is_negative_integer(x: f64) -> bool {
    x < 0.0 && x.fract() == 0.0 || x == f64::NEG_INFINITY
}

/// π·x less the nearest multiple of π, exact where `x` is next to an integer.
fn turned(x: f64) -> f64 {
    PI * (x - x.round_ties_even())
}

/// The factor of Stirling's formula that is next to 1, as its logarithm (DLMF 5.11.1), for x ≥ 20.
fn stirling(x: f64) -> f64 {
    let bernoulli = [1.0 / 12.0, -1.0 / 360.0, 1.0 / 1260.0, -1.0 / 1680.0, 1.0 / 1188.0];
    bernoulli.iter().enumerate().map(|(n, b)| b / x.powi(2 * n as i32 + 1)).sum()
}

/// The gamma function, by Stirling's formula beyond 20 and by Γ(x + 1) = x·Γ(x) below.
fn gamma(x: f64) -> f64 {
    if is_negative_integer(x) {
        return f64::NAN;
    }
    if x > 180.0 || x == 0.0 {
        return if x == 0.0 { 1.0 / x } else { f64::INFINITY };
    }
    if x < -190.0 {
        return 0.0;
    }
    let (mut y, mut product) = (x, 1.0);
    while y < 20.0 {
        product *= y;
        y += 1.0;
    }
    // (y/e)^y in two factors, of which neither overflows.
    let root = (y / std::f64::consts::E).powf(y / 2.0);
    root / product * ((2.0 * PI / y).sqrt() * stirling(y).exp()) * root
}

/// ζ(n) − 1 for n from 2 on.
static ZETA_LESS_ONE: LazyLock<[f64; 60]> =
    LazyLock::new(|| std::array::from_fn(|n| zeta_less_one(n as i32)));

/// ζ(n) − 1, summed directly but for a tail by Euler's and Maclaurin's formula (DLMF 25.2.8).
fn zeta_less_one(n: i32) -> f64 {
    let (end, s) = (20.0f64, f64::from(n));
    let head: f64 = (2..20).rev().map(|k| f64::from(k).powi(-n)).sum();
    let tail = end.powi(1 - n) / (s - 1.0) + end.powi(-n) / 2.0 + s * end.powi(-n - 1) / 12.0;
    let third = s * (s + 1.0) * (s + 2.0) * end.powi(-n - 3);
    head + tail - third / 720.0 + third * (s + 3.0) * (s + 4.0) / (30_240.0 * end * end)
}

/// log |Γ(x)|: next to its zeros 1 and 2 by the series of DLMF 5.7.3, elsewhere by Stirling's formula, and for negative
/// arguments by reflection (DLMF 5.5.3).
fn lgamma(x: f64) -> f64 {
    const EULER: f64 = 0.577_215_664_901_532_9;
    if x == 0.0 || x.is_infinite() || is_negative_integer(x) {
        return f64::INFINITY;
    }
    if x.is_nan() {
        return x;
    }
    if x < 0.0 {
        return (PI / (x * turned(x).sin()).abs()).ln() - lgamma(-x);
    }
    if (0.5..2.5).contains(&x) {
        // log Γ(2 + z) = z·(1 − γ) + Σ (−1)ⁿ (ζ(n) − 1) zⁿ / n
        let z = if x < 1.5 { x - 1.0 } else { x - 2.0 };
        let zeta = ZETA_LESS_ONE.iter().enumerate().skip(2).rev();
        let terms = zeta.map(|(n, zeta)| zeta * (-z).powi(n as i32) / n as f64);
        let above = terms.sum::<f64>() + z * (1.0 - EULER);
        return if x < 1.5 { above - z.ln_1p() } else { above };
    }
    let (mut y, mut product) = (x, 1.0);
    while y < 20.0 {
        product *= y;
        y += 1.0;
    }
    (y - 0.5) * y.ln() - y + 0.5 * (2.0 * PI).ln() + stirling(y) - f64::ln(product)
}

/// The digamma function: its asymptotic series (DLMF 5.11.2) beyond 20, ψ(x + 1) = ψ(x) + 1/x below, and reflection
/// (DLMF 5.5.4) for negative arguments.
fn digamma(x: f64) -> f64 {
    if x == 0.0 {
        return f64::INFINITY.copysign(-x);
    }
    if is_negative_integer(x) || x.is_nan() {
        return f64::NAN;
    }
    if x < 0.0 {
        return digamma(1.0 - x) - PI / turned(x).tan();
    }
    let mut y = x;
    let mut below = Vec::new();
    while y < 20.0 {
        below.push(1.0 / y);
        y += 1.0;
    }
    let square = 1.0 / (y * y);
    let series = square
        * (1.0 / 12.0
            - square * (1.0 / 120.0 - square * (1.0 / 252.0 - square * (1.0 / 240.0 - square / 132.0))));
    // The smallest terms first.
    y.ln() - 0.5 / y - series - below.iter().rev().sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_at_known_points() {
        for (x, y) in [
            (0.5, 0.5204998778130465),
            (1.0, 0.8427007929497149),
            (2.5, 0.999593047982555),
            (3.5, 0.9999992569016276),
        ] {
            assert!((erf(x) - y).abs() < 1e-14, "{x}: {}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
        assert!((erfc(5.0) / 1.537_459_794_428_035e-12 - 1.0).abs() < 1e-12);
        assert_eq!(erf(0.0), 0.0);
    }

    /// A function and what it is at some points, by mpmath.
    type Known = (&'static str, fn(f64) -> f64, &'static [(f64, f64)]);

    #[rustfmt::skip]
    const KNOWN: &[Known] = &[
        ("erfinv", erfinv, &[
            (1e-09, 8.86226925452758e-10),
            (0.25, 0.2253120550121781),
            (-0.5, -0.4769362762044699),
            (0.9375, 1.3171503349861307),
            (0.999999, 3.458910737275499),
            (0.9999999403953552, 3.832506856900711),
        ]),
        ("gamma", gamma, &[
            (1e-05, 99999.42279422555),
            (0.5, 1.772453850905516),
            (1.25, 0.906402477055477),
            (5.5, 52.34277778455352),
            (33.75, 3.6126555987331907e+36),
            (150.5, 4.661072627097378e+261),
            (-0.5, -3.544907701811032),
            (-3.75, 0.2678661288614166),
            (-20.25, -8.569032663885128e-19),
        ]),
        ("lgamma", lgamma, &[
            (1e-20, 46.051701859880914),
            (0.5, 0.5723649429247001),
            (1.0009765625, -0.0005629031799912047),
            (1.46875, -0.12146183058765041),
            (1.9990234375, -0.0004125677359714894),
            (3.5, 1.2009736023470743),
            (100.5, 361.4355404677776),
            (1e+30, 6.807755278982137e+31),
            (-0.25, 1.589575312551186),
            (-2.5, -0.056243716497674054),
            (-30.75, -75.73940730906097),
        ]),
        ("digamma", digamma, &[
            (1e-05, -100000.57719921567),
            (0.5, -1.9635100260214235),
            (1.4375, -0.023613544005297898),
            (1.5, 0.03648997397857652),
            (2.25, 0.5725464666237345),
            (7.5, 1.9467574842460869),
            (10000000000.0, 23.025850929890456),
            (-0.25, 2.9141391202135276),
            (-3.75, -1.6923885983113303),
        ]),
    ];

    #[test]
    fn special_functions_are_right_to_fifteen_digits() {
        for &(name, f, points) in KNOWN {
            for &(x, want) in points {
                assert!((f(x) / want - 1.0).abs() < 1e-13, "{name}({x:e}) = {:e}, not {want:e}", f(x));
            }
        }
    }

    #[test]
    fn special_functions_end_as_they_do_elsewhere() {
        let inf = f64::INFINITY;
        assert_eq!([erfinv(1.0), erfinv(-1.0)], [inf, -inf]);
        assert!(erfinv(1.5).is_nan() && erfinv(-inf).is_nan() && erfinv(f64::NAN).is_nan());
        assert_eq!(
            [gamma(0.0), gamma(-0.0), gamma(inf), lgamma(-3.0), lgamma(-inf)],
            [inf, -inf, inf, inf, inf]
        );
        assert_eq!([digamma(0.0), digamma(-0.0), digamma(inf)], [-inf, inf, inf]);
        assert!(
            [gamma(-2.0), gamma(-inf), digamma(-1.0), digamma(-inf), lgamma(f64::NAN)]
                .iter()
                .all(|y| y.is_nan())
        );
        assert!(erfinv(-0.0).is_sign_negative() && erfinv(0.0).is_sign_positive());
    }
}
