//! Interpolation along an axis, `first + (second − first)·step` of slices that two gathers pick, in one step: what is picked is never in memory.
//!
//! A task is one slice, in vectors; or where a slice is one element, a line of them, which is picked into scratch first. Each of the three
//! operations rounds, as it does alone.

use std::ops::Range;

use rlx_ir::op::BinaryOp;
use rlx_ir::{DType, Graph, Node, NodeId, Op, Result};

use super::gather::{pick_each, resolve};
use super::indices::{self, Indices};
use super::{BindCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, unbound};
use crate::isa::Kernel;
use crate::layout::At;
use crate::simd::{LANES, Simd};
use crate::window::copy_every;

/// How many bytes ahead of two slices the table is prefetched: what is read in turns is not a sequence that processors foresee.
const AHEAD: usize = 4 << 10;

/// An interpolation in a region, by the region's inputs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Between {
    table: usize,
    axis: usize,
    /// The indices of the first slices and of the second ones.
    indices: [usize; 2],
    step: usize,
}

impl Between {
    /// That of a region's body, if it is one.
    pub(crate) fn of(body: &Graph) -> Option<Between> {
        let &[result] = &body.outputs[..] else { return None };
        let operands = |id: NodeId, op: BinaryOp| match (&body.node(id).op, &body.node(id).inputs[..]) {
            (Op::Binary(own), &[a, b]) if *own == op => Some([a, b]),
            _ => None,
        };
        let gather = |id: NodeId| match (&body.node(id).op, &body.node(id).inputs[..]) {
            (&Op::Gather { axis }, &[table, list]) => Some((axis, table, list)),
            _ => None,
        };
        let either = |[a, b]: [NodeId; 2], fits: &dyn Fn(NodeId) -> bool| match (fits(a), fits(b)) {
            (true, _) => Some([a, b]),
            (_, true) => Some([b, a]),
            _ => None,
        };
        let [first, part] = either(operands(result, BinaryOp::Add)?, &|id| gather(id).is_some())?;
        let is_difference = |id: NodeId| operands(id, BinaryOp::Sub).is_some();
        let [difference, step] = either(operands(part, BinaryOp::Mul)?, &is_difference)?;
        let [second, subtrahend] = operands(difference, BinaryOp::Sub)?;
        let ((axis, table, one), (other_axis, other_table, two)) = (gather(first)?, gather(second)?);
        let number = |id: NodeId| body.inputs().position(|n| n.id == id);
        let fits = subtrahend == first
            && (axis, table) == (other_axis, other_table)
            && body.nodes().iter().filter(|n| !matches!(n.op, Op::Input { .. })).count() == 5
            && body
                .nodes()
                .iter()
                .filter(|n| n.op.is_pointwise() || gather(n.id).is_some())
                .all(|n| is_own(n, body))
            && is_along(body.shape(step), axis, body.node(result));
        let between = Between {
            table: number(table)?,
            axis,
            indices: [number(one)?, number(two)?],
            step: number(step)?,
        };
        fits.then_some(between)
    }
}

/// Whether a node of the body is of f32 in the result's dimensions, and its indices, if it has any, a list.
fn is_own(node: &Node, body: &Graph) -> bool {
    let picks = match node.op {
        Op::Gather { .. } => body.shape(node.inputs[1]).rank() == 1 && indices::claim(node, body).is_native(),
        _ => true,
    };
    picks && node.shape.dtype() == DType::F32 && node.shape.dims() == body.shape(body.outputs[0]).dims()
}

/// Whether `shape` has one element for each place along `axis` of the result.
fn is_along(shape: &rlx_ir::Shape, axis: usize, result: &Node) -> bool {
    let one = |i: usize| shape.dim(i).as_static() == Some(1);
    shape.rank() == result.shape.rank()
        && (0..shape.rank()).all(|i| if i == axis { shape.dim(i) == result.shape.dim(i) } else { one(i) })
}

/// The kernel of an interpolation.
pub(crate) fn kernel(of: Between) -> Box<dyn StepKernel> {
    Box::new(Interpolation { of, plan: None })
}

#[derive(Debug, Clone, Copy)]
struct Interpolation {
    of: Between,
    plan: Option<Plan>,
}

/// A bound interpolation.
#[derive(Debug, Clone, Copy)]
struct Plan {
    table: At,
    out: At,
    indices: [(At, DType); 2],
    /// Where steps are, and how far apart.
    step: (At, isize),
    blocks: usize,
    /// Slices of a block of the table and of the result, and elements of a slice.
    size: usize,
    count: usize,
    len: usize,
    worth: bool,
}

impl StepKernel for Interpolation {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (of, out) = (self.of, &cx.outputs[0]);
        let (x, lists, step) = (&cx.inputs[of.table], of.indices.map(|i| cx.inputs[i]), &cx.inputs[of.step]);
        let (axis, rank) = (of.axis, x.layout.rank());
        let none = || mismatch(format!("slices {:?} between those of {:?}", out.dims(), x.dims()));
        if axis >= rank || out.layout.rank() != rank || step.layout.rank() != rank {
            return Err(none());
        }
        let (size, count) = (x.dims()[axis], out.dims()[axis]);
        let fits = lists.iter().all(|list| list.layout.elements() == count)
            && step.dims()[axis] == count
            && out.dims()[..axis] == x.dims()[..axis]
            && out.dims()[axis + 1..] == x.dims()[axis + 1..]
            && u32::try_from(size).is_ok();
        let scratch = count.checked_mul(size_of::<u32>()).filter(|n| n.checked_mul(3).is_some());
        let (true, Some(scratch)) = (fits, scratch) else { return Err(none()) };
        let (blocks, len) = (x.layout.range(0, axis).elements(), x.layout.range(axis + 1, rank).elements());
        let nanos = out.layout.elements() as f64 * if len == 1 { 0.8 } else { 0.15 };
        self.plan = Some(Plan {
            table: x.at,
            out: out.at,
            indices: lists.map(|b| (b.at, b.dtype)),
            step: (step.at, step.layout.strides()[axis]),
            blocks,
            size,
            count,
            len,
            worth: nanos > WORTH_NANOS,
        });
        let thread_scratch = if len == 1 { 2 * scratch } else { 0 };
        Ok(Needs { shared_scratch: 3 * scratch, thread_scratch, nanos })
    }

    // SAFETY: the promise is that of [`StepKernel::run`].
    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(plan) = self.plan else { return Err(unbound()) };
        let (count, axis) = (plan.count, self.of.axis);
        let scratch = cx.shared_scratch.cast::<u32>();
        let places = [scratch, scratch.wrapping_add(count)];
        for ((at, dtype), to) in plan.indices.into_iter().zip(places) {
            let indices = Indices::new(cx.ptr(at), dtype);
            // SAFETY: the caller's promise; scratch has a place for each index.
            unsafe { resolve(&indices, count, to, |_| (axis, plan.size))? };
        }
        let steps = scratch.wrapping_add(2 * count).cast::<f32>();
        let from = cx.ptr::<f32>(plan.step.0);
        for i in 0..count {
            // SAFETY: as above, and there is a step for each.
            unsafe { *steps.add(i) = *from.wrapping_offset(i as isize * plan.step.1) };
        }
        // SAFETY: all of them were written.
        let (first, second, steps) = unsafe {
            let list = |p: *mut u32| std::slice::from_raw_parts(p.cast_const(), count);
            (list(places[0]), list(places[1]), std::slice::from_raw_parts(steps.cast_const(), count))
        };
        let places = [first, second];
        let every = if plan.len == 1 { places.map(distance) } else { [None; 2] };
        let pairs = every == [Some(2); 2] && second[0] == first[0] + 1;
        let (x, out, isa) = (cx.shared::<f32>(plan.table), cx.shared::<f32>(plan.out), cx.isa);
        let tasks = if plan.len == 1 { plan.blocks } else { plan.blocks * count };
        cx.parallel(plan.worth, tasks, &|range, scratch| {
            let scratch = scratch.cast::<f32>();
            let (x, out) = (x.get().cast_const(), out.get());
            isa.run(Slices { plan: &plan, places, every, pairs, steps, x, out, range, scratch });
        });
        Ok(())
    }
}

/// The distance between neighbours of the list where that is the same everywhere: by halving an image, every other pixel is picked.
fn distance(list: &[u32]) -> Option<usize> {
    let &[first, second, ..] = list else { return None };
    let step = second.checked_sub(first).filter(|&step| step > 0)?;
    list.windows(2).all(|pair| pair[1].checked_sub(pair[0]) == Some(step)).then_some(step as usize)
}

/// Some slices of the result, or lines of slices of one element.
struct Slices<'a> {
    plan: &'a Plan,
    places: [&'a [u32]; 2],
    /// See [`distance`].
    every: [Option<usize>; 2],
    /// Whether results are between the elements of pairs, one after the other: an image is halved.
    pairs: bool,
    steps: &'a [f32],
    x: *const f32,
    out: *mut f32,
    range: Range<usize>,
    scratch: *mut f32,
}

impl Kernel for Slices<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Plan { size, count, len, .. } = *self.plan;
        for task in self.range.clone() {
            // SAFETY: the run was promised the operands, places are within the table, and results are apart.
            unsafe {
                if len == 1 {
                    self.line(s, self.x.wrapping_add(task * size), self.out.wrapping_add(task * count));
                    continue;
                }
                let (block, i) = (task / count, task % count);
                let [a, b] = self.places.map(|p| self.x.wrapping_add((block * size + p[i] as usize) * len));
                let (step, out) = (s.splat(self.steps[i]), self.out.wrapping_add(task * len));
                for at in (0..len).step_by(LANES) {
                    let n = LANES.min(len - at);
                    let (a, b) = (a.add(at), b.add(at));
                    s.prefetch_l1(a.wrapping_byte_add(AHEAD));
                    s.prefetch_l1(b.wrapping_byte_add(AHEAD));
                    s.store_upto(out.add(at), n, between(s, s.load_upto(a, n), s.load_upto(b, n), step));
                }
            }
        }
    }
}

impl Slices<'_> {
    /// A line of results, picked from `x`.
    ///
    /// # Safety
    /// The line of the table must be readable, that of the result writable, and the scratch have room for two lines of the result.
    #[inline(always)]
    unsafe fn line<S: Simd>(&self, s: S, x: *const f32, out: *mut f32) {
        let count = self.plan.count;
        let (a, b) = (self.scratch, self.scratch.wrapping_add(count));
        // SAFETY: the caller's promise; pairs are within the table.
        unsafe {
            if self.pairs {
                let x = x.wrapping_add(self.places[0][0] as usize);
                for at in (0..count).step_by(LANES) {
                    let (n, from) = (LANES.min(count - at), x.wrapping_add(2 * at));
                    let (low, high) = (LANES.min(2 * n), (2 * n).saturating_sub(LANES));
                    let pairs = (s.load_upto(from, low), s.load_upto(from.wrapping_add(LANES), high));
                    let (a, b) = s.unzip(pairs.0, pairs.1);
                    let step = s.load_upto(self.steps.as_ptr().add(at), n);
                    s.store_upto(out.add(at), n, between(s, a, b, step));
                }
                return;
            }
            for ((list, every), to) in self.places.iter().zip(self.every).zip([a, b]) {
                match every {
                    Some(step) => copy_every(s, x.wrapping_add(list[0] as usize), step, to, count),
                    None => pick_each::<f32>(x.cast(), size_of::<f32>() as isize, list, to.cast()),
                }
            }
            for at in (0..count).step_by(LANES) {
                let n = LANES.min(count - at);
                let step = s.load_upto(self.steps.as_ptr().add(at), n);
                let (a, b) = (s.load_upto(a.add(at), n), s.load_upto(b.add(at), n));
                s.store_upto(out.add(at), n, between(s, a, b, step));
            }
        }
    }
}

/// `a + (b − a)·step`, rounded three times.
#[inline(always)]
fn between<S: Simd>(s: S, a: S::F, b: S::F, step: S::F) -> S::F {
    s.add(a, s.mul(s.sub(b, a), step))
}
