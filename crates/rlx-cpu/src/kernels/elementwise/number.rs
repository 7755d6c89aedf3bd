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

#[cfg(test)]
mod tests {
    use super::*;

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
