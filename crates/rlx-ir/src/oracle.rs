//! The oracle: evaluates a graph the slow, obvious way, to decide what is right.
//!
//! Every node's reference semantics run in `f64` or exact integers, and each result is rounded to its
//! declared element type before the next node sees it (otherwise casts, floors and comparisons would
//! differ for no fault of the device). Nothing here is shared with any backend.
//!
//! ```
//! use rlx_ir::{DType, Graph, Shape, Value, oracle::Bindings, op::BinaryOp};
//! let mut g = Graph::new("add");
//! let x = g.input("x", Shape::new(&[2], DType::F32));
//! let y = g.binary(BinaryOp::Add, x, x, Shape::new(&[2], DType::F32));
//! g.set_outputs(vec![y]);
//! let mut bindings = Bindings::default();
//! bindings.set_input("x", Value::float(DType::F32, &[2], vec![1.0, 2.5]));
//! assert_eq!(rlx_ir::oracle::evaluate(&g, &bindings).unwrap()[0].to_f64(), [2.0, 5.0]);
//! ```

use std::collections::HashMap;

use crate::dim::{Dim, DimBinding, scoped};
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, Node, NodeId, data};
use crate::memory;
use crate::ops::{self, Op};
use crate::progress::{Progress, Stage};
use crate::shape::Shape;
use crate::tensor::Value;

/// No result may have more elements: they take 8 or 16 bytes each here.
const MAX_ELEMENTS: usize = 1 << 31;

/// What a graph is evaluated on.
#[derive(Debug, Clone, Default)]
pub struct Bindings {
    inputs: HashMap<String, Value>,
    params: HashMap<String, Value>,
}

impl Bindings {
    /// Gives input `name` its value.
    pub fn set_input(&mut self, name: impl Into<String>, value: Value) -> &mut Self {
        self.inputs.insert(name.into(), value);
        self
    }

    /// Gives parameter `name` its value.
    pub fn set_param(&mut self, name: impl Into<String>, value: Value) -> &mut Self {
        self.params.insert(name.into(), value);
        self
    }

    /// The value of input `name`.
    pub fn input(&self, name: &str) -> Option<&Value> {
        self.inputs.get(name)
    }

    /// The value of parameter `name`.
    pub fn param(&self, name: &str) -> Option<&Value> {
        self.params.get(name)
    }

    fn of(&self, op: &Op) -> Result<Option<&Value>> {
        let (what, map, name) = match op {
            Op::Input { name } => ("input", &self.inputs, name),
            Op::Param { name } => ("parameter", &self.params, name),
            _ => return Ok(None),
        };
        match map.get(name) {
            Some(value) => Ok(Some(value)),
            None => Err(Error::new(ErrorKind::Binding, format!("{what} {name:?} was not given"))),
        }
    }
}

/// The outputs of `graph`.
///
/// # Errors
/// A missing or misshapen input, or what a node's reference semantics report, naming the node.
pub fn evaluate(graph: &Graph, bindings: &Bindings) -> Result<Vec<Value>> {
    evaluate_with_progress(graph, bindings, &Progress::none())
}

/// As [`evaluate`]; it can be stopped between two nodes.
///
/// # Errors
/// As [`evaluate`]; [`ErrorKind::Cancelled`].
pub fn evaluate_with_progress(graph: &Graph, bindings: &Bindings, progress: &Progress) -> Result<Vec<Value>> {
    let values = evaluate_all_with_progress(graph, bindings, &graph.outputs, progress)?;
    graph
        .outputs
        .iter()
        .map(|id| match &values[id.index()] {
            Some(results) => results[0].try_clone(),
            None => Err(Error::new(ErrorKind::InvalidGraph, "an output does not exist")),
        })
        .collect()
}

/// The results of every node that `wanted` depends on; `None` for the others.
///
/// # Errors
/// As [`evaluate`].
pub fn evaluate_all(
    graph: &Graph,
    bindings: &Bindings,
    wanted: &[NodeId],
) -> Result<Vec<Option<Vec<Value>>>> {
    evaluate_all_with_progress(graph, bindings, wanted, &Progress::none())
}

/// As [`evaluate_all`]; it can be stopped between two nodes, those of bodies included.
///
/// # Errors
/// As [`evaluate`]; [`ErrorKind::Cancelled`].
pub fn evaluate_all_with_progress(
    graph: &Graph,
    bindings: &Bindings,
    wanted: &[NodeId],
    progress: &Progress,
) -> Result<Vec<Option<Vec<Value>>>> {
    scoped(|| evaluate_needed(graph, bindings, wanted, progress))
}

fn evaluate_needed(
    graph: &Graph,
    bindings: &Bindings,
    wanted: &[NodeId],
    progress: &Progress,
) -> Result<Vec<Option<Vec<Value>>>> {
    let needed = live_nodes(graph, wanted)?;
    let mut dims = bind_dims(graph, bindings)?;
    let mut values: Vec<Option<Vec<Value>>> = vec![None; graph.len()];
    for node in graph.nodes().iter().filter(|n| needed[n.id.index()]) {
        progress.step(Stage::Verify, node.id.index(), graph.len(), || node.op.kind().name())?;
        let results =
            evaluate_node(node, bindings, &dims, &values, progress).map_err(|e| graph.locate(node.id, e))?;
        bind_found(node, &results, &values, &mut dims, progress).map_err(|e| graph.locate(node.id, e))?;
        values[node.id.index()] = Some(results);
    }
    Ok(values)
}

/// Binds the symbol that `node` counted, if it is one that counts.
fn bind_found(
    node: &Node,
    results: &[Value],
    values: &[Option<Vec<Value>>],
    dims: &mut DimBinding,
    progress: &Progress,
) -> Result<()> {
    let Some(symbol) = node.op.data_symbol() else { return Ok(()) };
    let mut pairs = node.results().iter().zip(results).flat_map(|(s, v)| s.dims().iter().zip(&v.dims));
    let found = match pairs.find(|&(&d, _)| d == Dim::Dynamic(symbol)) {
        Some((_, &found)) => found,
        // Results mention it in expressions only, or not at all.
        None => {
            let inputs: Option<Vec<&Value>> =
                node.inputs.iter().map(|id| values[id.index()].as_ref().and_then(|v| v.first())).collect();
            let inputs =
                inputs.ok_or_else(|| Error::new(ErrorKind::Internal, "an operand was not computed"))?;
            node.op.def().count(&node.op.bind(dims), &inputs, progress)?
        }
    };
    dims.set(symbol, found);
    // What is declared in terms of it was open until now.
    let mut declared = node.results().iter().map(|shape| shape.bind(dims)).zip(results);
    declared.try_for_each(|(shape, value)| check_declared(value, &shape, |_| false))
}

/// Which nodes `wanted` depends on, itself included; through a dimension that a node counts, too.
///
/// # Errors
/// [`ErrorKind::InvalidGraph`] for an unknown id.
pub fn live_nodes(graph: &Graph, wanted: &[NodeId]) -> Result<Vec<bool>> {
    let mut live = vec![false; graph.len()];
    for &id in wanted {
        graph.check_id(id)?;
        live[id.index()] = true;
    }
    // The last of the dead nodes is used by nothing. So where every node is used, none is dead.
    let mut used = live.clone();
    let mut uses = graph.nodes().iter().flat_map(|node| node.inputs.iter().map(|&id| (node.id, id)));
    let sound = uses.all(|(by, id)| {
        let before = id < by && graph.check_id(id).is_ok();
        if before {
            used[id.index()] = true;
        }
        before
    });
    if sound && used.iter().all(|&used| used) {
        return Ok(used);
    }
    let counts: crate::maps::HashMap<u32, NodeId> =
        graph.nodes().iter().filter_map(|n| Some((n.op.data_symbol()?, n.id))).collect();
    for node in graph.nodes().iter().rev() {
        if live[node.id.index()] {
            for &id in &node.inputs {
                graph.check_id(id)?;
                live[id.index()] = true;
            }
            if !counts.is_empty() {
                data::mentioned(node, &mut |s| {
                    if let Some(id) = counts.get(&s) {
                        live[id.index()] = true;
                    }
                });
            }
        }
    }
    Ok(live)
}

/// The symbols' values, read off the shapes of the given inputs and parameters.
///
/// A dimension that is one symbol defines it; all others are checked against their expression.
///
/// # Errors
/// [`ErrorKind::Binding`] for a shape that does not fit, [`ErrorKind::Dimension`] for a symbol that two
/// inputs define differently.
pub fn bind_dims(graph: &Graph, bindings: &Bindings) -> Result<DimBinding> {
    let given = graph.nodes().iter().filter_map(|node| match bindings.of(&node.op) {
        Ok(Some(value)) => Some((node, value.dims.as_slice())),
        _ => None,
    });
    bind_shapes(given)
}

/// The symbols' values, from declared shapes and the dimensions given for them.
///
/// # Errors
/// As [`bind_dims`].
pub fn bind_shapes<'a>(given: impl Iterator<Item = (&'a Node, &'a [usize])> + Clone) -> Result<DimBinding> {
    let mut binding = DimBinding::new();
    for (node, dims) in given.clone() {
        let shape_mismatch = || {
            let found = Shape::new(dims, node.shape.dtype());
            let message = format!("{} is declared as {}, but was given {found}", node.describe(), node.shape);
            Error::new(ErrorKind::Binding, message)
        };
        if node.shape.rank() != dims.len() {
            return Err(shape_mismatch());
        }
        for (&declared, &n) in node.shape.dims().iter().zip(dims) {
            match declared {
                Dim::Static(want) if want != n => return Err(shape_mismatch()),
                Dim::Dynamic(s) => match binding.get(s) {
                    Some(other) if other != n => {
                        let name = crate::dim::sym::name(s);
                        return Err(Error::new(
                            ErrorKind::Dimension,
                            format!(
                                "dimension {name} is {other} in one input and {n} in {}",
                                node.describe()
                            ),
                        ));
                    }
                    _ => {
                        binding.set(s, n);
                    }
                },
                _ => {}
            }
        }
    }
    for (node, dims) in given {
        for (&declared, &n) in node.shape.dims().iter().zip(dims) {
            // A negative size is none that could be given.
            if let Some(want) = declared.extent().bind(&binding).as_const()
                && usize::try_from(want) != Ok(n)
            {
                let message =
                    format!("{}: dimension {declared} is {want}, but was given {n}", node.describe());
                return Err(Error::new(ErrorKind::Dimension, message));
            }
        }
    }
    Ok(binding)
}

fn evaluate_node(
    node: &Node,
    bindings: &Bindings,
    dims: &DimBinding,
    values: &[Option<Vec<Value>>],
    progress: &Progress,
) -> Result<Vec<Value>> {
    if let Some(value) = bindings.of(&node.op)? {
        if value.dtype != node.shape.dtype() {
            let message = format!("declared as {}, but was given {}", node.shape, value.shape());
            return Err(Error::new(ErrorKind::Binding, message));
        }
        return Ok(vec![value.try_clone()?]);
    }
    let input = |id: NodeId| {
        values[id.index()]
            .as_deref()
            .ok_or_else(|| Error::new(ErrorKind::Internal, format!("{id} was not computed")))
    };
    if let Op::Result { index } = &node.op {
        let value = input(node.inputs[0])?
            .get(*index)
            .ok_or_else(|| Error::new(ErrorKind::InvalidGraph, format!("there is no result {index}")))?;
        check_declared(value, &node.shape.bind(dims), |d| !d.is_static())?;
        return Ok(vec![value.try_clone()?]);
    }
    let inputs: Vec<&Value> =
        node.inputs.iter().map(|&id| input(id).map(|results| &results[0])).collect::<Result<_>>()?;
    check_known(&node.op, node.results(), dims)?;
    let op = node.op.bind(dims);
    let declared: Vec<Shape> = node.results().iter().map(|s| s.bind(dims)).collect();
    let results = evaluate_op_with_progress(&op, &inputs, &declared, progress)?;
    // The symbol that the op counts is open until now.
    let own = op.data_symbol();
    let is_open = |d: Dim| own.is_some_and(|own| d.mentions(own));
    results.iter().zip(&declared).try_for_each(|(value, shape)| check_declared(value, shape, is_open))?;
    Ok(results)
}

/// Whether every symbol that an op and the shapes of its results mention has a value, even one that would not matter this time
/// (`0*n`): what is an error does not depend on the other sizes. What bodies mention gets its values in them.
fn check_known(op: &Op, results: &[Shape], dims: &DimBinding) -> Result<()> {
    let (own, mut open) = (op.data_symbol(), None);
    let mut mentioned = |s| {
        if own != Some(s) && dims.get(s).is_none() {
            open.get_or_insert(s);
        }
    };
    if op.bodies().is_empty() {
        op.each_symbol(&mut mentioned);
    }
    results.iter().flat_map(|shape| shape.dims()).for_each(|dim| dim.each_symbol(&mut mentioned));
    let Some(open) = open else { return Ok(()) };
    let message = format!("{} of {} has no value", crate::dim::sym::name(open), op.kind());
    Err(Error::new(ErrorKind::Dimension, message))
}

/// Whether a result has its declared shape, but for dimensions that are open.
fn check_declared(value: &Value, declared: &Shape, is_open: impl Fn(Dim) -> bool) -> Result<()> {
    let same = |(&d, &n): (&Dim, &usize)| d == Dim::Static(n) || is_open(d);
    if declared.rank() == value.dims.len() && declared.dims().iter().zip(&value.dims).all(same) {
        return Ok(());
    }
    let message = format!("it gives {} where its declared shape is {declared}", value.shape());
    Err(Error::new(ErrorKind::Dimension, message)
        .with_hint("dimensions that the model declares equal differ"))
}

/// The rounded results of one op whose attributes hold no symbols.
///
/// # Errors
/// What the shape rule or the reference semantics report.
pub fn evaluate_op(op: &Op, inputs: &[&Value], declared: &[Shape]) -> Result<Vec<Value>> {
    check_known(op, &[], &DimBinding::new())?;
    evaluate_op_with_progress(op, inputs, declared, &Progress::none())
}

/// As [`evaluate_op`], of an op that [mentions no symbol](check_known); one with bodies can be stopped between their nodes.
fn evaluate_op_with_progress(
    op: &Op,
    inputs: &[&Value],
    declared: &[Shape],
    progress: &Progress,
) -> Result<Vec<Value>> {
    let shapes: Vec<Shape> = inputs.iter().map(|v| v.shape()).collect();
    let shapes: Vec<&Shape> = shapes.iter().collect();
    let mut results = ops::def::infer(op, &shapes, declared)?;
    if let Some(count) = op.def().counted(op) {
        // What is counted may be the rows of nothing, as many as a number can say.
        let known: Vec<Shape> = results.iter().filter(|s| s.is_static()).cloned().collect();
        ensure_room(inputs, &known)?;
        let found = op.def().count(op, inputs, progress)?;
        match count {
            Dim::Dynamic(symbol) => {
                let binding = DimBinding::from_pairs(&[(symbol, found)]);
                results.iter_mut().for_each(|shape| *shape = shape.bind(&binding));
            }
            given if given != Dim::Static(found) => {
                let message = format!("there are {found}, where {given} were declared");
                return Err(Error::new(ErrorKind::Value, message));
            }
            _ => {}
        }
    }
    if let Some(open) = results.iter().find(|s| !s.is_static()) {
        return Err(Error::new(ErrorKind::Dimension, format!("{open} has a dimension without a value")));
    }
    // Without elements there is nothing to compute, whatever the other dimensions multiply to.
    if results.iter().all(|s| s.num_elements() == Some(0)) {
        return results.iter().map(Value::empty).collect();
    }
    ensure_room(inputs, &results)?;
    let values = op.def().reference_with_progress(op, inputs, &results, progress)?;
    for (value, shape) in values.iter().zip(&results) {
        if value.shape() != *shape {
            let message = format!("the oracle made {} where the rule gives {shape}", value.shape());
            return Err(Error::new(ErrorKind::Internal, message));
        }
    }
    Ok(values.into_iter().map(Value::rounded).collect())
}

/// Whether there is room for an op's results and for what its reference semantics keep beside them: copies of the
/// operands and tables of positions.
fn ensure_room(inputs: &[&Value], results: &[Shape]) -> Result<()> {
    if let Some(huge) = results.iter().find(|s| s.num_elements().is_none_or(|n| n > MAX_ELEMENTS)) {
        return Err(Error::new(ErrorKind::OutOfMemory, format!("{huge} is too large for the oracle")));
    }
    let sum = |shapes: &mut dyn Iterator<Item = usize>| shapes.fold(0usize, usize::saturating_add);
    let given = sum(&mut inputs.iter().map(|v| memory::value_bytes(&v.shape())));
    let made = sum(&mut results.iter().map(memory::value_bytes));
    let bytes = given.saturating_mul(3).saturating_add(made.saturating_mul(6));
    memory::ensure(bytes, || match results {
        [one] => format!("the exact values of {one}"),
        all => format!("the exact values of {} results", all.len()),
    })
}

/// How much may be computed ahead of a run. The oracle, which computes constants, is slow, and what it makes takes memory:
/// whatever goes beyond is left to the run, so that no file costs more than it is worth before it runs.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    work: f64,
    elements: usize,
}

impl Allowance {
    /// What one op may take: arithmetic operations, and elements read and written.
    const MOST_OF_ONE: f64 = 1e7;
    /// What all may take together; about half a second.
    const MOST_OF_ALL: f64 = 3e7;
    /// How many elements may be made in any case.
    const ELEMENTS: usize = 1 << 20;

    /// For constants or a file of so many bytes: every byte makes room for four elements.
    pub fn for_bytes(bytes: usize) -> Self {
        let elements = Self::ELEMENTS.saturating_add(bytes.saturating_mul(4));
        // Who has more constants may take more time for them.
        let work = Self::MOST_OF_ALL.max(elements as f64);
        Allowance { work, elements }
    }

    /// Takes so many elements; `false` where fewer are left.
    pub fn take(&mut self, elements: usize) -> bool {
        let left = self.elements.checked_sub(elements);
        self.elements = left.unwrap_or(self.elements);
        left.is_some()
    }

    /// Whether the op may be computed on constants of these shapes; if so, what that takes is gone.
    pub fn admits(&mut self, op: &Op, inputs: &[&Shape], results: &[Shape]) -> bool {
        let work = op.def().work(op, inputs, results);
        let made = results.iter().try_fold(0usize, |n, s| n.checked_add(s.num_elements()?));
        let Some(made) = made.filter(|_| work <= Self::MOST_OF_ONE.min(self.work)) else { return false };
        let admitted = self.take(made);
        self.work -= if admitted { work } else { 0.0 };
        admitted
    }
}

/// Walks the positions of a tensor in row-major order, calling `f` with each multi-index.
pub(crate) fn for_each_index(dims: &[usize], mut f: impl FnMut(&[usize])) {
    if dims.contains(&0) {
        return;
    }
    let mut index = vec![0usize; dims.len()];
    loop {
        f(&index);
        let mut axis = dims.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            index[axis] += 1;
            if index[axis] < dims[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
}

/// The row-major strides of a tensor of `dims`.
pub(crate) fn strides(dims: &[usize]) -> Vec<i64> {
    let mut strides = vec![1i64; dims.len()];
    for i in (1..dims.len()).rev() {
        strides[i - 1] = strides[i].saturating_mul(dims[i] as i64);
    }
    strides
}

/// The positions that a strided view visits, in row-major order of its own `dims`.
pub(crate) fn strided_offsets(dims: &[usize], start: i64, strides: &[i64]) -> Vec<usize> {
    if dims.contains(&0) {
        return Vec::new();
    }
    let mut places = vec![start];
    for (&d, &stride) in dims.iter().zip(strides) {
        places = places.iter().flat_map(|&p| (0..d as i64).map(move |i| p + i * stride)).collect();
    }
    places.into_iter().map(|p| p as usize).collect()
}

/// A tensor seen from one axis: the elements before it, along it and behind it.
pub(crate) fn around(dims: &[usize], axis: usize) -> (usize, usize, usize) {
    let count = |dims: &[usize]| dims.iter().fold(1usize, |n, &d| n.saturating_mul(d));
    (count(&dims[..axis]), dims[axis], count(&dims[axis + 1..]))
}

/// For each element of a tensor of dimensions `to`, the position in a tensor of `from` that broadcasts
/// to it.
pub(crate) fn broadcast_offsets(from: &[usize], to: &[usize]) -> Vec<usize> {
    let mut steps = vec![0; to.len()];
    let skip = to.len() - from.len();
    for (i, (&d, stride)) in from.iter().zip(strides(from)).enumerate() {
        steps[skip + i] = if d == 1 { 0 } else { stride };
    }
    strided_offsets(to, 0, &steps)
}
