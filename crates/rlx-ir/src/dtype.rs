//! Element types: one table declares name, size, class and value range of each.
//!
//! ```
//! use rlx_ir::DType;
//! assert_eq!(DType::BF16.size_bytes(), 2);
//! assert_eq!(DType::I4.bits(), 4);
//! assert_eq!("f32".parse::<DType>().unwrap(), DType::F32);
//! ```

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind};

/// How an element type computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DTypeClass {
    /// IEEE-like binary floating point, possibly without infinities.
    Float,
    /// Two's complement signed integer.
    Signed,
    /// Unsigned integer.
    Unsigned,
    /// Truth value, stored as one byte, 0 or 1.
    Bool,
    /// A pair of floats: real, imaginary.
    Complex,
}

macro_rules! dtypes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $bits:literal, $class:ident;)*) => {
        /// The type of a tensor's elements.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum DType {
            $($(#[$doc])* $variant,)*
        }

        impl DType {
            /// Every element type, in declaration order.
            pub const ALL: &'static [DType] = &[$(DType::$variant),*];

            /// The name used by the text form and by messages: `f32`, `i64`, `bool`, …
            pub const fn name(self) -> &'static str {
                match self { $(DType::$variant => $name,)* }
            }

            /// Bits one element takes; sub-byte types are packed, low bits first.
            pub const fn bits(self) -> usize {
                match self { $(DType::$variant => $bits,)* }
            }

            /// How the type computes.
            pub const fn class(self) -> DTypeClass {
                match self { $(DType::$variant => DTypeClass::$class,)* }
            }
        }
    };
}

dtypes! {
    /// IEEE 754 binary32.
    F32 = "f32", 32, Float;
    /// IEEE 754 binary16.
    F16 = "f16", 16, Float;
    /// The upper half of binary32.
    BF16 = "bf16", 16, Float;
    /// IEEE 754 binary64.
    F64 = "f64", 64, Float;
    /// Signed 8-bit integer.
    I8 = "i8", 8, Signed;
    /// Signed 16-bit integer.
    I16 = "i16", 16, Signed;
    /// Signed 32-bit integer.
    I32 = "i32", 32, Signed;
    /// Signed 64-bit integer.
    I64 = "i64", 64, Signed;
    /// Unsigned 8-bit integer.
    U8 = "u8", 8, Unsigned;
    /// Unsigned 16-bit integer.
    U16 = "u16", 16, Unsigned;
    /// Unsigned 32-bit integer.
    U32 = "u32", 32, Unsigned;
    /// Unsigned 64-bit integer.
    U64 = "u64", 64, Unsigned;
    /// Truth value in one byte.
    Bool = "bool", 8, Bool;
    /// Complex number of two binary32.
    C64 = "c64", 64, Complex;
    /// FP8, 4 exponent and 3 mantissa bits, finite values and NaN only.
    F8E4M3FN = "f8e4m3fn", 8, Float;
    /// FP8, 4 exponent and 3 mantissa bits, no negative zero.
    F8E4M3FNUZ = "f8e4m3fnuz", 8, Float;
    /// FP8, 5 exponent and 2 mantissa bits, with infinities.
    F8E5M2 = "f8e5m2", 8, Float;
    /// FP8, 5 exponent and 2 mantissa bits, no infinities, no negative zero.
    F8E5M2FNUZ = "f8e5m2fnuz", 8, Float;
    /// Signed 4-bit integer, two in a byte.
    I4 = "i4", 4, Signed;
    /// Unsigned 4-bit integer, two in a byte.
    U4 = "u4", 4, Unsigned;
    /// FP4, 2 exponent and 1 mantissa bits, two in a byte.
    F4E2M1 = "f4e2m1", 4, Float;
    /// A power of two from 2⁻¹²⁷ to 2¹²⁷, or NaN: the scale of a block in the OCP microscaling formats.
    F8E8M0 = "f8e8m0", 8, Float;
    /// Signed 2-bit integer, four in a byte.
    I2 = "i2", 2, Signed;
    /// Unsigned 2-bit integer, four in a byte.
    U2 = "u2", 2, Unsigned;
}

impl DType {
    /// Bytes one element takes when stored alone (sub-byte types: 1). For the size of a whole
    /// tensor use [`DType::storage_bytes`].
    pub const fn size_bytes(self) -> usize {
        self.bits().div_ceil(8)
    }

    /// Bytes `elements` take in storage, sub-byte types packed; `None` on overflow.
    pub const fn storage_bytes(self, elements: usize) -> Option<usize> {
        match elements.checked_mul(self.bits()) {
            Some(bits) => Some(bits.div_ceil(8)),
            None => None,
        }
    }

    /// The type of whole bytes that holds every value of a type of less than a byte: what devices without kernels for packed
    /// elements compute in. Any other type is itself.
    ///
    /// ```
    /// use rlx_ir::DType;
    /// assert_eq!(DType::I4.in_whole_bytes(), DType::I8);
    /// assert_eq!(DType::F4E2M1.in_whole_bytes(), DType::F8E4M3FN);
    /// ```
    pub const fn in_whole_bytes(self) -> DType {
        match self {
            DType::I2 | DType::I4 => DType::I8,
            DType::U2 | DType::U4 => DType::U8,
            DType::F4E2M1 => DType::F8E4M3FN,
            other => other,
        }
    }

    /// Whether several elements share a byte.
    pub const fn is_packed(self) -> bool {
        self.bits() < 8
    }

    /// Whether this is a floating-point type (complex is not).
    pub const fn is_float(self) -> bool {
        matches!(self.class(), DTypeClass::Float)
    }

    /// Whether this is a signed or unsigned integer (bool is not).
    pub const fn is_int(self) -> bool {
        matches!(self.class(), DTypeClass::Signed | DTypeClass::Unsigned)
    }

    /// Whether this is a signed integer.
    pub const fn is_signed_int(self) -> bool {
        matches!(self.class(), DTypeClass::Signed)
    }

    /// The smallest and largest value of an integer or bool type; `None` for other types.
    pub const fn int_range(self) -> Option<(i128, i128)> {
        let bits = self.bits() as u32;
        match self.class() {
            DTypeClass::Signed => Some((-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)),
            DTypeClass::Unsigned => Some((0, (1i128 << bits) - 1)),
            DTypeClass::Bool => Some((0, 1)),
            DTypeClass::Float | DTypeClass::Complex => None,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        DType::ALL
            .iter()
            .copied()
            .find(|d| d.name() == text)
            .ok_or_else(|| Error::new(ErrorKind::Parse, format!("unknown element type \"{text}\"")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_sizes_hold() {
        for &d in DType::ALL {
            assert_eq!(d.name().parse::<DType>().unwrap(), d);
        }
        assert_eq!(DType::I4.storage_bytes(3), Some(2));
        assert_eq!(DType::U2.storage_bytes(5), Some(2));
        assert_eq!(DType::I2.int_range(), Some((-2, 1)));
        assert_eq!(DType::F32.storage_bytes(usize::MAX), None);
        assert_eq!(DType::I8.int_range(), Some((-128, 127)));
        assert_eq!(DType::U64.int_range(), Some((0, u64::MAX as i128)));
    }
}
