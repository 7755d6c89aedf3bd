//! Control flow: a choice between two graphs, and a graph that runs several times.
//!
//! Bodies are isolated from the graph around them: what they use of it is among the op's inputs. Their own inputs stand
//! in the order in which the op gives them.

use crate::dim::{Dim, Extent};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::Graph;
use crate::ops::def::{Arity, OpDef};
use crate::ops::elementwise::static_dims;
use crate::ops::{Body, Op, OpKind, attrs};
use crate::oracle;
use crate::progress::{Progress, Stage};
use crate::shape::Shape;
use crate::tensor::Value;

#[cfg(feature = "testing")]
use crate::{
    dim::sym,
    ops::{Activation, BinaryOp, CmpOp},
    testing::{Case, Gen},
};

/// The shapes of a body's outputs.
fn outputs(body: &Body) -> Result<Vec<Shape>> {
    body.graph.outputs.iter().map(|&id| body.graph.try_node(id).map(|n| n.shape.clone())).collect()
}

/// Whether a body can be given these operands.
fn takes(kind: OpKind, body: &Graph, given: &[Shape]) -> Result<()> {
    if body.inputs().count() != given.len() {
        let message = format!("a body of {kind} has {} inputs, not {}", body.inputs().count(), given.len());
        return Err(Error::new(ErrorKind::InvalidGraph, message));
    }
    match body.inputs().zip(given).find(|(declared, given)| !fits(&declared.shape, given)) {
        Some((declared, given)) => {
            let message = format!("{} of a body of {kind} was given {given}", declared.describe());
            Err(Error::new(ErrorKind::Shape, message))
        }
        None => Ok(()),
    }
}

/// Whether a tensor of shape `given` may be one that is declared so: known sizes do not differ.
fn fits(declared: &Shape, given: &Shape) -> bool {
    let dim = |(d, g): (&Dim, &Dim)| d == g || !d.is_static() || !g.is_static();
    declared.dtype() == given.dtype()
        && declared.rank() == given.rank()
        && declared.dims().iter().zip(given.dims()).all(dim)
}

fn is_scalar(shape: &Shape, dtype: DType) -> bool {
    shape.dtype() == dtype && shape.elements() == Extent::Const(1)
}

/// Evaluates a body on its inputs in order.
fn run(body: &Body, inputs: &[Value], progress: &Progress) -> Result<Vec<Value>> {
    let mut bindings = oracle::Bindings::default();
    for (node, value) in body.graph.inputs().zip(inputs) {
        if let Op::Input { name } = &node.op {
            bindings.set_input(name.clone(), value.clone());
        }
    }
    oracle::evaluate_with_progress(&body.graph, &bindings, progress)
}

/// [`Op::If`].
pub struct IfDef;

impl OpDef for IfDef {
    fn arity(&self, op: &Op) -> Arity {
        match op {
            Op::If { then, otherwise } => {
                Arity::Exact(1 + then.graph.inputs().count() + otherwise.graph.inputs().count())
            }
            _ => Arity::AtLeast(1),
        }
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Vec<Shape>> {
        attrs!(op => If { then, otherwise });
        if !is_scalar(inputs[0], DType::Bool) {
            return Err(Error::new(
                ErrorKind::Shape,
                format!("the condition is {}, not one bool", inputs[0]),
            ));
        }
        let given: Vec<Shape> = inputs[1..].iter().map(|&s| s.clone()).collect();
        let (first, second) = given.split_at(then.graph.inputs().count().min(given.len()));
        takes(OpKind::If, &then.graph, first)?;
        takes(OpKind::If, &otherwise.graph, second)?;
        let (a, b) = (outputs(then)?, outputs(otherwise)?);
        if a != b || a.is_empty() {
            let list = |s: &[Shape]| s.iter().map(Shape::to_string).collect::<Vec<_>>().join(", ");
            let message = format!("the branches give {} and {}, which are not the same", list(&a), list(&b));
            return Err(Error::new(ErrorKind::Shape, message));
        }
        Ok(a)
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        self.reference_with_progress(op, inputs, results, &Progress::none())
    }

    fn reference_with_progress(
        &self,
        op: &Op,
        inputs: &[&Value],
        _: &[Shape],
        progress: &Progress,
    ) -> Result<Vec<Value>> {
        attrs!(op => If { then, otherwise });
        let holds = inputs[0].ints()?.first().is_some_and(|&c| c != 0);
        let given: Vec<Value> = inputs[1..].iter().map(|&v| v.clone()).collect();
        let (first, second) = given.split_at(then.graph.inputs().count().min(given.len()));
        if holds { run(then, first, progress) } else { run(otherwise, second, progress) }
    }

    fn flops(&self, op: &Op, _: &[&Shape], _: &[Shape]) -> f64 {
        let Op::If { then, otherwise } = op else { return 0.0 };
        let cost = |b: &Body| crate::cost::graph_cost(&b.graph).flops;
        cost(then).max(cost(otherwise))
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dims = g.dims(1..=2, 1..=5);
        let shape = Shape::new(&dims, DType::F32);
        let (first, second, two) = (g.size(1..=3), g.size(1..=2), g.chance(0.5));
        let branch = |f: Activation, inputs: usize, two: bool| {
            let mut graph = Graph::new("branch");
            let ids: Vec<_> = (0..inputs).map(|i| graph.input(format!("x{i}"), shape.clone())).collect();
            let sum = graph.binary(BinaryOp::Add, ids[0], ids[inputs - 1], shape.clone());
            let out = graph.activation(f, sum, shape.clone());
            graph.set_outputs(if two { vec![out, sum] } else { vec![out] });
            std::sync::Arc::new(Body { graph })
        };
        let then = branch(Activation::Tanh, first, two);
        let otherwise = branch(Activation::Neg, second, two);
        let mut inputs = vec![Value::bools(&[], [g.chance(0.5)])];
        inputs.extend((0..first + second).map(|_| g.value(DType::F32, &dims, -2.0..2.0)));
        Case::new(Op::If { then, otherwise }, inputs)
    }
}

/// [`Op::Loop`].
pub struct LoopDef;

/// A loop's operands by what they are for.
struct Parts<'a, T> {
    limit: T,
    condition: T,
    carried: &'a [T],
    scanned: &'a [T],
    captured: &'a [T],
}

impl<'a, T: Copy> Parts<'a, T> {
    fn of(op: &Op, inputs: &'a [T]) -> Result<Parts<'a, T>> {
        attrs!(op => Loop { carried, scanned });
        let few = || Error::new(ErrorKind::InvalidGraph, format!("a loop of {} inputs", inputs.len()));
        let [limit, condition, rest @ ..] = inputs else { return Err(few()) };
        let (carried, rest) = rest.split_at_checked(*carried).ok_or_else(few)?;
        let (scanned, captured) = rest.split_at_checked(*scanned).ok_or_else(few)?;
        Ok(Parts { limit: *limit, condition: *condition, carried, scanned, captured })
    }
}

/// A tensor without its first dimension.
fn slice_shape(shape: &Shape) -> Result<Shape> {
    match shape.dims() {
        [_, rest @ ..] => Ok(shape.with_dims(rest.to_vec())),
        [] => Err(Error::new(ErrorKind::Shape, format!("a loop takes slices of {shape}, which has none"))),
    }
}

impl OpDef for LoopDef {
    fn arity(&self, op: &Op) -> Arity {
        match op {
            // The body has the iteration's number and condition where the loop has limit and condition.
            Op::Loop { body, .. } => Arity::Exact(body.graph.inputs().count()),
            _ => Arity::AtLeast(2),
        }
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Vec<Shape>> {
        attrs!(op => Loop { body, trips, count, carried });
        let parts = Parts::of(op, inputs)?;
        if !is_scalar(parts.limit, DType::I64) || !is_scalar(parts.condition, DType::Bool) {
            let message = format!("a loop's limit {} and condition {}", parts.limit, parts.condition);
            return Err(Error::new(ErrorKind::Shape, message));
        }
        if let Some(Dim::Expr(_)) = count {
            return Err(Error::new(ErrorKind::Shape, "a loop binds one symbol, not an expression"));
        }
        let mut given = vec![Shape::scalar(DType::I64), Shape::scalar(DType::Bool)];
        given.extend(parts.carried.iter().map(|&s| s.clone()));
        for s in parts.scanned {
            given.push(slice_shape(s)?);
        }
        given.extend(parts.captured.iter().map(|&s| s.clone()));
        takes(OpKind::Loop, &body.graph, &given)?;
        let found = outputs(body)?;
        let Some((condition, rest)) = found.split_first() else {
            return Err(Error::new(ErrorKind::InvalidGraph, "a loop's body gives no condition"));
        };
        let shape_mismatch = |why: String| Error::new(ErrorKind::Shape, why);
        if !is_scalar(condition, DType::Bool) || rest.len() < *carried {
            return Err(shape_mismatch(format!(
                "a loop's body gives the condition {condition} and {} values",
                rest.len()
            )));
        }
        let (state, stacked) = rest.split_at(*carried);
        if let Some((before, after)) = parts.carried.iter().zip(state).find(|(b, a)| **b != *a) {
            return Err(shape_mismatch(format!("a loop's body turns {before} into {after}")));
        }
        let length = count.unwrap_or(*trips);
        let stack = |s: &Shape| s.with_dims([length].into_iter().chain(s.dims().iter().copied()).collect());
        let results: Vec<Shape> = state.iter().cloned().chain(stacked.iter().map(stack)).collect();
        if results.is_empty() {
            return Err(shape_mismatch("a loop without results".into()));
        }
        Ok(results)
    }

    fn counted(&self, op: &Op) -> Option<Dim> {
        let Op::Loop { count, .. } = op else { return None };
        *count
    }

    fn count(&self, op: &Op, inputs: &[&Value], progress: &Progress) -> Result<usize> {
        Ok(iterate(op, inputs, progress)?.0)
    }

    fn bound(&self, op: &Op, _: &[&Shape]) -> Extent {
        let Op::Loop { trips, .. } = op else { return Extent::Const(i64::MAX) };
        trips.extent()
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        self.reference_with_progress(op, inputs, results, &Progress::none())
    }

    fn reference_with_progress(
        &self,
        op: &Op,
        inputs: &[&Value],
        results: &[Shape],
        progress: &Progress,
    ) -> Result<Vec<Value>> {
        attrs!(op => Loop { carried });
        let (ran, state, stacks) = iterate(op, inputs, progress)?;
        let mut values = state;
        for (stack, shape) in stacks.into_iter().zip(&results[*carried..]) {
            let dims = static_dims(shape)?;
            if dims.first() != Some(&ran) {
                return Err(Error::new(ErrorKind::Value, format!("the loop ran {ran} times for {shape}")));
            }
            values.push(match stack {
                Some(stack) => Value { dims, ..stack },
                None => Value::empty(shape)?,
            });
        }
        Ok(values)
    }

    fn flops(&self, op: &Op, _: &[&Shape], _: &[Shape]) -> f64 {
        let Op::Loop { body, trips, .. } = op else { return 0.0 };
        crate::cost::graph_cost(&body.graph).flops
            * trips.as_static().filter(|&n| n < 1 << 30).unwrap_or(1) as f64
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        loop_case(g)
    }
}

/// How often the loop ran, the values it carries, and what it stacked (nothing when it never ran).
type Iterated = (usize, Vec<Value>, Vec<Option<Value>>);

fn iterate(op: &Op, inputs: &[&Value], progress: &Progress) -> Result<Iterated> {
    attrs!(op => Loop { body, carried });
    let parts = Parts::of(op, inputs)?;
    let one = |v: &Value| Ok::<_, Error>(v.ints()?.first().copied().unwrap_or(0));
    let (limit, mut goes_on) = (one(parts.limit)?, one(parts.condition)? != 0);
    let mut state: Vec<Value> = parts.carried.iter().map(|&v| v.clone()).collect();
    let stacks = body.graph.outputs.len().saturating_sub(1 + carried);
    let mut stacked: Vec<Option<Value>> = vec![None; stacks];
    let mut ran = 0;
    while goes_on && (ran as i128) < limit {
        progress.check(Stage::Verify)?;
        let mut given = vec![Value::int(DType::I64, &[], vec![ran as i128]), Value::bools(&[], [goes_on])];
        given.append(&mut state);
        for &scanned in parts.scanned {
            given.push(row(scanned, ran)?);
        }
        given.extend(parts.captured.iter().map(|&v| v.clone()));
        let mut found = run(body, &given, progress)?.into_iter();
        goes_on = found.next().map_or(Ok(0), |v| one(&v))? != 0;
        state = found.by_ref().take(*carried).collect();
        for (stack, value) in stacked.iter_mut().zip(found) {
            match stack {
                Some(stack) => append(stack, value),
                None => *stack = Some(value),
            }
        }
        ran += 1;
    }
    Ok((ran, state, stacked))
}

/// Slice `i` along the first dimension.
fn row(x: &Value, i: usize) -> Result<Value> {
    let rest = &x.dims[1..];
    let size: usize = rest.iter().product();
    if i >= x.dims[0] {
        return Err(Error::new(ErrorKind::Value, format!("the loop goes beyond the {} slices", x.dims[0])));
    }
    let places: Vec<usize> = (i * size..(i + 1) * size).collect();
    Ok(x.pick(rest, &places))
}

/// Puts the elements of `more` behind those of `stack`, whose dimensions then say nothing.
fn append(stack: &mut Value, more: Value) {
    use crate::tensor::Elements;
    match (&mut stack.elements, more.elements) {
        (Elements::Float(a), Elements::Float(b)) => a.extend(b),
        (Elements::Int(a), Elements::Int(b)) => a.extend(b),
        _ => {}
    }
}

/// `h = tanh(h + x[i] + c)` as long as the sum of h is below some number; every h is stacked.
#[cfg(feature = "testing")]
fn loop_case(g: &mut Gen) -> Case {
    let (n, steps) = (g.size(1..=5), g.size(1..=6));
    let (shape, scalar) = (Shape::new(&[n], DType::F32), Shape::scalar(DType::F32));
    let stops = g.chance(0.6);
    let mut body = Graph::new("step");
    let _iteration = body.input("iteration", Shape::scalar(DType::I64));
    let condition = body.input("condition", Shape::scalar(DType::Bool));
    let (h, x) = (body.input("h", shape.clone()), body.input("x", shape.clone()));
    let captures = g.chance(0.6);
    let c = if captures { body.input("c", shape.clone()) } else { x };
    let sum = body.binary(BinaryOp::Add, h, x, shape.clone());
    let sum = body.binary(BinaryOp::Add, sum, c, shape.clone());
    let next = body.activation(Activation::Tanh, sum, shape.clone());
    let total = body.reduce(next, crate::ops::ReduceOp::Sum, vec![0], false, scalar.clone());
    let most = body.constant(Value::float(DType::F32, &[], vec![0.3]).to_const());
    let goes_on = body.add_node(Op::Compare(CmpOp::Lt), vec![total, most], Shape::scalar(DType::Bool));
    let next_condition = if stops { goes_on } else { condition };
    let stacks = stops || g.chance(0.6);
    body.set_outputs(if stacks { vec![next_condition, next, sum] } else { vec![next_condition, next] });
    let op = Op::Loop {
        body: std::sync::Arc::new(Body { graph: body }),
        trips: Dim::Static(steps),
        count: stops.then(|| Dim::Dynamic(sym::named("times"))),
        carried: 1,
        scanned: 1,
    };
    let limit = Value::int(DType::I64, &[], vec![steps as i128]);
    let mut inputs = vec![limit, Value::bools(&[], [!stops || g.chance(0.9)])];
    inputs.push(g.value(DType::F32, &[n], -1.0..0.5));
    inputs.push(g.value(DType::F32, &[steps, n], -0.5..0.5));
    if captures {
        inputs.push(g.value(DType::F32, &[n], -0.25..0.25));
    }
    Case::new(op, inputs)
}
