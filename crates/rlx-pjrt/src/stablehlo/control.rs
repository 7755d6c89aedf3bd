//! Control flow: a choice is `if`, a loop is `while` over what it carries, what it stacks, and the fault record.

use rlx_ir::{DType, Error, ErrorKind, Graph, Node, Op, Result};

use super::writer::{Type, Val, Writer};

/// Writes a node of this family.
pub(super) fn write(w: &mut Writer, node: &Node, x: &[Val]) -> Result<Option<Vec<Val>>> {
    let results = node.results().iter().map(Type::of).collect::<Result<Vec<_>>>()?;
    Ok(Some(match &node.op {
        Op::If { then, otherwise, .. } => {
            let condition = w.reshape(x[0], &[]);
            let (before, count) = (w.fault, then.graph.inputs().count());
            let branch = |w: &mut Writer, graph: &Graph, given: &[Val]| {
                w.region(&[], |w, _| {
                    w.fault = before;
                    let mut values = w.graph(graph, given)?;
                    values.extend(w.fault);
                    Ok(values)
                })
            };
            let regions =
                [branch(w, &then.graph, &x[1..1 + count])?, branch(w, &otherwise.graph, &x[1 + count..])?];
            let mut types = results;
            types.extend(before.map(|fault| w.ty(fault).clone()));
            let mut values = w.ops("if", &[condition], "", &regions, &types);
            if before.is_some() {
                w.fault = values.pop();
            }
            values
        }
        Op::Loop { .. } => repeat(w, node, x, &results)?,
        _ => return Ok(None),
    }))
}

/// The state of the `while` is: number of the iteration, condition, carried values, stacks, fault record.
fn repeat(w: &mut Writer, node: &Node, x: &[Val], results: &[Type]) -> Result<Vec<Val>> {
    let Op::Loop { body, carried, scanned, .. } = &node.op else {
        return Err(Error::new(ErrorKind::Internal, "no loop"));
    };
    let (number, truth) = (Type::scalar(DType::I64), Type::scalar(DType::Bool));
    let limit = w.reshape(x[0], &[]);
    let mut state = vec![w.number(&number, 0.0), w.reshape(x[1], &[])];
    state.extend(&x[2..2 + carried]);
    for stack in &results[*carried..] {
        state.push(w.number(stack, 0.0));
    }
    let before = w.fault;
    state.extend(before);
    let types: Vec<Type> = state.iter().map(|&v| w.ty(v).clone()).collect();
    let goes_on = w.region(&types, |w, s| {
        let within = w.compare("LT", s[0], limit);
        Ok(vec![w.map("and", &[within, s[1]])])
    })?;
    let (scans, captured) = (&x[2 + carried..2 + carried + scanned], &x[2 + carried + scanned..]);
    let declared: Vec<Vec<usize>> =
        body.graph.inputs().map(|node| node.shape.static_dims().unwrap_or_default()).collect();
    let step = w.region(&types, |w, s| {
        let mut given = vec![w.reshape(s[0], &declared[0]), w.reshape(s[1], &declared[1])];
        given.extend(&s[2..2 + carried]);
        for &scan in scans {
            given.push(row(w, scan, s[0]));
        }
        given.extend(captured);
        if before.is_some() {
            w.fault = s.last().copied();
        }
        let values = w.graph(&body.graph, &given)?;
        let one = w.number(&number, 1.0);
        let mut next = vec![w.map("add", &[s[0], one]), w.reshape(values[0], &truth.dims)];
        next.extend(&values[1..1 + carried]);
        for (i, &value) in values[1 + carried..].iter().enumerate() {
            next.push(stacked(w, s[2 + carried + i], value, s[0]));
        }
        next.extend(w.fault);
        Ok(next)
    })?;
    let mut values = w.ops("while", &state, "", &[goes_on, step], &types);
    if before.is_some() {
        w.fault = values.pop();
    }
    Ok(values.split_off(2))
}

fn starts(w: &mut Writer, at: Val, rank: usize) -> Vec<Val> {
    let zero = w.number(&Type::scalar(DType::I64), 0.0);
    (0..rank).map(|axis| if axis == 0 { at } else { zero }).collect()
}

/// The slice number `at` along dimension 0.
fn row(w: &mut Writer, x: Val, at: Val) -> Val {
    let mut dims = w.dims(x);
    dims[0] = 1;
    let inputs: Vec<Val> = [x].into_iter().chain(starts(w, at, dims.len())).collect();
    let ty = Type::new(w.dtype(x), &dims);
    let slice = w.op("dynamic_slice", &inputs, &format!("slice_sizes = {}", super::writer::array(&dims)), ty);
    w.reshape(slice, &dims[1..])
}

/// The stack with a value as its slice number `at`.
fn stacked(w: &mut Writer, stack: Val, value: Val, at: Val) -> Val {
    let (ty, dims) = (w.ty(stack).clone(), w.dims(value));
    let one = w.reshape(value, &[&[1], &dims[..]].concat());
    let inputs: Vec<Val> = [stack, one].into_iter().chain(starts(w, at, ty.dims.len())).collect();
    w.op("dynamic_update_slice", &inputs, "", ty)
}
