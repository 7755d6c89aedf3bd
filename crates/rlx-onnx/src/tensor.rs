//! `TensorProto` in all its encodings → element type, extents and packed little-endian bytes.
//!
//! The format stores a tensor's elements in one of several fields: `raw_data` (or a file beside the model), which
//! is taken as it is without a copy, or a typed list such as `float_data` or `int32_data`, which is packed.
//! Sub-byte elements stay packed, low bits first, as [`DType::storage_bytes`] counts them.

use crate::external::{self, ExternalFiles};
use crate::proto::TensorProto;
use crate::proto::tensor_proto::DataType;
use bytes::Bytes;
use rlx_ir::{ConstData, DType, Error, ErrorKind, Shape, memory};

#[cfg(target_endian = "big")]
compile_error!(
    "ONNX stores little-endian bytes and RLX uses them in place: big-endian targets are not supported"
);

/// A tensor as the file holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct RawTensor {
    /// Its name; empty if the file has none.
    pub name: String,
    /// Type of its elements.
    pub dtype: DType,
    /// Extents.
    pub dims: Vec<usize>,
    /// Elements in row-major order, little-endian, sub-byte elements packed. Shares the file's map where the file
    /// holds them so, and then starts at any address: readers must not assume alignment.
    pub bytes: Bytes,
}

/// The element type of an ONNX type code.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for strings and complex128; [`ErrorKind::Malformed`] for codes
/// that the format does not define.
pub fn dtype(code: i32) -> Result<DType, Error> {
    use DataType as T;
    let unsupported =
        |name: &str| Err(Error::new(ErrorKind::Unsupported, format!("elements of type {name}")));
    Ok(match DataType::try_from(code) {
        Ok(T::Float) => DType::F32,
        Ok(T::Float16) => DType::F16,
        Ok(T::Bfloat16) => DType::BF16,
        Ok(T::Double) => DType::F64,
        Ok(T::Int8) => DType::I8,
        Ok(T::Int16) => DType::I16,
        Ok(T::Int32) => DType::I32,
        Ok(T::Int64) => DType::I64,
        Ok(T::Uint8) => DType::U8,
        Ok(T::Uint16) => DType::U16,
        Ok(T::Uint32) => DType::U32,
        Ok(T::Uint64) => DType::U64,
        Ok(T::Bool) => DType::Bool,
        Ok(T::Complex64) => DType::C64,
        Ok(T::Float8e4m3fn) => DType::F8E4M3FN,
        Ok(T::Float8e4m3fnuz) => DType::F8E4M3FNUZ,
        Ok(T::Float8e5m2) => DType::F8E5M2,
        Ok(T::Float8e5m2fnuz) => DType::F8E5M2FNUZ,
        Ok(T::Int4) => DType::I4,
        Ok(T::Uint4) => DType::U4,
        Ok(T::Float4e2m1) => DType::F4E2M1,
        Ok(T::Float8e8m0) => DType::F8E8M0,
        Ok(T::Int2) => DType::I2,
        Ok(T::Uint2) => DType::U2,
        Ok(other @ (T::String | T::Complex128)) => return unsupported(other.as_str_name()),
        Ok(T::Undefined) | Err(_) => return Err(malformed(format!("element type code {code}"))),
    })
}

impl RawTensor {
    /// How many elements it has.
    pub fn num_elements(&self) -> usize {
        // Extents may overflow together and still hold a zero.
        if self.dims.contains(&0) { 0 } else { self.dims.iter().product() }
    }

    /// A copy as constant data of the graph language.
    ///
    /// # Errors
    /// Extents that overflow together.
    pub fn to_const(&self) -> Result<ConstData, Error> {
        ConstData::new(self.dtype, &self.dims, &self.bytes[..])
    }

    /// Reads one tensor. Sizes are checked against the data that is there before anything is allocated.
    pub(crate) fn read(proto: &TensorProto, files: &ExternalFiles) -> Result<RawTensor, Error> {
        let read = || {
            let dtype = dtype(proto.data_type.unwrap_or_default())?;
            let dims = extents(&proto.dims)?;
            Shape::new(&dims, dtype).check_size()?;
            let elements = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
            let size = elements.and_then(|n| dtype.storage_bytes(n));
            // A list of extents can overflow and still hold a zero; such a tensor is empty all the same.
            let elements = if dims.contains(&0) { Some(0) } else { elements };
            let size = if dims.contains(&0) { Some(0) } else { size };
            let (Some(elements), Some(size)) = (elements, size) else {
                return Err(malformed(format!("extents {dims:?} overflow")));
            };
            let bytes = content(proto, dtype, elements, size, files)?;
            if bytes.len() != size {
                let held = bytes.len();
                return Err(malformed(format!("{dims:?} {dtype} takes {size} bytes, the file holds {held}")));
            }
            let bytes = if dtype == DType::Bool { normal_bools(bytes)? } else { bytes };
            Ok(RawTensor { name: proto.name().to_owned(), dtype, dims, bytes })
        };
        read().map_err(|e| e.with_origin(format!("tensor \"{}\"", proto.name())))
    }
}

pub(crate) fn extents(dims: &[i64]) -> Result<Vec<usize>, Error> {
    let extent = |&d: &i64| usize::try_from(d).map_err(|_| malformed(format!("extent {d}")));
    dims.iter().map(extent).collect()
}

/// The tensor's bytes from whichever field holds them.
fn content(
    t: &TensorProto,
    dtype: DType,
    elements: usize,
    size: usize,
    files: &ExternalFiles,
) -> Result<Bytes, Error> {
    if t.segment.is_some() {
        return Err(Error::new(ErrorKind::Unsupported, "tensors stored in segments"));
    }
    if let Some(entries) = external::entries(t) {
        return files.read(entries, size);
    }
    if let Some(raw) = &t.raw_data {
        return Ok(raw.clone());
    }
    // How many entries the typed list must have; complex numbers take two, packed elements share one.
    let entries = match dtype {
        DType::C64 => elements.checked_mul(2).ok_or_else(|| malformed("too many elements"))?,
        _ if dtype.bits() < 8 => size,
        _ => elements,
    };
    match dtype {
        DType::F32 | DType::C64 => pack(&t.float_data, entries, "float_data", |v| Ok(v.to_le_bytes())),
        DType::F64 => pack(&t.double_data, entries, "double_data", |v| Ok(v.to_le_bytes())),
        DType::I64 => pack(&t.int64_data, entries, "int64_data", |v| Ok(v.to_le_bytes())),
        DType::U64 => pack(&t.uint64_data, entries, "uint64_data", |v| Ok(v.to_le_bytes())),
        DType::U32 => pack(&t.uint64_data, entries, "uint64_data", |v| {
            u32::try_from(v).map(u32::to_le_bytes).map_err(|_| outside(v, dtype))
        }),
        DType::I32 => pack(&t.int32_data, entries, "int32_data", |v| Ok(v.to_le_bytes())),
        _ if dtype.size_bytes() == 2 => pack(&t.int32_data, entries, "int32_data", |v| {
            narrow(v, dtype).map(|bits| (bits as u16).to_le_bytes())
        }),
        _ => pack(&t.int32_data, entries, "int32_data", |v| narrow(v, dtype).map(|bits| [bits as u8])),
    }
}

/// Packs a typed list that must have exactly `entries` values.
fn pack<T: Copy, const N: usize>(
    values: &[T],
    entries: usize,
    field: &str,
    encode: impl Fn(T) -> Result<[u8; N], Error>,
) -> Result<Bytes, Error> {
    if values.len() != entries {
        return Err(malformed(format!("{field} has {} values, the extents ask for {entries}", values.len())));
    }
    memory::ensure_elements(values.len(), N, || format!("the {entries} values of {field}"))?;
    let mut bytes = Vec::with_capacity(values.len() * N);
    for &value in values {
        bytes.extend_from_slice(&encode(value)?);
    }
    Ok(bytes.into())
}

/// An `int32_data` value as the bits of a narrower element. Integers must be in range; bit patterns of floats and
/// of packed pairs may be written signed or unsigned.
fn narrow(value: i32, dtype: DType) -> Result<i32, Error> {
    let bits = dtype.size_bytes() as u32 * 8;
    let (min, max) = match dtype.int_range() {
        Some((min, max)) if dtype.bits() >= 8 => (min as i64, max as i64),
        _ => (-(1 << (bits - 1)), (1 << bits) - 1),
    };
    let fits = (min..=max).contains(&i64::from(value));
    if fits { Ok(value) } else { Err(outside(value, dtype)) }
}

/// Truth values as 0 and 1: a file may hold any byte for true.
fn normal_bools(bytes: Bytes) -> Result<Bytes, Error> {
    if bytes.iter().all(|&b| b <= 1) {
        return Ok(bytes);
    }
    memory::ensure(bytes.len(), || format!("{} truth values", bytes.len()))?;
    Ok(bytes.iter().map(|&b| u8::from(b != 0)).collect::<Vec<u8>>().into())
}

fn outside(value: impl std::fmt::Display, dtype: DType) -> Error {
    malformed(format!("value {value} does not fit {dtype}"))
}

fn malformed(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Malformed, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(proto: &TensorProto) -> Result<RawTensor, Error> {
        RawTensor::read(proto, &ExternalFiles::new(None))
    }

    fn tensor(data_type: DataType, dims: &[i64]) -> TensorProto {
        TensorProto { data_type: Some(data_type as i32), dims: dims.to_vec(), ..Default::default() }
    }

    #[test]
    fn raw_data_is_shared_not_copied() {
        let raw = Bytes::from(vec![1u8; 12]);
        let proto = TensorProto { raw_data: Some(raw.clone()), ..tensor(DataType::Float, &[3]) };
        let read = read(&proto).unwrap();
        assert_eq!((read.bytes.as_ptr(), read.dtype, &read.dims[..]), (raw.as_ptr(), DType::F32, &[3][..]));
    }

    #[test]
    fn typed_lists_are_packed() {
        use DataType as T;
        let floats = |ty, dims: &[i64], v: &[f32]| TensorProto { float_data: v.to_vec(), ..tensor(ty, dims) };
        let ints = |ty, dims: &[i64], v: &[i32]| TensorProto { int32_data: v.to_vec(), ..tensor(ty, dims) };
        let cases: &[(TensorProto, Vec<u8>)] = &[
            (
                floats(T::Float, &[2], &[1.0, -0.5]),
                [1f32, -0.5].iter().flat_map(|v| v.to_le_bytes()).collect(),
            ),
            (
                floats(T::Complex64, &[1], &[1.0, 2.0]),
                [1f32, 2.0].iter().flat_map(|v| v.to_le_bytes()).collect(),
            ),
            (ints(T::Int32, &[1], &[-2]), vec![0xfe, 0xff, 0xff, 0xff]),
            (ints(T::Int16, &[2], &[-1, 258]), vec![0xff, 0xff, 2, 1]),
            (ints(T::Uint16, &[1], &[65535]), vec![0xff, 0xff]),
            (ints(T::Int8, &[1], &[-128]), vec![0x80]),
            (ints(T::Uint8, &[1], &[255]), vec![0xff]),
            (ints(T::Bool, &[2], &[1, 0]), vec![1, 0]),
            (ints(T::Float16, &[1], &[0x3c00]), vec![0, 0x3c]),
            (ints(T::Bfloat16, &[1], &[0x3f80]), vec![0x80, 0x3f]),
            (ints(T::Float8e4m3fn, &[1], &[0x88]), vec![0x88]),
            (ints(T::Int4, &[3], &[0x21, 0x03]), vec![0x21, 3]),
            (ints(T::Float4e2m1, &[2, 1], &[0xf1]), vec![0xf1]),
            (ints(T::Uint2, &[5], &[0xe4, 0x02]), vec![0xe4, 2]),
            (ints(T::Float8e8m0, &[1], &[0xfe]), vec![0xfe]),
            (TensorProto { int64_data: vec![-1], ..tensor(T::Int64, &[]) }, vec![0xff; 8]),
            (TensorProto { uint64_data: vec![7], ..tensor(T::Uint64, &[1]) }, vec![7, 0, 0, 0, 0, 0, 0, 0]),
            (TensorProto { uint64_data: vec![7], ..tensor(T::Uint32, &[1]) }, vec![7, 0, 0, 0]),
            (TensorProto { double_data: vec![1.0], ..tensor(T::Double, &[1]) }, 1f64.to_le_bytes().to_vec()),
            (tensor(T::Float, &[1 << 40, 2, 0]), vec![]),
        ];
        for (proto, expected) in cases {
            assert_eq!(&read(proto).unwrap().bytes[..], &expected[..], "{proto:?}");
        }
    }

    #[test]
    fn wrong_sizes_types_and_values_are_errors_before_any_allocation() {
        use DataType as T;
        let raw = |ty, dims: &[i64], n: usize| TensorProto {
            raw_data: Some(vec![0; n].into()),
            ..tensor(ty, dims)
        };
        let ints = |ty, v: i32| TensorProto { int32_data: vec![v], ..tensor(ty, &[1]) };
        let cases = [
            raw(T::Float, &[2], 4),
            raw(T::Float, &[-1], 4),
            raw(T::Float, &[i64::MAX, i64::MAX], 4),
            raw(T::Int4, &[3], 1),
            tensor(T::Float, &[1 << 40]),
            tensor(T::Float, &[]),
            raw(T::String, &[1], 1),
            raw(T::Complex128, &[1], 16),
            raw(T::Undefined, &[1], 1),
            TensorProto { data_type: Some(999), ..Default::default() },
            ints(T::Uint8, 256),
            ints(T::Int8, 128),
            ints(T::Uint8, -1),
            ints(T::Bool, 2),
            ints(T::Float16, 0x10000),
            TensorProto { uint64_data: vec![1 << 32], ..tensor(T::Uint32, &[1]) },
        ];
        for proto in cases {
            assert!(read(&proto).is_err(), "{proto:?}");
        }
    }

    #[test]
    fn any_nonzero_byte_is_true() {
        let proto = TensorProto { raw_data: Some(vec![0, 1, 255].into()), ..tensor(DataType::Bool, &[3]) };
        assert_eq!(&read(&proto).unwrap().bytes[..], [0, 1, 1]);
    }
}
