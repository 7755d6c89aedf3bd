//! Strings of a fixed width, filled up with NUL: as code points of four bytes (`U`), or as bytes (`S`), which are read as UTF-8.

use super::{Elements, Header, MAGIC, fortran_order, header_with};
use crate::malformed;
use rlx_ir::{Error, ErrorKind, memory};

/// An array of strings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StringArray {
    /// The dimensions, outermost first.
    pub dims: Vec<usize>,
    /// The strings in row-major order.
    pub elements: Vec<String>,
}

impl StringArray {
    /// The array behind a header.
    pub(super) fn read(header: &Header, data: &[u8]) -> Result<StringArray, Error> {
        let dims = &header.dims;
        let (count, bytes) = (dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)), header.data_bytes());
        let (Some(count), true) = (count, bytes == Some(data.len())) else {
            let message = format!("{} bytes do not make {dims:?} {}", data.len(), header.elements);
            return Err(malformed(message));
        };
        if count == 0 {
            return Ok(StringArray { dims: dims.clone(), elements: Vec::new() });
        }
        // Every string takes bytes of the file, so a file cannot ask for more strings than it has bytes.
        if data.is_empty() {
            return Err(malformed(format!("{dims:?} strings without a width")));
        }
        let width = data.len() / count;
        memory::ensure_elements(count, width.saturating_add(2 * size_of::<String>()), || {
            format!("an array of {dims:?} strings")
        })?;
        let decode = match header.elements {
            Elements::Unicode(_) => code_points,
            _ => utf8,
        };
        let mut elements = data.chunks_exact(width).map(decode).collect::<Result<Vec<_>, _>>()?;
        if header.transposed && dims.len() > 1 {
            let order = fortran_order(dims);
            elements = order.into_iter().map(|at| std::mem::take(&mut elements[at])).collect();
        }
        Ok(StringArray { dims: dims.clone(), elements })
    }

    /// The contents of a `.npy` file, in code points (`U`).
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a string that ends with NUL, which would be lost; [`ErrorKind::OutOfMemory`]: every string takes as much as
    /// the longest one.
    pub fn to_npy(&self) -> Result<Vec<u8>, Error> {
        let (header, elements) = self.written()?;
        Ok([header, elements].concat())
    }

    /// What is before the elements, and they.
    pub(crate) fn written(&self) -> Result<(Vec<u8>, Vec<u8>), Error> {
        let count = self.dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        if count != Some(self.elements.len()) {
            return Err(malformed(format!("{} strings for {:?}", self.elements.len(), self.dims)));
        }
        if let Some(text) = self.elements.iter().find(|text| text.ends_with('\0')) {
            let message = format!("NumPy cannot store {text:?}: NUL at a string's end is its filler");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let width = self.elements.iter().map(|text| text.chars().count()).max().unwrap_or(0).max(1);
        let bytes = width.saturating_mul(4).saturating_mul(self.elements.len());
        memory::ensure(bytes.saturating_mul(2).saturating_add(MAGIC.len()), || {
            format!("{} strings of {width} characters", self.elements.len())
        })?;
        let mut data = Vec::with_capacity(bytes);
        for (i, text) in self.elements.iter().enumerate() {
            text.chars().for_each(|c| data.extend(u32::from(c).to_le_bytes()));
            data.resize((i + 1) * width * 4, 0);
        }
        Ok((header_with(&format!("<U{width}"), &self.dims)?, data))
    }
}

/// A string of code points, without the NULs at its end.
fn code_points(element: &[u8]) -> Result<String, Error> {
    let point = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| element[4 * at + i]));
    let used = (0..element.len() / 4).rev().find(|&at| point(at) != 0).map_or(0, |last| last + 1);
    let no = |code: u32| malformed(format!("a string with {code:#x}, which is no Unicode character"));
    (0..used).map(|at| char::from_u32(point(at)).ok_or_else(|| no(point(at)))).collect()
}

/// A string of bytes, without the NULs at its end.
fn utf8(element: &[u8]) -> Result<String, Error> {
    let used = element.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
    let text = std::str::from_utf8(&element[..used]);
    text.map(str::to_owned).map_err(|_| malformed("a string of bytes that is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::super::{Array, any_from_bytes, from_bytes};
    use super::*;
    use crate::npz;

    fn strings(dims: &[usize], elements: &[&str]) -> StringArray {
        StringArray { dims: dims.to_vec(), elements: elements.iter().map(|&s| s.to_owned()).collect() }
    }

    /// A file as NumPy writes it.
    fn file(descr: &str, order: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
        let length = u16::try_from(header.len()).expect("it is short").to_le_bytes();
        [MAGIC, &[1, 0], &length, header.as_bytes(), data].concat()
    }

    #[test]
    fn strings_survive_the_round_trip() {
        for array in [
            strings(&[2, 2], &["", "größe", "日本語", "a\0b"]),
            strings(&[], &["🦀"]),
            strings(&[0, 3], &[]),
            strings(&[1], &[""]),
        ] {
            let file = array.to_npy().unwrap();
            assert_eq!(any_from_bytes(&file).unwrap(), Array::Strings(array.clone()));
            assert_eq!(from_bytes(&file).unwrap_err().kind(), ErrorKind::DType);
            let both = [("names", &Array::Strings(array.clone()))];
            let read = npz::any_from_bytes(&npz::any_to_bytes(&both).unwrap()).unwrap();
            assert_eq!(read, [("names".to_owned(), Array::Strings(array))]);
        }
        let lost = strings(&[1], &["a\0"]).to_npy().unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::Unsupported, "{lost}");
        assert!(strings(&[2], &["a"]).to_npy().is_err());
    }

    #[test]
    fn bytes_are_utf8_and_columns_first_is_reordered() {
        let bytes = file("|S3", "False", "(2,)", "a\0\0日".as_bytes());
        assert_eq!(any_from_bytes(&bytes).unwrap(), Array::Strings(strings(&[2], &["a", "日"])));
        let columns = file("|S1", "True", "(2, 3)", b"adbecf");
        let rows = strings(&[2, 3], &["a", "b", "c", "d", "e", "f"]);
        assert_eq!(any_from_bytes(&columns).unwrap(), Array::Strings(rows));
    }

    #[test]
    fn hostile_headers_are_errors() {
        let u = |text: &str| text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect::<Vec<u8>>();
        for (descr, shape, data) in [
            ("<U0", "(99999999999,)", vec![]),
            ("|S0", "(1,)", vec![]),
            ("<U99999999999999999999", "(1,)", u("a")),
            ("<U4611686018427387904", "(4,)", vec![]),
            ("|S18446744073709551615", "(2,)", vec![0; 8]),
            ("<U1", "(4611686018427387904, 4)", vec![]),
            ("<U2", "(2,)", u("abc")),
            ("<U1", "(1,)", 0xD800_u32.to_le_bytes().to_vec()),
            ("<U1", "(1,)", 0x11_0000_u32.to_le_bytes().to_vec()),
            ("|S2", "(1,)", vec![0xFF, 0xFE]),
            (">U1", "(1,)", vec![0, 0, 0, 97]),
            ("|O", "(1,)", vec![0x80, 4]),
            ("<U", "(1,)", u("a")),
            ("U", "()", vec![]),
            ("", "()", vec![]),
            ("é", "()", vec![]),
        ] {
            let error = any_from_bytes(&file(descr, "False", shape, &data)).expect_err(descr);
            assert!(
                matches!(error.kind(), ErrorKind::Malformed | ErrorKind::Unsupported),
                "{descr}: {error}"
            );
        }
    }
}
