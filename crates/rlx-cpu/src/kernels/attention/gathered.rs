//! Keys and values in a table: slices that a gather would pick from it, one behind the other.
//!
//! A server keeps the caches of its sequences in pages of one table, and each sequence has a list of its pages; a search goes on
//! with some of its caches. A gather as a step of its own writes all keys and values to memory for the attention to read them
//! again. Here the attention looks up the pages first. A few queries read rows of f32 in the pages, run by run; for many, and of 16-bit
//! floats, the rows of a head are copied to scratch, to be packed and widened.

use std::ops::Range;
use std::result::Result as Either;

use rlx_backend::extents::Ex;
use rlx_ir::lir::{View, place_view};
use rlx_ir::{DType, Extent, Graph, Node, NodeId, Op, Result};
use rlx_opt::Claim;

use super::Heads;
use crate::gemm::{Packed, Strided};
use crate::isa::Isa;
use crate::kernels::elementwise::halves::{Conversion, convert};
use crate::kernels::indices::{self, Indices, Misses};
use crate::kernels::{BindCx, CompileCx, RunCx, mismatch};
use crate::layout::{At, Bound, Layout};

/// Which inputs of its step an attention reads.
#[derive(Debug)]
pub(crate) struct Reads {
    pub(super) query: usize,
    pub(super) keys: Source,
    pub(super) values: Source,
    pub(super) mask: Option<usize>,
}

/// Where an attention finds its keys or its values.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// An input of the step.
    Input(usize),
    /// In an input of the step that is a table.
    Table(Table),
}

/// A table as it is compiled.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    /// Which inputs of the step are the table and its indices.
    inputs: [usize; 2],
    /// How the attention reads what the gather would have made.
    view: View,
}

/// Whether an attention may take what `gather` picks from its table.
pub(crate) fn fuses(gather: &Node, attention: &Node) -> bool {
    matches!((&gather.op, &attention.op), (Op::Gather { axis: 0 }, Op::Attention { .. }))
}

/// What the attention of a region's body reads, if nothing else is computed there.
pub(crate) fn reads(body: &Graph, attention: &Node) -> Either<Reads, String> {
    let computes = |n: &&Node| !matches!(n.op, Op::Input { .. } | Op::Reshape { .. } | Op::Transpose { .. });
    let others = body.nodes().iter().filter(computes).filter(|n| n.id != attention.id);
    if body.outputs != [attention.id] || others.into_iter().any(|n| !matches!(n.op, Op::Gather { .. })) {
        return Err("nothing but gathers is computed with an attention".into());
    }
    if let Claim::No(why) = super::claim(attention, body) {
        return Err(why);
    }
    let sources: Vec<Source> =
        attention.inputs.iter().map(|&id| source(body, id)).collect::<Either<_, _>>()?;
    let input = |source: Option<&Source>| match source {
        Some(&Source::Input(input)) => Ok(Some(input)),
        Some(Source::Table(_)) => Err("queries and masks are not gathered".to_owned()),
        None => Ok(None),
    };
    let (Some(query), mask) = (input(sources.first())?, input(sources.get(3))?) else {
        return Err("an attention without queries".into());
    };
    let [_, keys, values, ..] = sources.as_slice() else { return Err("an attention without values".into()) };
    Ok(Reads { query, keys: keys.clone(), values: values.clone(), mask })
}

/// Where a node of a region's body is, if it is an input or a gather from one.
fn source(body: &Graph, id: NodeId) -> Either<Source, String> {
    let input = |id: NodeId| body.inputs().position(|n| n.id == id);
    if let Some(input) = input(id) {
        return Ok(Source::Input(input));
    }
    let mut gather = body.node(id);
    while matches!(gather.op, Op::Reshape { .. } | Op::Transpose { .. }) {
        gather = body.node(gather.inputs[0]);
    }
    let Op::Gather { axis: 0 } = gather.op else {
        return Err(format!("no kernel computes {} before Attention", gather.op.kind()));
    };
    let inputs = [gather.inputs[0], gather.inputs[1]].map(input);
    let [Some(table), Some(indices)] = inputs else {
        return Err("a table or indices that the region computes".into());
    };
    // Rows stay whole, whatever is done to the other dimensions: each is in one slice of the table.
    let last = |id: NodeId| body.shape(id).dims().last().and_then(|d| d.as_static());
    let view = rlx_opt::lower::shown(body, gather.id, id).ok_or("rows that no view shows")?;
    let whole = view.strides.last() == Some(&Extent::Const(1)) || last(id) == Some(1);
    let slices = body.shape(gather.inputs[0]).rank() > 1;
    if !whole || !slices || last(id).is_none() || last(id) != last(gather.id) {
        return Err("the rows that are gathered are divided".into());
    }
    if let Claim::No(why) = indices::claim(gather, body) {
        return Err(why);
    }
    Ok(Source::Table(Table { inputs: [table, indices], view }))
}

/// Keys or values: an input of the step, or slices of one.
#[derive(Debug, Clone)]
pub(super) enum Operand {
    Input(usize),
    Table(Unbound),
}

impl Operand {
    /// How it is read, and the slices that it consists of; the places of those begin at number `first`.
    pub(super) fn bind(&self, cx: &BindCx<'_>, first: usize) -> Result<(Bound, Option<Slices>)> {
        match self {
            Operand::Input(input) => Ok((cx.inputs[*input], None)),
            Operand::Table(table) => table.bind(cx, first).map(|(bound, slices)| (bound, Some(slices))),
        }
    }
}

/// A table before its extents are known.
#[derive(Debug, Clone)]
pub(super) struct Unbound {
    inputs: [usize; 2],
    /// Dimensions and strides of the view.
    axes: Box<[(Ex, Ex)]>,
}

impl Table {
    /// The table with its expressions entered.
    pub(super) fn compile(&self, cx: &mut CompileCx<'_>) -> Unbound {
        let axes = self.view.dims.iter().zip(&*self.view.strides);
        Unbound { inputs: self.inputs, axes: axes.map(|(&d, &s)| (cx.extent(d), cx.extent(s))).collect() }
    }
}

impl Unbound {
    /// The keys or values as they would be read if they had been gathered, and where they are instead. The places of the slices
    /// begin at number `first`.
    pub(super) fn bind(&self, cx: &BindCx<'_>, first: usize) -> Result<(Bound, Slices)> {
        let [table, indices] = self.inputs.map(|input| &cx.inputs[input]);
        let rank = table.layout.rank();
        let shape_mismatch = || mismatch(format!("slices of {:?} by {:?}", table.dims(), indices.dims()));
        if rank < 2 || !table.layout.range(1, rank).is_dense() || !indices.layout.is_dense() {
            return Err(shape_mismatch());
        }
        let (slice, count) = (table.layout.range(1, rank).elements(), indices.layout.elements());
        let gathered =
            slice.checked_mul(count).and_then(|n| i64::try_from(n).ok()).ok_or_else(shape_mismatch)?;
        let axes = || self.axes.iter().map(|&(dim, stride)| (cx.values.get(dim), cx.values.get(stride)));
        place_view(0, axes(), gathered)?;
        let mut layout = Layout::SCALAR;
        axes().for_each(|(dim, stride)| layout.push(dim as usize, stride as isize));
        let slices = Slices {
            dtype: table.dtype,
            indices: (indices.at, indices.dtype),
            count,
            first,
            size: table.dims()[0],
            stride: table.layout.strides()[0],
            slice,
        };
        Ok((Bound { at: table.at, dtype: table.dtype, layout }, slices))
    }
}

/// Bound slices of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slices {
    dtype: DType,
    indices: (At, DType),
    /// How many the indices pick, and the number of the first one's place.
    count: usize,
    first: usize,
    /// How many the table has, and the elements from one to the next.
    size: usize,
    stride: isize,
    /// Elements of one.
    slice: usize,
}

impl Slices {
    /// The number behind that of the last place.
    pub(super) fn end(&self) -> usize {
        self.first + self.count
    }

    /// Whether each row of a head is in one slice.
    pub(super) fn have_whole_rows(&self, of: &Heads) -> bool {
        let ([.., size], [lead @ .., within]) = (of.dims, of.strides);
        let whole = |n: usize| size == 0 || n.is_multiple_of(size);
        whole(self.slice) && lead.iter().all(|&s| s >= 0 && whole(s as usize)) && (within == 1 || size < 2)
    }

    /// Looks up each slice, in `places`; the error of an index that is out of range.
    ///
    /// # Safety
    /// The indices must be readable, and `places` writable to [`Slices::end`].
    pub(super) unsafe fn find(&self, cx: &RunCx<'_, '_>, places: *mut u64) -> Result<()> {
        // Slices without elements need none of the indices, in range or not.
        let count = if self.slice == 0 { 0 } else { self.count };
        let (indices, misses) = (Indices::new(cx.ptr(self.indices.0), self.indices.1), Misses::none());
        for i in 0..count {
            // SAFETY: the caller's promise; i < count.
            unsafe {
                match indices.place(i, self.size) {
                    Some(place) => places.add(self.first + i).write(place as u64),
                    None => misses.note(i),
                }
            }
        }
        // SAFETY: the caller's promise.
        unsafe { misses.check(&indices, |_| (0, self.size)) }
    }

    /// Calls `each` for rows that are in one slice, in turn: with the number of the first, where it is, and how many there are. The
    /// rows of `range` are `stride` elements apart in what would be gathered, and number 0 is its element `first`.
    ///
    /// # Safety
    /// The rows must be among those of a head that [`Slices::have_whole_rows`], `places` found.
    unsafe fn runs(
        &self,
        [table, places]: [*const u8; 2],
        (first, stride): (usize, usize),
        range: Range<usize>,
        mut each: impl FnMut(usize, *const u8, usize),
    ) {
        let places = places.cast::<u64>().wrapping_add(self.first);
        let mut row = range.start;
        while row < range.end {
            let at = first + row * stride;
            let (slice, within) = (at / self.slice, at % self.slice);
            let left = range.end - row;
            let rows = if stride == 0 { left } else { (self.slice - within).div_ceil(stride).min(left) };
            // SAFETY: the caller's promise: the row is in a slice that was found.
            let place = unsafe { places.wrapping_add(slice).read() } as isize;
            let from = (place * self.stride + within as isize) * self.dtype.size_bytes() as isize;
            each(row, table.wrapping_offset(from), rows);
            row += rows;
        }
    }

    /// Copies the first `rows` rows, of `columns` elements each, into `to`, or widens them where `T` is f32 and the table's type is not.
    ///
    /// # Safety
    /// As [`Rows::runs`]; the table must be readable, and `to` writable for all rows. `T` must be the table's type or f32.
    pub(super) unsafe fn copy<T: Packed>(
        &self,
        isa: Isa,
        operands: [*const u8; 2],
        (first, stride): (usize, usize),
        [rows, columns]: [usize; 2],
        to: *mut T,
    ) {
        let size = self.dtype.size_bytes();
        let rows = if columns == 0 { 0 } else { rows };
        let each = |row: usize, from: *const u8, rows: usize| {
            for i in 0..rows {
                let from = from.wrapping_add(i * stride * size);
                let to = to.wrapping_add((row + i) * columns);
                // SAFETY: the caller's promise: a row is whole within its slice.
                unsafe {
                    if size_of::<T>() == size {
                        std::ptr::copy_nonoverlapping(from.cast::<T>(), to, columns);
                    } else {
                        convert(isa, Conversion::Widen, self.dtype, from, to.cast(), columns);
                    }
                }
            }
        };
        // SAFETY: the caller's promise.
        unsafe { self.runs(operands, (first, stride), 0..rows, each) };
    }
}

/// Rows of f32: of the keys or the values of a head.
#[derive(Clone, Copy)]
pub(super) enum Rows<'a> {
    /// A fixed distance apart.
    Strided(Strided),
    /// In the slices of a table: table and places, and in elements of what would be gathered the first row and the distance.
    Sliced(&'a Slices, [*const u8; 2], (usize, usize)),
}

impl Rows<'_> {
    /// Calls `each` for rows that are a fixed distance apart, in turn: with the number of the first, the rows from it on, and how many
    /// there are; not at all for an empty range.
    ///
    /// # Safety
    /// There must be rows to the end of `range`; of slices, among those of a head that [`Slices::have_whole_rows`], and found.
    pub(super) unsafe fn runs(&self, range: Range<usize>, mut each: impl FnMut(usize, Strided, usize)) {
        match *self {
            Rows::Strided(rows) if !range.is_empty() => {
                let ptr = rows.ptr.wrapping_offset(range.start as isize * rows.row_stride);
                each(range.start, Strided { ptr, ..rows }, range.len());
            }
            Rows::Strided(_) => {}
            Rows::Sliced(slices, operands, at) => {
                let row_stride = at.1 as isize;
                let each =
                    |row, from: *const u8, rows| each(row, Strided { ptr: from.cast(), row_stride }, rows);
                // SAFETY: the caller's promise.
                unsafe { slices.runs(operands, at, range, each) }
            }
        }
    }
}
