//! Lines along one axis: what ordering and running kernels work on.

use rlx_ir::Result;

use super::mismatch;
use crate::layout::{At, Bound, Layout, collapse};

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
        Lines::of([x], axis).map(|[lines]| lines)
    }

    /// The lines of two tensors of the same dimensions, both in rows of the same length.
    pub(crate) fn pair(x: &Bound, y: &Bound, axis: usize) -> Result<[Lines; 2]> {
        Lines::of([x, y], axis)
    }

    fn of<const N: usize>(all: [&Bound; N], axis: usize) -> Result<[Lines; N]> {
        let mut starts = [Layout::SCALAR; N];
        for (starts, x) in starts.iter_mut().zip(all) {
            let (l, rank) = (x.layout, x.layout.rank());
            if axis >= rank {
                return Err(mismatch(format!("{:?} has no axis {axis}", x.dims())));
            }
            for i in (0..rank).filter(|&i| i != axis) {
                starts.push(l.dims()[i], l.strides()[i]);
            }
        }
        collapse(&mut starts);
        Ok(std::array::from_fn(|i| {
            let (l, starts) = (all[i].layout, starts[i]);
            let (size, step, count) = (l.dims()[axis], l.strides()[axis], starts.elements());
            Lines { at: all[i].at, starts, size, step, count }
        }))
    }

    /// Lines of a row: those in a row follow each other at [`line_step`](Lines::line_step).
    pub(crate) fn row(&self) -> usize {
        self.starts.dims().last().copied().unwrap_or(1)
    }

    /// From a line to the next one of its row, counted in elements.
    pub(crate) fn line_step(&self) -> isize {
        self.starts.strides().last().copied().unwrap_or(1)
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
