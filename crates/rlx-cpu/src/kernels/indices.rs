//! Indices that are data: reading them, and saying which one is out of range.
//!
//! A negative index counts from the end. One that is out of range stops its task and is noted in [`Misses`];
//! the step then fails with the first of them, whatever the number of threads. It never moves an access.

use std::sync::atomic::{AtomicUsize, Ordering};

use rlx_ir::{DType, Error, ErrorKind, Graph, Node, Result};
use rlx_opt::Claim;

/// Dense indices of i32 or i64.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Indices {
    /// Of i64.
    Wide(*const i64),
    /// Of i32.
    Narrow(*const i32),
}

// SAFETY: an address alone; reading through it is unsafe and has its reason there.
unsafe impl Send for Indices {}
// SAFETY: as above.
unsafe impl Sync for Indices {}

impl Indices {
    pub(crate) fn new(ptr: *const u8, dtype: DType) -> Indices {
        if dtype == DType::I64 { Indices::Wide(ptr.cast()) } else { Indices::Narrow(ptr.cast()) }
    }

    /// Index number `i` as it is written.
    ///
    /// # Safety
    /// There must be one.
    #[inline(always)]
    pub(crate) unsafe fn raw(&self, i: usize) -> i64 {
        // SAFETY: the caller's promise.
        unsafe {
            match *self {
                Indices::Wide(p) => *p.add(i),
                Indices::Narrow(p) => i64::from(*p.add(i)),
            }
        }
    }

    /// The place that index number `i` means along an axis of `size`; `None` when it is out of range.
    ///
    /// # Safety
    /// There must be one.
    #[inline(always)]
    pub(crate) unsafe fn place(&self, i: usize, size: usize) -> Option<usize> {
        // SAFETY: the caller's promise.
        place(unsafe { self.raw(i) }, size)
    }
}

/// The place that `index` means along an axis of `size`; `None` when it is out of range.
#[inline(always)]
pub(crate) fn place(index: i64, size: usize) -> Option<usize> {
    let place = if index < 0 { index + size as i64 } else { index };
    // What is still negative is huge as an unsigned number.
    ((place as u64) < size as u64).then_some(place as usize)
}

/// The first index that is out of range, found by any number of threads.
#[derive(Debug)]
pub(crate) struct Misses(AtomicUsize);

impl Misses {
    pub(crate) fn none() -> Misses {
        Misses(AtomicUsize::new(usize::MAX))
    }

    /// Index number `i` is out of range.
    #[cold]
    pub(crate) fn note(&self, i: usize) {
        self.0.fetch_min(i, Ordering::Relaxed);
    }

    /// The first miss.
    pub(crate) fn first(self) -> Option<usize> {
        Some(self.0.into_inner()).filter(|&first| first != usize::MAX)
    }

    /// The error of the first miss; `axis_of` says which axis of what size an index is for.
    ///
    /// # Safety
    /// The indices must still be readable.
    pub(crate) unsafe fn check(
        self,
        indices: &Indices,
        axis_of: impl Fn(usize) -> (usize, usize),
    ) -> Result<()> {
        let Some(first) = self.first() else { return Ok(()) };
        // SAFETY: an index that was found out of range was read before.
        let index = unsafe { indices.raw(first) };
        Err(out_of_range(index, first, axis_of(first)))
    }
}

#[cold]
fn out_of_range(index: i64, first: usize, (axis, size): (usize, usize)) -> Error {
    let message = format!(
        "index {index} (number {first} of the indices) is out of range: axis {axis} has {size} elements"
    );
    Error::new(ErrorKind::Value, message)
}

/// Claims an op whose input 1 are indices, whatever it moves.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    match node.inputs.get(1).map(|&id| graph.shape(id).dtype()) {
        Some(DType::I32 | DType::I64) => Claim::Native,
        _ => Claim::No("indices are i32 or i64".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_indices_count_from_the_end_and_nothing_is_clamped() {
        let values = [0i64, 4, -1, -5, 5, -6, i64::MIN, i64::MAX];
        let indices = Indices::new(values.as_ptr().cast(), DType::I64);
        // SAFETY: there are eight indices.
        let places: Vec<_> = (0..8).map(|i| unsafe { indices.place(i, 5) }).collect();
        assert_eq!(places, [Some(0), Some(4), Some(4), Some(0), None, None, None, None]);
        let misses = Misses::none();
        misses.note(6);
        misses.note(4);
        // SAFETY: as above.
        let error = unsafe { misses.check(&indices, |_| (2, 5)) }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Value);
        assert!(
            error.to_string().contains("index 5 (number 4 of the indices) is out of range: axis 2 has 5"),
            "{error}"
        );
    }
}
