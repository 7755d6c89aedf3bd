//! Memory whose size a file or a dimension decides: had, or rejected by an error instead of the end of the process.
//!
//! [`zeroed`] and [`copy`] allocate it. Where code allocates by other means (iterators, decoders, the standard library's
//! conversions), [`ensure`] asks beforehand whether there is room. That is no promise: another thread may be
//! faster. It does hold where memory is limited (`ulimit -v`, a container) and the sizes are absurd, which is what happens.
//!
//! ```
//! use rlx_ir::{ErrorKind, memory};
//! assert_eq!(memory::zeroed::<f32>(3, || "a sum".into())?, [0.0; 3]);
//! let e = memory::zeroed::<f32>(usize::MAX / 8, || "an output of [4, 4611686018427387904] f32".into()).unwrap_err();
//! assert_eq!(e.kind(), ErrorKind::OutOfMemory);
//! # Ok::<(), rlx_ir::Error>(())
//! ```

use std::hint::black_box;

use bytemuck::Zeroable;

use crate::error::{Error, ErrorKind, Result};
use crate::shape::Shape;

/// What is smaller is allocated like everything else in a program, without asking.
pub const SMALL: usize = 256 << 10;

/// What must be left over for small allocations when a large one succeeds.
const RESERVE: usize = 2 << 20;

/// The error of memory that cannot be had; `what` is what it was for.
#[cold]
pub fn failed(bytes: usize, what: impl std::fmt::Display) -> Error {
    let amount = match bytes {
        usize::MAX => "more bytes than there are addresses".to_owned(),
        _ => format!("{bytes} bytes"),
    };
    Error::new(ErrorKind::OutOfMemory, format!("cannot allocate {amount} for {what}")).with_hint(
        "give smaller dimensions (such as a smaller batch), or more memory to the process (see `ulimit -v` or the \
         container's limit)",
    )
}

/// Whether `bytes` bytes can be had now, with something left over; `what` says what they are for.
///
/// # Errors
/// [`ErrorKind::OutOfMemory`].
#[inline]
pub fn ensure(bytes: usize, what: impl FnOnce() -> String) -> Result<()> {
    if bytes < SMALL { Ok(()) } else { probe(bytes, what) }
}

#[cold]
fn probe(bytes: usize, what: impl FnOnce() -> String) -> Result<()> {
    let mut room: Vec<u8> = Vec::new();
    let found = room.try_reserve_exact(bytes.saturating_add(RESERVE));
    // Without this, the compiler may leave out an allocation that no one uses.
    black_box(&room);
    found.map_err(|_| failed(bytes, what()))
}

/// [`ensure`] for `count` elements of `size` bytes.
///
/// # Errors
/// [`ErrorKind::OutOfMemory`].
#[inline]
pub fn ensure_elements(count: usize, size: usize, what: impl FnOnce() -> String) -> Result<()> {
    ensure(count.saturating_mul(size), what)
}

/// `count` zeros.
///
/// # Errors
/// [`ErrorKind::OutOfMemory`].
pub fn zeroed<T: Zeroable + Clone>(count: usize, what: impl FnOnce() -> String) -> Result<Vec<T>> {
    ensure_elements(count, size_of::<T>(), what)?;
    // This form asks the system for pages that are zero already, instead of writing them.
    Ok(vec![T::zeroed(); count])
}

/// A copy of `from`.
///
/// # Errors
/// [`ErrorKind::OutOfMemory`].
pub fn copy<T: Clone>(from: &[T], what: impl FnOnce() -> String) -> Result<Vec<T>> {
    ensure(size_of_val(from), what)?;
    Ok(from.to_vec())
}

/// How many bytes the exact values of a tensor take: 8 for each float, 16 for each integer.
pub(crate) fn value_bytes(shape: &Shape) -> usize {
    let each = if shape.dtype().is_float() { 8 } else { 16 };
    shape.num_elements().map_or(usize::MAX, |n| n.saturating_mul(each))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_sizes_are_errors_that_say_what_for_and_what_helps() {
        for bytes in [usize::MAX, usize::MAX / 2, 1 << 60] {
            let e = ensure(bytes, || "the arena".into()).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::OutOfMemory);
            assert!(e.message().ends_with("for the arena"), "{e}");
            assert!(e.hint().is_some_and(|hint| hint.contains("smaller dimensions")), "{e}");
        }
        assert!(zeroed::<u64>(usize::MAX / 4, String::new).is_err());
        assert!(ensure_elements(usize::MAX, 2, String::new).unwrap_err().message().contains("addresses"));
    }

    #[test]
    fn what_can_be_had_is_given() {
        assert!(ensure(SMALL, String::new).is_ok());
        assert_eq!(zeroed::<u8>(2 * SMALL, String::new).unwrap().len(), 2 * SMALL);
        assert_eq!(copy(&[1, 2, 3], String::new).unwrap(), [1, 2, 3]);
    }
}
