//! Distinct rows: sorted by one thread, so that the result does not depend on how many there are. Rows of one element are sorted by the digits of their
//! keys, others by comparing them.

use std::cmp::Ordering;

use rlx_ir::{DType, Dim, Op, Result};

use super::order::Ordered;
pub(crate) use super::order::claim;
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

/// What each row takes of the scratch: its place in the order, and the place and the new number of a group.
const WORDS: usize = 3;

/// What a row of one element takes besides, to be sorted.
const PAIRS: usize = 2 * size_of::<u64>();

/// Bits of a digit of a key.
const DIGIT: u32 = 11;

/// Fewer rows are sorted by comparing keys.
const MANY: usize = 512;

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
        let pairs = if width == 1 { PAIRS } else { 0 };
        let nanos = rows as f64 * (rows as f64).max(2.0).log2() * (4.0 + width as f64);
        Ok(Needs { thread_scratch: 0, shared_scratch: rows * (pairs + WORDS * 4), nanos })
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
        let pairs = cx.shared_scratch.cast::<u64>();
        let all = if width == 1 { 2 * n } else { 0 };
        // SAFETY: the caller's promise; the scratch has room for the pairs and for three words for each row.
        let (x, parts, pairs) = unsafe {
            let words = pairs.add(all).cast::<u32>();
            let part = |i: usize| std::slice::from_raw_parts_mut(words.add(i * n), n);
            let x = std::slice::from_raw_parts(cx.ptr::<T>(plan.x).cast_const(), n * width);
            (x, [part(0), part(1), part(2)], std::slice::from_raw_parts_mut(pairs, all))
        };
        let [order, groups, numbers] = parts;
        if width == 1 {
            sort_places(x, order, pairs.split_at_mut(n));
            let key = |place: u32| x[place as usize].key();
            let differ = |i: usize| key(order[i - 1]) != key(order[i]);
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

/// Writes the places of elements in the ascending order of their keys, and those of equal ones in theirs. Many elements are sorted by one digit after
/// the other, from the last one on, of as many as there are between the least key and the greatest.
fn sort_places<T: Ordered>(x: &[T], order: &mut [u32], (mut from, mut to): (&mut [u64], &mut [u64])) {
    let key = |place: u32| -> i64 { x[place as usize].key().into() };
    order.iter_mut().enumerate().for_each(|(i, place)| *place = i as u32);
    if x.len() < MANY {
        return order.sort_unstable_by_key(|&place| (key(place), place));
    }
    let ends = |(least, most): (i64, i64), &place: &u32| (least.min(key(place)), most.max(key(place)));
    let (least, most) = order.iter().fold((i64::MAX, i64::MIN), ends);
    // Half of a key stands above its place, first the half with its last digits.
    for half in [0, 32] {
        let bits = (u64::BITS - (most.abs_diff(least) >> half).leading_zeros()).min(32);
        for (pair, &place) in from.iter_mut().zip(&*order) {
            *pair = (key(place).abs_diff(least) >> half) << 32 | u64::from(place);
        }
        for shift in (32..32 + bits).step_by(DIGIT as usize) {
            sort_by_digit(from, to, shift);
            std::mem::swap(&mut from, &mut to);
        }
        order.iter_mut().zip(&*from).for_each(|(place, &pair)| *place = pair as u32);
    }
}

/// Sorts by the digit at bit `shift`, and leaves equal ones in their order.
fn sort_by_digit(from: &[u64], to: &mut [u64], shift: u32) {
    let digit = |pair: u64| (pair >> shift) as usize % (1 << DIGIT);
    let mut next = [0u32; 1 << DIGIT];
    from.iter().for_each(|&pair| next[digit(pair)] += 1);
    let mut start = 0;
    for next in &mut next {
        start += std::mem::replace(next, start);
    }
    for &pair in from {
        let next = &mut next[digit(pair)];
        to[*next as usize] = pair;
        *next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;

    fn check<T: Ordered>(x: &[T]) {
        let mut order = vec![0; x.len()];
        let mut pairs = vec![0; 2 * x.len()];
        sort_places(x, &mut order, pairs.split_at_mut(x.len()));
        let mut wanted: Vec<u32> = (0..x.len() as u32).collect();
        wanted.sort_by(|&a, &b| x[a as usize].order(x[b as usize]));
        assert_eq!(order, wanted);
    }

    #[test]
    fn places_are_in_the_order_of_elements() {
        let mut rng = Rng::new(7);
        for n in [0, 1, 40, MANY, 3000] {
            let long: Vec<i64> = (0..n).map(|_| rng.next() as i64).collect();
            check(&long);
            check(&long.iter().map(|v| v % 50).collect::<Vec<i64>>());
            check(&long.iter().map(|v| v % (1 << 40)).collect::<Vec<i64>>());
            check(&long.iter().map(|&v| v as i8).collect::<Vec<i8>>());
            check(&long.iter().map(|&v| v as u64).collect::<Vec<u64>>());
            check(&long.iter().map(|&v| f32::from_bits(v as u32)).collect::<Vec<f32>>());
            check(&long.iter().map(|&v| f64::from_bits(v as u64)).collect::<Vec<f64>>());
        }
        check(&[i64::MIN, i64::MAX, 0, -1].repeat(200));
    }
}
