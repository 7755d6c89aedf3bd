//! `GreedySearch` and `Sampling`: one text for each element of the batch, whose next token is the best one, or is drawn.

use super::decoder::Prompt;
use super::scores::{Scores, any};
use super::{Choice, Chosen, Cx, Nodes, Search, Step, constant_token, generated, held, iota, token};
use crate::import::SlotId;
use crate::ops::random;
use rlx_ir::op::{Activation as A, ArgOp, BinaryOp as B, CmpOp, ReduceOp, ScatterOp};
use rlx_ir::{DType, Dim, Error, NodeId, Op};

/// Where both have the prompt's mask.
const MASK: usize = 6;

pub(super) fn greedy_search(cx: Cx) -> Nodes {
    let scores = Scores::new(cx, 3)?;
    one_text(cx, scores, |_, _| Ok(Draw::Best))
}

/// `sequences` alone: ONNX Runtime gives the second output in its debug builds only.
pub(super) fn sampling(cx: Cx) -> Nodes {
    let scores = Scores::of_sampling(cx)?;
    one_text(cx, scores, |cx, prompt| {
        let seed = if cx.has(8) { Some(cx.number(8)? as u64) } else { None };
        let dims = [Dim::Static(prompt.most), prompt.batch];
        let drawn = random::uniform_by(cx, random::key_of(cx, seed), &dims)?;
        Ok(Draw::Nucleus(Nucleus {
            drawn: held(cx, drawn),
            share: cx.attrs.float("top_p", 0.0)?,
            filtered: cx.attrs.float("filter_value", -1e20)?,
            kept: cx.attrs.int("min_tokens_to_keep", 0)?,
            largest_first: cx.attrs.flag("custom", false)?,
        }))
    })
}

fn one_text(
    cx: Cx,
    scores: Scores,
    draw: impl FnOnce(Cx<'_, '_, '_>, &Prompt) -> Result<Draw, Error>,
) -> Nodes {
    let kind = cx.attrs.int("model_type", 0)?;
    if kind != 0 {
        let message = format!("model_type = {kind}, a decoder behind an encoder");
        return Err(cx.unsupported(message).with_hint(
            "ONNX Runtime has none either, for this op; BeamSearch takes such a decoder, and with num_beams = 1 it is this search",
        ));
    }
    let prompt = Prompt::new(cx, MASK)?;
    let draw = draw(cx, &prompt)?;
    let (batch, length, most) = (prompt.batch, prompt.length, prompt.most);
    let (pad, eos) = (token(cx, "pad_token_id")?, token(cx, "eos_token_id")?);
    let (decoder, begun) = prompt.begin(cx, 1)?;
    let search = Search { batch, beams: 1, rows: batch, prompt: length, most, pad, eos, decoder, scores };
    let (texts, _) = generated(cx, &search, begun, &draw)?;
    Ok(vec![texts])
}

/// The choice of one token; the state is which texts have ended, `[rows]`.
enum Draw {
    Best,
    Nucleus(Nucleus),
}

/// A token drawn by the scores, among the best ones whose probabilities add up to a share.
struct Nucleus {
    /// Numbers from 0 to 1, `[most, rows]`: one for each token.
    drawn: SlotId,
    share: f32,
    /// The score of the others.
    filtered: f32,
    /// How many are kept in any case.
    kept: i64,
    /// Whether probabilities are added up from the largest one, not from the smallest.
    largest_first: bool,
}

impl Choice for Draw {
    fn start(&self, cx: Cx, search: &Search<'_>) -> Nodes {
        let no = cx.scalar(DType::Bool, 0.0);
        Ok(vec![cx.expand(no, vec![search.rows])?])
    }

    fn next(&self, cx: Cx, search: &Search<'_>, step: &Step, state: &[NodeId]) -> Result<Chosen, Error> {
        let scores = search.scores.apply(cx, search, step, step.logits)?;
        let best = match self {
            Draw::Best => {
                cx.add(Op::ArgReduce { op: ArgOp::Max, axis: 1, keep_dim: false, last: false }, &[scores])?
            }
            Draw::Nucleus(nucleus) => nucleus.draw(cx, step, scores)?,
        };
        let best = cx.cast(best, DType::I32)?;
        let (eos, pad) = (constant_token(cx, search.eos), constant_token(cx, search.pad));
        let ends = cx.compare(CmpOp::Eq, best, eos)?;
        let ended = match state {
            [before] => cx.binary(B::Or, *before, ends)?,
            _ => ends,
        };
        let tokens = cx.select(ended, pad, best)?;
        let open = cx.activation(A::Not, ended)?;
        let goes_on = any(cx, open)?;
        Ok(Chosen { tokens, parents: None, state: vec![ended], goes_on })
    }
}

impl Nucleus {
    /// A token of each row of `[rows, vocabulary]`, `[rows]`.
    fn draw(&self, cx: Cx, step: &Step, scores: NodeId) -> Result<NodeId, Error> {
        let scores = self.filter(cx, scores)?;
        let drawn = cx.importer.materialize(self.drawn)?;
        // No number is used twice: each step has another length.
        let at = cx.with_scalar(B::Sub, step.length, 1.0)?;
        let drawn = cx.add(Op::Gather { axis: 0 }, &[drawn, at])?;
        let drawn = cx.unsqueeze(drawn, &[1])?;
        let token = random::by_scores(cx, scores, drawn)?;
        let rows = cx.shape_of(scores).dim(0);
        cx.reshape(token, vec![rows])
    }

    /// The scores with those replaced that are outside of the share.
    fn filter(&self, cx: Cx, scores: NodeId) -> Result<NodeId, Error> {
        let tokens = cx.shape_of(scores).dim(1);
        let top = Op::TopK { k: tokens, axis: 1, largest: self.largest_first, sorted: true };
        let sorted = cx.add_many(top, &[scores], 2)?;
        let p = cx.add(Op::Softmax { axis: 1 }, &[sorted[0]])?;
        let sums =
            Op::Cumulative { op: ReduceOp::Sum, axis: 1, exclusive: self.largest_first, reverse: false };
        let sums = cx.add(sums, &[p])?;
        let place = iota(cx, tokens)?;
        let out = if self.largest_first {
            // What is in front of it is more than the share; the first is always kept.
            let share = cx.scalar(DType::F32, self.share.into());
            let more = cx.compare(CmpOp::Gt, sums, share)?;
            let zero = cx.scalar(DType::I64, 0.0);
            let behind = cx.compare(CmpOp::Gt, place, zero)?;
            cx.binary(B::And, more, behind)?
        } else {
            let rest = cx.scalar(DType::F32, (1.0 - self.share).into());
            let less = cx.compare(CmpOp::Le, sums, rest)?;
            let count = tokens.as_static().unwrap_or(0) as i64;
            let end = cx.scalar(DType::I64, count.saturating_sub(self.kept).max(1) as f64);
            let before = cx.compare(CmpOp::Lt, place, end)?;
            cx.binary(B::And, less, before)?
        };
        let filtered = cx.scalar(DType::F32, self.filtered.into());
        let values = cx.select(out, filtered, sorted[0])?;
        let op = Op::ScatterElements { axis: 1, reduction: ScatterOp::Set };
        cx.add(op, &[scores, sorted[1], values])
    }
}
