//! Control flow: a choice between two graphs, and a graph that runs several times.
//!
//! Bodies are isolated from the graph around them: what they use of it is among the op's inputs. Their own inputs stand
//! in the order in which the op gives them.

use crate::dim::{Dim, Extent};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, bound_of};
use crate::ops::def::{Arity, OpDef};
use crate::ops::elementwise::static_dims;
use crate::ops::{Body, Op, OpKind, attrs};
use crate::oracle;
use crate::progress::{Progress, Stage};
use crate::shape::{Shape, Shapes};
use crate::tensor::Value;

#[cfg(feature = "testing")]
use crate::{
    dim::sym,
    ops::{Activation, BinaryOp, CmpOp},
    testing::{Case, Gen},
};

/// The shapes of a body's outputs.
fn outputs(body: &Body) -> Result<Shapes> {
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

/// Two branches' dimensions that are not the same, or that a branch finds out when it runs.
struct Differing {
    /// Which result, and which dimension of it.
    place: (usize, usize),
    then: Dim,
    otherwise: Dim,
}

/// The symbols that a body binds itself.
fn symbols_found(body: &Body) -> Vec<u32> {
    body.graph.nodes().iter().filter_map(|node| node.op.data_symbol()).collect()
}

/// Whether a dimension is one that a body with these symbols finds out.
fn finds(own: &[u32], dim: Dim) -> bool {
    dim.extent().symbols().iter().any(|s| own.contains(s))
}

/// The dimensions in which two branches differ; an error where they differ in more than dimensions.
fn differing(then: &Body, otherwise: &Body) -> Result<Vec<Differing>> {
    let (a, b) = (outputs(then)?, outputs(otherwise)?);
    let alike = |(a, b): (&Shape, &Shape)| a.dtype() == b.dtype() && a.rank() == b.rank();
    if a.len() != b.len() || a.is_empty() || !a.iter().zip(&b).all(alike) {
        let list = |s: &[Shape]| s.iter().map(Shape::to_string).collect::<Vec<_>>().join(", ");
        let message = format!("the branches give {} and {}, which do not fit together", list(&a), list(&b));
        return Err(Error::new(ErrorKind::Shape, message));
    }
    let data = [then, otherwise].map(symbols_found);
    let found = |dim: Dim, own: usize| finds(&data[own], dim);
    let mut all = Vec::new();
    for (i, (a, b)) in a.iter().zip(&b).enumerate() {
        for (axis, (&then, &otherwise)) in a.dims().iter().zip(b.dims()).enumerate() {
            if then != otherwise || found(then, 0) || found(otherwise, 1) {
                all.push(Differing { place: (i, axis), then, otherwise });
            }
        }
    }
    Ok(all)
}

/// Where a result of the branches has the dimension that `count` of an [`Op::If`] stands for: the result and the dimension.
/// `None` where the branches have the same shapes.
///
/// # Errors
/// [`ErrorKind::Shape`] where the branches do not fit together.
pub fn differing_dim(then: &Body, otherwise: &Body) -> Result<Option<(usize, usize)>> {
    Ok(differing(then, otherwise)?.first().map(|d| d.place))
}

/// How a symbol can stand for what differs in shape between two branches: `chosen` of [`Op::If`]. `None` where nothing differs.
///
/// # Errors
/// [`ErrorKind::Shape`] where the branches do not fit together, or differ in more than one dimension that one of them finds out.
pub fn shapes_joined(then: &Body, otherwise: &Body) -> Result<Option<bool>> {
    let all = differing(then, otherwise)?;
    let Some(first) = all.first() else { return Ok(None) };
    if all.iter().all(|d| (d.then, d.otherwise) == (first.then, first.otherwise)) {
        return Ok(Some(false));
    }
    known_to_both(&all, [then, otherwise])?;
    Ok(Some(true))
}

/// Whether all dimensions that differ are known before a branch runs.
fn known_to_both(all: &[Differing], branches: [&Body; 2]) -> Result<()> {
    let data = branches.map(symbols_found);
    match all.iter().find(|d| finds(&data[0], d.then) || finds(&data[1], d.otherwise)) {
        None => Ok(()),
        Some(d) => Err(Error::new(
            ErrorKind::Shape,
            format!(
                "the branches differ in several dimensions, and one of them ({} or {}) is found out when a branch runs",
                d.then, d.otherwise
            ),
        )),
    }
}

/// [`Op::If`].
pub struct IfDef;

impl OpDef for IfDef {
    fn arity(&self, op: &Op) -> Arity {
        match op {
            Op::If { then, otherwise, .. } => {
                Arity::Exact(1 + then.graph.inputs().count() + otherwise.graph.inputs().count())
            }
            _ => Arity::AtLeast(1),
        }
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => If { then, otherwise, count, chosen });
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
        let mut results = outputs(then)?;
        let all = differing(then, otherwise)?;
        match count {
            _ if all.is_empty() => {}
            None => {
                let list = |b: &Body| {
                    Ok::<_, Error>(outputs(b)?.iter().map(Shape::to_string).collect::<Vec<_>>().join(", "))
                };
                let message = format!(
                    "the branches give {} and {}, which are not the same",
                    list(then)?,
                    list(otherwise)?
                );
                return Err(Error::new(ErrorKind::Shape, message));
            }
            Some(Dim::Expr(_)) => {
                return Err(Error::new(ErrorKind::Shape, "a choice binds one symbol, not an expression"));
            }
            Some(count) => {
                if *chosen {
                    known_to_both(&all, [then, otherwise])?;
                }
                for d in &all {
                    let (a, b) = (d.then.extent(), d.otherwise.extent());
                    let dim = if *chosen { Dim::from(b + count.extent() * (a - b)) } else { *count };
                    let mut dims = results[d.place.0].dims().to_vec();
                    dims[d.place.1] = dim;
                    results[d.place.0] = results[d.place.0].with_dims(dims);
                }
            }
        }
        Ok(results)
    }

    fn counted(&self, op: &Op) -> Option<Dim> {
        let Op::If { count, .. } = op else { return None };
        *count
    }

    fn count(&self, op: &Op, inputs: &[&Value], progress: &Progress) -> Result<usize> {
        attrs!(op => If { then, otherwise, chosen });
        if *chosen {
            return Ok(usize::from(inputs[0].ints()?.first().is_some_and(|&c| c != 0)));
        }
        let Some((result, axis)) = differing_dim(then, otherwise)? else { return Ok(0) };
        let values = self.reference_with_progress(op, inputs, &[], progress)?;
        Ok(values.get(result).and_then(|v| v.dims.get(axis)).copied().unwrap_or(0))
    }

    fn bound(&self, op: &Op, _: &[&Shape]) -> Extent {
        let Op::If { then, otherwise, chosen, .. } = op else { return Extent::Const(i64::MAX) };
        if *chosen {
            return Extent::Const(1);
        }
        let data = [then, otherwise].map(|body| body.graph.data_symbols());
        let all = differing(then, otherwise).unwrap_or_default();
        let most = |dim: Dim, own: usize| dim.extent().upper(&bound_of(&data[own]));
        let bounds = all.iter().map(|d| most(d.then, 0).max(most(d.otherwise, 1)));
        bounds.reduce(|a, b| a.max(b)).unwrap_or(Extent::Const(0))
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
        let Op::If { then, otherwise, .. } = op else { return 0.0 };
        let cost = |b: &Body| crate::cost::graph_cost(&b.graph).flops;
        cost(then).max(cost(otherwise))
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dims = g.dims(1..=2, 1..=5);
        let shape = Shape::new(&dims, DType::F32);
        let (first, second, two) = (g.size(1..=3), g.size(1..=2), g.chance(0.5));
        let kind = g.size(0..=2);
        let branch = |f: Activation, inputs: usize, two: bool, kind: usize| {
            let mut graph = Graph::new("branch");
            let ids: Vec<_> = (0..inputs).map(|i| graph.input(format!("x{i}"), shape.clone())).collect();
            let sum = graph.binary(BinaryOp::Add, ids[0], ids[inputs - 1], shape.clone());
            let out = graph.activation(f, sum, shape.clone());
            let extra = match kind {
                0 => None,
                // Twice as long in the first dimension.
                1 => Some(graph.try_add(Op::Concat { axis: 0 }, &[out, sum])),
                _ => Some(graph.try_add(Op::NonZero { count: Dim::Dynamic(sym::named("places")) }, &[out])),
            };
            let places: Vec<_> = extra.into_iter().flatten().collect();
            graph.set_outputs([out, sum].into_iter().take(1 + usize::from(two)).chain(places).collect());
            std::sync::Arc::new(Body { graph })
        };
        let then = branch(Activation::Tanh, first, two, kind);
        // Of the same shapes, or of others: a sum that is not twice as long, or another number of places.
        let otherwise = branch(Activation::Relu, second, two, kind);
        let otherwise = if kind == 1 && g.chance(0.7) { shortened(&otherwise) } else { otherwise };
        let joined = shapes_joined(&then, &otherwise).ok().flatten();
        let count = joined.map(|_| Dim::Dynamic(sym::named("differs")));
        let chosen = joined.unwrap_or(false) || (kind == 1 && joined.is_some() && g.chance(0.5));
        let mut inputs = vec![Value::bools(&[], [g.chance(0.5)])];
        inputs.extend((0..first + second).map(|_| g.value(DType::F32, &dims, -2.0..2.0)));
        Case::new(Op::If { then, otherwise, count, chosen }, inputs)
    }
}

/// The branch with its second result in the place of its last one.
#[cfg(feature = "testing")]
fn shortened(branch: &Body) -> std::sync::Arc<Body> {
    let mut graph = branch.graph.clone();
    let mut outputs = graph.outputs.clone();
    if let Some(last) = outputs.last_mut() {
        *last = branch.graph.outputs[0];
    }
    graph.set_outputs(outputs);
    std::sync::Arc::new(Body { graph })
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

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
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
        let results: Shapes = state.iter().cloned().chain(stacked.iter().map(stack)).collect();
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
