//! Where views are in their buffers, once their extents are numbers.

use crate::error::{Error, ErrorKind, Result};

/// The largest size, offset or distance, in elements: whatever the element type, its bytes fit an `isize`.
const MOST_ELEMENTS: i64 = i64::MAX / 16;

/// Where a view starts in its buffer of `elements`, once its extents are numbers: `axes` are its dimensions with their
/// strides. `None` for a view that shows nothing.
///
/// Every device asks this before a step uses the view; kernels then compute sizes, places and distances without looking
/// again. So the number of elements that the view shows (each as often as it shows it) and what each dimension spans must
/// be counted in bytes without overflow, of views that show nothing too.
///
/// ```
/// use rlx_ir::lir::place_view;
/// assert_eq!(place_view(4, [(2, 4), (4, 1)], 12)?, Some(4));
/// assert!(place_view(5, [(2, 4), (4, 1)], 12).is_err());
/// # Ok::<(), rlx_ir::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Dimension`] when it leaves the buffer, a dimension is negative, or a size overflows.
pub fn place_view(
    offset: i64,
    axes: impl IntoIterator<Item = (i64, i64)>,
    elements: i64,
) -> Result<Option<usize>> {
    let (mut shown, mut empty, mut low, mut high) = (1i64, false, i128::from(offset), i128::from(offset));
    for (dim, stride) in axes {
        // i64::MAX is what saturated arithmetic gives.
        if !(0..i64::MAX).contains(&dim) {
            return Err(Error::new(
                ErrorKind::Dimension,
                format!("these dimensions make an extent of {dim}"),
            ));
        }
        let steps = dim.max(1);
        shown = shown.checked_mul(steps).filter(|&n| n <= MOST_ELEMENTS).ok_or_else(too_large)?;
        let span = stride.checked_mul(steps).filter(|s| s.unsigned_abs() <= MOST_ELEMENTS as u64);
        let span = i128::from(span.ok_or_else(too_large)? - stride);
        if span < 0 {
            low += span
        } else {
            high += span
        }
        empty |= dim == 0;
    }
    if !(0..=MOST_ELEMENTS).contains(&elements) {
        return Err(too_large());
    }
    if empty {
        return Ok(None);
    }
    if low < 0 || high >= i128::from(elements) {
        let message =
            format!("these dimensions make a view of elements {low} to {high} of a buffer of {elements}");
        return Err(Error::new(ErrorKind::Dimension, message)
            .with_hint("dimensions that the model declares equal differ"));
    }
    // `offset` is between `low` and `high`.
    Ok(Some(offset as usize))
}

/// Whether two views of one buffer, both placed by [`place_view`] and neither empty, can be seen to share no element: each
/// is its offset and its dimensions with their strides.
///
/// They do not where one ends before the other begins, or where, within every row of the tensor that the buffer holds,
/// one does: parts of a concatenation lie like that. What cannot be seen so is `false`.
///
/// ```
/// use rlx_ir::lir::views_apart;
/// // The columns 0..2 and 2..5 of a matrix with rows of 5, and 1..3.
/// let part = |from, columns| (from, [(4, 5), (columns, 1)].into_iter());
/// assert!(views_apart(part(0, 2), part(2, 3)));
/// assert!(!views_apart(part(0, 2), part(1, 2)));
/// ```
pub fn views_apart<A: Iterator<Item = (i64, i64)> + Clone>(a: (i64, A), b: (i64, A)) -> bool {
    let disjoint = |row: Option<i64>| match (within_rows(&a, row), within_rows(&b, row)) {
        (Some((a_low, a_high)), Some((b_low, b_high))) => a_high < b_low || b_high < a_low,
        _ => false,
    };
    let mut rows = a.1.clone().chain(b.1.clone()).map(|(_, stride)| stride.abs()).filter(|&s| s > 1);
    disjoint(None) || rows.any(|row| disjoint(Some(row)))
}

/// The first and the last place that a view has in rows of this length, if it stays within each row; without a length,
/// in the buffer.
fn within_rows<A: Iterator<Item = (i64, i64)> + Clone>(
    (offset, axes): &(i64, A),
    row: Option<i64>,
) -> Option<(i64, i64)> {
    let (mut low, mut high) = (*offset, *offset);
    for (dim, stride) in axes.clone() {
        if dim > 1 && row.is_none_or(|row| stride % row != 0) {
            let span = (dim - 1).checked_mul(stride)?;
            let end = if span < 0 { &mut low } else { &mut high };
            *end = end.checked_add(span)?;
        }
    }
    let Some(row) = row else { return Some((low, high)) };
    let first = low.rem_euclid(row);
    let last = first.checked_add(high.checked_sub(low)?)?;
    (last < row).then_some((first, last))
}

#[cold]
fn too_large() -> Error {
    Error::new(ErrorKind::Dimension, "these dimensions make a tensor larger than memory can be")
}
