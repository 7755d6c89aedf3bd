//! Arithmetic of every element type but f32, on one element.

/// Integer arithmetic as the graph language defines it: wrapping around, and 0 where a divisor is 0.
pub(super) trait Int: Copy + PartialEq + PartialOrd {
    fn add(self, o: Self) -> Self;
    fn sub(self, o: Self) -> Self;
    fn mul(self, o: Self) -> Self;
    /// Towards zero.
    fn div(self, o: Self) -> Self;
    /// With the sign of the dividend.
    fn rem(self, o: Self) -> Self;
    /// With the sign of the divisor.
    fn modulo(self, o: Self) -> Self;
    fn pow(self, o: Self) -> Self;
    fn shl(self, o: Self) -> Self;
    fn shr(self, o: Self) -> Self;
    fn and(self, o: Self) -> Self;
    fn or(self, o: Self) -> Self;
    fn xor(self, o: Self) -> Self;
    fn not(self) -> Self;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    fn signum(self) -> Self;
    fn relu(self) -> Self;
}

macro_rules! int {
    ($($t:ty: $signed:literal;)*) => {$(
        impl Int for $t {
            fn add(self, o: Self) -> Self { self.wrapping_add(o) }
            fn sub(self, o: Self) -> Self { self.wrapping_sub(o) }
            fn mul(self, o: Self) -> Self { self.wrapping_mul(o) }
            fn div(self, o: Self) -> Self { if o == 0 { 0 } else { self.wrapping_div(o) } }
            fn rem(self, o: Self) -> Self { if o == 0 { 0 } else { self.wrapping_rem(o) } }
            #[allow(unused_comparisons)]
            fn modulo(self, o: Self) -> Self {
                let r = self.rem(o);
                if r != 0 && ((r < 0) != (o < 0)) { r.wrapping_add(o) } else { r }
            }
            #[allow(unused_comparisons)]
            fn pow(self, o: Self) -> Self {
                if o < 0 {
                    // What truncation leaves of 1/a^|o|: something for 1 and −1 alone.
                    let minus_one = (0 as $t).wrapping_sub(1);
                    return if self == 1 || (self == minus_one && o & 1 == 0) {
                        1
                    } else if self == minus_one {
                        minus_one
                    } else {
                        0
                    };
                }
                let (mut base, mut exponent, mut out) = (self, o, 1 as $t);
                while exponent > 0 {
                    if exponent & 1 == 1 {
                        out = out.wrapping_mul(base);
                    }
                    base = base.wrapping_mul(base);
                    exponent >>= 1;
                }
                out
            }
            #[allow(unused_comparisons)]
            fn shl(self, o: Self) -> Self {
                if o >= 0 && (o as u64) < u64::from(<$t>::BITS) { self << o } else { 0 }
            }
            #[allow(unused_comparisons)]
            fn shr(self, o: Self) -> Self {
                if o >= 0 && (o as u64) < u64::from(<$t>::BITS) { self >> o } else { 0 }
            }
            fn and(self, o: Self) -> Self { self & o }
            fn or(self, o: Self) -> Self { self | o }
            fn xor(self, o: Self) -> Self { self ^ o }
            fn not(self) -> Self { !self }
            fn neg(self) -> Self { self.wrapping_neg() }
            #[allow(unused_comparisons)]
            fn abs(self) -> Self { if self < 0 { self.wrapping_neg() } else { self } }
            #[allow(unused_comparisons)]
            fn signum(self) -> Self {
                if self > 0 { 1 } else if self < 0 { (0 as $t).wrapping_sub(1) } else { 0 }
            }
            #[allow(unused_comparisons)]
            fn relu(self) -> Self { if self < 0 { 0 } else { self } }
        }
    )*};
}
int! { i8: true; i16: true; i32: true; i64: true; u8: false; u16: false; u32: false; u64: false; }

/// The greater of two; NaN if either is NaN.
pub(super) fn max_f64(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a > b {
        a
    } else {
        b
    }
}

/// The lesser of two; NaN if either is NaN.
pub(super) fn min_f64(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a < b {
        a
    } else {
        b
    }
}

/// The remainder with the sign of the divisor.
pub(super) fn modulo_f64(a: f64, b: f64) -> f64 {
    let r = a % b;
    if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }
}

/// −1, 0 or 1; NaN stays.
pub(super) fn sign_f64(x: f64) -> f64 {
    if x > 0.0 {
        1.0
    } else if x < 0.0 {
        -1.0
    } else {
        x
    }
}

pub(super) fn sigmoid_f64(x: f64) -> f64 {
    // e^−|x| never overflows.
    let e = (-x.abs()).exp();
    if x < 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) }
}

pub(super) fn softplus_f64(x: f64) -> f64 {
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
    (-x * x).exp() / (f * std::f64::consts::PI.sqrt())
}

/// The error function, to about 1e-15: its power series near 0, the continued fraction beyond.
pub(super) fn erf_f64(x: f64) -> f64 {
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
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

/// x·Φ(x), without cancellation on the left.
pub(super) fn gelu_f64(x: f64) -> f64 {
    let t = x * std::f64::consts::FRAC_1_SQRT_2;
    if t <= -2.0 { x * 0.5 * erfc_tail(-t) } else { x * 0.5 * (1.0 + erf_f64(t)) }
}

pub(super) fn gelu_tanh_f64(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_meets_its_two_halves_and_the_tables() {
        assert!((erf_f64(0.5) - 0.520_499_877_813_046_5).abs() < 1e-15);
        assert!((erf_f64(1.999_999_999) - erf_f64(2.000_000_001)).abs() < 1e-10);
        assert!((erf_f64(2.5) - 0.999_593_047_982_555).abs() < 1e-14);
        assert!((gelu_f64(-6.0) / -5.919_526_3e-9 - 1.0).abs() < 1e-5);
        assert_eq!(erf_f64(f64::INFINITY), 1.0);
    }

    #[test]
    fn integers_wrap_and_never_trap() {
        assert_eq!(Int::div(i32::MIN, -1), i32::MIN);
        assert_eq!(Int::div(7i8, 0), 0);
        assert_eq!(Int::modulo(-7i32, 3), 2);
        assert_eq!(Int::rem(-7i32, 3), -1);
        assert_eq!(Int::pow(-1i64, -3), -1);
        assert_eq!(Int::pow(3u8, 5), 243);
        assert_eq!(Int::shl(1u8, 8), 0);
    }
}
