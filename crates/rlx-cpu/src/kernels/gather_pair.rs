//! A gather along one axis and another one along its neighbour, as a resize by the nearest element is, in one step: nothing that is picked along the
//! first axis alone is ever in memory.
//!
//! A task is some rows of the result: all that is picked along the inner axis from one place of the outer axis. A row from the place that the
//! one before came from is a copy of that, which is still in the first-level cache. Where both axes are doubled, a row is read once for both that it becomes.

use rlx_ir::{DType, Graph, Node, NodeId, Op, Result};

use super::gather::{double_rows, doubles, line, resolve};
use super::indices::{self, Indices};
use super::{BindCx, Needs, RunCx, Shared, StepKernel, WORTH_NANOS, mismatch, unbound};
use crate::layout::{At, Bound};
use crate::stores::Stores;

/// Two gathers in a region, by the region's inputs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair {
    table: usize,
    /// The outer axis; the inner one is behind it.
    axis: usize,
    /// The indices into the outer and into the inner axis.
    indices: [usize; 2],
    /// Which of them is looked up first.
    first: usize,
}

/// Whether a gather may be computed by the one that alone reads what it picks.
pub(crate) fn fuses(producer: &Node, anchor: &Node, graph: &Graph) -> bool {
    let is_own = anchor.inputs[0] == producer.id && !anchor.inputs[1..].contains(&producer.id);
    is_own && outer_axis(producer, anchor, graph).is_some()
}

/// The outer one of the neighbouring axes along which both pick, by a list of indices each.
fn outer_axis(first: &Node, second: &Node, graph: &Graph) -> Option<usize> {
    let axis = |node: &Node| match node.op {
        Op::Gather { axis } if graph.shape(node.inputs[1]).rank() == 1 => {
            indices::claim(node, graph).is_native().then_some(axis)
        }
        _ => None,
    };
    let (first, second) = (axis(first)?, axis(second)?);
    (first.abs_diff(second) == 1).then_some(first.min(second))
}

impl Pair {
    /// Those of a region's body, if it is two gathers and nothing else.
    pub(crate) fn of(body: &Graph) -> Option<Pair> {
        let mut nodes = body.nodes().iter().filter(|n| !matches!(n.op, Op::Input { .. }));
        let (first, second) = (nodes.next()?, nodes.next()?);
        if nodes.next().is_some() || body.outputs != [second.id] || !fuses(first, second, body) {
            return None;
        }
        let axis = outer_axis(first, second, body)?;
        let number = |id: NodeId| body.inputs().position(|n| n.id == id);
        let of = [number(first.inputs[1])?, number(second.inputs[1])?];
        let outer_first = matches!(first.op, Op::Gather { axis: own } if own == axis);
        let (indices, first_of) = if outer_first { (of, 0) } else { ([of[1], of[0]], 1) };
        Some(Pair { table: number(first.inputs[0])?, axis, indices, first: first_of })
    }
}

/// The kernel of a pair.
pub(crate) fn kernel(pair: Pair) -> Box<dyn StepKernel> {
    Box::new(Gathers { pair, plan: None })
}

#[derive(Debug, Clone, Copy)]
struct Gathers {
    pair: Pair,
    plan: Option<Plan>,
}

/// A bound pair.
#[derive(Debug, Clone, Copy)]
struct Plan {
    table: At,
    out: At,
    indices: [(At, DType); 2],
    /// What the table has along both axes, and the result.
    sizes: [usize; 2],
    picked: [usize; 2],
    /// Blocks before the axes.
    blocks: usize,
    /// Bytes of what is picked.
    bytes: usize,
    stores: Stores,
    worth: bool,
}

impl StepKernel for Gathers {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (pair, out) = (self.pair, &cx.outputs[0]);
        let (x, of) = (&cx.inputs[pair.table], pair.indices.map(|i| cx.inputs[i]));
        let (axis, rank) = (pair.axis, x.layout.rank());
        let none = || mismatch(format!("slices {:?} of {:?}", out.dims(), x.dims()));
        if axis + 2 > rank || out.layout.rank() != rank {
            return Err(none());
        }
        let count = |b: &Bound| b.layout.elements();
        let (sizes, picked) = ([x.dims()[axis], x.dims()[axis + 1]], [count(&of[0]), count(&of[1])]);
        let fits = out.dims()[..axis] == x.dims()[..axis]
            && out.dims()[axis..axis + 2] == picked
            && out.dims()[axis + 2..] == x.dims()[axis + 2..];
        let known = sizes.iter().all(|&n| u32::try_from(n).is_ok());
        let scratch = picked[0].checked_add(picked[1]).and_then(|n| n.checked_mul(size_of::<u32>()));
        let (true, true, Some(shared_scratch)) = (fits, known, scratch) else { return Err(none()) };
        let size = x.dtype.size_bytes();
        let nanos = (out.layout.elements() * size) as f64 * 0.04 + (picked[0] + picked[1]) as f64;
        self.plan = Some(Plan {
            table: x.at,
            out: out.at,
            indices: of.map(|b| (b.at, b.dtype)),
            sizes,
            picked,
            blocks: x.layout.range(0, axis).elements(),
            bytes: x.layout.range(axis + 2, rank).elements() * size,
            stores: Stores::of_rows(out.layout.elements() * size),
            worth: nanos > WORTH_NANOS,
        });
        Ok(Needs { shared_scratch, ..Needs::time(nanos) })
    }

    // SAFETY: the promise is that of [`StepKernel::run`].
    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(plan) = self.plan else { return Err(unbound()) };
        let (Plan { sizes, picked, bytes, .. }, axis) = (plan, self.pair.axis);
        let scratch = cx.shared_scratch.cast::<u32>();
        let places = [scratch, scratch.wrapping_add(picked[0])];
        let mut times = [None; 2];
        for i in [self.pair.first, 1 - self.pair.first] {
            let (at, dtype) = plan.indices[i];
            let indices = Indices::new(cx.ptr(at), dtype);
            // SAFETY: the caller's promise; scratch has a place for each index.
            times[i] = unsafe { resolve(&indices, picked[i], places[i], |_| (axis + i, sizes[i]))? };
        }
        let (from, to, isa) = (cx.shared::<u8>(plan.table), cx.shared::<u8>(plan.out), cx.isa);
        // All places are within the table, so those that occur twice each are all of it.
        if times == [Some(2); 2] && picked == sizes.map(|n| 2 * n) && doubles(bytes) {
            let width = sizes[1];
            cx.parallel_stores(plan.worth, plan.stores, plan.blocks * sizes[0], &|range, _| {
                let from = from.get().wrapping_add(range.start * width * bytes).cast_const();
                let to = to.get().wrapping_add(range.start * 4 * width * bytes);
                // SAFETY: the caller's promise; rows of the result are disjoint.
                unsafe { double_rows(isa, from, to, (range.len(), width), bytes, plan.stores) }
            });
            return Ok(());
        }
        let [outer, inner] = places.map(Shared::new);
        let row_bytes = picked[1] * bytes;
        cx.parallel(plan.worth, plan.blocks * picked[0], &|range, _| {
            let mut last = None;
            let (mut block, mut i) = (range.start / picked[0], range.start % picked[0]);
            for row in range {
                // The row before is this thread's if it is the last one.
                // SAFETY: all places were written, and are within the table; rows of the result are disjoint.
                unsafe {
                    let place = block * sizes[0] + *outer.get().add(i) as usize;
                    i += 1;
                    if i == picked[0] {
                        (block, i) = (block + 1, 0);
                    }
                    let to = to.get().wrapping_add(row * row_bytes);
                    if last == Some(place) {
                        std::ptr::copy_nonoverlapping(to.wrapping_sub(row_bytes), to, row_bytes);
                        continue;
                    }
                    let from = from.get().wrapping_add(place * sizes[1] * bytes).cast_const();
                    let inner = std::slice::from_raw_parts(inner.get(), picked[1]);
                    line(isa, times[1], (from, bytes as isize), inner, 0, (to, bytes));
                    last = Some(place);
                }
            }
        });
        Ok(())
    }
}
