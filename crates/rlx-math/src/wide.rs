//! The functions in f64, for backends that compute in it: those that the standard library lacks.
//!
//! Not what the oracle uses: its references are `rlx-ir`'s own.

use std::f64::consts::{FRAC_2_SQRT_PI, PI};

/// 1 / (1 + e⁻ˣ).
pub fn sigmoid(x: f64) -> f64 {
    // e^−|x| never overflows.
    let e = (-x.abs()).exp();
    if x < 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) }
}

/// log(1 + eˣ).
pub fn softplus(x: f64) -> f64 {
    if x.is_nan() { x } else { x.max(0.0) + (-x.abs()).exp().ln_1p() }
}

/// 1 − erf(x) for x ≥ 2, by Lentz's method on the continued fraction (DLMF 7.9.1).
fn erfc_tail(x: f64) -> f64 {
    // Below the smallest f64 from here on; and the fraction has no value at infinity.
    if x > 30.0 {
        return 0.0;
    }
    const TINY: f64 = 1e-300;
    let (mut f, mut c, mut d) = (x, x, 0.0);
    for k in 1..200 {
        let a = f64::from(k) / 2.0;
        d = x + a * d;
        d = 1.0 / if d == 0.0 { TINY } else { d };
        c = x + a / c;
        let step = c * d;
        f *= step;
        if (step - 1.0).abs() < 1e-16 {
            break;
        }
    }
    (-x * x).exp() / (f * PI.sqrt())
}

/// The error function, to about 1e-15: its power series near 0, the continued fraction beyond.
pub fn erf(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x.abs() >= 2.0 {
        return (1.0 - erfc_tail(x.abs())).copysign(x);
    }
    let (mut power, mut sum) = (x, x);
    for n in 1..60 {
        power *= -x * x / f64::from(n);
        let term = power / f64::from(2 * n + 1);
        sum += term;
        if term.abs() < 1e-18 {
            break;
        }
    }
    sum * FRAC_2_SQRT_PI
}

/// The inverse of the error function, by Halley's iteration.
pub fn erfinv(x: f64) -> f64 {
    let a = x.abs();
    if a >= 1.0 || a == 0.0 || a.is_nan() {
        return if a > 1.0 {
            f64::NAN
        } else if a == 1.0 {
            f64::INFINITY.copysign(x)
        } else {
            x
        };
    }
    // Winitzki's global approximation, "A handy approximation for the error function and its inverse" (2008).
    let (w, c) = (-((1.0 - a) * (1.0 + a)).ln(), 2.0 / (PI * 0.147));
    let b = c - w / 2.0;
    let mut y = ((b * b + w / 0.147).sqrt() - b).sqrt();
    for _ in 0..3 {
        // What y misses by, from the side where nothing cancels.
        let miss = if y < 2.0 { erf(y) - a } else { (1.0 - a) - erfc_tail(y) };
        let u = miss / (FRAC_2_SQRT_PI * (-y * y).exp());
        y -= u / (1.0 + y * u);
    }
    y.copysign(x)
}

/// x·Φ(x), without cancellation on the left.
pub fn gelu(x: f64) -> f64 {
    let t = x * std::f64::consts::FRAC_1_SQRT_2;
    if t <= -2.0 { x * 0.5 * erfc_tail(-t) } else { x * 0.5 * (1.0 + erf(t)) }
}

/// x·Φ(x) by the tanh approximation.
pub fn gelu_tanh(x: f64) -> f64 {
    let inner = (2.0 / PI).sqrt() * (x + 0.044715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

/// sin(π·x), exactly zero at integers.
fn sin_pi(x: f64) -> f64 {
    let n = x.round();
    let sine = (PI * (x - n)).sin();
    if n % 2.0 == 0.0 { sine } else { -sine }
}

fn is_negative_integer(x: f64) -> bool {
    x < 0.0 && x == x.floor()
}

/// The coefficients of [`lanczos`], numerator and denominator, lowest power first.
const LANCZOS: ([f64; 13], [f64; 13]) = (
    [
        23_531_376_880.410_76,
        42_919_803_642.649_1,
        35_711_959_237.355_67,
        17_921_034_426.037_21,
        6_039_542_586.352_028,
        1_439_720_407.311_721_6,
        248_874_557.862_054_17,
        31_426_415.585_400_194,
        2_876_370.628_935_372_4,
        186_056.265_395_223_5,
        8_071.672_002_365_816,
        210.824_277_751_579_34,
        2.506_628_274_631_000_2,
    ],
    [
        0.0,
        39_916_800.0,
        120_543_840.0,
        150_917_976.0,
        105_258_076.0,
        45_995_730.0,
        13_339_535.0,
        2_637_558.0,
        357_423.0,
        32_670.0,
        1_925.0,
        66.0,
        1.0,
    ],
);
/// What Lanczos calls g.
const G: f64 = 6.024_680_040_776_73;

/// The rational function of Lanczos' approximation with 13 terms (Boost's `lanczos13m53`): Γ(x) is it times
/// ((x + g − ½)/e)^(x − ½), for x > 0.
fn lanczos(x: f64) -> f64 {
    let (numerator, denominator) = LANCZOS;
    // From the end whose powers do not overflow.
    let (p, q) = if x < 5.0 {
        let horner = |c: [f64; 13]| c.iter().rev().fold(0.0, |sum, c| sum * x + c);
        (horner(numerator), horner(denominator))
    } else {
        let horner = |c: [f64; 13]| c.iter().fold(0.0, |sum, c| sum / x + c);
        (horner(numerator), horner(denominator))
    };
    p / q
}

/// The gamma function, by Lanczos' approximation and reflection.
pub fn gamma(x: f64) -> f64 {
    if x.is_nan() || is_negative_integer(x) {
        return f64::NAN;
    }
    if x == 0.0 {
        return 1.0 / x;
    }
    if x < 0.0 {
        // Γ(x)·Γ(−x) = −π / (x·sin πx).
        return -PI / (-x * sin_pi(-x) * gamma_positive(-x));
    }
    gamma_positive(x)
}

fn gamma_positive(x: f64) -> f64 {
    if x > 172.0 {
        return f64::INFINITY;
    }
    if x < 0.5 {
        return gamma_positive(x + 1.0) / x;
    }
    let base = x + (G - 0.5);
    // The power in two halves, because the whole may overflow where the result does not.
    let half = base.powf(x / 2.0 - 0.25);
    lanczos(x) * half / base.exp() * half
}

/// log |Γ(x)|, to about 1e-15 of 1 or of the result, by Stirling's series (DLMF 5.11.1).
pub fn lgamma(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x.is_infinite() || x == 0.0 || is_negative_integer(x) {
        return f64::INFINITY;
    }
    if x < 0.0 {
        return (PI / (x * sin_pi(x)).abs()).ln() - lgamma(-x);
    }
    let (mut product, mut y) = (1.0, x);
    while y < 16.0 {
        product *= y;
        y += 1.0;
    }
    let w = 1.0 / (y * y);
    let series =
        (1.0 / 12.0 - w * (1.0 / 360.0 - w * (1.0 / 1260.0 - w * (1.0 / 1680.0 - w * (1.0 / 1188.0))))) / y;
    (y - 0.5) * (y.ln() - 1.0) + (0.5 * (2.0 * PI).ln() - 0.5) + series - f64::ln(product)
}

/// The digamma function, by its asymptotic series (DLMF 5.11.2).
pub fn digamma(x: f64) -> f64 {
    if x.is_nan() || is_negative_integer(x) {
        return f64::NAN;
    }
    if x == 0.0 {
        return f64::NEG_INFINITY.copysign(-x);
    }
    if x < 0.0 {
        let r = x - x.round();
        return digamma(-x) - 1.0 / x - PI / (PI * r).tan();
    }
    let (mut sum, mut y) = (0.0, x);
    while y < 12.0 {
        sum += 1.0 / y;
        y += 1.0;
    }
    let w = 1.0 / (y * y);
    let terms =
        [-1.0 / 12.0, 691.0 / 32_760.0, -1.0 / 132.0, 1.0 / 240.0, -1.0 / 252.0, 1.0 / 120.0, -1.0 / 12.0];
    let series = terms.iter().fold(0.0, |s, t| (s + t) * w);
    y.ln() - 0.5 / y + series - sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_meets_its_two_halves_and_the_tables() {
        assert!((erf(0.5) - 0.520_499_877_813_046_5).abs() < 1e-15);
        assert!((erf(1.999_999_999) - erf(2.000_000_001)).abs() < 1e-10);
        assert!((erf(2.5) - 0.999_593_047_982_555).abs() < 1e-14);
        assert!((gelu(-6.0) / -5.919_526_3e-9 - 1.0).abs() < 1e-5);
        assert_eq!(erf(f64::INFINITY), 1.0);
    }
}
