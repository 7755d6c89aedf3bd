//! Elements of every type as numbers: what kernels are generic over that compute more than they move.
//!
//! A [`Number`] is an element as it is in memory; it is widened to compute and narrowed to be stored, so
//! that f32 sums are kept in f64 and those of half floats in f32. Integers wrap around, NaN is contagious.

use std::cmp::Ordering;

use half::{bf16, f16};
use rlx_ir::DType;

/// An element type that kernels compute in.
pub(crate) trait Number: Copy + PartialEq + Send + Sync + 'static {
    /// What running results are kept in.
    type Wide: Copy + Send + Sync;
    const ZERO: Self::Wide;
    const ONE: Self::Wide;
    /// The largest of no elements.
    const LOWEST: Self::Wide;
    /// The smallest of no elements.
    const HIGHEST: Self::Wide;
    fn widen(self) -> Self::Wide;
    fn narrow(x: Self::Wide) -> Self;
    fn add(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn sub(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn mul(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// The greater one; NaN if either is NaN.
    fn max(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// The lesser one; NaN if either is NaN.
    fn min(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// The order of two elements; NaN is greater than any number, and equal to NaN.
    fn order(self, other: Self) -> Ordering;
    /// The nearest element (integers: the lowest bits) to a count.
    fn from_count(n: usize) -> Self;
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl Number for $t {
            type Wide = $t;
            const ZERO: $t = 0;
            const ONE: $t = 1;
            const LOWEST: $t = <$t>::MIN;
            const HIGHEST: $t = <$t>::MAX;
            fn widen(self) -> $t { self }
            fn narrow(x: $t) -> $t { x }
            fn add(a: $t, b: $t) -> $t { a.wrapping_add(b) }
            fn sub(a: $t, b: $t) -> $t { a.wrapping_sub(b) }
            fn mul(a: $t, b: $t) -> $t { a.wrapping_mul(b) }
            fn max(a: $t, b: $t) -> $t { Ord::max(a, b) }
            fn min(a: $t, b: $t) -> $t { Ord::min(a, b) }
            fn order(self, other: $t) -> Ordering { self.cmp(&other) }
            fn from_count(n: usize) -> $t { n as $t }
        }
    )*};
}
integers!(i8 i16 i32 i64 u8 u16 u32 u64);

macro_rules! floats {
    ($($t:ty: $wide:ty, $widen:expr, $narrow:expr, $count:expr;)*) => {$(
        impl Number for $t {
            type Wide = $wide;
            const ZERO: $wide = 0.0;
            const ONE: $wide = 1.0;
            const LOWEST: $wide = <$wide>::NEG_INFINITY;
            const HIGHEST: $wide = <$wide>::INFINITY;
            fn widen(self) -> $wide { $widen(self) }
            fn narrow(x: $wide) -> $t { $narrow(x) }
            fn add(a: $wide, b: $wide) -> $wide { a + b }
            fn sub(a: $wide, b: $wide) -> $wide { a - b }
            fn mul(a: $wide, b: $wide) -> $wide { a * b }
            fn max(a: $wide, b: $wide) -> $wide { if a.is_nan() || a > b { a } else { b } }
            fn min(a: $wide, b: $wide) -> $wide { if a.is_nan() || a < b { a } else { b } }
            fn order(self, other: $t) -> Ordering {
                self.partial_cmp(&other).unwrap_or_else(|| self.is_nan().cmp(&other.is_nan()))
            }
            fn from_count(n: usize) -> $t { $count(n as f64) }
        }
    )*};
}
floats! {
    f64: f64, f64::from, f64::from, f64::from;
    f32: f64, f64::from, |x: f64| x as f32, |x: f64| x as f32;
    f16: f32, f16::to_f32, f16::from_f32, f16::from_f64;
    bf16: f32, bf16::to_f32, bf16::from_f32, bf16::from_f64;
}

/// A truth value: 0 or 1 in one byte. It is compared and picked, never added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub(crate) struct Truth(u8);

impl Number for Truth {
    type Wide = u8;
    const ZERO: u8 = 0;
    const ONE: u8 = 1;
    const LOWEST: u8 = 0;
    const HIGHEST: u8 = 1;
    fn widen(self) -> u8 {
        self.0
    }
    fn narrow(x: u8) -> Truth {
        Truth(x)
    }
    fn add(a: u8, b: u8) -> u8 {
        a | b
    }
    fn sub(a: u8, b: u8) -> u8 {
        a ^ b
    }
    fn mul(a: u8, b: u8) -> u8 {
        a & b
    }
    fn max(a: u8, b: u8) -> u8 {
        a | b
    }
    fn min(a: u8, b: u8) -> u8 {
        a & b
    }
    fn order(self, other: Truth) -> Ordering {
        self.cmp(&other)
    }
    fn from_count(n: usize) -> Truth {
        Truth(u8::from(n != 0))
    }
}

/// Whether [`number!`] has code for elements of this type.
pub(crate) fn is_number(dtype: DType) -> bool {
    dtype == DType::Bool
        || (dtype.is_int() && dtype.bits() >= 8)
        || matches!(dtype, DType::F32 | DType::F64 | DType::F16 | DType::BF16)
}

/// Runs a block with `$t` as the type of elements that have arithmetic; anything unlisted is f32.
macro_rules! arithmetic {
    ($dtype:expr, $t:ident => $e:expr) => {
        match $dtype {
            rlx_ir::DType::F64 => {
                type $t = f64;
                $e
            }
            rlx_ir::DType::F16 => {
                type $t = half::f16;
                $e
            }
            rlx_ir::DType::BF16 => {
                type $t = half::bf16;
                $e
            }
            rlx_ir::DType::I8 => {
                type $t = i8;
                $e
            }
            rlx_ir::DType::I16 => {
                type $t = i16;
                $e
            }
            rlx_ir::DType::I32 => {
                type $t = i32;
                $e
            }
            rlx_ir::DType::I64 => {
                type $t = i64;
                $e
            }
            rlx_ir::DType::U8 => {
                type $t = u8;
                $e
            }
            rlx_ir::DType::U16 => {
                type $t = u16;
                $e
            }
            rlx_ir::DType::U32 => {
                type $t = u32;
                $e
            }
            rlx_ir::DType::U64 => {
                type $t = u64;
                $e
            }
            _ => {
                type $t = f32;
                $e
            }
        }
    };
}
pub(crate) use arithmetic;

/// As [`arithmetic!`] where integers of one size are one code, signed or not: in what wraps around, as sums and products,
/// or asks only which bits are set.
macro_rules! wrapping {
    ($dtype:expr, $t:ident => $e:expr) => {{
        use rlx_ir::DType;
        let dtype = match $dtype {
            DType::I8 => DType::U8,
            DType::I16 => DType::U16,
            DType::I32 => DType::U32,
            DType::I64 => DType::U64,
            other => other,
        };
        match dtype {
            DType::U8 => {
                type $t = u8;
                $e
            }
            DType::U16 => {
                type $t = u16;
                $e
            }
            DType::U32 => {
                type $t = u32;
                $e
            }
            DType::U64 => {
                type $t = u64;
                $e
            }
            other => $crate::kernels::scalar::float!(other, $t => $e),
        }
    }};
}
pub(crate) use wrapping;

/// Runs a block with `$t` as the [`Number`] of a type that [`is_number`] accepts.
macro_rules! number {
    ($dtype:expr, $t:ident => $e:expr) => {
        match $dtype {
            rlx_ir::DType::Bool => {
                type $t = $crate::kernels::scalar::Truth;
                $e
            }
            other => $crate::kernels::scalar::arithmetic!(other, $t => $e),
        }
    };
}
pub(crate) use number;

/// Runs a block with `$t` as one of the four float types that have arithmetic.
macro_rules! float {
    ($dtype:expr, $t:ident => $e:expr) => {
        match $dtype {
            rlx_ir::DType::F64 => {
                type $t = f64;
                $e
            }
            rlx_ir::DType::F16 => {
                type $t = half::f16;
                $e
            }
            rlx_ir::DType::BF16 => {
                type $t = half::bf16;
                $e
            }
            _ => {
                type $t = f32;
                $e
            }
        }
    };
}
pub(crate) use float;

/// A float that is computed with in f64.
pub(crate) trait Real: Copy + Send + Sync + 'static {
    fn to_f64(self) -> f64;
    /// The nearest value.
    fn from_f64(x: f64) -> Self;
}

macro_rules! reals {
    ($($t:ty: $to:expr, $from:expr;)*) => {$(
        impl Real for $t {
            fn to_f64(self) -> f64 {
                $to(self)
            }
            fn from_f64(x: f64) -> $t {
                $from(x)
            }
        }
    )*};
}
reals! {
    f64: std::convert::identity, std::convert::identity;
    f32: f64::from, |x| x as f32;
    f16: f64::from, f16::from_f64;
    bf16: f64::from, bf16::from_f64;
}

/// Whether [`float!`] has code for elements of this type.
pub(crate) fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64 | DType::F16 | DType::BF16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_is_contagious_and_last_in_order() {
        assert!(<f32 as Number>::max(1.0, f64::NAN).is_nan());
        assert!(<f32 as Number>::min(f64::NAN, 1.0).is_nan());
        assert_eq!(Number::order(f32::NAN, f32::INFINITY), Ordering::Greater);
        assert_eq!(Number::order(f16::NAN, f16::NAN), Ordering::Equal);
        assert_eq!(Number::order(-0.0f64, 0.0), Ordering::Equal);
        assert_eq!(<u8 as Number>::from_count(258), 2);
        assert_eq!(<f16 as Number>::from_count(4098), f16::from_f32(4098.0));
    }
}
