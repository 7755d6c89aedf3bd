//! Rows: softmax and the norms of rows, one workgroup for each row.
//!
//! The invocations go over the row together, once for each statistic (each joined by the tree of [`super::reduce`])
//! and once for the results, which carry the epilogue. The first time they read it, and what comes before the op is computed; what there is room
//! for stays in workgroup memory (`Kept`), where each invocation finds its own elements again. So a row is read once, unless it is longer than that.
//!
//! A row that is kept as a whole may have more invocations (`MANY`), which read it, compute its results and write them. Its statistics are still joined by
//! the first `WORKGROUP` of them, each of the same elements in the same order, so there are as many variants as numbers of invocations, with the same bits.

use rlx_ir::op::ReduceOp;
use rlx_ir::{Extent, Node, NodeId, Op, Shape};

use super::cx::Cx;
use super::reduce::{Combine, WORKGROUP, join_parts, join_stored, memory_of_parts};
use super::{Launch, Scheduled, StepDesc, Unscheduled, elementwise, reject};
use crate::ir::{Inst, MathFn, Shared, Ty, UnOp, Value};

/// Invocations of a workgroup with many. A GPU reads a row of 768 elements three at a time for each of them, where fewer wait for memory twelve times: the norm of
/// one row takes an H100 6.6 µs instead of 10.4.
pub(super) const MANY: u32 = 256;
/// Of any other.
pub(super) const FEW: u32 = WORKGROUP;

/// Bytes of workgroup memory for the elements of a row, of the 16 KiB that every device has.
const ROOM_BYTES: i64 = 8 << 10;

/// The elements of a row in workgroup memory.
#[derive(Clone, Copy)]
struct Kept {
    shared: Shared,
    /// How many there is room for; `None` where that is known to be all.
    room: Option<i32>,
}

impl Kept {
    /// Room for a row of `count` elements.
    fn new(cx: &mut Cx<'_>, ty: Ty, count: Extent) -> Kept {
        let most = ROOM_BYTES / i64::from(ty.bits().div_ceil(8));
        let whole = count.as_const().filter(|&n| n <= most);
        // Powers of two, so that rows of similar lengths share a kernel.
        let len = whole.map_or(most, |n| n.max(1).unsigned_abs().next_power_of_two() as i64);
        Kept { shared: cx.b.shared(ty, len as u32), room: whole.is_none().then_some(len as i32) }
    }

    fn fits(&self, cx: &mut Cx<'_>, i: Value) -> Option<Value> {
        let room = cx.b.int(self.room?);
        Some(cx.b.lt(i, room))
    }

    /// Keeps element `i` of the row, which is this invocation's.
    fn keep(&self, cx: &mut Cx<'_>, i: Value, v: Value) -> Scheduled<()> {
        let store = |cx: &mut Cx<'_>| {
            cx.b.store_shared(self.shared, i, v);
            Ok(())
        };
        match self.fits(cx, i) {
            None => store(cx),
            Some(fits) => cx.if_then(fits, store),
        }
    }

    /// Element `i` as it was kept, or, where there was no room, as `again` computes it.
    fn get(
        &self,
        cx: &mut Cx<'_>,
        i: Value,
        again: impl FnOnce(&mut Cx<'_>) -> Scheduled<Value>,
    ) -> Scheduled<Value> {
        let Some(fits) = self.fits(cx, i) else { return Ok(cx.b.load_shared(self.shared, i)) };
        let zero = cx.b.int(0);
        let zero = cx.b.convert(cx.b.kernel().shared[self.shared.index()].ty, zero);
        let kept = cx.value_if(fits, zero, |cx| Ok(cx.b.load_shared(self.shared, i)))?;
        let beyond = cx.b.not(fits);
        cx.value_if(beyond, kept, again)
    }
}

/// Where the invocations of a workgroup are in their row.
struct Row<'a> {
    /// The index of the row's first element.
    start: &'a [Value],
    /// Which dimensions run along the row, and their sizes.
    axes: &'a [usize],
    sizes: Vec<Value>,
    /// How many elements it has.
    count: Value,
    lane: Value,
    /// Invocations of the workgroup.
    lanes: u32,
    /// Where statistics are joined: see [`memory_of_parts`].
    parts: Option<Shared>,
    kept: Kept,
}

impl Row<'_> {
    /// Runs `f` on the number and the index of every element that is this invocation's.
    fn each(
        &self,
        cx: &mut Cx<'_>,
        f: impl FnOnce(&mut Cx<'_>, Value, &[Value]) -> Scheduled<()>,
    ) -> Scheduled<()> {
        self.each_of(cx, self.lanes, f)
    }

    /// The same where the row's elements are those of this many invocations.
    fn each_of(
        &self,
        cx: &mut Cx<'_>,
        lanes: u32,
        f: impl FnOnce(&mut Cx<'_>, Value, &[Value]) -> Scheduled<()>,
    ) -> Scheduled<()> {
        cx.for_step((self.lane, self.count, lanes as i32), |cx, i| {
            let along = cx.unflatten(i, &self.sizes);
            let mut index = self.start.to_vec();
            self.axes.iter().zip(along).for_each(|(&a, i)| index[a] = i);
            f(cx, i, &index)
        })
    }

    /// Element `i` of the row of `x`, read and kept.
    fn first(&self, cx: &mut Cx<'_>, x: NodeId, i: Value, index: &[Value]) -> Scheduled<Value> {
        let v = cx.element(x, index)?;
        self.kept.keep(cx, i, v)?;
        Ok(v)
    }

    /// Element `i` of the row of `x`, which was kept.
    fn again(&self, cx: &mut Cx<'_>, x: NodeId, i: Value, index: &[Value]) -> Scheduled<Value> {
        self.kept.get(cx, i, |cx| cx.element(x, index))
    }

    /// A statistic of what `f` makes of the row's elements, which it keeps where it `keeps` anything; the same in every invocation.
    fn total(
        &self,
        cx: &mut Cx<'_>,
        combine: Combine,
        keeps: bool,
        f: impl FnOnce(&mut Cx<'_>, Value, &[Value]) -> Scheduled<Value>,
    ) -> Scheduled<Value> {
        let identity = combine.identity(&mut cx.b);
        let total = cx.b.var(identity);
        if self.lanes == FEW {
            self.each(cx, |cx, i, index| {
                let v = f(cx, i, index)?;
                combine.accumulate(&mut cx.b, total, v);
                Ok(())
            })?;
            let own = cx.b.get(total);
            return Ok(join_parts(&mut cx.b, combine, self.parts, self.lane, own));
        }
        let parts = match self.parts {
            Some(parts) => parts,
            None => cx.b.shared(combine.ty, WORKGROUP),
        };
        // What is kept by all is joined by some.
        let mut f = Some(f);
        if keeps && let Some(f) = f.take() {
            self.each(cx, |cx, i, index| f(cx, i, index).map(drop))?;
            cx.b.barrier();
        }
        let some = cx.b.int(WORKGROUP as i32);
        let joins = cx.b.lt(self.lane, some);
        cx.if_then(joins, |cx| {
            self.each_of(cx, WORKGROUP, |cx, i, index| {
                let v = match f {
                    Some(f) => f(cx, i, index)?,
                    None => cx.b.load_shared(self.kept.shared, i),
                };
                combine.accumulate(&mut cx.b, total, v);
                Ok(())
            })?;
            let own = cx.b.get(total);
            cx.b.store_shared(parts, self.lane, own);
            Ok(())
        })?;
        Ok(join_stored(&mut cx.b, combine, parts, self.lane))
    }
}

/// The dimensions that rows run along.
fn axes(step: &StepDesc, anchor: &Node) -> Scheduled<Vec<usize>> {
    axes_of(anchor, step.graph.shape(anchor.inputs[0]))
}

/// The dimensions that the rows of a node's operand run along.
///
/// # Errors
/// An op that is not of rows, or an axis that is not there.
pub(super) fn axes_of(anchor: &Node, x: &Shape) -> Scheduled<Vec<usize>> {
    let (axis, alone) = match anchor.op {
        Op::Softmax { axis } | Op::LogSoftmax { axis } => (axis, true),
        Op::LayerNorm { axis, .. } | Op::RmsNorm { axis, .. } => (axis, false),
        ref op => return reject(format!("{} is not of rows", op.kind())),
    };
    let first = x.axis(i64::from(axis)).map_err(|e| Unscheduled(e.to_string()))?;
    Ok(if alone { vec![first] } else { (first..x.rank()).collect() })
}

/// How many elements a row has.
fn length(step: &StepDesc, anchor: &Node, axes: &[usize]) -> Extent {
    let x = step.graph.shape(anchor.inputs[0]);
    axes.iter().fold(Extent::Const(1), |n, &a| n * x.dim(a).extent())
}

/// The most rows that keep a GPU's memory waiting, so that more invocations for each pay. Of 6,304 rows, norms take an H100 19 µs with [`FEW`] and 30 with [`MANY`].
const FEW_ROWS: i64 = 512;

/// Whether there are so few rows that each should have many invocations.
fn are_few(step: &StepDesc, anchor: &Node) -> bool {
    let Ok(axes) = axes(step, anchor) else { return false };
    let x = step.graph.shape(anchor.inputs[0]);
    let others = (0..x.rank()).filter(|axis| !axes.contains(axis));
    let rows = others.fold(Extent::Const(1), |n, axis| n * x.dim(axis).extent());
    rows.as_const().is_some_and(|rows| rows <= FEW_ROWS)
}

/// How many invocations a row may have: few, and many where there are few rows of some length, each kept as a whole.
///
/// # Errors
/// An axis that is not there.
pub(super) fn lanes(step: &StepDesc, anchor: &Node) -> Scheduled<Vec<u32>> {
    let most = ROOM_BYTES / i64::from(Ty::of(step.graph.shape(anchor.inputs[0]).dtype()).bits().div_ceil(8));
    let length = length(step, anchor, &axes(step, anchor)?).as_const();
    let many = length.is_some_and(|n| (i64::from(MANY)..=most).contains(&n)) && are_few(step, anchor);
    Ok(if many { vec![FEW, MANY] } else { vec![FEW] })
}

/// Makes the kernel of a body around a softmax, its logarithm, a layer norm or an RMS norm.
///
/// # Errors
/// An element type without arithmetic, or an epilogue of other dimensions.
pub fn schedule(step: &StepDesc, anchor: &Node, lanes: u32, subgroup: Option<u32>) -> Scheduled<Vec<Launch>> {
    let x = step.graph.shape(anchor.inputs[0]);
    let alone = matches!(anchor.op, Op::Softmax { .. } | Op::LogSoftmax { .. });
    let axes = axes(step, anchor)?;
    if !elementwise::computes(x.dtype()) {
        return reject(format!("{} of {}", anchor.op.kind(), x.dtype()));
    }
    let mut cx = Cx::new(&format!("rows.{}", step.name), lanes, step);
    cx.b.set_subgroup(subgroup);
    let space = cx.result_space()?;
    let mut dims = cx.sizes("dim", &space);
    let sizes: Vec<Value> = axes.iter().map(|&a| dims[a]).collect();
    let one = cx.b.int(1);
    axes.iter().for_each(|&a| dims[a] = one);
    let (rows, count) = (cx.product(&dims), cx.product(&sizes));
    let parts = memory_of_parts(&mut cx.b, Ty::of(x.dtype()));
    let kept = Kept::new(&mut cx, Ty::of(x.dtype()), length(step, anchor, &axes));
    let (group, lane) = (cx.b.inst(Inst::GroupId), cx.b.inst(Inst::LocalId));
    let inside = cx.b.lt(group, rows);
    cx.if_then(inside, |cx| {
        let start = cx.unflatten(group, &dims);
        let row = Row { start: &start, axes: &axes, sizes, count, lane, lanes, parts, kept };
        if alone { softmax(cx, anchor, &row) } else { norm(cx, anchor, &row) }
    })?;
    let kept = (0..space.len()).filter(|i| !axes.contains(i));
    Ok(vec![cx.finish(kept.fold(Extent::Const(1), |n, i| n * space[i]))])
}

/// Rounds and stores one element.
fn store(cx: &mut Cx<'_>, anchor: &Node, index: &[Value], v: Value) -> Scheduled<()> {
    let v = elementwise::narrowed(&mut cx.b, v, anchor.shape.dtype());
    cx.bind(anchor.id, index, v);
    cx.store_results(index)
}

/// `exp(x − m) / Σ exp(x − m)` with the largest element `m`, or its logarithm.
fn softmax(cx: &mut Cx<'_>, anchor: &Node, row: &Row<'_>) -> Scheduled<()> {
    let (x, dtype) = (anchor.inputs[0], anchor.shape.dtype());
    let (greatest, sum) = (Combine::new(ReduceOp::Max, dtype)?, Combine::new(ReduceOp::Sum, dtype)?);
    let most = row.total(cx, greatest, true, |cx, i, index| row.first(cx, x, i, index))?;
    let logarithm = matches!(anchor.op, Op::LogSoftmax { .. });
    let exponential = |cx: &mut Cx<'_>, v: Value| {
        let v = cx.b.sub(v, most);
        cx.b.math(MathFn::Exp, v)
    };
    let total = row.total(cx, sum, !logarithm, |cx, i, index| {
        let v = row.again(cx, x, i, index)?;
        let e = exponential(cx, v);
        if !logarithm {
            row.kept.keep(cx, i, e)?;
        }
        Ok(e)
    })?;
    let total = if logarithm { cx.b.math(MathFn::Log, total) } else { total };
    row.each(cx, |cx, i, index| {
        let v = if logarithm {
            let v = row.again(cx, x, i, index)?;
            let v = cx.b.sub(v, most);
            cx.b.sub(v, total)
        } else {
            let e = row.kept.get(cx, i, |cx| {
                let v = cx.element(x, index)?;
                Ok(exponential(cx, v))
            })?;
            cx.b.div(e, total)
        };
        store(cx, anchor, index, v)
    })
}

/// `(x − μ) · (1 / √(σ² + ε)) · γ + β`; the RMS norm takes μ to be 0.
fn norm(cx: &mut Cx<'_>, anchor: &Node, row: &Row<'_>) -> Scheduled<()> {
    let (x, dtype) = (anchor.inputs[0], anchor.shape.dtype());
    let (Op::LayerNorm { eps, .. } | Op::RmsNorm { eps, .. }) = anchor.op else {
        return reject("not a norm");
    };
    let sum = Combine::new(ReduceOp::Sum, dtype)?;
    let ty = Ty::of(dtype);
    let n = cx.b.convert(ty, row.count);
    let mean = if matches!(anchor.op, Op::LayerNorm { .. }) {
        let total = row.total(cx, sum, true, |cx, i, index| row.first(cx, x, i, index))?;
        cx.b.div(total, n)
    } else {
        cx.b.number(ty, 0.0)
    };
    let centred = matches!(anchor.op, Op::LayerNorm { .. });
    // Of an RMS norm, many invocations read the row before any of them looks at what another one read.
    let read_before = !centred && row.lanes > FEW;
    if read_before {
        row.each(cx, |cx, i, index| row.first(cx, x, i, index).map(drop))?;
        cx.b.barrier();
    }
    let squares = row.total(cx, sum, false, |cx, i, index| {
        let is_kept = centred || read_before;
        let v = if is_kept { row.again(cx, x, i, index)? } else { row.first(cx, x, i, index)? };
        let v = cx.b.sub(v, mean);
        Ok(cx.b.mul(v, v))
    })?;
    let variance = cx.b.div(squares, n);
    let eps = cx.b.number(ty, f64::from(eps));
    let shifted = cx.b.add(variance, eps);
    let (deviation, one) = (cx.b.unary(UnOp::Sqrt, shifted), cx.b.number(ty, 1.0));
    // Divided once: a division takes a GPU as long as all else that is done to an element.
    let scale = cx.b.div(one, deviation);
    row.each(cx, |cx, i, index| {
        let v = row.again(cx, x, i, index)?;
        let v = cx.b.sub(v, mean);
        let mut v = cx.b.mul(v, scale);
        for (at, &parameter) in anchor.inputs.iter().enumerate().skip(1) {
            let own = cx.broadcast(parameter, x, index);
            let p = cx.element(parameter, &own)?;
            v = if at == 1 { cx.b.mul(v, p) } else { cx.b.add(v, p) };
        }
        store(cx, anchor, index, v)
    })
}
