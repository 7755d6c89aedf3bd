//! Reading graphs.

use std::collections::HashMap;

use crate::dim::{SymRange, scoped, sym};
use crate::error::Result;
use crate::graph::{Graph, Node, NodeId};
use crate::ops::{Op, OpKind};
use crate::shape::Shape;
use crate::tensor::ConstData;
use crate::text::Lexer;

/// Reads a graph whose constants all stand inline.
///
/// # Errors
/// [`crate::ErrorKind::Parse`] with line and column. The graph is not verified: call [`crate::verify()`].
pub fn parse(text: &str) -> Result<Graph> {
    parse_with_blobs(text, &HashMap::new())
}

/// Reads a graph; constants written as `@blob(hash)` come from `blobs`.
///
/// # Errors
/// As [`parse`]; also when a blob is missing.
pub fn parse_with_blobs(text: &str, blobs: &HashMap<String, ConstData>) -> Result<Graph> {
    scoped(|| {
        let mut lexer = Lexer::new(text, blobs);
        let graph = graph(&mut lexer)?;
        if lexer.at_end() { Ok(graph) } else { Err(lexer.error("text after the graph's end")) }
    })
}

pub(super) fn graph(lexer: &mut Lexer<'_>) -> Result<Graph> {
    lexer.expect_word("graph")?;
    let mut graph = Graph::new(lexer.string()?);
    lexer.expect("{")?;
    while lexer.eat_word("range") {
        let symbol =
            if lexer.at("\"") { sym::named(&lexer.string()?) } else { sym::named(&lexer.plain_word()?) };
        let min = range_end(lexer)?;
        lexer.expect("..=")?;
        let max = range_end(lexer)?;
        graph.set_symbol_range(symbol, SymRange::new(min, max));
    }
    while lexer.eat_word("donate") {
        let input = lexer.string()?;
        lexer.expect_word("to")?;
        let output = usize::try_from(lexer.integer()?).map_err(|_| lexer.error("the number of an output"))?;
        graph.set_donation(output, input);
    }
    while lexer.at("%") {
        node(lexer, &mut graph)?;
    }
    lexer.expect_word("return")?;
    let mut outputs = Vec::new();
    while lexer.at("%") || (!outputs.is_empty() && lexer.eat(",")) {
        outputs.push(node_id(lexer, &graph)?);
    }
    graph.set_outputs(outputs);
    lexer.expect("}")?;
    Ok(graph)
}

fn range_end(lexer: &mut Lexer<'_>) -> Result<i64> {
    let n = lexer.integer()?;
    i64::try_from(n).map_err(|_| lexer.error("a number beyond 64 bits"))
}

fn node_id(lexer: &mut Lexer<'_>, graph: &Graph) -> Result<NodeId> {
    lexer.expect("%")?;
    let n = lexer.integer()?;
    usize::try_from(n)
        .ok()
        .and_then(|i| graph.nodes().get(i))
        .map(|node| node.id)
        .ok_or_else(|| lexer.error(&format!("%{n} is not defined above")))
}

fn node(lexer: &mut Lexer<'_>, graph: &mut Graph) -> Result<()> {
    lexer.expect("%")?;
    let n = lexer.integer()?;
    if n != graph.len() as i128 {
        return Err(lexer.error(&format!("expected %{}, the next node in order", graph.len())));
    }
    lexer.expect("=")?;
    let name = lexer.plain_word()?;
    let kind = OpKind::from_name(&name).ok_or_else(|| lexer.error(&format!("unknown op \"{name}\"")))?;
    let tuple_op = if lexer.at(".") { Some(Op::parse_attrs(kind, lexer)?) } else { None };
    let inputs =
        if lexer.at("(") { lexer.list("(", ")", |lexer| node_id(lexer, graph))? } else { Vec::new() };
    let op = match tuple_op {
        Some(op) => op,
        None => Op::parse_attrs(kind, lexer)?,
    };
    let name = if lexer.at("\"") { Some(lexer.string()?) } else { None };
    lexer.expect(":")?;
    let results: Vec<Shape> =
        if lexer.at("(") { lexer.list("(", ")", Lexer::shape)? } else { vec![lexer.shape()?] };
    graph.push_node(Node::new(op, inputs, results).with_name(name));
    Ok(())
}
