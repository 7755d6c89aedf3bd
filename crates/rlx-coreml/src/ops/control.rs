//! Control flow: a choice is `cond`, a loop is `while_loop` over its iteration's number, its condition, what it carries and what it stacks.
//!
//! Blocks name values of the blocks around them, so what a body captures is no part of the loop's state. A stack is a tensor of
//! `[trips, elements]` that each iteration scatters its row into, and what is scanned is gathered from row by row; both report a
//! row that is not there.

use rlx_ir::op::Body;
use rlx_ir::{DType, Graph};

use super::context::{Declared, cast, expanded, held, holding, reshaped};
use crate::mil::{Arg, Builder, Elements, Mil, Tensor, Type};
use crate::ranges::{Range, Trips};
use crate::scope::{Known, Operand, Scope};

/// Writes a body's operations where the builder is; what it gives.
fn body(b: &mut Builder, graph: &Graph, given: Vec<Operand>) -> Mil<Vec<Tensor>> {
    let within = |e: rlx_ir::Error| format!("in its body, {}", e.message());
    let mut scope = Scope::of_body(graph, given).map_err(|why| format!("its body: {why}"))?;
    scope.write(b).map_err(within)?;
    graph.outputs.iter().map(|&id| scope.tensor(b, id, 0).map_err(within)).collect()
}

/// One truth value as MIL's conditions are: without dimensions.
fn condition(b: &mut Builder, x: &Tensor) -> Tensor {
    let x = reshaped(b, x, &[1]);
    let axes = b.ints(&[0]);
    b.op("squeeze", &[("x", (&x).into()), ("axes", (&axes).into())], x.ty, &[])
}

/// `If`.
pub fn choice(
    b: &mut Builder,
    operands: &[Operand],
    results: &[Declared],
    then: &Body,
    otherwise: &Body,
) -> Mil<Vec<Tensor>> {
    let (first, branches) = operands.split_first().ok_or("a choice without a condition")?;
    let taken = then.graph.inputs().count();
    let (given, other) = branches.split_at_checked(taken).ok_or("a choice of too few values")?;
    let held = results.iter().map(|r| Ok((holding(r.dtype)?, held(&r.dims)))).collect::<Mil<Vec<_>>>()?;
    let chosen = first.tensor(b)?;
    let chosen = condition(b, &chosen);
    let mut blocks = Vec::new();
    for (branch, given) in [(then, given), (otherwise, other)] {
        b.begin();
        let outputs = body(b, &branch.graph, given.to_vec())?;
        if outputs.iter().map(|t| (t.ty, &t.dims)).ne(held.iter().map(|(ty, dims)| (*ty, dims))) {
            return Err("the branches give tensors of other shapes".to_string());
        }
        blocks.push(b.end(&[], &outputs));
    }
    Ok(b.op_of_blocks("cond", &[("pred", (&chosen).into())], blocks, &held))
}

/// A loop's operands by what they are for.
pub struct Parts<'a> {
    limit: &'a Operand,
    condition: &'a Operand,
    carried: &'a [Operand],
    scanned: &'a [Operand],
    captured: &'a [Operand],
}

impl<'a> Parts<'a> {
    /// The operands in order: limit, condition, carried, scanned, captured.
    ///
    /// # Errors
    /// Too few operands.
    pub fn of(operands: &'a [Operand], carried: usize, scanned: usize) -> Mil<Self> {
        let few = || "a loop of too few values".to_string();
        let [limit, condition, rest @ ..] = operands else { return Err(few()) };
        let (carried, rest) = rest.split_at_checked(carried).ok_or_else(few)?;
        let (scanned, captured) = rest.split_at_checked(scanned).ok_or_else(few)?;
        Ok(Parts { limit, condition, carried, scanned, captured })
    }

    /// The values that integers may have that the body is given.
    fn ranges(&self, graph: &Graph) -> Vec<Range> {
        let of = |operands: &[Operand]| operands.iter().map(|operand| operand.range).collect::<Vec<_>>();
        let others = [of(self.scanned), of(self.captured)].concat();
        Trips::new(self.limit.range).entries(graph, &of(self.carried), &others)
    }
}

/// The limit as a tensor of one integer: what 32 bits do not hold is more often than any loop runs.
fn limit(b: &mut Builder, operand: &Operand) -> Mil<Tensor> {
    if let Known::Fixed(data) = &operand.known {
        let value = data.try_value().map_err(|e| e.message().to_string())?;
        let first = value.ints().ok().and_then(|v| v.first().copied()).ok_or("a loop without a limit")?;
        let held = first.clamp(i128::from(i32::MIN), i128::from(i32::MAX)) as i32;
        return Ok(b.constant(Elements::Ints(vec![held]), &[1]));
    }
    let x = operand.tensor(b)?;
    Ok(reshaped(b, &x, &[1]))
}

/// Rows along the first dimension, as numbers: MIL neither gathers nor scatters bools.
fn rows(b: &mut Builder, operand: &Operand) -> Mil<Tensor> {
    let x = operand.tensor(b)?;
    let (&count, rest) = operand.declared.dims.split_first().ok_or("a loop takes slices of one number")?;
    let x = if x.ty == Type::Bool { cast(b, &x, Type::I32) } else { x };
    Ok(reshaped(b, &x, &[count, rest.iter().product()]))
}

/// The row at `at`, as it is held.
fn row(b: &mut Builder, rows: &Tensor, at: &Tensor, of: &Declared) -> Mil<Operand> {
    let (axis, batch, check) = (b.int(0), b.int(0), b.flag(true));
    let inputs = [
        ("x", rows.into()),
        ("indices", at.into()),
        ("axis", (&axis).into()),
        ("batch_dims", (&batch).into()),
        ("validate_indices", (&check).into()),
    ];
    let found = b.op("gather", &inputs, rows.ty, &[1, rows.dims[1]]);
    let found = cast(b, &found, holding(of.dtype)?);
    let dims = of.dims.get(1..).unwrap_or_default().to_vec();
    let known = Known::Written(reshaped(b, &found, &held(&dims)));
    Ok(Operand { known, declared: Declared { dtype: of.dtype, dims }, range: Range::of(of.dtype) })
}

/// The rows with `value` as the one at `at`.
fn stacked(b: &mut Builder, rows: &Tensor, at: &Tensor, value: &Tensor) -> Mil<Tensor> {
    if value.len() != rows.dims[1] {
        return Err("what a loop stacks changes its size".to_string());
    }
    let value = cast(b, value, rows.ty);
    let value = reshaped(b, &value, &[1, rows.dims[1]]);
    let (axis, mode, check) = (b.int(0), b.text("update"), b.flag(true));
    let inputs = [
        ("data", rows.into()),
        ("indices", at.into()),
        ("updates", (&value).into()),
        ("axis", (&axis).into()),
        ("mode", (&mode).into()),
        ("validate_indices", (&check).into()),
    ];
    Ok(b.op("scatter", &inputs, rows.ty, &rows.dims))
}

/// What a loop's stacks are before it runs.
fn empty(b: &mut Builder, stack: &Declared) -> Mil<Tensor> {
    let ty = match holding(stack.dtype)? {
        Type::Bool => Type::I32,
        ty => ty,
    };
    let (&count, rest) = stack.dims.split_first().ok_or("a loop stacks into one number")?;
    let zero = b.number(ty, 0.0);
    let zero = reshaped(b, &zero, &[1, 1]);
    Ok(expanded(b, &zero, &[count, rest.iter().product()]))
}

/// `Loop`.
pub fn repeat(b: &mut Builder, parts: &Parts<'_>, results: &[Declared], graph: &Graph) -> Mil<Vec<Tensor>> {
    let carried = parts.carried.len();
    let (kept, stacks) = results.split_at_checked(carried).ok_or("a loop of too few results")?;
    let ranges = parts.ranges(graph);
    let limit = limit(b, parts.limit)?;
    let first = parts.condition.tensor(b)?;
    let mut state = vec![b.constant(Elements::Ints(vec![0]), &[1]), reshaped(b, &first, &[1])];
    for operand in parts.carried {
        state.push(operand.tensor(b)?);
    }
    for stack in stacks {
        state.push(empty(b, stack)?);
    }
    let scanned = parts.scanned.iter().map(|operand| rows(b, operand)).collect::<Mil<Vec<_>>>()?;
    let types: Vec<(Type, Vec<usize>)> = state.iter().map(|t| (t.ty, t.dims.clone())).collect();
    // Core ML's own converter gives both blocks inputs of the same names.
    let inputs = b.declared(&types);

    b.begin();
    let within = b.op("less", &[("x", (&inputs[0]).into()), ("y", (&limit).into())], Type::Bool, &[1]);
    let both = [("x", (&within).into()), ("y", (&inputs[1]).into())];
    let goes_on = b.op("logical_and", &both, Type::Bool, &[1]);
    let goes_on = condition(b, &goes_on);
    let test = b.end(&inputs, &[goes_on]);

    b.begin();
    let scalar = |dtype: DType| Declared { dtype, dims: Vec::new() };
    let operand = |tensor: &Tensor, declared: Declared| Operand {
        known: Known::Written(tensor.clone()),
        declared,
        range: Range::of(DType::Bool),
    };
    let mut given = vec![operand(&inputs[0], scalar(DType::I64)), operand(&inputs[1], scalar(DType::Bool))];
    given.extend(inputs[2..].iter().zip(parts.carried).map(|(t, of)| operand(t, of.declared.clone())));
    for (rows, of) in scanned.iter().zip(parts.scanned) {
        given.push(row(b, rows, &inputs[0], &of.declared)?);
    }
    given.extend(parts.captured.iter().cloned());
    given.iter_mut().zip(ranges).for_each(|(operand, range)| operand.range = range);
    let found = body(b, graph, given)?;
    let step = self::step(b, &inputs, found, carried)?;
    let step = b.end(&inputs, &step);

    let after = b.op_of_blocks("while_loop", &[("loop_vars", Arg::Many(&state))], vec![test, step], &types);
    let mut values = after[2..2 + carried].to_vec();
    debug_assert_eq!(kept.len(), values.len());
    for (stack, rows) in stacks.iter().zip(&after[2 + carried..]) {
        let rows = reshaped(b, rows, &held(&stack.dims));
        values.push(cast(b, &rows, holding(stack.dtype)?));
    }
    Ok(values)
}

/// The state behind an iteration, of what the body gave.
fn step(b: &mut Builder, inputs: &[Tensor], found: Vec<Tensor>, carried: usize) -> Mil<Vec<Tensor>> {
    let (goes_on, values) = found.split_first().ok_or("a loop's body gives no condition")?;
    let (kept, stacks) = values.split_at_checked(carried).ok_or("a loop's body gives too few values")?;
    let one = b.number(Type::I32, 1.0);
    let number = b.op("add", &[("x", (&inputs[0]).into()), ("y", (&one).into())], Type::I32, &[1]);
    let mut next = vec![number, reshaped(b, goes_on, &[1])];
    next.extend(kept.iter().cloned());
    if inputs.len() != 2 + carried + stacks.len() {
        return Err("a loop of another number of stacks than results".to_string());
    }
    for (rows, value) in inputs[2 + carried..].iter().zip(stacks) {
        next.push(stacked(b, rows, &inputs[0], value)?);
    }
    if next.iter().zip(inputs).any(|(after, before)| after.ty != before.ty || after.dims != before.dims) {
        return Err("what it carries changes its shape".to_string());
    }
    Ok(next)
}
