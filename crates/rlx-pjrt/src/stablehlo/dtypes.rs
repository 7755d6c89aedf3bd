//! What all families ask of element types and numbers.

use rlx_ir::{DType, Error, ErrorKind, Extent, Result};

/// The element types that ops compute in.
pub(super) fn computes(dtype: DType) -> bool {
    matches!(
        dtype,
        DType::F32
            | DType::F16
            | DType::BF16
            | DType::F64
            | DType::I8
            | DType::I16
            | DType::I32
            | DType::I64
            | DType::U8
            | DType::U16
            | DType::U32
            | DType::U64
            | DType::Bool
    )
}

/// Whether it is an integer type without a sign.
pub(super) fn unsigned(dtype: DType) -> bool {
    dtype.is_int() && !dtype.is_signed_int()
}

/// A reason why there is no text.
pub(super) fn no(why: &str) -> Option<String> {
    Some(why.to_owned())
}

/// The number that an extent of a graph without symbols is.
pub(super) fn number(extent: Extent) -> Result<i64> {
    extent.as_const().ok_or_else(|| Error::new(ErrorKind::Internal, format!("{extent} is no number")))
}

/// Packed elements as devices take them from the host: one in a byte.
pub(crate) fn unpacked(dtype: DType, elements: usize, bytes: &[u8]) -> Vec<u8> {
    if dtype.bits() >= 8 {
        return bytes.to_vec();
    }
    let (bits, per) = (dtype.bits(), 8 / dtype.bits());
    let mask = (1u16 << bits) as u8 - 1;
    let signed = dtype.is_signed_int();
    let one = |i: usize| {
        let value = bytes.get(i / per).copied().unwrap_or(0) >> (bits * (i % per)) & mask;
        if signed && value >> (bits - 1) == 1 { value | !mask } else { value }
    };
    (0..elements).map(one).collect()
}

/// Elements of a byte each, packed as RLX has them.
pub(crate) fn packed(dtype: DType, bytes: &[u8]) -> Vec<u8> {
    if dtype.bits() >= 8 {
        return bytes.to_vec();
    }
    let (bits, per) = (dtype.bits(), 8 / dtype.bits());
    let mask = (1u16 << bits) as u8 - 1;
    let join = |part: &[u8]| {
        part.iter().enumerate().fold(0, |byte, (i, &value)| byte | (value & mask) << (bits * i))
    };
    bytes.chunks(per).map(join).collect()
}
