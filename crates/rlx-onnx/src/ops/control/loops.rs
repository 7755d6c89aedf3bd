//! `Loop` and `Scan`: unrolled if the trip count is known and small, otherwise imported as a body.

use super::Cx;
use super::branches::{add, captured, known_instead};
use crate::import::{ImportedBody, SlotId};
use crate::ops::data::fresh;
use rlx_ir::op::Body;
use rlx_ir::{DType, Dim, Error, ErrorKind, Extent, Graph, NodeId, Op, Shape, Value};
use std::sync::Arc;

type Slots = Result<Vec<SlotId>, Error>;

/// A known loop of at most so many times is unrolled.
const MOST_UNROLLED: i64 = 32;

/// The operands in front of the carried values.
const LIMIT: usize = 0;
const CONDITION: usize = 1;
const CARRIED: usize = 2;

pub(super) fn loop_(cx: Cx) -> Slots {
    let limit = if cx.has(LIMIT) { cx.number(LIMIT) } else { Ok(i64::MAX) };
    let condition = if cx.has(CONDITION) { cx.number(CONDITION) } else { Ok(1) };
    if let (Ok(limit @ 0..=MOST_UNROLLED), Ok(condition)) = (&limit, &condition) {
        match unrolled(cx, *limit, *condition != 0) {
            Err(e) if e.kind() == ErrorKind::Unsupported => {}
            done => return done,
        }
    }
    // How often it may run can be an expression over dimensions.
    let trips = match cx.has(LIMIT).then(|| cx.extents(LIMIT)) {
        Some(Ok(trips)) => {
            trips.first().map(|&e| Dim::from(if e.as_const().is_some() { e.max(0) } else { e }))
        }
        _ => None,
    };
    let built = at_run_time(cx, trips);
    match [limit.map(drop), condition.map(drop)].into_iter().find_map(Result::err) {
        Some(unknown) => known_instead(built, unknown),
        None => built,
    }
}

/// The values carried into the loop.
fn carried(cx: Cx) -> Slots {
    let given = |i: usize| cx.given.get(i).copied().flatten();
    let slot = |i: usize| given(i).ok_or_else(|| cx.malformed(format!("operand {i} is missing")));
    (CARRIED..cx.proto.input.len()).map(slot).collect()
}

/// The body once per iteration, imported in place, with the iteration number known.
fn unrolled(cx: Cx, limit: i64, mut goes_on: bool) -> Slots {
    let proto = cx.attrs.graph("body")?;
    let mut state = carried(cx)?;
    let mut stacks: Vec<Vec<NodeId>> = vec![Vec::new(); proto.output.len().saturating_sub(1 + state.len())];
    for i in 0..limit {
        if !goes_on {
            break;
        }
        let mut given = vec![
            cx.importer.constant_slot(Value::int(DType::I64, &[], vec![i128::from(i)]).to_const()),
            cx.importer.constant_slot(Value::bools(&[], [true]).to_const()),
        ];
        given.append(&mut state);
        let mut found = cx.importer.inlined(proto, &given)?.into_iter();
        let next = found.next().ok_or_else(|| cx.malformed("a loop's body gives no condition"))?;
        goes_on = cx
            .importer
            .slot(next)
            .known
            .as_ref()
            .and_then(|k| k.numbers())
            .map(|n| n != [0])
            .ok_or_else(|| cx.unsupported("a condition that is computed from data"))?;
        state = found.by_ref().take(given.len() - 2).collect();
        for (stack, slot) in stacks.iter_mut().zip(found) {
            let value = cx.importer.materialize(slot)?;
            stack.push(cx.unsqueeze(value, &[0])?);
        }
    }
    for stack in stacks {
        if stack.is_empty() {
            return Err(cx.unsupported("a loop that never runs, whose stacks have no shape"));
        }
        let whole = if let [one] = stack[..] { one } else { cx.add(Op::Concat { axis: 0 }, &stack)? };
        state.push(cx.importer.node_slot(whole));
    }
    Ok(state)
}

/// A loop that runs: its stacked outputs have space for the known trip count. A tensor that every time appends to is stacked
/// too, and joined behind the loop.
fn at_run_time(cx: Cx, limit: Option<Dim>) -> Slots {
    let proto = cx.attrs.graph("body")?;
    let first = carried(cx)?;
    if proto.output.len() < 1 + first.len() {
        return Err(cx.malformed("a loop's body gives fewer values than it takes"));
    }
    let mut inputs = Vec::with_capacity(CARRIED + first.len());
    inputs.push(if cx.has(LIMIT) {
        cx.x(LIMIT)?
    } else {
        cx.constant(Value::int(DType::I64, &[], vec![i64::MAX.into()]))
    });
    inputs.push(if cx.has(CONDITION) { cx.x(CONDITION)? } else { cx.constant(Value::bools(&[], [true])) });
    let mut own = vec![Shape::scalar(DType::I64), Shape::scalar(DType::Bool)];
    for slot in first {
        let node = cx.importer.materialize(slot)?;
        own.push(cx.shape_of(node));
        inputs.push(node);
    }
    let mut body = body(cx, own, |_, found| found)?;
    captured(cx, &body, &mut inputs)?;
    let carried = own_len(&inputs, &body);
    let appended = appended(&mut body.graph, carried)?;
    let stacks = body.graph.outputs.len() - 1 - carried;
    let trips = match limit {
        _ if stacks == 0 => Dim::Static(0),
        Some(limit) => limit,
        None => return Err(cx.unsupported("stacking in a loop whose number of times has no bound")),
    };
    let count = (stacks > 0 && !runs_to_the_end(cx, &body)).then(|| fresh(cx));
    let op = Op::Loop { body: Arc::new(Body { graph: body.graph }), trips, count, carried, scanned: 0 };
    let mut slots = add(cx, op, &inputs, carried + stacks)?;
    let made = slots.split_off(carried + stacks - appended.len());
    for (&Appended { carried, axis }, stack) in appended.iter().zip(made) {
        slots[carried] = joined(cx, slots[carried], stack, axis)?;
    }
    Ok(slots)
}

/// A carried value that every time puts something behind, along an axis.
struct Appended {
    carried: usize,
    axis: usize,
}

/// The carried values whose next value is `Concat` of the value, which nothing else reads, and of something. They change their
/// shape every time; what is put behind has the same one. Such a value stays as it is in the loop instead, and what would be
/// put behind it becomes a stack, behind the others. Its sizes that the body finds out are those of the value, or the two would not fit.
fn appended(body: &mut Graph, carried: usize) -> Result<Vec<Appended>, Error> {
    let found = body.nodes().iter().filter_map(|node| node.op.data_symbol()).collect::<Vec<_>>();
    let inside = |dim: &Dim| dim.extent().symbols().iter().any(|s| found.contains(s));
    let own: Vec<NodeId> = body.inputs().map(|node| node.id).collect();
    let mut outputs = body.outputs.clone();
    let mut all = Vec::new();
    for k in 0..carried {
        let (Some(&value), Some(&next)) = (own.get(CARRIED + k), outputs.get(1 + k)) else { continue };
        let node = body.node(next);
        let (&Op::Concat { axis }, &[first, more]) = (&node.op, &node.inputs[..]) else { continue };
        let reads =
            body.nodes().iter().flat_map(|n| &n.inputs).chain(&outputs).filter(|&&id| id == value).count();
        let others =
            body.nodes().iter().flat_map(|n| &n.inputs).chain(&outputs).filter(|&&id| id == next).count();
        if first == value && reads == 1 && others == 1 && !inside(&body.shape(more).dim(axis)) {
            let mut to = body.shape(value).dims().to_vec();
            to[axis] = body.shape(more).dim(axis);
            let fits = !body.shape(more).dims().iter().any(inside);
            outputs[1 + k] = value;
            outputs.push(if fits { more } else { body.try_add(Op::Reshape { to }, &[more])? });
            all.push(Appended { carried: k, axis });
        }
    }
    body.set_outputs(outputs);
    Ok(all)
}

/// A tensor with all parts of a stack behind it along an axis.
fn joined(cx: Cx, first: SlotId, stack: SlotId, axis: usize) -> Result<SlotId, Error> {
    let (first, stack) = (cx.importer.materialize(first)?, cx.importer.materialize(stack)?);
    let shape = cx.shape_of(stack);
    let mut perm: Vec<usize> = (1..shape.rank()).collect();
    perm.insert(axis, 0);
    let parts = cx.transpose(stack, &perm)?;
    let mut to = shape.dims()[1..].to_vec();
    to[axis] = Dim::from(shape.dim(0).extent() * to[axis].extent());
    let parts = cx.reshape(parts, to)?;
    let whole = cx.add(Op::Concat { axis }, &[first, parts])?;
    Ok(cx.importer.node_slot(whole))
}

/// The carried values among a loop's inputs.
fn own_len(inputs: &[NodeId], body: &ImportedBody) -> usize {
    inputs.len() - body.captures.len() - CARRIED
}

/// Whether the condition holds from the first time to the last.
fn runs_to_the_end(cx: Cx, body: &ImportedBody) -> bool {
    let at_first = !cx.has(CONDITION) || cx.number(CONDITION).is_ok_and(|c| c != 0);
    let next = body.graph.outputs.first().map(|&id| body.graph.node(id));
    let stays = next.is_some_and(|node| match &node.op {
        Op::Constant { data } => data.value().ints().is_ok_and(|c| c.iter().all(|&c| c != 0)),
        Op::Input { .. } => body.graph.inputs().nth(1).is_some_and(|condition| condition.id == node.id),
        _ => false,
    });
    at_first && stays
}

/// The body of a loop whose own inputs have these shapes; the names are those of the subgraph, behind those it lacks.
fn body(
    cx: Cx,
    shapes: Vec<Shape>,
    outputs: impl FnOnce(&[NodeId], Vec<NodeId>) -> Vec<NodeId>,
) -> Result<ImportedBody, Error> {
    let proto = cx.attrs.graph("body")?;
    let missing = shapes.len().checked_sub(proto.input.len());
    let missing = missing.ok_or_else(|| cx.malformed("a body has more inputs than it is given"))?;
    let made = ["the iteration", "the condition"].iter().map(|name| (*name).to_owned()).take(missing);
    let names: Vec<String> = made.chain(proto.input.iter().map(|i| i.name().to_owned())).collect();
    if names.len() != shapes.len() {
        return Err(cx.malformed("a body has other inputs than it is given"));
    }
    let own: Vec<(String, Shape)> = names.into_iter().zip(shapes).collect();
    cx.importer.body(proto, &own, outputs)
}

/// `x` with dimension `axis` in front, or the first one put there.
fn moved(cx: Cx, x: NodeId, axis: i64, back: bool) -> Result<NodeId, Error> {
    let shape = cx.shape_of(x);
    let axis = shape.axis(axis)?;
    let mut perm: Vec<usize> = (0..shape.rank()).collect();
    if back {
        perm.remove(0);
        perm.insert(axis, 0);
    } else {
        perm.remove(axis);
        perm.insert(0, axis);
    }
    cx.transpose(x, &perm)
}

/// The first dimension backwards.
fn reversed(cx: Cx, x: NodeId) -> Result<NodeId, Error> {
    let shape = cx.shape_of(x);
    let (mut starts, mut steps) = (vec![Extent::Const(0); shape.rank()], vec![1; shape.rank()]);
    (starts[0], steps[0]) = (shape.dim(0).extent() - 1, -1);
    cx.add(Op::Slice { starts, steps, to: shape.dims().to_vec() }, &[x])
}

/// `Scan`: a loop over slices.
pub(super) fn scan(cx: Cx) -> Slots {
    let proto = cx.attrs.graph("body")?;
    let scanned = cx.attrs.required("num_scan_inputs", cx.attrs.int_opt("num_scan_inputs")?)?;
    let given = cx.operands();
    let scanned = usize::try_from(scanned).ok().filter(|&n| (1..=given).contains(&n));
    let scanned =
        scanned.ok_or_else(|| cx.malformed("num_scan_inputs is not the number of some operands"))?;
    let carried = given - scanned;
    let list = |cx: &Cx, name: &str, n: usize| -> Result<Vec<i64>, Error> {
        let all = cx.attrs.ints(name)?.map_or_else(|| vec![0; n], <[i64]>::to_vec);
        if all.len() == n { Ok(all) } else { Err(cx.malformed(format!("{name} has {} values", all.len()))) }
    };
    let stacks = proto.output.len().checked_sub(carried);
    let stacks = stacks.ok_or_else(|| cx.malformed("a scan's body gives fewer values than it takes"))?;
    let ways = Ways {
        axes: list(&cx, "scan_input_axes", scanned)?,
        backwards: list(&cx, "scan_input_directions", scanned)?,
        out_axes: list(&cx, "scan_output_axes", stacks)?,
        out_backwards: list(&cx, "scan_output_directions", stacks)?,
    };
    let operands = cx.all()?;
    scan_by(cx, operands, carried, &ways)
}

/// How the slices of a scan lie.
struct Ways {
    axes: Vec<i64>,
    backwards: Vec<i64>,
    out_axes: Vec<i64>,
    out_backwards: Vec<i64>,
}

/// `Scan` of opset 8: over each element of a batch by itself, the dimension behind the batch's.
pub(super) fn scan_of_batches(cx: Cx) -> Slots {
    let scanned = cx.attrs.required("num_scan_inputs", cx.attrs.int_opt("num_scan_inputs")?)?;
    let given = cx.operands().saturating_sub(1);
    let scanned = usize::try_from(scanned).ok().filter(|&n| (1..=given).contains(&n));
    let scanned =
        scanned.ok_or_else(|| cx.malformed("num_scan_inputs is not the number of some operands"))?;
    if cx.has(0) {
        return Err(cx.unsupported("lengths for each element of a batch"));
    }
    let carried = given - scanned;
    let stacks = cx.attrs.graph("body")?.output.len().checked_sub(carried);
    let stacks = stacks.ok_or_else(|| cx.malformed("a scan's body gives fewer values than it takes"))?;
    let backwards = cx.attrs.ints("directions")?.map_or_else(|| vec![0; scanned], <[i64]>::to_vec);
    let shape = cx.shape(1)?;
    let batch = shape.dims().first().and_then(|d| d.as_static());
    let batch = batch.filter(|n| (1..=MOST_UNROLLED as usize).contains(n));
    let batch = batch.ok_or_else(|| cx.open_dimension(format!("a batch as that of {shape}")))?;
    for i in 1..=given {
        if cx.shape(i)?.dims().first() != shape.dims().first() {
            return Err(
                cx.malformed(format!("operand {i}, {}, is of another batch than {shape}", cx.shape(i)?))
            );
        }
    }
    if backwards.len() != scanned {
        return Err(cx.malformed("directions for another number of operands"));
    }
    let ways =
        Ways { axes: vec![0; scanned], backwards, out_axes: vec![0; stacks], out_backwards: vec![0; stacks] };
    let mut results: Vec<Vec<NodeId>> = vec![Vec::with_capacity(batch); carried + stacks];
    for n in 0..batch {
        let mut operands = Vec::with_capacity(given);
        for i in 1..=given {
            let x = cx.x(i)?;
            let one = cx.slice_axis(x, 0, Extent::Const(n as i64), Extent::Const(1))?;
            let dims = cx.shape_of(one).dims().get(1..).unwrap_or_default().to_vec();
            operands.push(cx.reshape(one, dims)?);
        }
        for (list, slot) in results.iter_mut().zip(scan_by(cx, operands, carried, &ways)?) {
            let value = cx.importer.materialize(slot)?;
            list.push(cx.unsqueeze(value, &[0])?);
        }
    }
    let mut slots = Vec::with_capacity(results.len());
    for list in results {
        let whole = if let [one] = list[..] { one } else { cx.add(Op::Concat { axis: 0 }, &list)? };
        slots.push(cx.importer.node_slot(whole));
    }
    Ok(slots)
}

/// A scan of these operands: the values that are carried, then what is scanned.
fn scan_by(cx: Cx, given: Vec<NodeId>, carried: usize, ways: &Ways) -> Slots {
    let (scanned, stacks) = (ways.axes.len(), ways.out_axes.len());
    let mut own = vec![Shape::scalar(DType::I64), Shape::scalar(DType::Bool)];
    let mut operands = Vec::with_capacity(given.len());
    for (i, mut x) in given.into_iter().enumerate() {
        let mut shape = cx.shape_of(x);
        if let Some(k) = i.checked_sub(carried) {
            x = moved(cx, x, ways.axes[k], false)?;
            x = if ways.backwards[k] != 0 { reversed(cx, x)? } else { x };
            shape = cx.shape_of(x);
            shape = shape.with_dims(shape.dims()[1..].to_vec());
        }
        own.push(shape);
        operands.push(x);
    }
    let trips = cx.shape_of(operands[carried]).dim(0);
    let limit = cx.extent(trips.extent())?;
    let mut inputs = vec![limit, cx.constant(Value::bools(&[], [true]))];
    inputs.extend(operands);
    let body = body(cx, own, |own, found| [own[1]].into_iter().chain(found).collect())?;
    captured(cx, &body, &mut inputs)?;
    let op = Op::Loop { body: Arc::new(Body { graph: body.graph }), trips, count: None, carried, scanned };
    let mut slots = add(cx, op, &inputs, carried + stacks)?;
    for k in 0..stacks {
        let mut x = cx.importer.materialize(slots[carried + k])?;
        x = if ways.out_backwards[k] != 0 { reversed(cx, x)? } else { x };
        x = moved(cx, x, ways.out_axes[k], true)?;
        slots[carried + k] = cx.importer.node_slot(x);
    }
    Ok(slots)
}
