//! Concrete tensors in two forms: stored bytes ([`ConstData`]) and exact values ([`Value`]).
//!
//! `ConstData` is what a constant, an input or a weight is: an element type, dimensions, little-endian
//! bytes. `Value` is what the oracle computes with: every float as `f64`, every integer as `i128`,
//! rounded to the declared element type by [`Value::rounded`]. Conversions between the two live here
//! and are exact. Tensors of Rust values are made and read by the methods in `tensor/typed.rs`.

mod typed;

pub use typed::{Element, slice_of, vec_of};

use std::fmt;
use std::sync::Arc;

use half::{bf16, f16};

use crate::dtype::{DType, DTypeClass};
use crate::error::{Error, ErrorKind, Result};
use crate::memory;
use crate::minifloat;
use crate::shape::Shape;

/// A tensor as stored bytes: row-major, little-endian, sub-byte elements packed low bits first.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ConstData {
    dtype: DType,
    dims: Vec<usize>,
    bytes: Arc<[u8]>,
}

impl ConstData {
    /// A tensor of these bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] when the byte count is not what dimensions and element type ask for,
    /// [`ErrorKind::OutOfMemory`].
    pub fn new(dtype: DType, dims: &[usize], bytes: impl Into<Arc<[u8]>> + AsRef<[u8]>) -> Result<Self> {
        let bytes = shared(bytes, || format!("the bytes of {}", Shape::new(dims, dtype)))?;
        let shape = Shape::new(dims, dtype);
        if shape.size_bytes() != Some(bytes.len()) {
            return Err(Error::new(ErrorKind::Shape, format!("{} bytes do not make {shape}", bytes.len())));
        }
        Ok(ConstData { dtype, dims: dims.to_vec(), bytes })
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// The stored bytes.
    pub fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// Dimensions and element type.
    pub fn shape(&self) -> Shape {
        Shape::new(&self.dims, self.dtype)
    }

    /// How many elements there are.
    pub fn num_elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// The elements as exact values.
    pub fn value(&self) -> Value {
        Value::decode(self.dtype, &self.dims, &self.bytes)
    }

    /// As [`ConstData::value`], for tensors that may be large.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`].
    pub fn try_value(&self) -> Result<Value> {
        Value::try_decode(self.dtype, &self.dims, &self.bytes)
    }
}

/// Bytes that are shared from now on; `what` says what they are.
///
/// # Errors
/// [`ErrorKind::OutOfMemory`].
pub(crate) fn shared(
    bytes: impl Into<Arc<[u8]>> + AsRef<[u8]>,
    what: impl FnOnce() -> String,
) -> Result<Arc<[u8]>> {
    memory::ensure(bytes.as_ref().len(), what)?;
    Ok(bytes.into())
}

impl fmt::Debug for ConstData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConstData({}, {} bytes)", self.shape(), self.bytes.len())
    }
}

/// The elements of a [`Value`].
#[derive(Debug, Clone, PartialEq)]
pub enum Elements {
    /// Of a float type; complex numbers are stored as pairs.
    Float(Vec<f64>),
    /// Of an integer or bool type.
    Int(Vec<i128>),
}

impl Elements {
    /// How many numbers are stored: two for each complex element.
    pub(crate) fn len(&self) -> usize {
        match self {
            Elements::Float(v) => v.len(),
            Elements::Int(v) => v.len(),
        }
    }
}

/// A tensor of exact values, as the oracle sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// The declared element type.
    pub dtype: DType,
    /// The dimensions, outermost first.
    pub dims: Vec<usize>,
    /// The elements, row-major.
    pub elements: Elements,
}

impl Value {
    /// A float tensor; not rounded.
    pub fn float(dtype: DType, dims: &[usize], values: Vec<f64>) -> Self {
        debug_assert!(!dtype.is_int());
        Value { dtype, dims: dims.to_vec(), elements: Elements::Float(values) }
    }

    /// An integer or bool tensor; not rounded.
    pub fn int(dtype: DType, dims: &[usize], values: Vec<i128>) -> Self {
        debug_assert!(!dtype.is_float());
        Value { dtype, dims: dims.to_vec(), elements: Elements::Int(values) }
    }

    /// The tensor of this shape, one of whose dimensions is 0.
    pub(crate) fn empty(shape: &Shape) -> Result<Self> {
        let not_empty = || Error::new(ErrorKind::Internal, format!("{shape} is not empty"));
        let dims = shape.static_dims().filter(|dims| dims.contains(&0)).ok_or_else(not_empty)?;
        let elements = match shape.dtype().class() {
            DTypeClass::Float | DTypeClass::Complex => Elements::Float(Vec::new()),
            _ => Elements::Int(Vec::new()),
        };
        Ok(Value { dtype: shape.dtype(), dims, elements })
    }

    /// A bool tensor.
    pub fn bools(dims: &[usize], values: impl IntoIterator<Item = bool>) -> Self {
        Self::int(DType::Bool, dims, values.into_iter().map(i128::from).collect())
    }

    /// Dimensions and element type.
    pub fn shape(&self) -> Shape {
        Shape::new(&self.dims, self.dtype)
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The floats.
    ///
    /// # Errors
    /// [`ErrorKind::DType`] when the elements are integers.
    pub fn floats(&self) -> Result<&[f64]> {
        match &self.elements {
            Elements::Float(v) => Ok(v),
            Elements::Int(_) => {
                Err(Error::new(ErrorKind::DType, format!("{} is not a float type", self.dtype)))
            }
        }
    }

    /// The integers (bool: 0 and 1).
    ///
    /// # Errors
    /// [`ErrorKind::DType`] when the elements are floats.
    pub fn ints(&self) -> Result<&[i128]> {
        match &self.elements {
            Elements::Int(v) => Ok(v),
            Elements::Float(_) => {
                Err(Error::new(ErrorKind::DType, format!("{} is not an integer type", self.dtype)))
            }
        }
    }

    /// Every element as `f64` (integers converted).
    pub fn to_f64(&self) -> Vec<f64> {
        match &self.elements {
            Elements::Float(v) => v.clone(),
            Elements::Int(v) => v.iter().map(|&i| i as f64).collect(),
        }
    }

    /// A tensor of the same elements with other dimensions (same count).
    pub fn with_dims(&self, dims: &[usize]) -> Self {
        debug_assert_eq!(dims.iter().product::<usize>(), self.len());
        Value { dtype: self.dtype, dims: dims.to_vec(), elements: self.elements.clone() }
    }

    /// A tensor whose element `i` is this one's element `index[i]`.
    pub fn pick(&self, dims: &[usize], index: &[usize]) -> Self {
        let elements = match &self.elements {
            Elements::Float(v) if self.dtype == DType::C64 => {
                Elements::Float(index.iter().flat_map(|&i| [v[2 * i], v[2 * i + 1]]).collect())
            }
            Elements::Float(v) => Elements::Float(index.iter().map(|&i| v[i]).collect()),
            Elements::Int(v) => Elements::Int(index.iter().map(|&i| v[i]).collect()),
        };
        Value { dtype: self.dtype, dims: dims.to_vec(), elements }
    }

    /// Every element rounded to what the declared type can hold: floats to nearest even, integers
    /// wrapped around, bools to 0 or 1.
    pub fn rounded(mut self) -> Self {
        let dtype = self.dtype;
        match &mut self.elements {
            Elements::Float(v) => v.iter_mut().for_each(|x| *x = round_float(dtype, *x)),
            Elements::Int(v) => v.iter_mut().for_each(|x| *x = wrap_int(dtype, *x)),
        }
        self
    }

    /// Reads stored bytes (whose count was checked by [`ConstData::new`]).
    pub fn decode(dtype: DType, dims: &[usize], bytes: &[u8]) -> Self {
        let n: usize = dims.iter().product();
        let elements = match dtype.class() {
            DTypeClass::Float => Elements::Float((0..n).map(|i| decode_float(dtype, bytes, i)).collect()),
            DTypeClass::Complex => {
                Elements::Float((0..2 * n).map(|i| decode_float(DType::F32, bytes, i)).collect())
            }
            _ => Elements::Int((0..n).map(|i| decode_int(dtype, bytes, i)).collect()),
        };
        Value { dtype, dims: dims.to_vec(), elements }
    }

    /// As [`Value::decode`], for tensors that may be large.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`].
    pub fn try_decode(dtype: DType, dims: &[usize], bytes: &[u8]) -> Result<Self> {
        let shape = Shape::new(dims, dtype);
        memory::ensure(memory::value_bytes(&shape), || format!("the exact values of {shape}"))?;
        Ok(Self::decode(dtype, dims, bytes))
    }

    /// A copy, for tensors that may be large.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`].
    pub fn try_clone(&self) -> Result<Self> {
        let shape = self.shape();
        memory::ensure(memory::value_bytes(&shape), || format!("the exact values of {shape}"))?;
        Ok(self.clone())
    }

    /// The stored bytes of the rounded elements.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0u8; self.dtype.storage_bytes(self.len()).unwrap_or(0)];
        match &self.elements {
            Elements::Float(v) => {
                let part = if self.dtype == DType::C64 { DType::F32 } else { self.dtype };
                v.iter().enumerate().for_each(|(i, &x)| encode_float(part, x, &mut out, i));
            }
            Elements::Int(v) => {
                v.iter().enumerate().for_each(|(i, &x)| encode_int(self.dtype, x, &mut out, i))
            }
        }
        out
    }

    /// The tensor as stored bytes.
    pub fn to_const(&self) -> ConstData {
        ConstData { dtype: self.dtype, dims: self.dims.clone(), bytes: self.encode().into() }
    }

    /// As [`Value::to_const`], for tensors that may be large.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`].
    pub fn try_to_const(&self) -> Result<ConstData> {
        let shape = self.shape();
        // Encoded, then moved to where they are shared.
        let bytes = shape.size_bytes().unwrap_or(usize::MAX).saturating_mul(2);
        memory::ensure(bytes, || format!("the bytes of {shape}"))?;
        Ok(self.to_const())
    }
}

/// `x` rounded to nearest even in `dtype`.
pub fn round_float(dtype: DType, x: f64) -> f64 {
    match dtype {
        DType::F64 => x,
        DType::F32 | DType::C64 => f64::from(x as f32),
        DType::F16 => f16::from_f64(x).to_f64(),
        DType::BF16 => bf16::from_f64(x).to_f64(),
        DType::F8E8M0 => minifloat::Format::decode_power(minifloat::Format::encode_power(x)),
        _ => match minifloat::Format::of(dtype) {
            Some(format) => format.decode(format.encode(x)),
            None => x,
        },
    }
}

/// `x` wrapped around into the range of `dtype` (bool: 0 or 1).
pub fn wrap_int(dtype: DType, x: i128) -> i128 {
    match (dtype.class(), dtype.int_range()) {
        (DTypeClass::Bool, _) => i128::from(x != 0),
        // Most values are in range, and a division of this width is slow.
        (_, Some((min, max))) if (min..=max).contains(&x) => x,
        // Wrapping around at 2¹²⁸ changes nothing: the number of values of every type divides it.
        (_, Some((min, max))) => x.wrapping_sub(min).rem_euclid(max - min + 1) + min,
        _ => x,
    }
}

fn chunk<const N: usize>(bytes: &[u8], i: usize) -> [u8; N] {
    let mut out = [0u8; N];
    out.copy_from_slice(&bytes[i * N..(i + 1) * N]);
    out
}

/// The bits of element `i` of a type of at most a byte: several to a byte, the first one lowest.
fn code_at(dtype: DType, bytes: &[u8], i: usize) -> u8 {
    let (bits, per_byte) = (dtype.bits(), 8 / dtype.bits());
    (bytes[i / per_byte] >> (bits * (i % per_byte))) & (0xFF >> (8 - bits))
}

/// Puts the low bits of `code` where element `i` is, whose bits are 0 so far.
fn put_code(dtype: DType, code: u8, out: &mut [u8], i: usize) {
    let (bits, per_byte) = (dtype.bits(), 8 / dtype.bits());
    out[i / per_byte] |= (code & (0xFF >> (8 - bits))) << (bits * (i % per_byte));
}

fn decode_float(dtype: DType, bytes: &[u8], i: usize) -> f64 {
    match dtype {
        DType::F64 => f64::from_le_bytes(chunk(bytes, i)),
        DType::F32 => f64::from(f32::from_le_bytes(chunk(bytes, i))),
        DType::F16 => f16::from_le_bytes(chunk(bytes, i)).to_f64(),
        DType::BF16 => bf16::from_le_bytes(chunk(bytes, i)).to_f64(),
        DType::F8E8M0 => minifloat::Format::decode_power(bytes[i]),
        _ => minifloat::Format::of(dtype).map_or(f64::NAN, |f| f.decode(code_at(dtype, bytes, i))),
    }
}

fn encode_float(dtype: DType, x: f64, out: &mut [u8], i: usize) {
    let size = dtype.size_bytes();
    match dtype {
        DType::F64 => out[i * size..(i + 1) * size].copy_from_slice(&x.to_le_bytes()),
        DType::F32 => out[i * size..(i + 1) * size].copy_from_slice(&(x as f32).to_le_bytes()),
        DType::F16 => out[i * size..(i + 1) * size].copy_from_slice(&f16::from_f64(x).to_le_bytes()),
        DType::BF16 => out[i * size..(i + 1) * size].copy_from_slice(&bf16::from_f64(x).to_le_bytes()),
        DType::F8E8M0 => out[i] = minifloat::Format::encode_power(x),
        _ => put_code(dtype, minifloat::Format::of(dtype).map_or(0, |f| f.encode(x)), out, i),
    }
}

fn decode_int(dtype: DType, bytes: &[u8], i: usize) -> i128 {
    match dtype {
        DType::I8 => i128::from(bytes[i] as i8),
        DType::U8 => i128::from(bytes[i]),
        DType::Bool => i128::from(bytes[i] != 0),
        DType::I16 => i128::from(i16::from_le_bytes(chunk(bytes, i))),
        DType::U16 => i128::from(u16::from_le_bytes(chunk(bytes, i))),
        DType::I32 => i128::from(i32::from_le_bytes(chunk(bytes, i))),
        DType::U32 => i128::from(u32::from_le_bytes(chunk(bytes, i))),
        DType::U64 => i128::from(u64::from_le_bytes(chunk(bytes, i))),
        DType::I4 | DType::I2 | DType::U4 | DType::U2 => {
            wrap_int(dtype, i128::from(code_at(dtype, bytes, i)))
        }
        _ => i128::from(i64::from_le_bytes(chunk(bytes, i))),
    }
}

fn encode_int(dtype: DType, x: i128, out: &mut [u8], i: usize) {
    let x = wrap_int(dtype, x);
    if dtype.is_packed() {
        return put_code(dtype, x as u8, out, i);
    }
    let size = dtype.size_bytes();
    out[i * size..(i + 1) * size].copy_from_slice(&x.to_le_bytes()[..size]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_values_agree_for_every_type() {
        for &dtype in DType::ALL {
            let value = match dtype.class() {
                DTypeClass::Complex => Value::float(dtype, &[2], vec![1.0, -2.0, 0.5, 3.0]),
                _ if dtype == DType::F8E8M0 => Value::float(dtype, &[3], vec![1.0, 0.5, 2.0]),
                DTypeClass::Float => Value::float(dtype, &[3], vec![1.0, -0.5, 2.0]),
                DTypeClass::Signed => Value::int(dtype, &[5], vec![1, -3, 7, -1, 0]).rounded(),
                DTypeClass::Unsigned => Value::int(dtype, &[5], vec![1, 3, 15, 0, 2]).rounded(),
                DTypeClass::Bool => Value::bools(&[3], [true, false, true]),
            };
            assert_eq!(value.to_const().value(), value, "{dtype}");
        }
    }

    #[test]
    fn rounding_wraps_integers_and_rounds_floats() {
        assert_eq!(wrap_int(DType::I8, 130), -126);
        assert_eq!(wrap_int(DType::U8, -1), 255);
        assert_eq!(wrap_int(DType::U64, -1), i128::from(u64::MAX));
        assert_eq!((wrap_int(DType::I64, i128::MAX), wrap_int(DType::I64, i128::MIN)), (-1, 0));
        assert_eq!((wrap_int(DType::U8, i128::MAX), wrap_int(DType::I8, i128::MIN + 1)), (255, 1));
        assert_eq!(round_float(DType::F32, 16_777_217.0), 16_777_216.0);
        assert_eq!(round_float(DType::F16, 1e6), f64::INFINITY);
    }

    #[test]
    fn a_wrong_byte_count_is_rejected() {
        assert!(ConstData::new(DType::F32, &[2], vec![0u8; 7]).is_err());
    }
}
