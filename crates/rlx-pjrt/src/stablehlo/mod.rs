//! Graphs as StableHLO, the text that PJRT's plugins compile.
//!
//! A module has one function, `@main`, whose arguments are the graph's inputs and whose results its outputs. Ops are written in MLIR's
//! generic form, one file for each family; what a family has no text for it says ([`claim`]), and the compiler decomposes
//! that. Every dimension is a number. An input that an output may be written over has the attribute
//! `tf.aliasing_output`.
//!
//! StableHLO moves an index that is out of range to the nearest element. A program therefore checks its indices, and
//! gives as its last result `[number of the check, index]` of the first that is out of range, or zeros.
//!
//! ```text
//! module @layer {
//! func.func public @main(%a0: tensor<2x4xf32>, %a1: tensor<4x3xf32>) -> (tensor<2x3xf32>) {
//! %1 = "stablehlo.dot_general"(%a0, %a1) {…} : (tensor<2x4xf32>, tensor<4x3xf32>) -> (tensor<2x3xf32>)
//! "func.return"(%1) : (tensor<2x3xf32>) -> ()
//! }
//! }
//! ```

mod control;
mod dtypes;
mod elementwise;
mod index;
mod linalg;
mod movement;
mod reduce;
mod writer;

use std::collections::HashMap;

use rlx_ir::{DType, Error, ErrorKind, Graph, Node, NodeId, Op, Result};
use rlx_opt::Claim;

use self::dtypes::no;
pub(crate) use self::dtypes::{packed, unpacked};
pub(crate) use self::writer::Check;
use self::writer::{Type, Val, Writer};

/// A graph's text.
#[derive(Debug, Clone)]
pub struct Module {
    /// The text.
    pub text: String,
    /// What its last result reports, if it checks indices.
    pub(crate) checks: Vec<Check>,
    faults: bool,
}

impl Module {
    /// Whether the last result is the fault record, not an output of the graph.
    pub fn reports_faults(&self) -> bool {
        self.faults
    }

    /// What a fault record says, if it says anything.
    pub fn fault(&self, record: &[u8]) -> Option<Error> {
        let word = |at: usize| record.get(8 * at..8 * at + 8)?.try_into().ok().map(i64::from_le_bytes);
        let (number, index) = (word(0)?, word(1)?);
        let check = self.checks.get(usize::try_from(number).ok()?.checked_sub(1)?)?;
        let message =
            format!("index {index} is out of range on axis {}, which has {}", check.axis, check.size);
        let error = Error::new(ErrorKind::Value, message).with_node(check.node.clone());
        Some(match &check.origin {
            Some(origin) => error.with_origin(origin.clone()),
            None => error,
        })
    }
}

/// Whether there is text for a node, exact for element types and attributes.
pub fn claim(node: &Node, graph: &Graph) -> Claim {
    let of: Vec<DType> = node.inputs.iter().map(|&id| graph.shape(id).dtype()).collect();
    match rejects(node, &of) {
        None => Claim::Native,
        Some(why) => Claim::No(why),
    }
}

fn rejects(node: &Node, of: &[DType]) -> Option<String> {
    let to = node.shape.dtype();
    match &node.op {
        Op::Input { .. } | Op::Param { .. } | Op::Constant { .. } | Op::Result { .. } => None,
        Op::Activation(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::Where
        | Op::Predicate(_)
        | Op::Cast { .. }
        | Op::BitCast { .. } => elementwise::rejects(&node.op, of, to),
        Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::Expand { .. }
        | Op::Slice { .. }
        | Op::Concat { .. }
        | Op::Pad { .. }
        | Op::Iota { .. } => movement::rejects(&node.op, of, to),
        op if index::checks(op) => index::rejects(op, of),
        Op::Reduce { .. }
        | Op::Cumulative { .. }
        | Op::ArgReduce { .. }
        | Op::TopK { .. }
        | Op::Softmax { .. }
        | Op::LogSoftmax { .. } => reduce::rejects(&node.op, of[0]),
        Op::MatMul | Op::DotGeneral { .. } | Op::Conv { .. } | Op::ConvTranspose { .. } | Op::Pool { .. } => {
            linalg::rejects(&node.op, of)
        }
        Op::If { .. } | Op::Loop { .. } => {
            let bodies = node.op.bodies();
            let mut nodes =
                bodies.iter().flat_map(|body| body.graph.nodes().iter().map(move |n| (n, &body.graph)));
            nodes.find_map(|(inner, graph)| match claim(inner, graph) {
                Claim::Native if inner.op.data_symbol().is_none() => None,
                Claim::No(why) => Some(format!("its body has {}: {why}", inner.op.kind())),
                _ => no("its body finds a size out"),
            })
        }
        op => Some(format!("StableHLO has no {}", op.kind())),
    }
}

/// Writes a graph whose dimensions are numbers, and which [`claim`] accepts.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for an op that has no text, [`ErrorKind::Internal`] for a dimension that is no number.
pub fn module(graph: &Graph) -> Result<Module> {
    let mut w = Writer::new(body);
    let (mut given, mut heads) = (Vec::new(), Vec::new());
    for (i, node) in arguments(graph).enumerate() {
        let ty = Type::of(&node.shape)?;
        let donated = if let Op::Input { name } = &node.op { graph.donated_to(name) } else { None };
        let alias = donated.map(|output| format!(" {{tf.aliasing_output = {output} : i32}}"));
        heads.push(format!("%a{i}: {ty}{}", alias.unwrap_or_default()));
        given.push(w.named(format!("%a{i}"), ty));
    }
    if any_checks(graph) {
        w.fault = Some(w.number(&Type::new(DType::I64, &[2]), 0.0));
    }
    let mut outputs = body(&mut w, graph, &given)?;
    let faults = w.fault.is_some();
    outputs.extend(w.fault);
    w.end("func.return", &outputs);
    let types: Vec<String> = outputs.iter().map(|&v| w.ty(v).to_string()).collect();
    let checks = std::mem::take(&mut w.checks);
    let name: String = graph.name.chars().filter(char::is_ascii_alphanumeric).take(40).collect();
    let text = format!(
        "module @m_{name} {{\nfunc.func public @main({}) -> ({}) {{\n{}}}\n}}\n",
        heads.join(", "),
        types.join(", "),
        w.text()
    );
    Ok(Module { text, checks, faults })
}

/// What a program takes: the graph's inputs and parameters, in the order of its nodes.
pub fn arguments(graph: &Graph) -> impl Iterator<Item = &Node> {
    graph.nodes().iter().filter(|node| matches!(node.op, Op::Input { .. } | Op::Param { .. }))
}

/// Whether a graph looks at indices.
fn any_checks(graph: &Graph) -> bool {
    let inside = |node: &Node| node.op.bodies().iter().any(|body| any_checks(&body.graph));
    graph.nodes().iter().any(|node| index::checks(&node.op) || inside(node))
}

/// Writes the nodes of a graph whose inputs are `given`, and gives its outputs.
fn body(w: &mut Writer, graph: &Graph, given: &[Val]) -> Result<Vec<Val>> {
    let mut values: Vec<Vec<Val>> = Vec::with_capacity(graph.len());
    let inputs: HashMap<NodeId, Val> =
        arguments(graph).map(|node| node.id).zip(given.iter().copied()).collect();
    for node in graph.nodes() {
        let x: Vec<Val> = node.inputs.iter().map(|id| values[id.index()][0]).collect();
        let written = match &node.op {
            Op::Input { .. } | Op::Param { .. } => inputs.get(&node.id).map(|&value| vec![value]),
            Op::Constant { data } => Some(vec![w.constant(data)]),
            Op::Result { index } => values[node.inputs[0].index()].get(*index).map(|&value| vec![value]),
            _ => written(w, node, graph, &x).map_err(|e| graph.locate(node.id, e))?,
        };
        let missing = || {
            let message = format!("there is no StableHLO for {}", node.op.kind());
            graph.locate(node.id, Error::new(ErrorKind::Unsupported, message))
        };
        values.push(written.ok_or_else(missing)?);
    }
    Ok(graph.outputs.iter().map(|id| values[id.index()][0]).collect())
}

fn written(w: &mut Writer, node: &Node, graph: &Graph, x: &[Val]) -> Result<Option<Vec<Val>>> {
    if let Some(value) = elementwise::write(w, node, x)? {
        return Ok(Some(vec![value]));
    }
    if let Some(value) = movement::write(w, node, x)? {
        return Ok(Some(vec![value]));
    }
    if let Some(value) = linalg::write(w, node, x)? {
        return Ok(Some(vec![value]));
    }
    if let Some(value) = index::write(w, node, graph, x)? {
        return Ok(Some(vec![value]));
    }
    match x.first() {
        Some(&first) => match reduce::write(w, node, first)? {
            Some(values) => Ok(Some(values)),
            None => control::write(w, node, x),
        },
        None => Ok(None),
    }
}
