//! The f32 boundary: f32 slices to and from the bytes of a declared element type.
//!
//! Floats are rounded to the type; integers and booleans must be representable exactly, otherwise the conversion
//! is an error that names the element. Common types are converted directly; small floats and packed integers
//! are converted through [`Value`].

use half::{bf16, f16};
use rlx_ir::{DType, DTypeClass, Error, ErrorKind, Result, Value, memory};

/// How many f32 values encode one element.
pub fn floats_per_element(dtype: DType) -> usize {
    if dtype == DType::C64 { 2 } else { 1 }
}

/// Converts `values` to `dtype` into `out`, which has exactly the bytes they take. Does not allocate for the
/// types of 8 bits and more.
///
/// # Errors
/// [`ErrorKind::Value`] for a value that an integer or bool type cannot hold exactly.
pub fn from_f32(dtype: DType, values: &[f32], out: &mut [u8]) -> Result<()> {
    match dtype {
        DType::F32 | DType::C64 => out.copy_from_slice(bytemuck::cast_slice(values)),
        DType::F64 => each(values, out, |v| f64::from(v).to_le_bytes()),
        DType::F16 => each(values, out, |v| f16::from_f32(v).to_le_bytes()),
        DType::BF16 => each(values, out, |v| bf16::from_f32(v).to_le_bytes()),
        _ => match dtype.int_range() {
            Some(range) if dtype.bits() >= 8 => whole_numbers(dtype, range, values, out)?,
            range => {
                let value = match range {
                    Some(range) => {
                        let n = check_whole(dtype, range, values)?;
                        Value::int(dtype, &[values.len()], n)
                    }
                    None => Value::float(dtype, &[values.len()], values.iter().map(|&v| v.into()).collect()),
                };
                out.copy_from_slice(&value.rounded().encode());
            }
        },
    }
    Ok(())
}

fn each<const N: usize>(values: &[f32], out: &mut [u8], f: impl Fn(f32) -> [u8; N]) {
    for (&v, bytes) in values.iter().zip(out.chunks_exact_mut(N)) {
        bytes.copy_from_slice(&f(v));
    }
}

fn whole(dtype: DType, (min, max): (i128, i128), index: usize, v: f32) -> Result<i128> {
    let n = v as i128;
    if v.fract() == 0.0 && (min..=max).contains(&n) && n as f32 == v {
        return Ok(n);
    }
    let message = format!("element {index} is {v}, which {dtype} cannot hold exactly");
    Err(Error::new(ErrorKind::Value, message))
}

fn check_whole(dtype: DType, range: (i128, i128), values: &[f32]) -> Result<Vec<i128>> {
    values.iter().enumerate().map(|(i, &v)| whole(dtype, range, i, v)).collect()
}

fn whole_numbers(dtype: DType, range: (i128, i128), values: &[f32], out: &mut [u8]) -> Result<()> {
    let size = dtype.size_bytes();
    for (i, (&v, bytes)) in values.iter().zip(out.chunks_exact_mut(size)).enumerate() {
        bytes.copy_from_slice(&whole(dtype, range, i, v)?.to_le_bytes()[..size]);
    }
    Ok(())
}

/// Converts `count` elements of `dtype` to f32 into `out`, which has [`floats_per_element`] times as many. Does not
/// allocate for the types of 8 bits and more.
///
/// # Errors
/// [`ErrorKind::Value`] for an integer that is not exact in f32.
pub fn to_f32(dtype: DType, bytes: &[u8], count: usize, out: &mut [f32]) -> Result<()> {
    match dtype {
        DType::F32 | DType::C64 => bytemuck::cast_slice_mut(out).copy_from_slice(bytes),
        DType::F64 => floats(bytes, out, |b| f64::from_le_bytes(b) as f32),
        DType::F16 => floats(bytes, out, |b| f16::from_le_bytes(b).to_f32()),
        DType::BF16 => floats(bytes, out, |b| bf16::from_le_bytes(b).to_f32()),
        DType::I64 => exact(bytes, out, |b| i64::from_le_bytes(b).into())?,
        DType::U64 => exact(bytes, out, |b| u64::from_le_bytes(b).into())?,
        DType::I32 => exact(bytes, out, |b| i32::from_le_bytes(b).into())?,
        DType::U32 => exact(bytes, out, |b| u32::from_le_bytes(b).into())?,
        DType::I16 => exact(bytes, out, |b| i16::from_le_bytes(b).into())?,
        DType::U16 => exact(bytes, out, |b| u16::from_le_bytes(b).into())?,
        DType::I8 => exact(bytes, out, |b| i8::from_le_bytes(b).into())?,
        DType::U8 => exact(bytes, out, |[b]| b.into())?,
        DType::Bool => exact(bytes, out, |[b]| (b != 0).into())?,
        _ => {
            let value = Value::decode(dtype, &[count], bytes).to_f64();
            out.iter_mut().zip(value).for_each(|(o, v)| *o = v as f32);
        }
    }
    Ok(())
}

fn floats<const N: usize>(bytes: &[u8], out: &mut [f32], f: impl Fn([u8; N]) -> f32) {
    for (chunk, o) in bytes.as_chunks::<N>().0.iter().zip(out) {
        *o = f(*chunk);
    }
}

fn exact<const N: usize>(bytes: &[u8], out: &mut [f32], f: impl Fn([u8; N]) -> i128) -> Result<()> {
    for (i, (chunk, o)) in bytes.as_chunks::<N>().0.iter().zip(out).enumerate() {
        let n = f(*chunk);
        *o = n as f32;
        if *o as i128 != n {
            let message = format!("element {i} is {n}, which f32 cannot hold exactly");
            return Err(Error::new(ErrorKind::Value, message).with_hint("read it with run_typed"));
        }
    }
    Ok(())
}

/// The bytes of `given` elements in `wanted`, where every value survives: the same type, or a float into a wider one.
///
/// # Errors
/// [`ErrorKind::DType`] for any other pair.
pub fn widen(wanted: DType, given: DType, bytes: &[u8]) -> Result<std::borrow::Cow<'_, [u8]>> {
    if wanted == given {
        return Ok(bytes.into());
    }
    let wider = matches!(
        (given, wanted),
        (DType::F16 | DType::BF16, DType::F32 | DType::F64) | (DType::F32, DType::F64)
    );
    if !wider || given.class() != DTypeClass::Float || !bytes.len().is_multiple_of(given.size_bytes()) {
        let message = format!("it is declared as {wanted}, but was given {given}");
        return Err(Error::new(ErrorKind::DType, message));
    }
    let n = bytes.len() / given.size_bytes();
    memory::ensure_elements(n, wanted.size_bytes(), || format!("{n} elements of {wanted}"))?;
    Ok(Value { dtype: wanted, ..Value::try_decode(given, &[n], bytes)? }.encode().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(dtype: DType, values: &[f32]) -> Result<Vec<f32>> {
        let mut bytes = vec![0; dtype.storage_bytes(values.len() / floats_per_element(dtype)).unwrap()];
        from_f32(dtype, values, &mut bytes)?;
        let mut out = vec![0.0; values.len()];
        to_f32(dtype, &bytes, values.len() / floats_per_element(dtype), &mut out)?;
        Ok(out)
    }

    #[test]
    fn exact_values_survive_every_type() {
        for &dtype in DType::ALL {
            // E8M0 has no zero.
            let values = if dtype == DType::F8E8M0 { [1.0, 2.0] } else { [1.0, 0.0] };
            assert_eq!(there_and_back(dtype, &values).unwrap(), values, "{dtype}");
        }
    }

    #[test]
    fn a_value_not_exact_in_an_integer_type_is_an_error() {
        for (dtype, value) in [
            (DType::I64, 1.5),
            (DType::U8, -1.0),
            (DType::I8, 128.0),
            (DType::Bool, 2.0),
            (DType::I32, f32::NAN),
            (DType::I64, f32::INFINITY),
            (DType::I64, 9.3e18),
            (DType::I4, 8.0),
        ] {
            let e = there_and_back(dtype, &[0.0, value]).unwrap_err();
            assert!(e.to_string().contains("element 1") && e.to_string().contains(dtype.name()), "{e}");
        }
    }

    #[test]
    fn an_id_that_f32_cannot_hold_is_an_error() {
        let mut out = [0.0];
        let e = to_f32(DType::I64, &16_777_217i64.to_le_bytes(), 1, &mut out).unwrap_err();
        assert!(e.to_string().contains("16777217"), "{e}");
        to_f32(DType::I64, &16_777_216i64.to_le_bytes(), 1, &mut out).unwrap();
        assert_eq!(out, [16_777_216.0]);
    }

    #[test]
    fn floats_widen_and_nothing_else() {
        let half = f16::from_f32(1.5).to_le_bytes();
        assert_eq!(*widen(DType::F32, DType::F16, &half).unwrap(), 1.5f32.to_le_bytes());
        assert!(widen(DType::F16, DType::F32, &1f32.to_le_bytes()).is_err());
        assert!(widen(DType::I64, DType::I32, &[0; 4]).is_err());
    }
}
