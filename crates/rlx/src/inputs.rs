//! Inputs from files: NumPy arrays, images, JSON, JSON lines.
//!
//! Images are prepared as a [`Preprocess`] says. Without one, bytes are divided by 255 for float inputs and are as they are for
//! `u8` inputs. **Arrays are never scaled**: a `u8` array for a float input keeps its numbers, 0 to 255, with a warning
//! where the input looks like one for images.
//!
//! The size stated in a file is checked against the model's declared shape, and against an [`InputLimit`] if that is dynamic, before
//! anything is decoded. Elements are converted to the declared type if all of them are representable in it.
//!
//! ```no_run
//! use rlx::inputs::{InputLimit, read};
//! let mut digits = rlx::Runner::open("models/digits/digits.onnx")?;
//! let image = read("models/digits/samples/0_a.png".as_ref(), &digits.inputs()?[0], InputLimit::default())?;
//! let outputs = digits.run(&[("image", &image)])?;
//! # Ok::<(), rlx::prelude::Error>(())
//! ```

mod elements;
pub mod json;
pub mod lines;

use std::borrow::Borrow;
use std::io::{BufReader, Read};
use std::path::Path;

use rlx_ir::files::{io_error, open_file};
use rlx_ir::tensor::Elements;
use rlx_ir::{ConstData, DType, DTypeClass, Error, ErrorKind, Result, Value};
use rlx_runtime::{TensorInfo, nearest};
use rlx_weights::npy::Header;

use crate::image::{Preprocess, Source, looks_like_images};

pub use crate::values::Inputs;
pub use elements::{InputLimit, Packed};

/// The input of this name.
///
/// # Errors
/// [`ErrorKind::Binding`] with the names that there are.
pub fn find<'a, I: Borrow<TensorInfo>>(declared: &'a [I], name: &str) -> Result<&'a TensorInfo> {
    declared.iter().map(Borrow::borrow).find(|info: &&TensorInfo| info.name == name).ok_or_else(|| {
        let names: Vec<&str> = declared.iter().map(|i| i.borrow().name.as_str()).collect();
        let message = format!("the model has no input \"{name}\"; its inputs: {}", names.join(", "));
        let e = Error::new(ErrorKind::Binding, message);
        match nearest(name, names) {
            Some(close) => e.with_hint(format!("did you mean \"{close}\"?")),
            None => e,
        }
    })
}

/// Endings of image files that are read.
pub const IMAGES: [&str; 13] =
    ["png", "jpg", "jpeg", "webp", "bmp", "j2k", "jp2", "pgm", "pnm", "ppm", "pam", "tif", "tiff"];

/// One input from a file, by its ending: `.npy`, `.json`, or an image ([`IMAGES`]), which is neither resized
/// nor normalised.
///
/// # Errors
/// A file that cannot be read, or whose contents do not match the input.
pub fn read(path: &Path, info: &TensorInfo, limit: InputLimit) -> Result<ConstData> {
    read_prepared(path, info, limit, || Ok(Preprocess::default()))
}

/// As [`read`], with images prepared as `preprocess` says; it is called for images only.
///
/// # Errors
/// As [`read`], and those of `preprocess`.
pub fn read_prepared(
    path: &Path,
    info: &TensorInfo,
    limit: InputLimit,
    preprocess: impl FnOnce() -> Result<Preprocess>,
) -> Result<ConstData> {
    let ending = path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
    match ending.as_str() {
        "npy" => {
            let check = |header: &Header| limit.allows(info, &header.dims, "the array");
            converted(info, rlx_weights::npy::read_checked(path, check)?)
        }
        image if IMAGES.contains(&image) => {
            let file = BufReader::new(open_file(path)?);
            let preprocess = preprocess()?;
            let read = || preprocess.read(Source::open(file)?, info, limit);
            read().map_err(|e| e.with_origin(path.display().to_string()))
        }
        "json" => {
            let text = text_of(path, limit)?;
            json::tensor(&text, info, limit).map_err(|e| e.with_origin(path.display().to_string()))
        }
        _ if !path.exists() => {
            let message = format!("{}: there is no such file or folder", path.display());
            Err(Error::new(ErrorKind::Io, message))
        }
        _ => {
            let message =
                format!("{}: inputs are images (.png, .jpg, .webp), .npy or .json files", path.display());
            Err(Error::new(ErrorKind::Unsupported, message).with_hint(match ending.as_str() {
                "gif" | "heic" | "avif" => "save the image as PNG or JPEG",
                "npz" => "give an archive of several inputs by --inputs",
                _ => "NumPy writes .npy files by numpy.save",
            }))
        }
    }
}

/// A file's text, of at most as many bytes as an input may have.
fn text_of(path: &Path, limit: InputLimit) -> Result<Vec<u8>> {
    let file = open_file(path)?;
    let mut text = Vec::new();
    file.take(limit.0.saturating_add(1)).read_to_end(&mut text).map_err(|e| io_error(path, e))?;
    match text.len() as u64 > limit.0 {
        true => Err(limit.too_long(&format!("{}: the text", path.display()))),
        false => Ok(text),
    }
}

/// `data` in the declared type, if every element is exact in it.
///
/// # Errors
/// [`ErrorKind::DType`] where one does not.
pub fn converted(info: &TensorInfo, data: ConstData) -> Result<ConstData> {
    const PART: usize = 1 << 14;
    if data.dtype() == info.dtype {
        return Ok(data);
    }
    let from = data.dtype();
    if from == DType::U8 && info.dtype.is_float() && looks_like_images(&info.shape) {
        tracing::warn!(
            input = %info.name,
            "an array of u8 is given for a float input, which gets 0 to 255; image files would be divided by 255"
        );
    }
    let rejected = || {
        let message =
            format!("input \"{}\" is {}, and {from} does not convert to it exactly", info.name, info.shape);
        Error::new(ErrorKind::DType, message).with_hint(format!("store it as {}", info.dtype))
    };
    // Parts one after the other: all elements as exact values would be many times the array. Eight elements of any type
    // fill whole bytes.
    let part_bytes = PART / 8 * from.bits();
    let (mut bytes, mut left) = (Vec::new(), data.num_elements());
    for part in data.bytes().chunks(part_bytes) {
        let count = left.min(PART);
        left -= count;
        let value = Value::decode(from, &[count], part);
        bytes.extend(value_as(&value, info.dtype).ok_or_else(rejected)?.encode());
    }
    ConstData::new(info.dtype, data.dims(), bytes)
}

/// The same elements in another type; `None` where one does not survive.
fn value_as(value: &Value, dtype: DType) -> Option<Value> {
    let converted = match (&value.elements, dtype.class()) {
        (Elements::Float(v), DTypeClass::Float) if value.dtype.is_float() => {
            Value::float(dtype, &value.dims, v.clone())
        }
        (Elements::Int(v), DTypeClass::Float) => {
            Value::float(dtype, &value.dims, v.iter().map(|&i| i as f64).collect())
        }
        (Elements::Int(v), DTypeClass::Signed | DTypeClass::Unsigned | DTypeClass::Bool) => {
            Value::int(dtype, &value.dims, v.clone())
        }
        _ => return None,
    };
    let same = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan());
    let rounded = converted.rounded();
    let survive = match (&rounded.elements, &value.elements) {
        (Elements::Int(a), Elements::Int(b)) => a == b,
        _ => rounded.to_f64().iter().zip(value.to_f64()).all(|(&a, b)| same(a, b)),
    };
    survive.then_some(rounded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlx_ir::Shape;

    #[test]
    fn arrays_are_converted_where_every_element_survives() {
        let values = |n: usize| (0..n as i128).map(|i| i % 7).collect::<Vec<_>>();
        for n in [0, 3, 8, (1 << 14) + 5] {
            for from in [DType::I4, DType::U8, DType::I16, DType::I64, DType::Bool] {
                let ints = if from == DType::Bool { vec![1; n] } else { values(n) };
                let data = Value::int(from, &[n], ints.clone()).to_const();
                for to in [DType::I8, DType::I32, DType::F32, DType::F16] {
                    let info = TensorInfo { name: "x".into(), dtype: to, shape: Shape::new(&[n], to) };
                    let found = converted(&info, data.clone()).unwrap();
                    let want: Vec<f64> = ints.iter().map(|&i| i as f64).collect();
                    assert_eq!((found.dtype(), found.value().to_f64()), (to, want), "{from} to {to}, {n}");
                }
            }
        }
        let info = TensorInfo { name: "x".into(), dtype: DType::U8, shape: Shape::new(&[1], DType::U8) };
        let error = converted(&info, Value::int(DType::I32, &[1], vec![256]).to_const()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DType);
    }
}
