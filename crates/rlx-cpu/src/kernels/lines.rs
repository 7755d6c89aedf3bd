//! Lines along one axis: what ordering and running kernels work on.

use rlx_ir::Result;

use super::mismatch;
use crate::program::layout::{At, Bound, Layout, collapse};

/// The lines of a tensor along an axis; the tensor may be strided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines {
    /// Where element 0 of line 0 is.
    pub(crate) at: At,
    /// The beginnings of the lines, in the order of their other coordinates.
    starts: Layout,
    /// Elements of a line.
    pub(crate) size: usize,
    /// From one element of a line to the next.
    pub(crate) step: isize,
    /// How many lines there are.
    pub(crate) count: usize,
}

impl Lines {
    /// The lines of `x` along `axis`.
    pub(crate) fn new(x: &Bound, axis: usize) -> Result<Lines> {
        let (l, rank) = (x.layout, x.layout.rank());
        if axis >= rank {
            return Err(mismatch(format!("{:?} has no axis {axis}", x.dims())));
        }
        let mut starts = [Layout::SCALAR];
        for i in (0..rank).filter(|&i| i != axis) {
            starts[0].push(l.dims()[i], l.strides()[i]);
        }
        collapse(&mut starts);
        let count = starts[0].elements();
        Ok(Lines { at: x.at, starts: starts[0], size: l.dims()[axis], step: l.strides()[axis], count })
    }

    /// Where line `line` begins, counted in elements from `at`.
    #[inline(always)]
    pub(crate) fn start(&self, line: usize) -> isize {
        self.starts.at(line)
    }
}

/// The elements of one line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line<T> {
    pub(crate) first: *mut T,
    pub(crate) step: isize,
}

impl<T: Copy> Line<T> {
    /// # Safety
    /// The line must have an element `i`.
    #[inline(always)]
    pub(crate) unsafe fn get(&self, i: usize) -> T {
        // SAFETY: the caller's promise.
        unsafe { *self.first.wrapping_offset(i as isize * self.step) }
    }

    /// # Safety
    /// The line must have an element `i`, and no one else may use it meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn set(&self, i: usize, value: T) {
        // SAFETY: the caller's promise.
        unsafe { *self.first.wrapping_offset(i as isize * self.step) = value }
    }
}
