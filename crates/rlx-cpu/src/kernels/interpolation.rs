//! Interpolation along an axis, `first + (second − first)·step` of slices that two gathers pick, in one step: what is picked is never in memory. An interpolation
//! along the next axis may follow, as where images are resized: a line between two others of the image stays in the cache until pixels of the result are taken
//! from it.
//!
//! A task is one slice of the result; or where a slice is one element, a line of them ([`Along`]). Each of the three operations rounds, as it does
//! alone.

mod along;

use std::ops::Range;

use rlx_ir::op::BinaryOp;
use rlx_ir::{DType, Graph, Node, NodeId, Op, Result, Shape};

use self::along::Along;
use super::gather::resolve;
use super::indices::{self, Indices};
use super::{BindCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, unbound};
use crate::isa::Kernel;
use crate::layout::{At, Bound, Layout};
use crate::simd::{LANES, Simd};

/// An interpolation in a region, by the region's inputs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Between {
    table: usize,
    first: Axis,
    /// Along the axis behind it.
    second: Option<Axis>,
}

/// What is done along one axis.
#[derive(Debug, Clone, Copy)]
struct Axis {
    axis: usize,
    /// The indices of the first slices and of the second ones.
    indices: [usize; 2],
    step: usize,
}

/// Nodes of an interpolation along one axis.
const NODES: usize = 5;

impl Between {
    /// That of a region's body, if it is one.
    pub(crate) fn of(body: &Graph) -> Option<Between> {
        let &[result] = &body.outputs[..] else { return None };
        let number = |id: NodeId| body.inputs().position(|n| n.id == id);
        let nodes = body.nodes().iter().filter(|n| !matches!(n.op, Op::Input { .. })).count();
        let (last, from) = Axis::of(body, result)?;
        if let Some(table) = number(from) {
            return (nodes == NODES).then_some(Between { table, first: last, second: None });
        }
        let (first, table) = Axis::of(body, from)?;
        let follows = nodes == 2 * NODES && last.axis == first.axis + 1;
        follows.then_some(Between { table: number(table)?, first, second: Some(last) })
    }
}

impl Axis {
    /// The interpolation along an axis whose result this is, and the table from which it picks.
    fn of(body: &Graph, result: NodeId) -> Option<(Axis, NodeId)> {
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
        let shape = body.shape(result);
        let fits = subtrahend == first
            && (axis, table) == (other_axis, other_table)
            && [result, part, difference, first, second].iter().all(|&id| is_own(body.node(id), body, shape))
            && is_along(body.shape(step), axis, shape);
        let of = Axis { axis, indices: [number(one)?, number(two)?], step: number(step)? };
        fits.then_some((of, table))
    }
}

/// Whether a node of the body is of f32 in the result's dimensions, and its indices, if it has any, a list.
fn is_own(node: &Node, body: &Graph, result: &Shape) -> bool {
    let picks = match node.op {
        Op::Gather { .. } => body.shape(node.inputs[1]).rank() == 1 && indices::claim(node, body).is_native(),
        _ => true,
    };
    picks && node.shape.dtype() == DType::F32 && node.shape.dims() == result.dims()
}

/// Whether `shape` has one element for each place along `axis` of the result.
fn is_along(shape: &Shape, axis: usize, result: &Shape) -> bool {
    let one = |i: usize| shape.dim(i).as_static() == Some(1);
    shape.rank() == result.rank()
        && (0..shape.rank()).all(|i| if i == axis { shape.dim(i) == result.dim(i) } else { one(i) })
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
    blocks: usize,
    first: Bounds,
    second: Option<Bounds>,
    worth: bool,
}

/// What is bound of one axis.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    axis: usize,
    indices: [(At, DType); 2],
    /// Where steps are, and how far apart.
    step: (At, isize),
    /// Slices of a block of the table and of the result, and elements of a slice.
    size: usize,
    count: usize,
    len: usize,
}

impl Bounds {
    /// Of a table in the layout, whose slices become `count`.
    fn of(axis: &Axis, inputs: &[Bound], table: &Layout, count: usize) -> Option<Bounds> {
        let (lists, step) = (axis.indices.map(|i| &inputs[i]), &inputs[axis.step]);
        let size = table.dims()[axis.axis];
        let fits = lists.iter().all(|list| list.layout.elements() == count)
            && step.dims().get(axis.axis) == Some(&count)
            && u32::try_from(size).is_ok();
        let len = table.dims()[axis.axis + 1..].iter().product();
        let step = (step.at, *step.layout.strides().get(axis.axis)?);
        let indices = lists.map(|b| (b.at, b.dtype));
        fits.then_some(Bounds { axis: axis.axis, indices, step, size, count, len })
    }

    /// Elements of scratch that are found once: two places and a step for each slice, and where windows begin.
    fn found(&self) -> Option<usize> {
        self.count.checked_mul(3)?.checked_add(self.count.div_ceil(LANES))
    }

    /// Elements of scratch of a thread, in which single elements are picked.
    fn picked(&self) -> Option<usize> {
        if self.len == 1 { self.count.checked_mul(2) } else { Some(0) }
    }

    /// Finds what all tasks need, in scratch.
    ///
    /// # Safety
    /// As [`StepKernel::run`]; the scratch must have room for [`Bounds::found`] elements, which nothing else uses while the result is used.
    unsafe fn find<'a>(&self, cx: &RunCx<'_, '_>, scratch: *mut u32) -> Result<Along<'a>> {
        let Bounds { axis, size, count, len, .. } = *self;
        let places = [scratch, scratch.wrapping_add(count)];
        for ((at, dtype), to) in self.indices.into_iter().zip(places) {
            let indices = Indices::new(cx.ptr(at), dtype);
            // SAFETY: the caller's promise; scratch has a place for each index.
            unsafe { resolve(&indices, count, to, |_| (axis, size))? };
        }
        let steps = scratch.wrapping_add(2 * count).cast::<f32>();
        let from = cx.ptr::<f32>(self.step.0);
        for i in 0..count {
            // SAFETY: as above, and there is a step for each.
            unsafe { *steps.add(i) = *from.wrapping_offset(i as isize * self.step.1) };
        }
        let windows = scratch.wrapping_add(3 * count);
        // SAFETY: all of them were written, and nothing else refers to them or to the windows' beginnings behind them.
        unsafe {
            windows.write_bytes(0, count.div_ceil(LANES));
            let list = |p: *mut u32| std::slice::from_raw_parts(p.cast_const(), count);
            let steps = std::slice::from_raw_parts(steps.cast_const(), count);
            let windows = std::slice::from_raw_parts_mut(windows, count.div_ceil(LANES));
            Ok(Along::new(places.map(list), steps, (size, len), windows))
        }
    }
}

impl StepKernel for Interpolation {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (of, out) = (self.of, &cx.outputs[0]);
        let (x, rank) = (&cx.inputs[of.table], out.layout.rank());
        let none = || mismatch(format!("slices {:?} between those of {:?}", out.dims(), x.dims()));
        let last = of.second.map_or(of.first.axis, |second| second.axis);
        if last >= rank || x.layout.rank() != rank {
            return Err(none());
        }
        let axis = of.first.axis;
        let [before, behind] =
            [0..axis, last + 1..rank].map(|dims| out.dims()[dims.clone()] == x.dims()[dims]);
        if !before || !behind {
            return Err(none());
        }
        let bounds = |of: &Axis| Bounds::of(of, cx.inputs, &x.layout, out.dims()[of.axis]).ok_or_else(none);
        let (first, second) = (bounds(&of.first)?, of.second.as_ref().map(bounds).transpose()?);
        let [shared, thread] = scratch(&first, second.as_ref()).ok_or_else(none)?;
        let ends = second.map_or(first.len, |second| second.len);
        let nanos = out.layout.elements() as f64 * if ends == 1 { 0.3 } else { 0.15 };
        let blocks = x.layout.range(0, axis).elements();
        self.plan =
            Some(Plan { table: x.at, out: out.at, blocks, first, second, worth: nanos > WORTH_NANOS });
        Ok(Needs { shared_scratch: shared, thread_scratch: thread, nanos })
    }

    // SAFETY: the promise is that of [`StepKernel::run`].
    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(plan) = self.plan else { return Err(unbound()) };
        let found = cx.shared_scratch.cast::<u32>();
        // SAFETY: the caller's promise; the second axis has the scratch behind the first one's.
        let (first, second) = unsafe {
            let behind = found.wrapping_add(plan.first.found().unwrap_or(0));
            let first = plan.first.find(cx, found)?;
            (first, plan.second.map(|second| second.find(cx, behind)).transpose()?)
        };
        let (x, out, isa) = (cx.shared::<f32>(plan.table), cx.shared::<f32>(plan.out), cx.isa);
        let lines = second.is_none() && plan.first.len == 1;
        let tasks = if lines { plan.blocks } else { plan.blocks * plan.first.count };
        cx.parallel(plan.worth, tasks, &|range, scratch| {
            let (x, out, scratch) = (x.get().cast_const(), out.get(), scratch.cast::<f32>());
            isa.run(Tasks { plan: &plan, first: &first, second: second.as_ref(), x, out, range, scratch });
        });
        Ok(())
    }
}

/// Bytes of scratch of all threads together and of each; `None` where they cannot be counted.
fn scratch(first: &Bounds, second: Option<&Bounds>) -> Option<[usize; 2]> {
    let elements = match second {
        None => [first.found()?, first.picked()?],
        Some(second) => {
            [first.found()?.checked_add(second.found()?)?, second.picked()?.checked_add(first.len)?]
        }
    };
    let [shared, thread] = elements.map(|n| n.checked_mul(size_of::<f32>()));
    Some([shared?, thread?])
}

/// Some slices of the result, or lines of it.
struct Tasks<'a> {
    plan: &'a Plan,
    first: &'a Along<'a>,
    second: Option<&'a Along<'a>>,
    x: *const f32,
    out: *mut f32,
    range: Range<usize>,
    scratch: *mut f32,
}

impl Kernel for Tasks<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Tasks { plan, first, second, x, out, range, scratch } = self;
        let Bounds { size, count, len, .. } = plan.first;
        for task in range {
            let (block, i) = (task / count, task % count);
            // SAFETY: the run was promised the operands, places are within the table, and results are apart.
            unsafe {
                match second {
                    Some(second) => {
                        // A line of the image, and behind it what is picked for a line of the result.
                        first.slice::<S, true>(s, x.wrapping_add(block * size * len), i, scratch);
                        let out = out.wrapping_add(task * second.elements());
                        second.line(s, scratch.cast_const(), out, scratch.wrapping_add(len));
                    }
                    None if len == 1 => {
                        first.line(s, x.wrapping_add(task * size), out.wrapping_add(task * count), scratch);
                    }
                    None => {
                        let out = out.wrapping_add(task * len);
                        first.slice::<S, true>(s, x.wrapping_add(block * size * len), i, out);
                    }
                }
            }
        }
    }
}
