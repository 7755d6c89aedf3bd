//! Scatters: a copy of a tensor with updates put in at positions that are data.
//!
//! Updates of one element are joined in the order of their indices, always by one thread: elements are
//! divided by the lines along the axis, slices by the elements within a slice, slices that replace others by the elements of the
//! result. So repeated indices give the same bits on any number of threads, and of replacing updates the last one stays.

use rlx_ir::op::ScatterOp;
use rlx_ir::{Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::gather::{Addresses, copy_bytes};
use super::gather_elements::walk_elements;
use super::indices::{self, Indices, Misses, place};
use super::scalar::{Number, is_number, number};
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};
use crate::journal::Journal;
use crate::layout::{Bound, Layout, collapse};

/// Bytes that a task of the copy takes.
const COPY_BYTES: usize = 1 << 16;

/// Bytes that are moved in the time that an index takes, at least.
const INDEX_BYTES: usize = 64;

/// Elements of a slice that a task takes.
const SLICE_ELEMENTS: usize = 1024;

fn reduction(op: &Op) -> Option<ScatterOp> {
    match op {
        Op::ScatterElements { reduction, .. } | Op::ScatterNd { reduction } => Some(*reduction),
        _ => None,
    }
}

/// Replacing updates are moved, whatever they are; others are computed.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let dtype = node.shape.dtype();
    match reduction(&node.op) {
        Some(ScatterOp::Set) => indices::claim(node, graph),
        Some(op) if op.joins_in_f32(dtype) => Claim::No(format!("updates of {dtype} are joined in f32")),
        Some(ScatterOp::Add | ScatterOp::Mul | ScatterOp::Max | ScatterOp::Min) if is_number(dtype) => {
            indices::claim(node, graph)
        }
        _ => Claim::No(format!("updates of {dtype} cannot be joined")),
    }
}

/// The kernel of a scatter.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let op = &cx.node().op;
    let axis = match op {
        Op::ScatterElements { axis, .. } => Some(*axis),
        Op::ScatterNd { .. } => None,
        _ => return Err(no_kernel(op, "it is no scatter")),
    };
    let reduction = reduction(op).ok_or_else(|| no_kernel(op, "it is no scatter"))?;
    Ok(Box::new(Scatter { axis, reduction, plan: None }))
}

/// `ScatterElements` (with an axis) and `ScatterNd`.
#[derive(Debug, Clone, Copy)]
struct Scatter {
    axis: Option<usize>,
    reduction: ScatterOp,
    plan: Option<Plan>,
}

/// The operands of a bound scatter, all dense.
#[derive(Debug, Clone, Copy)]
struct Plan {
    x: Bound,
    indices: Bound,
    updates: Bound,
    out: Bound,
    to: Places,
    worth: bool,
}

/// Where updates go.
#[derive(Debug, Clone, Copy)]
enum Places {
    Elements(Lines),
    Slices(Addresses),
}

/// The lines along the axis: places in `x` of the coordinates before it and behind it.
#[derive(Debug, Clone, Copy)]
struct Lines {
    before: Layout,
    behind: Layout,
    /// Indices of a line, and the elements they may mean.
    count: usize,
    size: usize,
    along: isize,
    axis: usize,
}

impl Lines {
    fn new(x: &Bound, indices: &Bound, axis: usize) -> Result<Lines> {
        let walk = walk_elements(x, indices, axis)?;
        let rank = walk.rank();
        let (mut before, mut behind) = ([walk.range(0, axis)], [walk.range(axis + 1, rank)]);
        collapse(&mut before);
        collapse(&mut behind);
        Ok(Lines {
            before: before[0],
            behind: behind[0],
            count: walk.dims()[axis],
            size: x.dims()[axis],
            along: x.layout.strides()[axis],
            axis,
        })
    }
}

impl StepKernel for Scatter {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (x, indices, updates, out) = (cx.inputs[0], cx.inputs[1], cx.inputs[2], cx.outputs[0]);
        let shape_mismatch = || {
            mismatch(format!(
                "updates {:?} of {:?} by indices {:?}",
                updates.dims(),
                x.dims(),
                indices.dims()
            ))
        };
        let to = match self.axis {
            Some(axis) => {
                if updates.dims() != indices.dims() {
                    return Err(shape_mismatch());
                }
                Places::Elements(Lines::new(&x, &indices, axis)?)
            }
            None => {
                let rank = indices.layout.rank();
                let count = *indices.dims().last().ok_or_else(shape_mismatch)?;
                if count > x.layout.rank() {
                    return Err(shape_mismatch());
                }
                let rows = indices.layout.range(0, rank - 1).elements();
                let addresses = Addresses::new(&x, 0, count, rows, true);
                if updates.layout.elements() != rows * addresses.len {
                    return Err(shape_mismatch());
                }
                Places::Slices(addresses)
            }
        };
        if out.dims() != x.dims() {
            return Err(shape_mismatch());
        }
        let moved = (x.layout.elements() * x.dtype.size_bytes()) as f64 * 0.1;
        let nanos = moved + updates.layout.elements() as f64 * 1.5;
        self.plan = Some(Plan { x, indices, updates, out, to, worth: nanos > WORTH_NANOS });
        Ok(Needs::time(nanos))
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(plan) = &self.plan else { return Err(unbound()) };
        // As in all ops, indices into what has no elements are not looked at.
        if plan.x.layout.elements() == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise; the types are those of the operands.
        unsafe {
            if let (ScatterOp::Set, Places::Slices(addresses)) = (self.reduction, &plan.to)
                && let Some(part) = plan.part_bytes(addresses)
            {
                return plan.set_slices(cx, addresses, part);
            }
            carry_over(cx, &plan.x, &plan.out, plan.worth);
            match (self.reduction, plan.x.dtype) {
                (ScatterOp::Set, dtype) => match dtype.size_bytes() {
                    1 => plan.put::<u8>(cx, ScatterOp::Set),
                    2 => plan.put::<u16>(cx, ScatterOp::Set),
                    4 => plan.put::<u32>(cx, ScatterOp::Set),
                    _ => plan.put::<u64>(cx, ScatterOp::Set),
                },
                (op, dtype) => number!(dtype, T => plan.put::<T>(cx, op)),
            }
        }
    }

    unsafe fn journal(&self, cx: &RunCx<'_, '_>, journal: &mut Journal) -> Result<()> {
        let Some(plan) = &self.plan else { return Err(unbound()) };
        if plan.x.layout.elements() == 0 {
            return Ok(());
        }
        let indices = Indices::new(cx.ptr(plan.indices.at), plan.indices.dtype);
        // SAFETY: the caller's promise; places are within the result.
        unsafe {
            match &plan.to {
                Places::Elements(lines) => plan.journal_elements(cx, &indices, lines, journal),
                Places::Slices(addresses) => plan.journal_slices(cx, &indices, addresses, journal),
            }
        }
    }
}

/// What no update reaches: copied, unless the result is written in place.
///
/// # Safety
/// Both must be there, dense and of one size.
pub(super) unsafe fn carry_over(cx: &mut RunCx<'_, '_>, x: &Bound, out: &Bound, worth: bool) {
    if x.at == out.at {
        return;
    }
    let bytes = x.layout.elements() * x.dtype.size_bytes();
    let (from, to) = (cx.shared::<u8>(x.at), cx.shared::<u8>(out.at));
    cx.parallel(worth, bytes.div_ceil(COPY_BYTES), &|range, _| {
        let (start, end) = (range.start * COPY_BYTES, (range.end * COPY_BYTES).min(bytes));
        // SAFETY: the caller's promise; ranges are disjoint.
        unsafe {
            let to = to.get().wrapping_add(start);
            std::ptr::copy_nonoverlapping(from.get().wrapping_add(start), to, end - start);
        }
    });
}

/// What is there, joined with an update.
#[inline(always)]
fn joined<T: Number>(op: ScatterOp, old: T, new: T) -> T {
    match op {
        ScatterOp::Add => T::narrow(T::add(old.widen(), new.widen())),
        ScatterOp::Mul => T::narrow(T::mul(old.widen(), new.widen())),
        ScatterOp::Max => T::narrow(T::max(old.widen(), new.widen())),
        ScatterOp::Min => T::narrow(T::min(old.widen(), new.widen())),
        // `Set`, the last of the claimed ones.
        _ => new,
    }
}

impl Plan {
    /// Saves the elements that updates reach.
    unsafe fn journal_elements(
        &self,
        cx: &RunCx<'_, '_>,
        indices: &Indices,
        l: &Lines,
        journal: &mut Journal,
    ) -> Result<()> {
        let (size, inner, misses) = (self.x.dtype.size_bytes(), l.behind.elements(), Misses::none());
        let out = cx.ptr::<u8>(self.out.at);
        for line in 0..l.before.elements() * inner {
            let (block, j) = (line / inner, line % inner);
            for i in 0..l.count {
                let index = (block * l.count + i) * inner + j;
                // SAFETY: the caller's promise.
                unsafe {
                    let Some(place) = indices.place(index, l.size) else {
                        misses.note(index);
                        return misses.check(indices, |_| (l.axis, l.size));
                    };
                    let at = l.before.at(block) + l.behind.at(j) + place as isize * l.along;
                    journal.save(out.wrapping_offset(at * size as isize), size)?;
                }
            }
        }
        Ok(())
    }

    /// Saves the slices that updates reach.
    unsafe fn journal_slices(
        &self,
        cx: &RunCx<'_, '_>,
        indices: &Indices,
        a: &Addresses,
        journal: &mut Journal,
    ) -> Result<()> {
        let (size, misses) = (self.x.dtype.size_bytes() as isize, Misses::none());
        let out = cx.ptr::<u8>(self.out.at);
        for row in 0..a.rows {
            // SAFETY: the caller's promise.
            unsafe {
                match a.place(indices, row) {
                    Ok(place) => journal.save(out.wrapping_offset(place * size), a.len * size as usize)?,
                    Err(miss) => {
                        misses.note(miss);
                        return misses.check(indices, |i| a.axis_of(i));
                    }
                }
            }
        }
        Ok(())
    }

    unsafe fn put<T: Number>(&self, cx: &mut RunCx<'_, '_>, op: ScatterOp) -> Result<()> {
        let indices = Indices::new(cx.ptr(self.indices.at), self.indices.dtype);
        // SAFETY: the caller's promise.
        unsafe {
            match &self.to {
                Places::Elements(lines) => self.put_elements::<T>(cx, op, &indices, lines),
                Places::Slices(addresses) => self.put_slices::<T>(cx, op, &indices, addresses),
            }
        }
    }

    unsafe fn put_elements<T: Number>(
        &self,
        cx: &mut RunCx<'_, '_>,
        op: ScatterOp,
        indices: &Indices,
        l: &Lines,
    ) -> Result<()> {
        let inner = l.behind.elements();
        if inner == 1 {
            // SAFETY: the caller's promise.
            return unsafe {
                match op {
                    ScatterOp::Set => self.put_lines(cx, indices, l, |_: T, new| new),
                    op => self.put_lines(cx, indices, l, |old: T, new| joined(op, old, new)),
                }
            };
        }
        let (updates, out, misses) =
            (cx.shared::<T>(self.updates.at), cx.shared::<T>(self.out.at), Misses::none());
        cx.parallel(self.worth, l.before.elements() * inner, &|range, _| {
            let mut line = range.start;
            while line < range.end {
                // The lines of this block within the range, side by side.
                let (block, first) = (line / inner, line % inner);
                let last = inner.min(first + range.end - line);
                let base = l.before.at(block);
                for i in 0..l.count {
                    let row = (block * l.count + i) * inner;
                    for j in first..last {
                        // SAFETY: the caller's promise; lines are disjoint, and a place is within its line.
                        unsafe {
                            let Some(place) = indices.place(row + j, l.size) else {
                                return misses.note(row + j);
                            };
                            let at = base + l.behind.at(j) + place as isize * l.along;
                            let slot = out.get().wrapping_offset(at);
                            *slot = joined(op, *slot, *updates.get().add(row + j));
                        }
                    }
                }
                line += last - first;
            }
        });
        // SAFETY: as above.
        unsafe { misses.check(indices, |_| (l.axis, l.size)) }
    }

    /// Lines along the innermost of the dimensions with more than one element: their indices and updates are neighbours.
    ///
    /// # Safety
    /// As [`StepKernel::run`]; elements must be of `T`.
    unsafe fn put_lines<T: Number>(
        &self,
        cx: &mut RunCx<'_, '_>,
        indices: &Indices,
        l: &Lines,
        join: impl Fn(T, T) -> T + Sync,
    ) -> Result<()> {
        let (updates, out, misses) =
            (cx.shared::<T>(self.updates.at), cx.shared::<T>(self.out.at), Misses::none());
        cx.parallel(self.worth, l.before.elements(), &|range, _| {
            for line in range {
                let first = line * l.count;
                let out = out.get().wrapping_offset(l.before.at(line));
                // SAFETY: the caller's promise; lines are disjoint, and a place is within its line.
                let miss = unsafe {
                    let updates = std::slice::from_raw_parts(updates.get().add(first), l.count);
                    match *indices {
                        Indices::Wide(p) => put_line(p.add(first), updates, out, l, &join),
                        Indices::Narrow(p) => put_line(p.add(first), updates, out, l, &join),
                    }
                };
                if let Some(i) = miss {
                    return misses.note(first + i);
                }
            }
        });
        // SAFETY: as above.
        unsafe { misses.check(indices, |_| (l.axis, l.size)) }
    }

    /// Bytes of the parts of the result that tasks of [`Plan::set_slices`] have; `None` where slices are so short that to look at all indices for
    /// each of several parts would take longer than to move them.
    fn part_bytes(&self, a: &Addresses) -> Option<usize> {
        let size = self.x.dtype.size_bytes();
        let bytes = self.x.layout.elements() * size;
        let moved = if self.x.at == self.out.at { a.rows * a.len * size } else { bytes };
        let parts = bytes.div_ceil(COPY_BYTES).min(moved / INDEX_BYTES / a.rows.max(1));
        (parts > 1).then(|| bytes.div_ceil(parts).next_multiple_of(INDEX_BYTES))
    }

    /// Copies the operand, unless it is the result, and puts slices in. Each task has `part` bytes of the result and looks at all indices, so that
    /// the last slice for a place stays.
    ///
    /// # Safety
    /// As [`StepKernel::run`].
    unsafe fn set_slices(&self, cx: &mut RunCx<'_, '_>, a: &Addresses, part: usize) -> Result<()> {
        let indices = Indices::new(cx.ptr(self.indices.at), self.indices.dtype);
        let size = self.x.dtype.size_bytes();
        let (bytes, slice) = (self.x.layout.elements() * size, a.len * size);
        let (x, updates) = (cx.shared::<u8>(self.x.at), cx.shared::<u8>(self.updates.at));
        let (out, in_place, misses) =
            (cx.shared::<u8>(self.out.at), self.x.at == self.out.at, Misses::none());
        cx.parallel(self.worth, bytes.div_ceil(part), &|range, _| {
            let (start, end) = (range.start * part, (range.end * part).min(bytes));
            // SAFETY: the caller's promise; tasks own disjoint parts of the result, and a place is within it.
            unsafe {
                if !in_place {
                    let from = x.get().wrapping_add(start);
                    std::ptr::copy_nonoverlapping(from, out.get().wrapping_add(start), end - start);
                }
                for row in 0..a.rows {
                    let place = match a.place(&indices, row) {
                        Ok(place) => place as usize * size,
                        Err(miss) => return misses.note(miss),
                    };
                    let (from, to) = (place.max(start), (place + slice).min(end));
                    if from < to {
                        let update = updates.get().wrapping_add(row * slice + (from - place));
                        copy_bytes(update, out.get().wrapping_add(from), to - from);
                    }
                }
            }
        });
        // SAFETY: as above.
        unsafe { misses.check(&indices, |i| a.axis_of(i)) }
    }

    unsafe fn put_slices<T: Number>(
        &self,
        cx: &mut RunCx<'_, '_>,
        op: ScatterOp,
        indices: &Indices,
        a: &Addresses,
    ) -> Result<()> {
        let (updates, out, misses) =
            (cx.shared::<T>(self.updates.at), cx.shared::<T>(self.out.at), Misses::none());
        // Slices are split alike, so a task owns the same elements of all of them.
        cx.parallel(self.worth, a.len.div_ceil(SLICE_ELEMENTS), &|range, _| {
            let (start, end) = (range.start * SLICE_ELEMENTS, (range.end * SLICE_ELEMENTS).min(a.len));
            for row in 0..a.rows {
                // SAFETY: the caller's promise; tasks own disjoint elements of every slice, slices begin at
                // multiples of their length, and a place is within `x`.
                unsafe {
                    let place = match a.place(indices, row) {
                        Ok(place) => place,
                        Err(miss) => return misses.note(miss),
                    };
                    let (to, from) =
                        (out.get().wrapping_offset(place), updates.get().wrapping_add(row * a.len));
                    for i in start..end {
                        let slot = to.wrapping_add(i);
                        *slot = joined(op, *slot, *from.wrapping_add(i));
                    }
                }
            }
        });
        // SAFETY: as above.
        unsafe { misses.check(indices, |i| a.axis_of(i)) }
    }
}

/// Joins updates with elements of the line that begins at `out`; gives the number of the first index that is out of range, if there is one.
///
/// # Safety
/// There must be an index for each update, and all elements of the line must be readable and writable.
#[inline(always)]
unsafe fn put_line<T: Number, I: Copy + Into<i64>>(
    indices: *const I,
    updates: &[T],
    out: *mut T,
    l: &Lines,
    join: impl Fn(T, T) -> T,
) -> Option<usize> {
    for (i, &update) in updates.iter().enumerate() {
        // SAFETY: the caller's promise; the place is within the line.
        unsafe {
            let Some(place) = place((*indices.add(i)).into(), l.size) else { return Some(i) };
            let slot = out.wrapping_offset(place as isize * l.along);
            *slot = join(*slot, update);
        }
    }
    None
}
