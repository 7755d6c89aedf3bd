//! Distinct rows: sorted by one thread, so that the result does not depend on how many there are.

use std::cmp::Ordering;

use rlx_ir::{DType, Dim, Op, Result};

pub(crate) use super::order::claim;
use super::order::{Key, Ordered};
use super::scalar::number;
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, check_count, mismatch, no_kernel, unbound};
use crate::layout::At;

/// The kernel.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    match cx.node().op {
        Op::Unique { count, sorted } => {
            Ok(Box::new(Unique { count, sorted, dtype: cx.step.inputs[0].dtype, plan: None }))
        }
        ref op => Err(no_kernel(op, "it finds no distinct rows")),
    }
}

#[derive(Debug, Clone, Copy)]
struct Unique {
    count: Dim,
    sorted: bool,
    dtype: DType,
    plan: Option<Plan>,
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    x: At,
    rows: usize,
    width: usize,
    first: At,
    which: At,
    counts: At,
}

/// What each row takes of the scratch, besides its key: its place in the order, and the place and the new number of a group.
const WORDS: usize = 3;

/// The key of a row of one element, with the row's number.
type Candidate<T> = <<T as Ordered>::Key as Key>::Candidate;

impl StepKernel for Unique {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let x = &cx.inputs[0];
        let [first, which, counts] = cx.outputs else {
            return Err(mismatch("distinct rows have three results"));
        };
        let &[rows, width] = x.dims() else { return Err(mismatch(format!("the rows of {:?}", x.dims()))) };
        if which.dims() != [rows] || !x.layout.is_dense() {
            return Err(mismatch(format!("the rows of {:?} are {:?}", x.dims(), which.dims())));
        }
        u32::try_from(rows).map_err(|_| mismatch(format!("{rows} rows are too many")))?;
        self.plan = Some(Plan { x: x.at, rows, width, first: first.at, which: which.at, counts: counts.at });
        // Rows of one element are sorted as keys.
        let keys = if width == 1 { number!(self.dtype, T => size_of::<Candidate<T>>()) } else { 0 };
        let nanos = rows as f64 * (rows as f64).max(2.0).log2() * (4.0 + width as f64);
        Ok(Needs { thread_scratch: 0, shared_scratch: rows * (keys + WORDS * 4), nanos })
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(plan) = &self.plan else { return Err(unbound()) };
        // SAFETY: the caller's promise; the type is that of the input.
        cx.found = Some(unsafe { number!(self.dtype, T => self.find::<T>(cx, plan)) }?);
        Ok(())
    }
}

impl Unique {
    /// Writes the three results; gives the number of distinct rows.
    ///
    /// # Safety
    /// As [`StepKernel::run`]; `T` is the input's type.
    unsafe fn find<T: Ordered>(&self, cx: &RunCx<'_, '_>, plan: &Plan) -> Result<usize> {
        let (n, width) = (plan.rows, plan.width);
        let keys = if width == 1 { n } else { 0 };
        let candidates = cx.shared_scratch.cast::<Candidate<T>>();
        // SAFETY: the caller's promise; the scratch has room for the keys and for three words for each row.
        let (x, parts) = unsafe {
            let words = candidates.add(keys).cast::<u32>();
            let part = |i: usize| std::slice::from_raw_parts_mut(words.add(i * n), n);
            let x = std::slice::from_raw_parts(cx.ptr::<T>(plan.x).cast_const(), n * width);
            (x, [part(0), part(1), part(2)])
        };
        let [order, groups, numbers] = parts;
        if width == 1 {
            for (i, value) in x.iter().enumerate() {
                // SAFETY: as above.
                unsafe { candidates.add(i).write(value.key().candidate(i)) };
            }
            // SAFETY: as above; all were written.
            let sorted = unsafe { std::slice::from_raw_parts_mut(candidates, n) };
            sorted.sort_unstable();
            for (place, &of) in order.iter_mut().zip(&*sorted) {
                *place = T::Key::place(of) as u32;
            }
            let differ = |i: usize| T::Key::key_of(sorted[i - 1]) != T::Key::key_of(sorted[i]);
            // SAFETY: the caller's promise.
            return unsafe { self.write(cx, plan, order, [groups, numbers], differ) };
        }
        let row = |i: u32| &x[i as usize * width..][..width];
        let compare = |a: u32, b: u32| {
            let mut pairs = row(a).iter().zip(row(b));
            pairs.find_map(|(&a, &b)| Some(a.order(b)).filter(|o| o.is_ne())).unwrap_or(Ordering::Equal)
        };
        order.iter_mut().enumerate().for_each(|(i, o)| *o = i as u32);
        order.sort_unstable_by(|&a, &b| compare(a, b).then(a.cmp(&b)));
        let order = &*order;
        let differ = |i: usize| compare(order[i - 1], order[i]).is_ne();
        // SAFETY: the caller's promise.
        unsafe { self.write(cx, plan, order, [groups, numbers], differ) }
    }

    /// Writes the three results of rows in order; `differ` says whether the row at a place, from 1 on, is another one than that before.
    ///
    /// # Safety
    /// As [`StepKernel::run`].
    unsafe fn write(
        &self,
        cx: &RunCx<'_, '_>,
        plan: &Plan,
        order: &[u32],
        [groups, numbers]: [&mut [u32]; 2],
        differ: impl Fn(usize) -> bool,
    ) -> Result<usize> {
        let begins = |i: usize| i == 0 || differ(i);
        // The first row of each group stands where the group begins.
        let mut found = 0;
        for i in (0..order.len()).filter(|&i| begins(i)) {
            groups[found] = i as u32;
            found += 1;
        }
        check_count(found, self.count)?;
        let groups = &mut groups[..found];
        if !self.sorted {
            groups.sort_unstable_by_key(|&start| order[start as usize]);
        }
        for (number, &start) in groups.iter().enumerate() {
            numbers[start as usize] = number as u32;
        }
        // SAFETY: the caller's promise; there are `found` groups, as many as are declared, or there is room for all rows.
        unsafe {
            let (first, which, counts) =
                (cx.ptr::<i64>(plan.first), cx.ptr::<i64>(plan.which), cx.ptr::<i64>(plan.counts));
            let mut number = 0;
            for (i, &row) in order.iter().enumerate() {
                if begins(i) {
                    number = numbers[i] as usize;
                    *first.add(number) = i64::from(row);
                    *counts.add(number) = 0;
                }
                *counts.add(number) += 1;
                *which.add(row as usize) = number as i64;
            }
        }
        Ok(found)
    }
}
