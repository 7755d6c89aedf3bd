//! Caches of a fixed capacity: a decoder that puts new rows behind those of past runs, rewritten so that no dimension grows.
//!
//! Exporters write a cache of keys and values as a concatenation: `present = Concat(past, new)`, and the next run is given
//! `present` as `past`. Each run then has another shape, and moves all rows to add one. [`with_capacity`] turns such a graph into
//! one whose caches are buffers of a fixed number of rows. How many of them are used is an input, the *length*: data, not
//! a dimension. New rows are written behind the used ones ([`Op::UpdateSlice`]), each cache is donated to its output
//! ([`Graph::donate`]), and whatever reads the cache sees the used rows alone: scores of the others are −∞ before a softmax. So a
//! run binds nothing again, allocates nothing, and moves the new rows only.
//!
//! ```text
//! %0 = Input {name="past"} : [1, 4, past, 32] f32          %0 = Input {name="past"} : [1, 4, 2048, 32] f32
//! %1 = Input {name="new"} : [1, 4, seq, 32] f32            %1 = Input {name="new"} : [1, 4, seq, 32] f32
//! %2 = Concat(%0, %1) {axis=2}                        →    %2 = Input {name="past_length"} : [] i64
//!      : [1, 4, past + seq, 32] f32                        %3 = UpdateSlice(%0, %1, %2) {axis=2} : [1, 4, 2048, 32] f32
//! ```
//!
//! **How.** The symbol that grows (`past`) goes out of the graph. A dimension of `past + c` becomes one of `capacity`, of which
//! the first `length + c` rows count (`Rows`), and each op that meets such a dimension has a rule: elementwise ops and
//! movement leave it where it is, a count along it stays a count, a slice that starts at `past` starts at the length, a sum or a
//! matmul over it takes zeros for the rows that do not count, a softmax or an attention −∞. An op without a rule is an error that
//! names the node: nothing is turned half.
//!
//! Inputs that are as long as the cache, such as an attention mask of `past + seq`, take `capacity` elements; those behind the used
//! ones have no influence. The rows of a cache that are not used yet may hold any finite numbers; zeros to begin with.
//!
//! ```
//! use rlx_ir::text;
//! let g = text::parse(r#"graph "step" {
//!   %0 = Input {name="past"} : [past, 2] f32
//!   %1 = Input {name="new"} : [1, 2] f32
//!   %2 = Concat(%0, %1) {axis=0} : [1 + past, 2] f32
//!   %3 = Reduce(%2) {op=Sum, axes=[0], keep_dim=false} : [2] f32
//!   return %2, %3
//! }"#)?;
//! let bounded = rlx_opt::caches::with_capacity(&g, 16)?;
//! assert_eq!(bounded.graph.donated_to("past"), Some(0));
//! assert_eq!((bounded.length.as_str(), bounded.caches[0].output), ("past_length", 0));
//! # Ok::<(), rlx_ir::Error>(())
//! ```

mod contraction;
mod gather;
mod movement;
mod rows;

use std::collections::HashMap;

use rlx_ir::dim::scoped;
use rlx_ir::{DType, Dim, Error, ErrorKind, Graph, Node, NodeId, Op, Result, Shape, sym, verify_ok};

use rows::{Rows, Tail, Walk};

/// A graph whose caches have a capacity.
#[derive(Debug, Clone)]
pub struct Bounded {
    /// The graph. Its inputs are those of the original in their order, then the length.
    pub graph: Graph,
    /// The input that says how many rows of each cache are used before the run, an i64 scalar.
    pub length: String,
    /// How many rows each cache has.
    pub capacity: usize,
    /// The caches, in the order of the outputs.
    pub caches: Vec<Cache>,
}

/// An input that a run extends by rows, and the output that is the extended one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// The input's name.
    pub input: String,
    /// The output's number.
    pub output: usize,
    /// The axis along which it grows.
    pub axis: usize,
}

/// The caches of a graph: outputs that are an input and new rows behind it along a dynamic dimension, which is the same for all
/// of them.
///
/// # Errors
/// [`ErrorKind::Unsupported`] where there are none, or where they grow along dimensions of several names.
pub fn find(graph: &Graph) -> Result<Vec<Cache>> {
    scoped(|| Ok(grown(graph)?.0))
}

/// The graph with caches of `capacity` rows.
///
/// # Errors
/// As [`find`]; [`ErrorKind::Unsupported`] naming the first node whose use of the growing dimension has no equivalent, or
/// [`ErrorKind::Dimension`] for a capacity of 0 or one that a table of the model (of positions, say) is too short for.
pub fn with_capacity(graph: &Graph, capacity: usize) -> Result<Bounded> {
    scoped(|| {
        verify_ok(graph)?;
        if capacity == 0 {
            return Err(Error::new(ErrorKind::Dimension, "caches need a capacity of at least one row"));
        }
        let (caches, past) = grown(graph)?;
        let length = free_name(graph);
        let mut walk = Walk::new(graph, past, capacity);
        inputs(&mut walk, &caches, &length)?;
        let extended: HashMap<NodeId, usize> =
            caches.iter().map(|c| (graph.outputs[c.output], c.axis)).collect();
        for node in graph.nodes().iter().filter(|n| !matches!(n.op, Op::Input { .. })) {
            let done = match extended.get(&node.id) {
                Some(&axis) => extend(&mut walk, node, axis),
                None => turn(&mut walk, node),
            };
            done.map_err(|e| graph.locate(node.id, e))?;
        }
        for (number, &id) in graph.outputs.iter().enumerate() {
            if walk.rows(id).is_some() && !extended.contains_key(&id) {
                return Err(
                    walk.reject(&format!("output {number} grows with the caches and is none of them"))
                );
            }
        }
        let mut graph = walk.r.finish(true);
        for cache in &caches {
            graph.donate(&cache.input, cache.output)?;
        }
        verify_ok(&graph)?;
        Ok(Bounded { graph, length, capacity, caches })
    })
}

/// The caches, and the symbol that they grow by.
fn grown(graph: &Graph) -> Result<(Vec<Cache>, u32)> {
    let (mut caches, mut symbols): (Vec<Cache>, Vec<u32>) = (Vec::new(), Vec::new());
    for (output, &id) in graph.outputs.iter().enumerate() {
        let node = graph.node(id);
        let (Op::Concat { axis }, [past, new @ ..]) = (&node.op, &node.inputs[..]) else { continue };
        let (Op::Input { name }, Some(symbol)) =
            (&graph.node(*past).op, graph.shape(*past).dim(*axis).extent().as_sym())
        else {
            continue;
        };
        let by_itself = new.iter().all(|&x| {
            let mut dims = graph.shape(x).dims().iter();
            dims.all(|d| !d.extent().symbols().contains(&symbol))
        });
        if !by_itself || caches.iter().any(|c: &Cache| c.input == *name) {
            continue;
        }
        caches.push(Cache { input: name.clone(), output, axis: *axis });
        if !symbols.contains(&symbol) {
            symbols.push(symbol);
        }
    }
    match symbols[..] {
        [symbol] => Ok((caches, symbol)),
        [] => Err(Error::new(ErrorKind::Unsupported, "the graph has no cache that grows").with_hint(
            "an output must be the concatenation of an input and new rows along a dynamic dimension",
        )),
        _ => {
            let names: Vec<String> = symbols.iter().map(|&s| sym::name(s)).collect();
            let message = format!("the caches grow along several dimensions: {}", names.join(", "));
            Err(Error::new(ErrorKind::Unsupported, message)
                .with_hint("give the dimensions one name, or fix those that do not grow"))
        }
    }
}

/// A name for the length that no input has.
fn free_name(graph: &Graph) -> String {
    let taken =
        |name: &str| graph.inputs().any(|n| matches!(&n.op, Op::Input { name: other } if other == name));
    let numbered = (2..).map(|i| format!("past_length_{i}"));
    std::iter::once("past_length".to_string()).chain(numbered).find(|name| !taken(name)).unwrap_or_default()
}

/// The inputs as they were, those that grow with the capacity; then the length.
fn inputs(walk: &mut Walk<'_>, caches: &[Cache], length: &str) -> Result<()> {
    let graph = walk.r.old();
    for node in graph.inputs() {
        let Op::Input { name } = &node.op else { continue };
        let placed = |walk: &mut Walk<'_>| {
            let rows = walk.growth(&node.shape)?;
            let tail = if caches.iter().any(|c| c.input == *name) { Tail::Finite } else { Tail::Any };
            let shape = walk.fixed_shape(&node.shape);
            let new = walk.r.emit_declared(node.op.clone(), &[], &[shape])?;
            walk.place(node, new, rows.map(|rows| Rows { tail, ..rows }));
            Ok(())
        };
        placed(walk).map_err(|e: Error| graph.locate(node.id, e))?;
    }
    let op = Op::Input { name: length.to_string() };
    walk.length = Some(walk.r.emit_declared(op, &[], &[Shape::scalar(DType::I64)])?);
    Ok(())
}

/// New rows behind the used ones of a cache.
fn extend(walk: &mut Walk<'_>, node: &Node, axis: usize) -> Result<()> {
    let new: Vec<NodeId> = node.inputs[1..].iter().map(|&id| walk.r.new_id(id)).collect();
    let new = match new[..] {
        [one] => one,
        _ => walk.r.emit(Op::Concat { axis }, &new)?,
    };
    let (cache, length) = (walk.r.new_id(node.inputs[0]), walk.length()?);
    let longer = walk.r.emit(Op::UpdateSlice { axis }, &[cache, new, length])?;
    let rows = walk.growth(&node.shape)?.map(|rows| Rows { tail: Tail::Finite, ..rows });
    walk.place(node, longer, rows);
    Ok(())
}

/// Brings one node to the new graph.
fn turn(walk: &mut Walk<'_>, node: &Node) -> Result<()> {
    let grows = node.inputs.iter().any(|&id| walk.rows(id).is_some());
    if !grows && !walk.mentions_past(node) {
        walk.r.keep(node)?;
        return Ok(());
    }
    match &node.op {
        op if op.is_elementwise() => movement::elementwise(walk, node),
        Op::Iota { .. } | Op::Expand { .. } | Op::Transpose { .. } | Op::Concat { .. } => {
            movement::plain(walk, node)
        }
        Op::Reshape { to } => movement::reshape(walk, node, to),
        Op::Slice { starts, steps, to } => {
            movement::slice(walk, node, [starts, to_extents(to).as_slice()], steps)
        }
        Op::Trilu { upper, k } => movement::triangle(walk, node, *upper, *k),
        Op::Gather { axis } => gather::gather(walk, node, *axis),
        Op::GatherNd { batch_dims } => gather::gather_nd(walk, node, *batch_dims),
        Op::MatMul => contraction::matmul(walk, node),
        Op::Softmax { axis } | Op::LogSoftmax { axis } => contraction::softmax(walk, node, *axis),
        Op::Attention { .. } => contraction::attention(walk, node),
        Op::Reduce { op, axes, .. } => contraction::reduce(walk, node, *op, axes),
        Op::Cumulative { axis, reverse, .. } => movement::cumulative(walk, node, *axis, *reverse),
        _ => Err(walk.reject(&format!("{} has no rule for a dimension that grows", node.op.kind()))),
    }
}

fn to_extents(dims: &[Dim]) -> Vec<rlx_ir::Extent> {
    dims.iter().map(|d| d.extent()).collect()
}
