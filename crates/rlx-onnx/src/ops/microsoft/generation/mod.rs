//! Text generation as one op: `GreedySearch`, `Sampling` and `BeamSearch`, whose decoder is a graph.
//!
//! The decoder runs over the prompt first, in the graph around. Then an [`Op::Loop`] runs it for one token at a time. The caches of a
//! decoder grow with every token, and what a loop carries keeps its shape: so a loop carries buffers for the longest text
//! (`max_length`, which has to be known), whose first rows are the decoder's `past`, a dimension that the body finds out. A decoder
//! that takes `past_sequence_length` is given these buffers whole and updates them where they are; one that takes `cache_indirection`, too, is told in
//! which rows a text's earlier tokens are, so that nothing is copied when texts change places. An op
//! differs from the others in how it chooses tokens alone: a [`Choice`].
//!
//! | file | what |
//! |---|---|
//! | [`decoder`] | what a decoder is fed, its caches, and the prompt of one without an encoder |
//! | [`encoder`] | the encoder in front of a decoder |
//! | [`scores`] | what changes the scores of tokens before one is chosen: penalties, masks, lengths |
//! | [`greedy`] | the best token, or one that is drawn |
//! | [`beam`] | the best of several texts that are continued together |
//!
//! Where texts end before `max_length`, `pad_token_id` fills the rest.

mod beam;
mod decoder;
mod encoder;
mod greedy;
mod scores;

use crate::import::{ImportedBody, NodeCx, SlotId};
use crate::ops::{Entry, microsoft};
use decoder::{Begun, Decoder};
use rlx_ir::op::{BinaryOp as B, Body};
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op, Shape, Value};
use scores::Scores;
use std::sync::Arc;

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(in crate::ops) const OPS: &[Entry] = &[
    microsoft("BeamSearch", beam::beam_search),
    microsoft("GreedySearch", greedy::greedy_search),
    microsoft("Sampling", greedy::sampling),
];

/// What is the same in every step of a generation.
struct Search<'p> {
    batch: Dim,
    /// The texts that are continued for each element of the batch.
    beams: usize,
    /// All texts: `batch · beams`.
    rows: Dim,
    /// How many tokens each begins with.
    prompt: Extent,
    /// How many tokens each has at most.
    most: usize,
    pad: i64,
    eos: i64,
    decoder: Decoder<'p>,
    scores: Scores,
}

/// A step: the scores that the decoder gives, and the texts so far.
struct Step {
    /// `[rows, vocabulary]`, in f32.
    logits: NodeId,
    /// `[rows, most]`, in i32; `pad` behind the tokens so far.
    texts: NodeId,
    /// How many tokens each text has, one i64.
    length: NodeId,
    /// Whether it is the first token after the prompt.
    first: bool,
}

/// The tokens that continue the texts.
struct Chosen {
    /// `[rows]`, in i32.
    tokens: NodeId,
    /// The texts that they continue, `[rows]`, if each text is not continued itself.
    parents: Option<NodeId>,
    state: Vec<NodeId>,
    /// Whether any text goes on, one bool.
    goes_on: NodeId,
}

/// How tokens are chosen.
trait Choice {
    /// The state before the first token.
    fn start(&self, cx: Cx, search: &Search<'_>) -> Nodes;
    /// The next tokens, and the state behind them.
    fn next(&self, cx: Cx, search: &Search<'_>, step: &Step, state: &[NodeId]) -> Result<Chosen, Error>;
}

/// The number of operand `i`, which decides shapes.
fn size(cx: Cx, i: usize, default: Option<usize>) -> Result<usize, Error> {
    match (cx.has(i), default) {
        (false, Some(default)) => Ok(default),
        _ => match cx.number(i)? {
            n @ 1..=0x7FFF_FFFF => Ok(n as usize),
            n => Err(cx.malformed(format!("operand {i} is {n}, which is no size"))),
        },
    }
}

/// The token that an attribute names.
fn token(cx: Cx, name: &str) -> Result<i64, Error> {
    match cx.attrs.required(name, cx.attrs.int_opt(name)?)? {
        n @ 0..=0x7FFF_FFFF => Ok(n),
        n => Err(cx.bad_attr(name, n)),
    }
}

/// One number of an operand, as a scalar of a type.
fn scalar(cx: Cx, i: usize, dtype: DType) -> Result<NodeId, Error> {
    let x = cx.x(i)?;
    let x = cx.reshape(x, vec![])?;
    cx.cast(x, dtype)
}

/// An expression over dimensions as one i64.
fn number(cx: Cx, e: Extent) -> Result<NodeId, Error> {
    let x = cx.extent(e)?;
    cx.reshape(x, vec![])
}

fn iota(cx: Cx, length: Dim) -> Result<NodeId, Error> {
    cx.add(Op::Iota { to: vec![length], axis: 0, dtype: DType::I64 }, &[])
}

/// Each slice of an axis as often as there are texts for an element of the batch, behind each other.
fn for_beams(cx: Cx, x: NodeId, axis: usize, beams: usize) -> Result<NodeId, Error> {
    if beams == 1 {
        return Ok(x);
    }
    let mut dims = cx.shape_of(x).dims().to_vec();
    let apart = cx.unsqueeze(x, &[axis + 1])?;
    let mut wide = dims.clone();
    wide.insert(axis + 1, Dim::Static(beams));
    let wide = cx.expand(apart, wide)?;
    dims[axis] = Dim::from(dims[axis].extent() * beams as i64);
    cx.reshape(wide, dims)
}

/// Generates: the texts `[rows, most]` and the state behind the last token.
fn generated(
    cx: Cx,
    search: &Search<'_>,
    begun: Begun,
    choice: &dyn Choice,
) -> Result<(NodeId, Vec<NodeId>), Error> {
    let length = number(cx, search.prompt)?;
    let step = Step { logits: begun.logits, texts: begun.texts, length, first: true };
    let state = choice.start(cx, search)?;
    let chosen = choice.next(cx, search, &step, &state)?;
    let texts = continued(cx, &step, &chosen)?;
    let caches = search.decoder.buffers(cx, search, begun.caches, &chosen)?;
    let left = Extent::Const(search.most as i64) - search.prompt - 1;
    let left = if left.as_const().is_some() { left.max(0) } else { left };
    let limit = number(cx, left)?;
    let mut inputs = vec![limit, chosen.goes_on, texts, chosen.tokens];
    inputs.extend(caches);
    inputs.extend(chosen.state);
    let carried = inputs.len() - 2;
    let body = body(cx, search, choice, &inputs)?;
    for slot in body.captures {
        inputs.push(cx.importer.materialize(slot)?);
    }
    let body = Arc::new(Body { graph: body.graph });
    let op = Op::Loop { body, trips: Dim::from(left), count: None, carried, scanned: 0 };
    let node = cx.importer.push(op, &inputs)?;
    let results = (0..carried).map(|i| cx.importer.graph.result(node, i)).collect::<Result<Vec<_>, _>>()?;
    let behind = 2 + search.decoder.carried();
    Ok((results[0], results[behind..].to_vec()))
}

/// The texts with the tokens behind them.
fn continued(cx: Cx, step: &Step, chosen: &Chosen) -> Result<NodeId, Error> {
    let texts = match chosen.parents {
        Some(parents) => cx.add(Op::Gather { axis: 0 }, &[step.texts, parents])?,
        None => step.texts,
    };
    let column = cx.unsqueeze(chosen.tokens, &[1])?;
    cx.add(Op::UpdateSlice { axis: 1 }, &[texts, column, step.length])
}

/// One step as the body of a loop that is given `inputs`: the limit, the condition, and what it carries (texts, tokens, caches, state).
fn body(cx: Cx, search: &Search<'_>, choice: &dyn Choice, inputs: &[NodeId]) -> Result<ImportedBody, Error> {
    let mut shapes = vec![Shape::scalar(DType::I64), Shape::scalar(DType::Bool)];
    shapes.extend(inputs[2..].iter().map(|&x| cx.shape_of(x)));
    let (proto, opset, given) = (cx.proto, cx.opset, cx.given.clone());
    cx.importer.in_body("step", |importer| {
        let mut cx = NodeCx::new(importer, proto, opset, given);
        let input = |(i, shape): (usize, Shape)| cx.importer.graph.input(format!("input {i}"), shape);
        let own: Vec<NodeId> = shapes.into_iter().enumerate().map(input).collect();
        stepped(&mut cx, search, choice, &own)
    })
}

/// The nodes of one step.
fn stepped(cx: Cx, search: &Search<'_>, choice: &dyn Choice, own: &[NodeId]) -> Nodes {
    let &[iteration, _, texts, tokens, ..] = own else {
        return Err(cx.malformed("a step of a generation without texts"));
    };
    let (caches, state) = own[4..].split_at(search.decoder.carried());
    // The last token of a text is not in the caches yet.
    let prompt = number(cx, search.prompt)?;
    let cached = cx.binary(B::Add, prompt, iteration)?;
    let (_, past) = cx.count_up(cached, Extent::Const(search.most as i64 - 1))?;
    let (logits, presents) = search.decoder.step(cx, tokens, iteration, (cached, past), caches)?;
    let one = cx.scalar(DType::I64, 1.0);
    let length = cx.binary(B::Add, cached, one)?;
    let step = Step { logits, texts, length, first: false };
    let chosen = choice.next(cx, search, &step, state)?;
    let texts = continued(cx, &step, &chosen)?;
    let mut outputs = vec![chosen.goes_on, texts, chosen.tokens];
    outputs.extend(search.decoder.next_buffers(cx, search, (caches, presents), &chosen, cached)?);
    outputs.extend(chosen.state);
    Ok(outputs)
}

/// A slot for a node that is used in the body, too.
fn held(cx: Cx, node: NodeId) -> SlotId {
    cx.importer.node_slot(node)
}

fn constant_token(cx: Cx, token: i64) -> NodeId {
    cx.constant(Value::int(DType::I32, &[], vec![i128::from(token)]))
}
