//! Graphs whose declared dimensions need not agree with what their ops make.
//!
//! Users declare shapes, and exporters write symbols that are equal only for some inputs. [`mismatched_case`] takes a
//! valid case of an op, declares dimensions of its operands, attributes and results as symbols (each its own, or shared
//! by some of equal size), and gives the symbols values that may contradict the op's rule. The oracle decides whether a
//! run may give anything at all.

use std::collections::BTreeMap;

use super::{Case, Gen};
use crate::dim::{Dim, sym};
use crate::dtype::DType;
use crate::graph::{Graph, Node, NodeId};
use crate::ops::{Activation, Op, OpKind};
use crate::oracle::Bindings;
use crate::shape::Shape;
use crate::tensor::Value;

/// Symbols and the values that the case gives them, in an order that does not depend on what a process named before.
pub(super) type Symbols = BTreeMap<String, usize>;

/// Tensors with more elements have only small dimensions.
const MOST_ELEMENTS: usize = 1 << 13;

/// A dimension that only tensors without elements can have.
const HUGE: usize = 1 << 31;

/// A larger one, which no loop reaches the end of, and for which no memory is found.
const ENDLESS: usize = 1 << 40;

/// The most elements that a tensor would have but for its dimensions of 0: with two huge ones it would need more addresses
/// than there are.
const MOST_BUT_FOR_ZEROS: usize = ENDLESS << 12;

/// A graph around one random op of `kind`, and values for its inputs. Valid as far as the verifier can see unless
/// [`crate::verify()`] says otherwise; its dimensions may contradict each other.
pub fn mismatched_case(kind: OpKind, seed: u64) -> (Graph, Bindings) {
    mismatched(&mut Gen::new(seed ^ 0x6D69_736D), &Case::random(kind, seed))
}

/// As [`mismatched_case`], where sizes that were equal are equal still, some are 0, and one is as large as only tensors
/// without elements can have: nothing is to be done, however many times.
pub fn hollow_case(kind: OpKind, seed: u64) -> (Graph, Bindings) {
    let (g, case) = (&mut Gen::new(seed ^ 0x686F_6C6C), &Case::random(kind, seed));
    let mut symbols = Symbols::new();
    let mut graph = Graph::new("hollow");
    let mut open = |shape: &Shape| {
        let dims = shape.dims().iter().map(|&d| match d.as_static() {
            Some(size) => open_as(format!("n{size}"), size, &mut symbols),
            None => d,
        });
        shape.with_dims(dims.collect())
    };
    let declared: Vec<Shape> = case.inputs.iter().map(|v| open(&v.shape())).collect();
    let ids: Vec<NodeId> =
        declared.iter().enumerate().map(|(i, s)| graph.input(format!("x{i}"), s.clone())).collect();
    let Ok(results) = graph.infer(&case.op, &ids, &case.declared) else { return mismatched(g, case) };
    let count = results.len();
    let node = graph.push_node(Node::new(case.op.clone(), ids, results));
    let outputs = (0..count).map(|i| graph.result(node, i)).collect::<Result<_, _>>().unwrap_or_default();
    graph.set_outputs(outputs);
    let names: Vec<String> = symbols.keys().cloned().collect();
    for name in names.iter().filter(|_| g.chance(0.4)) {
        symbols.insert(name.clone(), 0);
    }
    if !names.is_empty() {
        symbols.insert(names[g.size(0..=names.len() - 1)].clone(), ENDLESS);
    }
    keep_small(&graph, &mut symbols);
    let bindings = values(g, &mut graph, case, &declared, &symbols);
    (graph, bindings)
}

/// As [`mismatched_case`], of this case and by the choices of `g`.
pub fn mismatched(g: &mut Gen, case: &Case) -> (Graph, Bindings) {
    let mut symbols = Symbols::new();
    let mut graph = Graph::new("mismatch");
    let declared: Vec<Shape> = case
        .inputs
        .iter()
        .enumerate()
        .map(|(i, v)| open(g, &v.shape(), &format!("i{i}"), &mut symbols))
        .collect();
    let ids: Vec<NodeId> =
        declared.iter().enumerate().map(|(i, s)| graph.input(format!("x{i}"), s.clone())).collect();
    let op = open_attributes(g, &case.op, &mut symbols);
    let results = results(g, &graph, case, &op, &ids, &mut symbols);
    let count = results.len();
    let node = graph.push_node(Node::new(op, ids, results));
    let mut outputs: Vec<NodeId> =
        (0..count).map(|i| graph.result(node, i)).collect::<Result<_, _>>().unwrap_or_default();
    if graph.shape(node).dtype().is_float() && g.chance(0.3) {
        let shape = graph.shape(node).clone();
        outputs.push(graph.activation(Activation::Relu, node, shape));
    }
    graph.set_outputs(outputs);
    if g.chance(0.6) {
        contradict(g, &mut symbols);
        keep_small(&graph, &mut symbols);
    }
    let bindings = values(g, &mut graph, case, &declared, &symbols);
    (graph, bindings)
}

/// A shape with some of its dimensions as symbols of those sizes.
fn open(g: &mut Gen, shape: &Shape, prefix: &str, symbols: &mut Symbols) -> Shape {
    let dims = shape
        .dims()
        .iter()
        .enumerate()
        .map(|(axis, &d)| open_dim(g, d, &format!("{prefix}d{axis}"), symbols));
    shape.with_dims(dims.collect())
}

fn open_dim(g: &mut Gen, d: Dim, own: &str, symbols: &mut Symbols) -> Dim {
    let Some(size) = d.as_static() else { return d };
    let name = match g.size(0..=9) {
        0..=3 => return d,
        4..=6 => own.to_string(),
        _ => format!("n{size}"),
    };
    open_as(name, size, symbols)
}

/// The symbol of this name, which has that size.
fn open_as(name: String, size: usize, symbols: &mut Symbols) -> Dim {
    let symbol = sym::named(&name);
    symbols.insert(name, size);
    Dim::Dynamic(symbol)
}

/// The op with some of the dimensions among its attributes as symbols.
fn open_attributes(g: &mut Gen, op: &Op, symbols: &mut Symbols) -> Op {
    let mut open_all = |dims: &[Dim]| -> Vec<Dim> {
        dims.iter().enumerate().map(|(i, &d)| open_dim(g, d, &format!("q{i}"), symbols)).collect()
    };
    match op {
        Op::Reshape { to } => Op::Reshape { to: open_all(to) },
        Op::Expand { to } => Op::Expand { to: open_all(to) },
        Op::Tile { repeats } => Op::Tile { repeats: open_all(repeats) },
        Op::Slice { starts, steps, to } => {
            Op::Slice { starts: starts.clone(), steps: steps.clone(), to: open_all(to) }
        }
        Op::Iota { to, axis, dtype } => Op::Iota { to: open_all(to), axis: *axis, dtype: *dtype },
        op => op.clone(),
    }
}

/// Declared shapes of the results: inferred, or with symbols of their own.
fn results(
    g: &mut Gen,
    graph: &Graph,
    case: &Case,
    op: &Op,
    ids: &[NodeId],
    symbols: &mut Symbols,
) -> Vec<Shape> {
    let fixed: Vec<Shape> = case.inputs.iter().map(Value::shape).collect();
    let fixed: Vec<&Shape> = fixed.iter().collect();
    let right = crate::ops::def::infer(&case.op, &fixed, &case.declared).unwrap_or_default();
    let inferred = graph.infer(op, ids, &case.declared).unwrap_or_else(|_| right.clone());
    let declared = inferred.iter().zip(&right).enumerate().map(|(i, (inferred, right))| {
        if g.chance(0.4) {
            return inferred.clone();
        }
        let opened = open(g, right, &format!("r{i}"), symbols);
        let dims = inferred.dims().iter().zip(opened.dims());
        inferred.with_dims(dims.map(|(&a, &b)| if g.chance(0.3) { a } else { b }).collect())
    });
    declared.collect()
}

/// Gives one or two symbols other values.
fn contradict(g: &mut Gen, symbols: &mut Symbols) {
    let names: Vec<String> = symbols.keys().cloned().collect();
    if names.is_empty() {
        return;
    }
    for _ in 0..g.size(1..=2) {
        let size = match if g.chance(0.2) { g.size(10..=200) } else { g.size(0..=9) } {
            191.. => HUGE,
            size => size,
        };
        symbols.insert(names[g.size(0..=names.len() - 1)].clone(), size);
    }
}

/// Makes numbers smaller as long as some tensor has too many elements, because a symbol stands for several dimensions, say.
fn keep_small(graph: &Graph, symbols: &mut Symbols) {
    for most in [9, 4, 2, 1] {
        let small = |shape: &Shape| {
            let mut sizes = shape.dims().iter().map(|d| size_of(d, symbols));
            let is_empty = sizes.clone().any(|n| n == 0);
            let most = if is_empty { MOST_BUT_FOR_ZEROS } else { MOST_ELEMENTS };
            sizes.try_fold(1usize, |n, d| n.checked_mul(d.max(1))).is_some_and(|n| n <= most)
        };
        if graph.nodes().iter().all(|node| node.results().iter().all(small)) {
            return;
        }
        symbols.values_mut().for_each(|n| *n = (*n).min(most));
    }
}

/// The size of a dimension; 1 for what has no value.
fn size_of(d: &Dim, symbols: &Symbols) -> usize {
    let size = d.eval(&|symbol| symbols.get(&sym::name(symbol)).and_then(|&n| i64::try_from(n).ok()));
    size.and_then(|n| usize::try_from(n).ok()).unwrap_or(1)
}

/// Values for the inputs, and inputs from which a run learns the symbols that no operand has.
fn values(g: &mut Gen, graph: &mut Graph, case: &Case, declared: &[Shape], symbols: &Symbols) -> Bindings {
    let mut bindings = Bindings::default();
    let mut seen = Vec::new();
    for (i, (value, shape)) in case.inputs.iter().zip(declared).enumerate() {
        let dims: Vec<usize> = shape.dims().iter().map(|d| size_of(d, symbols)).collect();
        seen.extend(shape.dims().iter().filter_map(|d| d.extent().as_sym()).map(sym::name));
        let given = if dims == value.dims {
            value.clone()
        } else if value.is_empty() {
            g.value(value.dtype, &dims, -2.0..2.0)
        } else {
            let places: Vec<usize> = (0..dims.iter().product()).map(|i: usize| i % value.len()).collect();
            value.pick(&dims, &places)
        };
        bindings.set_input(format!("x{i}"), given);
    }
    for (i, (symbol, &size)) in symbols.iter().filter(|(s, _)| !seen.contains(*s)).enumerate() {
        let dims = [Dim::Dynamic(sym::named(symbol)), Dim::Static(0)];
        graph.input(format!("z{i}"), Shape::from_dims(&dims, DType::U8));
        bindings.set_input(format!("z{i}"), Value::int(DType::U8, &[size, 0], Vec::new()));
    }
    match (&case.op, &case.source) {
        (Op::Input { name }, Some(value)) => _ = bindings.set_input(name.clone(), value.clone()),
        (Op::Param { name }, Some(value)) => _ = bindings.set_param(name.clone(), value.clone()),
        _ => {}
    }
    bindings
}
