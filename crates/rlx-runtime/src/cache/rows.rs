//! Rows: padding to a bucket's size, and slicing back.

use rlx_ir::{Error, ErrorKind, Result, memory};
use rlx_select::or_panic;
/// `rows` rows of `inner` elements each, with zeros up to `upper` rows.
///
/// # Panics
/// If [`try_pad_rows`] fails, with its error as the message.
///
/// ```
/// assert_eq!(rlx_runtime::pad_rows(&[1.0, 2.0], 1, 3, 2), [1.0, 2.0, 0.0, 0.0, 0.0, 0.0]);
/// ```
#[track_caller]
pub fn pad_rows(data: &[f32], rows: usize, upper: usize, inner: usize) -> Vec<f32> {
    or_panic(try_pad_rows(data, rows, upper, inner))
}

/// As [`pad_rows`].
///
/// # Errors
/// [`ErrorKind::Binding`] when the data is not `rows * inner` elements, or there are more rows than `upper`.
pub fn try_pad_rows(data: &[f32], rows: usize, upper: usize, inner: usize) -> Result<Vec<f32>> {
    if rows.checked_mul(inner) != Some(data.len()) {
        let message = format!("{} elements are not {rows} rows of {inner}", data.len());
        return Err(Error::new(ErrorKind::Binding, message));
    }
    if rows > upper {
        let message = format!("{rows} rows are more than the {upper} there is room for");
        return Err(Error::new(ErrorKind::Binding, message));
    }
    let bytes = upper.checked_mul(inner).filter(|n| *n <= isize::MAX as usize / size_of::<f32>());
    let Some(total) = bytes else {
        let message = format!("{upper} rows of {inner} elements are too many");
        return Err(Error::new(ErrorKind::OutOfMemory, message));
    };
    let mut padded = memory::zeroed(total, || format!("{upper} rows of {inner} elements"))?;
    padded[..data.len()].copy_from_slice(data);
    Ok(padded)
}

/// The first `rows` rows of `inner` elements each.
///
/// # Panics
/// If [`try_slice_rows`] fails, with its error as the message.
///
/// ```
/// assert_eq!(rlx_runtime::slice_rows(&[1.0, 2.0, 0.0, 0.0], 1, 2), [1.0, 2.0]);
/// ```
#[track_caller]
pub fn slice_rows(data: &[f32], rows: usize, inner: usize) -> Vec<f32> {
    or_panic(try_slice_rows(data, rows, inner))
}

/// As [`slice_rows`].
///
/// # Errors
/// [`ErrorKind::Binding`] when there are fewer elements than that.
pub fn try_slice_rows(data: &[f32], rows: usize, inner: usize) -> Result<Vec<f32>> {
    match rows.checked_mul(inner).and_then(|n| data.get(..n)) {
        Some(first) => Ok(first.to_vec()),
        None => {
            let message = format!("{} elements are less than {rows} rows of {inner}", data.len());
            Err(Error::new(ErrorKind::Binding, message))
        }
    }
}
