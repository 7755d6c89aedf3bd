//! Gathers: elements and slices read at positions that are data.
//!
//! Slices are copied as bytes: the table is never packed or walked, so its size costs nothing.

use rlx_ir::{Op, Result};

use super::elementwise::sized;
pub(crate) use super::indices::claim;
use super::indices::{Indices, Misses};
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};
use crate::program::layout::{At, Bound, Layout};

/// The kernel of a gather of slices along one axis.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    match cx.node().op {
        Op::Gather { axis } => Ok(Box::new(Slices { axis, batch_dims: None, ..Slices::EMPTY })),
        Op::GatherNd { batch_dims } => Ok(Box::new(Slices { batch_dims: Some(batch_dims), ..Slices::EMPTY })),
        Op::GatherElements { axis } => Ok(Box::new(Elements { axis, ..Elements::EMPTY })),
        ref op => Err(no_kernel(op, "it is no gather")),
    }
}

/// How the slices of a table are addressed: `Gather` and `GatherNd`.
///
/// Block `b` of the result (batch index, or index of the dimensions before the axis) begins at `blocks.at(b)`
/// of the table; each of its `rows` slices is addressed by `count` indices into `axes`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Addresses {
    /// The dimensions before the addressed ones.
    pub(crate) blocks: Layout,
    /// The addressed dimensions.
    pub(crate) axes: Layout,
    /// The number of the first addressed dimension.
    pub(crate) first_axis: usize,
    /// Slices of each block.
    pub(crate) rows: usize,
    /// Whether each block has indices of its own.
    pub(crate) own_indices: bool,
    /// Elements of a slice.
    pub(crate) len: usize,
}

impl Addresses {
    const EMPTY: Addresses = Addresses {
        blocks: Layout::SCALAR,
        axes: Layout::SCALAR,
        first_axis: 0,
        rows: 0,
        own_indices: false,
        len: 0,
    };

    /// Addresses of dense `x` by `rows` of indices into the dimensions from `first` to `first + count`.
    pub(crate) fn new(x: &Bound, first: usize, count: usize, rows: usize, own_indices: bool) -> Addresses {
        let (l, rank) = (x.layout, x.layout.rank());
        let len = l.range(first + count, rank).elements();
        Addresses {
            blocks: l.range(0, first),
            axes: l.range(first, first + count),
            first_axis: first,
            rows,
            own_indices,
            len,
        }
    }

    /// How many indices address a slice.
    pub(crate) fn count(&self) -> usize {
        self.axes.rank()
    }

    /// Where slice `row` of all blocks begins; the number of the index that is out of range otherwise.
    ///
    /// # Safety
    /// The indices must be readable.
    #[inline(always)]
    pub(crate) unsafe fn place(&self, indices: &Indices, row: usize) -> Result<isize, usize> {
        let (block, own) =
            if self.blocks.rank() == 0 { (0, row) } else { (row / self.rows, row % self.rows) };
        let first = if self.own_indices { row } else { own } * self.count();
        let mut place = self.blocks.at(block);
        for i in 0..self.count() {
            // SAFETY: the caller's promise.
            let index = unsafe { indices.place(first + i, self.axes.dims()[i]) };
            place += index.ok_or(first + i)? as isize * self.axes.strides()[i];
        }
        Ok(place)
    }

    /// The axis that index number `i` is for, and its size.
    pub(crate) fn axis_of(&self, i: usize) -> (usize, usize) {
        let own = i % self.count().max(1);
        (self.first_axis + own, self.axes.dims().get(own).copied().unwrap_or(0))
    }
}

/// `Gather` and `GatherNd`.
#[derive(Debug, Clone, Copy)]
struct Slices {
    axis: usize,
    /// Of `GatherNd`.
    batch_dims: Option<usize>,
    table: Option<Bound>,
    indices: Option<Bound>,
    out: At,
    addresses: Addresses,
    tasks: usize,
    worth: bool,
}

impl Slices {
    const EMPTY: Slices = Slices {
        axis: 0,
        batch_dims: None,
        table: None,
        indices: None,
        out: At::NOWHERE,
        addresses: Addresses::EMPTY,
        tasks: 0,
        worth: false,
    };
}

impl StepKernel for Slices {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (x, indices, out) = (cx.inputs[0], cx.inputs[1], cx.outputs[0]);
        self.addresses = match self.batch_dims {
            None => Addresses::new(&x, self.axis, 1, indices.layout.elements(), false),
            Some(batch) => {
                let rank = indices.layout.rank();
                let count = *indices.dims().last().ok_or_else(|| mismatch("indices without a dimension"))?;
                if batch + count > x.layout.rank()
                    || batch >= rank
                    || x.dims()[..batch] != indices.dims()[..batch]
                {
                    return Err(mismatch(format!(
                        "slices of {:?} by indices {:?}",
                        x.dims(),
                        indices.dims()
                    )));
                }
                let rows = indices.layout.range(batch, rank - 1).elements();
                Addresses::new(&x, batch, count, rows, true)
            }
        };
        let a = &self.addresses;
        self.tasks = a.blocks.elements() * a.rows;
        if self.tasks * a.len != out.layout.elements() {
            return Err(mismatch(format!("a result {:?} of slices of {:?}", out.dims(), x.dims())));
        }
        // Slices without elements need none of the indices, in range or not.
        if a.len == 0 {
            self.tasks = 0;
        }
        (self.table, self.indices, self.out) = (Some(x), Some(indices), out.at);
        let nanos = self.tasks as f64 * (3.0 + (a.len * x.dtype.size_bytes()) as f64 * 0.05);
        self.worth = nanos > WORTH_NANOS;
        Ok(Needs::time(nanos))
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let (Some(table), Some(indices)) = (self.table, self.indices) else { return Err(unbound()) };
        let (a, word) = (self.addresses, table.dtype.size_bytes());
        let bytes = a.len * word;
        let indices = Indices::new(cx.ptr(indices.at), indices.dtype);
        let (from, to, misses) = (cx.shared::<u8>(table.at), cx.shared::<u8>(self.out), Misses::none());
        cx.parallel(self.worth, self.tasks, &|range, _| {
            for row in range {
                // SAFETY: indices and operands are the caller's promise; a place is within the table, rows of
                // the result are disjoint.
                unsafe {
                    match a.place(&indices, row) {
                        Ok(place) => {
                            let from = from.get().wrapping_offset(place * word as isize).cast_const();
                            copy_bytes(from, to.get().wrapping_add(row * bytes), bytes);
                        }
                        Err(miss) => return misses.note(miss),
                    }
                }
            }
        });
        // SAFETY: as above.
        unsafe { misses.check(&indices, |i| a.axis_of(i)) }
    }
}

/// Copies a slice; short ones without a call.
///
/// # Safety
/// Both must be valid for `bytes`, and apart.
#[inline(always)]
unsafe fn copy_bytes(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match bytes {
            1 | 2 | 4 | 8 => {
                sized!(bytes, T => to.cast::<T>().write_unaligned(from.cast::<T>().read_unaligned()))
            }
            _ => std::ptr::copy_nonoverlapping(from, to, bytes),
        }
    }
}

/// `GatherElements`.
#[derive(Debug, Clone, Copy)]
struct Elements {
    axis: usize,
    x: At,
    indices: Option<Bound>,
    out: At,
    size: usize,
    word: usize,
    /// The result's dimensions with the strides of `x`, but 0 along the axis.
    walk: Layout,
    along: isize,
    worth: bool,
}

impl Elements {
    const EMPTY: Elements = Elements {
        axis: 0,
        x: At::NOWHERE,
        indices: None,
        out: At::NOWHERE,
        size: 0,
        word: 1,
        walk: Layout::SCALAR,
        along: 0,
        worth: false,
    };
}

/// The dimensions of indices with the strides of `x`, 0 along `axis`; rejects indices that leave `x`.
pub(crate) fn walk_elements(x: &Bound, indices: &Bound, axis: usize) -> Result<Layout> {
    let fits = |i: usize| i == axis || indices.dims()[i] <= x.dims()[i];
    if indices.layout.rank() != x.layout.rank() || !(0..x.layout.rank()).all(fits) {
        return Err(mismatch(format!("elements of {:?} by indices {:?}", x.dims(), indices.dims())));
    }
    let mut walk = Layout::SCALAR;
    for (i, (&dim, &stride)) in indices.dims().iter().zip(x.layout.strides()).enumerate() {
        walk.push(dim, if i == axis { 0 } else { stride });
    }
    Ok(walk)
}

impl StepKernel for Elements {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (x, indices, out) = (cx.inputs[0], cx.inputs[1], cx.outputs[0]);
        self.walk = walk_elements(&x, &indices, self.axis)?;
        if out.dims() != indices.dims() {
            return Err(mismatch(format!("a result {:?} of indices {:?}", out.dims(), indices.dims())));
        }
        (self.size, self.along) = (x.dims()[self.axis], x.layout.strides()[self.axis]);
        (self.x, self.indices, self.out, self.word) = (x.at, Some(indices), out.at, x.dtype.size_bytes());
        let nanos = out.layout.elements() as f64;
        self.worth = nanos > WORTH_NANOS;
        Ok(Needs::time(nanos))
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(indices) = self.indices else { return Err(unbound()) };
        let k = *self;
        let rank = k.walk.rank();
        let (inner, step) = (k.walk.dims()[rank - 1], k.walk.strides()[rank - 1]);
        let indices = Indices::new(cx.ptr(indices.at), indices.dtype);
        let (from, to, misses) = (cx.shared::<u8>(k.x), cx.shared::<u8>(k.out), Misses::none());
        cx.parallel(k.worth, k.walk.elements().checked_div(inner).unwrap_or(0), &|range, _| {
            for row in range {
                let base = k.walk.outer_at(row);
                // SAFETY: indices and operands are the caller's promise; a place is within `x`, since its
                // other coordinates were checked when bound.
                unsafe {
                    sized!(k.word, T => {
                        let (from, to) = (from.get().cast::<T>(), to.get().cast::<T>());
                        for i in row * inner..(row + 1) * inner {
                            let Some(place) = indices.place(i, k.size) else { return misses.note(i) };
                            let at = base + (i - row * inner) as isize * step + place as isize * k.along;
                            *to.add(i) = *from.wrapping_offset(at);
                        }
                    })
                }
            }
        });
        // SAFETY: as above.
        unsafe { misses.check(&indices, |_| (k.axis, k.size)) }
    }
}
