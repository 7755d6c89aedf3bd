//! NumPy's `.npy`: one array.
//!
//! A short header, a Python dictionary in text, says element type, order and shape; the elements follow. Strings are stored at a fixed
//! width ([`StringArray`]); pickled objects are never read.

mod strings;

pub use strings::StringArray;

use crate::malformed;
use rlx_ir::files::{io_error, open_file};
use rlx_ir::{ConstData, DType, Error, ErrorKind, Shape, memory};
use std::io::Read;
use std::path::Path;

const MAGIC: &[u8] = b"\x93NUMPY";

/// Headers are this long at most. The format allows 4 GiB, and its writers need less than a kilobyte.
pub(crate) const MOST_HEADER: usize = 1 << 16;

/// Element types that NumPy and RLX share. NumPy has no bf16 and no FP8.
const TYPES: &[(&str, DType)] = &[
    ("<f4", DType::F32),
    ("<f2", DType::F16),
    ("<f8", DType::F64),
    ("|i1", DType::I8),
    ("<i2", DType::I16),
    ("<i4", DType::I32),
    ("<i8", DType::I64),
    ("|u1", DType::U8),
    ("<u2", DType::U16),
    ("<u4", DType::U32),
    ("<u8", DType::U64),
    ("|b1", DType::Bool),
    ("<c8", DType::C64),
];

/// An array of numbers or of strings.
#[derive(Debug, Clone, PartialEq)]
pub enum Array {
    /// Numbers.
    Numbers(ConstData),
    /// Strings.
    Strings(StringArray),
}

impl Array {
    /// The array, if it is one of numbers.
    ///
    /// # Errors
    /// [`ErrorKind::DType`] for strings.
    pub fn numbers(self) -> Result<ConstData, Error> {
        match self {
            Array::Numbers(numbers) => Ok(numbers),
            Array::Strings(strings) => {
                let message = format!("an array {:?} of strings, where numbers are needed", strings.dims);
                Err(Error::new(ErrorKind::DType, message))
            }
        }
    }
}

/// What an array holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elements {
    /// Numbers of a type.
    Numbers(DType),
    /// Strings of at most so many code points, four bytes each (`U`).
    Unicode(usize),
    /// Strings of at most so many bytes, which are UTF-8 here (`S`).
    Bytes(usize),
}

impl Elements {
    /// As a header names them; a type without a byte order is taken, too.
    fn named(descr: &str) -> Option<Elements> {
        let same = |(name, _): &&(&str, DType)| *name == descr || name[1..] == *descr;
        if let Some(&(_, dtype)) = TYPES.iter().find(same) {
            return Some(Elements::Numbers(dtype));
        }
        let width = |text: &str| text.parse().ok();
        match descr.strip_prefix(['<', '|']).unwrap_or(descr).split_at_checked(1)? {
            ("U", n) => width(n).map(Elements::Unicode),
            ("S", n) => width(n).map(Elements::Bytes),
            _ => None,
        }
    }
}

impl std::fmt::Display for Elements {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Elements::Numbers(dtype) => dtype.fmt(f),
            Elements::Unicode(width) | Elements::Bytes(width) => write!(f, "strings of at most {width}"),
        }
    }
}

/// The header of an array, before its elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// What the array holds.
    pub elements: Elements,
    /// The dimensions, outermost first. They are not yet checked against the number of elements.
    pub dims: Vec<usize>,
    /// Whether the elements are in column-major order.
    transposed: bool,
}

impl Header {
    /// The header of an array, and the elements that follow it.
    ///
    /// # Errors
    /// Bytes that do not start as an array of a type RLX has.
    pub fn split(bytes: &[u8]) -> Result<(Header, &[u8]), Error> {
        let (header, data) = split_header(bytes)?;
        let descr = field(header, "descr")
            .and_then(quoted)
            .ok_or_else(|| malformed("an npy header without a type"))?;
        let elements = Elements::named(descr).ok_or_else(|| {
            let error = Error::new(ErrorKind::Unsupported, format!("npy elements of type {descr}"));
            match descr {
                "|O" | "O" => {
                    error.with_hint("objects are pickled, and not read: store strings by array.astype(\"U\")")
                }
                _ => error,
            }
        })?;
        let dims = field(header, "shape")
            .and_then(shape)
            .ok_or_else(|| malformed("an npy header without a shape"))?;
        let transposed = field(header, "fortran_order").is_some_and(|v| v.trim_start().starts_with("True"));
        Ok((Header { elements, dims, transposed }, data))
    }

    /// How many bytes the elements take; `None` for more than there can be.
    pub fn data_bytes(&self) -> Option<usize> {
        let count = || self.dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        match self.elements {
            Elements::Numbers(dtype) => Shape::new(&self.dims, dtype).size_bytes(),
            Elements::Unicode(width) => count()?.checked_mul(width.checked_mul(4)?),
            Elements::Bytes(width) => count()?.checked_mul(width),
        }
    }
}

/// Reads a `.npy` file.
///
/// # Errors
/// A file that cannot be read, or that is not an array of a type RLX has.
pub fn read(path: impl AsRef<Path>) -> Result<ConstData, Error> {
    read_checked(path, |_| Ok(()))
}

/// As [`read`]; `check` sees the header before anything else is read, and its error is the call's.
///
/// # Errors
/// As [`read`]; what `check` reports.
pub fn read_checked(
    path: impl AsRef<Path>,
    check: impl FnOnce(&Header) -> Result<(), Error>,
) -> Result<ConstData, Error> {
    let path = path.as_ref();
    let numbers = |array: Array| array.numbers().map_err(|e| e.with_origin(path.display().to_string()));
    read_any_checked(path, check).and_then(numbers)
}

/// As [`read_checked`], also of strings.
///
/// # Errors
/// As [`read_checked`]; strings that are no Unicode.
pub fn read_any_checked(
    path: impl AsRef<Path>,
    check: impl FnOnce(&Header) -> Result<(), Error>,
) -> Result<Array, Error> {
    let path = path.as_ref();
    let named = |e: Error| e.with_origin(path.display().to_string());
    let mut file = open_file(path)?;
    let mut bytes = Vec::new();
    file.by_ref().take(MOST_HEADER as u64).read_to_end(&mut bytes).map_err(|e| io_error(path, e))?;
    let (header, data) = Header::split(&bytes).map_err(named)?;
    check(&header).map_err(named)?;
    // One byte more than there should be tells a file that is too long.
    let missing = header.data_bytes().unwrap_or(0).saturating_sub(data.len()) as u64;
    file.take(missing.saturating_add(1)).read_to_end(&mut bytes).map_err(|e| io_error(path, e))?;
    any_from_bytes(&bytes).map_err(named)
}

/// Reads an array from the contents of a `.npy` file.
///
/// # Errors
/// As [`read`].
pub fn from_bytes(bytes: &[u8]) -> Result<ConstData, Error> {
    any_from_bytes(bytes)?.numbers()
}

/// As [`from_bytes`], also of strings.
///
/// # Errors
/// As [`read_any_checked`].
pub fn any_from_bytes(bytes: &[u8]) -> Result<Array, Error> {
    let (header, data) = Header::split(bytes)?;
    match header.elements {
        Elements::Numbers(dtype) => numbers(dtype, header, data).map(Array::Numbers),
        _ => StringArray::read(&header, data).map(Array::Strings),
    }
}

fn numbers(dtype: DType, header: Header, data: &[u8]) -> Result<ConstData, Error> {
    let Header { dims, transposed, .. } = header;
    if transposed && dims.len() > 1 {
        let reversed: Vec<usize> = dims.iter().rev().copied().collect();
        let columns = ConstData::new(dtype, &reversed, data)?.try_value()?;
        // The values in the other order, and their source indices.
        memory::ensure_elements(columns.len(), 32, || format!("an array of {dims:?} in another order"))?;
        return columns.pick(&dims, &fortran_order(&dims)).try_to_const();
    }
    ConstData::new(dtype, &dims, data)
}

/// The contents of a `.npy` file.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for an element type that NumPy does not have; [`ErrorKind::OutOfMemory`].
pub fn to_bytes(array: &ConstData) -> Result<Vec<u8>, Error> {
    let header = header_of(array)?;
    memory::ensure(header.len() + array.bytes().len(), || format!("an npy file of {}", array.shape()))?;
    Ok([&header, array.bytes().as_ref()].concat())
}

/// As [`to_bytes`], also of strings.
///
/// # Errors
/// As [`to_bytes`] and [`StringArray::to_npy`].
pub fn any_to_bytes(array: &Array) -> Result<Vec<u8>, Error> {
    match array {
        Array::Numbers(numbers) => to_bytes(numbers),
        Array::Strings(strings) => strings.to_npy(),
    }
}

/// What is before the elements.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for an element type that NumPy does not have.
pub(crate) fn header_of(array: &ConstData) -> Result<Vec<u8>, Error> {
    let descr = TYPES.iter().find(|(_, dtype)| *dtype == array.dtype()).map(|(name, _)| *name);
    let unsupported = || Error::new(ErrorKind::Unsupported, format!("NumPy has no {}", array.dtype()));
    let descr = descr.ok_or_else(unsupported)?;
    header_with(descr, array.dims())
}

/// The header of elements of a type that NumPy calls `descr`.
fn header_with(descr: &str, dims: &[usize]) -> Result<Vec<u8>, Error> {
    let dims: Vec<String> = dims.iter().map(|d| format!("{d},")).collect();
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}", dims.join(" "));
    // The elements start at a multiple of 64.
    let length = (MAGIC.len() + 4 + header.len() + 1).next_multiple_of(64) - MAGIC.len() - 4;
    header.push_str(&" ".repeat(length - header.len() - 1));
    header.push('\n');
    let short =
        u16::try_from(header.len()).map_err(|_| malformed("too many dimensions for an npy header"))?;
    Ok([MAGIC, &[1, 0], &short.to_le_bytes(), header.as_bytes()].concat())
}

/// Header text and elements.
fn split_header(bytes: &[u8]) -> Result<(&str, &[u8]), Error> {
    let no = || malformed("not an npy array");
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(no)?;
    let (&[major, _], rest) = rest.split_first_chunk::<2>().ok_or_else(no)?;
    let (length, rest) = if major == 1 {
        let (length, rest) = rest.split_first_chunk::<2>().ok_or_else(no)?;
        (usize::from(u16::from_le_bytes(*length)), rest)
    } else {
        let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(no)?;
        (u32::from_le_bytes(*length) as usize, rest)
    };
    let (header, data) = rest.split_at_checked(length).ok_or_else(no)?;
    Ok((std::str::from_utf8(header).map_err(|_| no())?, data))
}

/// What follows `'name':`.
fn field<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let key = format!("'{name}':");
    Some(&header[header.find(&key)? + key.len()..])
}

fn quoted(text: &str) -> Option<&str> {
    text.trim_start().strip_prefix('\'')?.split('\'').next()
}

/// `(2, 9)`, `(3,)` or `()`.
fn shape(text: &str) -> Option<Vec<usize>> {
    let inside = text.trim_start().strip_prefix('(')?.split(')').next()?;
    inside.split(',').map(str::trim).filter(|n| !n.is_empty()).map(|n| n.parse().ok()).collect()
}

/// For each element in row-major order, its position in column-major order.
fn fortran_order(dims: &[usize]) -> Vec<usize> {
    let count: usize = dims.iter().product();
    let position = |mut flat: usize| {
        let mut index = vec![0; dims.len()];
        for (slot, &d) in index.iter_mut().zip(dims).rev() {
            *slot = flat % d;
            flat /= d;
        }
        index.iter().zip(dims).rev().fold(0, |at, (&i, &d)| at * d + i)
    };
    (0..count).map(position).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_survive_the_round_trip() {
        for (_, dtype) in TYPES {
            for dims in [&[][..], &[0], &[3], &[2, 3]] {
                let size = dtype.storage_bytes(dims.iter().product()).unwrap();
                let bytes: Vec<u8> = (0..size).map(|i| (i % 2) as u8).collect();
                let array = ConstData::new(*dtype, dims, bytes).unwrap();
                let file = to_bytes(&array).unwrap();
                assert_eq!(from_bytes(&file).unwrap(), array);
                assert_eq!((file.len() - size) % 64, 0);
            }
        }
    }

    #[test]
    fn huge_claims_are_seen_before_they_are_read() {
        let path = std::env::temp_dir().join(format!("rlx-npy-{}.npy", std::process::id()));
        let file = to_bytes(&ConstData::from_i64(&[2], &[1, 2]).unwrap()).unwrap();
        let huge = String::from_utf8_lossy(&file[8..]).replace("(2,)", "(99999999999,)");
        std::fs::write(&path, [&file[..8], huge.as_bytes()].concat()).unwrap();
        let mut seen = None;
        let error = read_checked(&path, |header| {
            seen = Some(header.dims.clone());
            Err(malformed("too large"))
        });
        assert_eq!(seen, Some(vec![99_999_999_999]));
        assert!(error.unwrap_err().message().contains("too large"));
        // Without a check the bytes that are missing are the error.
        assert!(read(&path).is_err());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn columns_first_is_reordered() {
        let mut file = to_bytes(&ConstData::from_i64(&[2, 3], &[1, 4, 2, 5, 3, 6]).unwrap()).unwrap();
        let at = file.windows(5).position(|w| w == b"False").unwrap();
        file[at..at + 5].copy_from_slice(b"True ");
        assert_eq!(from_bytes(&file).unwrap(), ConstData::from_i64(&[2, 3], &[1, 2, 3, 4, 5, 6]).unwrap());
    }

    #[test]
    fn damaged_files_are_errors() {
        let file = to_bytes(&ConstData::from_i64(&[2], &[1, 2]).unwrap()).unwrap();
        for cut in 0..file.len() {
            assert!(from_bytes(&file[..cut]).is_err(), "{cut}");
        }
        let huge = String::from_utf8_lossy(&file).replace("(2,)", "(99999999999999999999,)");
        assert!(from_bytes(huge.as_bytes()).is_err());
    }
}
