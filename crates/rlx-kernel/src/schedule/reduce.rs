//! Reduce: one number for each row, where a row is all elements along the reduced axes.
//!
//! Short rows are done by one invocation each, in order. Other rows are done by one workgroup each: every invocation takes each
//! `WORKGROUP`-th element in order, and a tree in workgroup memory joins the parts. Of rows whose elements are not side by side while those of neighbouring
//! rows are, a workgroup has several (`COLUMNS`), each by as many invocations as make it a workgroup (`LINES`). Which of these it is, is
//! decided by the step's shape alone, and all have a fixed order, so bits never depend on the device's.
//!
//! Rows of more than some thousand elements come in parts: see `schedule/long_rows.rs`.

use rlx_ir::op::ReduceOp;
use rlx_ir::{DType, Extent, Node, Op};

use super::cx::Cx;
use super::{Launch, Scheduled, StepDesc, elementwise, reject};
use crate::build::Builder;
use crate::ir::{BinOp, Const, Inst, Shared, Ty, Value, Var};

/// Invocations of a workgroup.
pub(super) const WORKGROUP: u32 = 64;

/// How many parts an invocation joins before it waits for others. It and [`WORKGROUP`] are powers of two.
const JOINED: u32 = 8;
const _: () = assert!(JOINED.is_power_of_two() && WORKGROUP.is_power_of_two());

/// Rows of at most this many elements are done by one invocation.
pub(super) const SHORT_ROW: i64 = 32;

/// Neighbouring rows of a workgroup where those, and not the elements of a row, are side by side.
const COLUMNS: u32 = 16;

/// Invocations of each of these rows.
const LINES: u32 = WORKGROUP / COLUMNS;
const _: () = assert!(LINES.is_power_of_two());

/// So many results have invocations enough for any GPU if each has one, which then takes this many elements at most.
const MANY_RESULTS: i64 = 1 << 16;
/// See [`MANY_RESULTS`].
const FEW_ELEMENTS: i64 = 1024;

/// What a row is reduced to: some values, which each invocation has of its own elements before those of all are joined.
pub(super) trait Joins: Copy {
    /// The types of these values.
    fn types(self) -> Vec<Ty>;

    /// What they are of no elements.
    fn start(self, b: &mut Builder) -> Vec<Value>;

    /// Takes in an element of the row, behind those that were, at its place along the reduced axes.
    fn take(self, b: &mut Builder, totals: &[Var], v: Value, place: &[Value]);

    /// Two parts joined.
    fn both(self, b: &mut Builder, x: &[Value], y: &[Value]) -> Vec<Value>;

    /// The result of a row of `count` elements (an `i32`).
    fn end(self, b: &mut Builder, totals: &[Value], count: Value) -> Value;
}

impl Joins for Combine {
    fn types(self) -> Vec<Ty> {
        vec![self.ty]
    }

    fn start(self, b: &mut Builder) -> Vec<Value> {
        vec![self.identity(b)]
    }

    fn take(self, b: &mut Builder, totals: &[Var], v: Value, _: &[Value]) {
        self.accumulate(b, totals[0], v);
    }

    fn both(self, b: &mut Builder, x: &[Value], y: &[Value]) -> Vec<Value> {
        vec![self.join(b, x[0], y[0])]
    }

    fn end(self, b: &mut Builder, totals: &[Value], count: Value) -> Value {
        self.finish(b, totals[0], count)
    }
}

/// How elements of a type combine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Combine {
    pub op: ReduceOp,
    pub dtype: DType,
    /// The type of the running result.
    pub ty: Ty,
}

impl Combine {
    /// # Errors
    /// An element type without arithmetic.
    pub fn new(op: ReduceOp, dtype: DType) -> Scheduled<Self> {
        if !elementwise::computes(dtype) {
            return reject(format!("a reduction of {dtype}"));
        }
        let ty = match Ty::of(dtype) {
            // The sum behind an integer mean may exceed the element type.
            Ty::I32 if op == ReduceOp::Mean => Ty::I64,
            Ty::U32 if op == ReduceOp::Mean => Ty::U64,
            ty => ty,
        };
        Ok(Combine { op, dtype, ty })
    }

    /// What no elements combine to.
    pub fn identity(&self, b: &mut Builder) -> Value {
        let float = match self.op {
            ReduceOp::Max => f64::NEG_INFINITY,
            ReduceOp::Min => f64::INFINITY,
            ReduceOp::Prod => 1.0,
            _ => 0.0,
        };
        if self.ty.is_float() {
            return b.number(self.ty, float);
        }
        let (min, max) = self.dtype.int_range().unwrap_or((0, 1));
        let int = match self.op {
            ReduceOp::Max => min,
            ReduceOp::Min => max,
            ReduceOp::Prod => 1,
            _ => 0,
        };
        b.constant(Const::int(self.ty, int as i64))
    }

    /// An element as the type of the running result.
    pub fn widen(&self, b: &mut Builder, v: Value) -> Value {
        b.convert(self.ty, v)
    }

    /// Two parts joined.
    pub fn join(&self, b: &mut Builder, x: Value, y: Value) -> Value {
        match (self.op, self.ty) {
            (ReduceOp::Max, Ty::Bool) => b.or(x, y),
            (ReduceOp::Min, Ty::Bool) => b.and(x, y),
            (ReduceOp::Max, ty) if ty.is_float() => elementwise::float_choice(b, BinOp::Max, x, y),
            (ReduceOp::Min, ty) if ty.is_float() => elementwise::float_choice(b, BinOp::Min, x, y),
            (ReduceOp::Max, _) => b.max(x, y),
            (ReduceOp::Min, _) => b.min(x, y),
            (ReduceOp::Prod, _) => b.mul(x, y),
            _ => b.add(x, y),
        }
    }

    /// The invocation's place where the order of two parts counts: for the greater of two zeros. (It does for the bits of NaN as well, which no one promises.)
    fn ordered(&self, lane: Value) -> Option<Value> {
        (self.ty.is_float() && matches!(self.op, ReduceOp::Max | ReduceOp::Min)).then_some(lane)
    }

    /// Joins `v` into a variable.
    pub fn accumulate(&self, b: &mut Builder, total: Var, v: Value) {
        let v = self.widen(b, v);
        let now = b.get(total);
        let next = self.join(b, now, v);
        b.set(total, next);
    }

    /// The result of a row of `count` elements (an `i32`), as the element type holds it.
    pub fn finish(&self, b: &mut Builder, total: Value, count: Value) -> Value {
        let v = match self.op {
            ReduceOp::Mean if self.ty.is_float() => {
                let n = b.convert(self.ty, count);
                b.div(total, n)
            }
            ReduceOp::Mean => {
                let one = b.int(1);
                let n = b.max(count, one);
                let n = b.convert(self.ty, n);
                b.div(total, n)
            }
            _ => total,
        };
        let v = b.convert(Ty::of(self.dtype), v);
        elementwise::narrowed(b, v, self.dtype)
    }
}

/// A reduction's axes: where each index of the operand comes from.
struct Rows {
    /// The reduced axes.
    axes: Vec<usize>,
    /// For each axis of the operand, the axis of the result; `None` for the reduced ones.
    kept: Vec<Option<usize>>,
}

impl Rows {
    fn new(rank: usize, axes: &[usize], keep_dim: bool) -> Self {
        let mut next = 0;
        let kept = (0..rank).map(|i| {
            let reduced = axes.contains(&i);
            let own = next;
            next += usize::from(keep_dim || !reduced);
            (!reduced).then_some(own)
        });
        Rows { kept: kept.collect(), axes: axes.to_vec() }
    }

    /// The operand's index from the result's and that along the reduced axes.
    fn index(&self, result: &[Value], along: &[Value]) -> Vec<Value> {
        let mut along = along.iter();
        let pick = |k: &Option<usize>| k.map(|k| result[k]).or_else(|| along.next().copied());
        self.kept.iter().map(pick).map(|v| v.unwrap_or(Value(0))).collect()
    }
}

/// Makes the kernel of a body around [`Op::Reduce`].
///
/// # Errors
/// An element type without arithmetic, or an epilogue of other dimensions.
pub fn schedule(step: &StepDesc, anchor: &Node, subgroup: Option<u32>) -> Scheduled<Vec<Launch>> {
    let Op::Reduce { op, axes, keep_dim } = &anchor.op else { return reject("not a reduction") };
    let combine = Combine::new(*op, anchor.shape.dtype())?;
    reduced(step, anchor, combine, (axes, *keep_dim), subgroup)
}

/// The kernel that reduces rows along these axes, which stay as dimensions of 1 or do not.
pub(super) fn reduced<J: Joins>(
    step: &StepDesc,
    anchor: &Node,
    joins: J,
    (axes, keep_dim): (&[usize], bool),
    subgroup: Option<u32>,
) -> Scheduled<Vec<Launch>> {
    let x = step.graph.shape(anchor.inputs[0]);
    let rows = Rows::new(x.rank(), axes, keep_dim);
    let count = axes.iter().fold(Extent::Const(1), |n, &a| n * x.dim(a).extent());
    let side_by_side = axes.last().is_none_or(|&a| a + 1 == x.rank());
    let is_at_most = |most: i64| count.as_const().is_some_and(|n| n <= most);
    let results = anchor.shape.dims().iter().fold(Extent::Const(1), |n, d| n * d.extent());
    let has_many = results.as_const().is_some_and(|n| n >= MANY_RESULTS);
    let alone = is_at_most(SHORT_ROW) || !side_by_side && has_many && is_at_most(FEW_ELEMENTS);
    let mut cx = Cx::new(&format!("reduce.{}", step.name), WORKGROUP, step);
    // Columns are joined by one invocation for each, from memory.
    cx.b.set_subgroup(subgroup.filter(|_| !alone && side_by_side));
    match (alone, side_by_side) {
        (true, _) => by_invocation(cx, anchor, joins, &rows),
        (false, true) => by_workgroup(cx, anchor, joins, &rows),
        (false, false) => by_columns(cx, anchor, joins, &rows),
    }
}

fn reduced_dims(cx: &mut Cx<'_>, anchor: &Node, rows: &Rows) -> Vec<Value> {
    let shape = cx.graph().shape(anchor.inputs[0]).clone();
    rows.axes.iter().map(|&a| cx.size(&format!("row{a}"), shape.dim(a).extent())).collect()
}

fn by_invocation<J: Joins>(mut cx: Cx<'_>, anchor: &Node, joins: J, rows: &Rows) -> Scheduled<Vec<Launch>> {
    let space = cx.result_space()?;
    let dims = cx.sizes("dim", &space);
    let along = reduced_dims(&mut cx, anchor, rows);
    let (n, count) = (cx.product(&dims), cx.product(&along));
    let i = cx.b.global_id();
    let inside = cx.b.lt(i, n);
    cx.if_then(inside, |cx| {
        let result = cx.unflatten(i, &dims);
        let totals = started(&mut cx.b, joins);
        cx.for_space(&along, &mut |cx, place| {
            let index = rows.index(&result, place);
            let v = cx.element(anchor.inputs[0], &index)?;
            joins.take(&mut cx.b, &totals, v, place);
            Ok(())
        })?;
        let totals = present(&mut cx.b, &totals);
        let v = joins.end(&mut cx.b, &totals, count);
        cx.bind(anchor.id, &result, v);
        cx.store_results(&result)
    })?;
    let elements = space.iter().fold(Extent::Const(1), |n, &d| n * d);
    Ok(vec![cx.finish(elements.ceil_div(i64::from(WORKGROUP)))])
}

/// Variables that have the values of no elements.
fn started<J: Joins>(b: &mut Builder, joins: J) -> Vec<Var> {
    joins.start(b).into_iter().map(|v| b.var(v)).collect()
}

fn present(b: &mut Builder, vars: &[Var]) -> Vec<Value> {
    vars.iter().map(|&var| b.get(var)).collect()
}

fn shared_parts<J: Joins>(b: &mut Builder, joins: J) -> Vec<Shared> {
    joins.types().into_iter().map(|ty| b.shared(ty, WORKGROUP)).collect()
}

fn store_parts(b: &mut Builder, parts: &[Shared], at: Value, own: &[Value]) {
    parts.iter().zip(own).for_each(|(&part, &v)| b.store_shared(part, at, v));
}

/// What an invocation that is so many further on has stored.
fn part_at(b: &mut Builder, parts: &[Shared], lane: Value, away: u32) -> Vec<Value> {
    let away = b.int(away as i32);
    let at = b.add(lane, away);
    parts.iter().map(|&part| b.load_shared(part, at)).collect()
}

/// Takes some elements of a row into the totals, one after the other: those from the first on, before the end, by a step.
fn join_elements<J: Joins>(
    cx: &mut Cx<'_>,
    (anchor, joins, rows): (&Node, J, &Rows),
    result: &[Value],
    along: &[Value],
    elements: (Value, Value, i32),
    totals: &[Var],
) -> Scheduled<()> {
    cx.for_step(elements, |cx, i| {
        let place = cx.unflatten(i, along);
        let index = rows.index(result, &place);
        let v = cx.element(anchor.inputs[0], &index)?;
        joins.take(&mut cx.b, totals, v, &place);
        Ok(())
    })
}

fn by_workgroup<J: Joins>(mut cx: Cx<'_>, anchor: &Node, joins: J, rows: &Rows) -> Scheduled<Vec<Launch>> {
    let space = cx.result_space()?;
    let dims = cx.sizes("dim", &space);
    let along = reduced_dims(&mut cx, anchor, rows);
    let (n, count) = (cx.product(&dims), cx.product(&along));
    let (group, lane) = (cx.b.inst(Inst::GroupId), cx.b.inst(Inst::LocalId));
    let inside = cx.b.lt(group, n);
    cx.if_then(inside, |cx| {
        let result = cx.unflatten(group, &dims);
        let totals = started(&mut cx.b, joins);
        let elements = (lane, count, WORKGROUP as i32);
        join_elements(cx, (anchor, joins, rows), &result, &along, elements, &totals)?;
        let own = present(&mut cx.b, &totals);
        let totals = match cx.b.kernel().subgroup {
            None => {
                let parts = shared_parts(&mut cx.b, joins);
                store_parts(&mut cx.b, &parts, lane, &own);
                join_all(&mut cx.b, joins, &parts, lane)
            }
            Some(_) => {
                let own = joined_across(&mut cx.b, joins, lane, &own);
                exchanged(&mut cx.b, joins, own, None)
            }
        };
        let one = cx.b.int(1);
        let first = cx.b.lt(lane, one);
        cx.if_then(first, |cx| {
            let v = joins.end(&mut cx.b, &totals, count);
            cx.bind(anchor.id, &result, v);
            cx.store_results(&result)
        })
    })?;
    let groups = space.iter().fold(Extent::Const(1), |n, &d| n * d);
    Ok(vec![cx.finish(groups)])
}

/// Of a workgroup's columns, the first invocation of each joins what all of them have, by a tree.
fn by_columns<J: Joins>(mut cx: Cx<'_>, anchor: &Node, joins: J, rows: &Rows) -> Scheduled<Vec<Launch>> {
    let space = cx.result_space()?;
    let dims = cx.sizes("dim", &space);
    let along = reduced_dims(&mut cx, anchor, rows);
    let (n, count) = (cx.product(&dims), cx.product(&along));
    let parts = shared_parts(&mut cx.b, joins);
    let (group, lane) = (cx.b.inst(Inst::GroupId), cx.b.inst(Inst::LocalId));
    let columns = cx.b.int(COLUMNS as i32);
    let (line, column) = cx.b.div_rem(lane, columns);
    let first = cx.b.mul(group, columns);
    let i = cx.b.add(first, column);
    let inside = cx.b.lt(i, n);
    let totals = started(&mut cx.b, joins);
    cx.if_then(inside, |cx| {
        let result = cx.unflatten(i, &dims);
        let elements = (line, count, LINES as i32);
        join_elements(cx, (anchor, joins, rows), &result, &along, elements, &totals)
    })?;
    let own = present(&mut cx.b, &totals);
    store_parts(&mut cx.b, &parts, lane, &own);
    cx.b.barrier();
    let is_first = cx.b.lt(lane, columns);
    let is_first = cx.b.and(is_first, inside);
    cx.if_then(is_first, |cx| {
        let all = (0..LINES).map(|line| part_at(&mut cx.b, &parts, lane, line * COLUMNS)).collect();
        let totals = halved(&mut cx.b, joins, all);
        let result = cx.unflatten(i, &dims);
        let v = joins.end(&mut cx.b, &totals, count);
        cx.bind(anchor.id, &result, v);
        cx.store_results(&result)
    })?;
    let elements = space.iter().fold(Extent::Const(1), |n, &d| n * d);
    Ok(vec![cx.finish(elements.ceil_div(i64::from(COLUMNS)))])
}

/// Parts joined by a tree that halves them.
fn halved<J: Joins>(b: &mut Builder, joins: J, mut parts: Vec<Vec<Value>>) -> Vec<Value> {
    while parts.len() > 1 {
        let others = parts.split_off(parts.len() / 2);
        parts = parts.into_iter().zip(others).map(|(x, y)| joins.both(b, &x, &y)).collect();
    }
    parts.swap_remove(0)
}

/// The part of this invocation joined with those of others at the same place of their subgroups, of a workgroup of [`WORKGROUP`].
fn joined_across<J: Joins>(b: &mut Builder, joins: J, lane: Value, own: &[Value]) -> Vec<Value> {
    if b.kernel().subgroup == Some(WORKGROUP) {
        return own.to_vec();
    }
    let parts = shared_parts(b, joins);
    store_parts(b, &parts, lane, own);
    b.barrier();
    across(b, joins, &parts, lane)
}

/// The same of parts that were stored by the first [`WORKGROUP`] invocations, for any invocation.
fn across<J: Joins>(b: &mut Builder, joins: J, parts: &[Shared], lane: Value) -> Vec<Value> {
    let subgroup = b.kernel().subgroup.unwrap_or(WORKGROUP);
    let lanes = b.int(subgroup as i32);
    let place = b.rem(lane, lanes);
    let all = (0..WORKGROUP / subgroup).map(|k| part_at(b, parts, place, k * subgroup)).collect();
    halved(b, joins, all)
}

/// Joins the parts of a subgroup's invocations by exchanges: the first one gets what a tree that halves the parts gives. So do all of them if each joins
/// by its place (`lane`) those of a pair in the same order; otherwise they get it where order does not count.
fn exchanged<J: Joins>(b: &mut Builder, joins: J, mut own: Vec<Value>, lane: Option<Value>) -> Vec<Value> {
    let mut away = b.kernel().subgroup.unwrap_or(1);
    while away > 1 {
        away /= 2;
        let other: Vec<Value> = own.iter().map(|&v| b.shuffle_xor(v, away)).collect();
        own = match lane {
            None => joins.both(b, &own, &other),
            Some(lane) => {
                let (bit, zero) = (b.int(away as i32), b.int(0));
                let bit = b.and(lane, bit);
                let is_first = b.eq(bit, zero);
                let mut pick = |x: &[Value], y: &[Value]| -> Vec<Value> {
                    x.iter().zip(y).map(|(&x, &y)| b.select(is_first, x, y)).collect()
                };
                let (first, second) = (pick(&own, &other), pick(&other, &own));
                joins.both(b, &first, &second)
            }
        };
    }
    own
}

/// Where the parts of a workgroup's invocations are joined: `None` in kernels with subgroups, which have memory of their own for each result, so that nobody waits
/// before it is used again.
pub(super) fn memory_of_parts(b: &mut Builder, ty: Ty) -> Option<Shared> {
    b.kernel().subgroup.is_none().then(|| b.shared(ty, WORKGROUP))
}

/// Joins the parts of all invocations of a workgroup of [`WORKGROUP`] by a tree; gives every one of them the result.
pub(super) fn join_parts(
    b: &mut Builder,
    combine: Combine,
    parts: Option<Shared>,
    lane: Value,
    own: Value,
) -> Value {
    match parts {
        Some(parts) => {
            b.store_shared(parts, lane, own);
            join_all(b, combine, &[parts], lane)[0]
        }
        None => {
            let own = joined_across(b, combine, lane, &[own]);
            exchanged(b, combine, own, combine.ordered(lane))[0]
        }
    }
}

/// The same of parts that were stored, one by each of the first [`WORKGROUP`] invocations, for all of any workgroup.
pub(super) fn join_stored(b: &mut Builder, combine: Combine, parts: Shared, lane: Value) -> Value {
    if b.kernel().subgroup.is_none() {
        return join_all(b, combine, &[parts], lane)[0];
    }
    b.barrier();
    let own = across(b, combine, &[parts], lane);
    exchanged(b, combine, own, combine.ordered(lane))[0]
}

/// The same of any values. Of a tree that halves the parts, an invocation does several levels without waiting for others: fewer barriers, the same sums.
///
/// ```text
/// invocation i < 8    ((p[i] + p[i + 32]) + (p[i + 16] + p[i + 48])) + ((p[i + 8] + p[i + 40]) + (p[i + 24] + p[i + 56]))
/// invocation 0        the same of the first eight
/// ```
fn join_all<J: Joins>(b: &mut Builder, joins: J, parts: &[Shared], lane: Value) -> Vec<Value> {
    b.barrier();
    let mut left = WORKGROUP;
    while left > 1 {
        let together = left.min(JOINED);
        left /= together;
        let width = b.int(left as i32);
        let active = b.lt(lane, width);
        b.if_then(active, |b| {
            let own = (0..together).map(|k| part_at(b, parts, lane, k * left)).collect();
            let own = halved(b, joins, own);
            store_parts(b, parts, lane, &own);
        });
        b.barrier();
    }
    let zero = b.int(0);
    let totals = parts.iter().map(|&part| b.load_shared(part, zero)).collect();
    // The parts may be used for the next statistic.
    b.barrier();
    totals
}

#[cfg(test)]
mod tests {
    use rlx_ir::testing::Gen;

    use super::*;
    use crate::interp::{Binding, Pools, dispatch};
    use crate::ir::Access;

    /// What a tree that halves its parts gives.
    fn halved_floats(mut parts: Vec<f32>) -> f32 {
        while parts.len() > 1 {
            let half = parts.len() / 2;
            parts = (0..half).map(|i| parts[i] + parts[i + half]).collect();
        }
        parts[0]
    }

    #[test]
    fn parts_are_joined_as_a_tree_that_halves_them_joins_them() {
        let mut b = Builder::new("join", WORKGROUP);
        let x = b.buffer("x", DType::F32, Access::Read);
        let y = b.buffer("y", DType::F32, Access::Write);
        let parts = b.shared(Ty::F32, WORKGROUP);
        let lane = b.inst(Inst::LocalId);
        let own = b.load(x, lane);
        let combine = Combine::new(ReduceOp::Sum, DType::F32).unwrap();
        let total = join_parts(&mut b, combine, Some(parts), lane, own);
        b.store(y, lane, total);
        let kernel = b.finish();
        crate::verify::verify(&kernel).unwrap();
        let (mut gen_, len) = (Gen::new(3), 4 * WORKGROUP as usize);
        for _ in 0..20 {
            let x = gen_.value(DType::F32, &[WORKGROUP as usize], -1.0..1.0).encode();
            let floats = |bytes: &[u8]| -> Vec<f32> {
                bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
            };
            let wanted = halved_floats(floats(&x));
            let mut pools = Pools(vec![x, vec![0; len]]);
            let bindings = [0, 1].map(|pool| Binding { pool, offset: 0, len });
            dispatch(&kernel, 1, &[], &bindings, &mut pools).unwrap();
            assert_eq!(floats(&pools.0[1]), vec![wanted; WORKGROUP as usize]);
        }
    }
}
