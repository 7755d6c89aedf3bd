//! `BeamSearch`: for each element of the batch the texts with the greatest sums of log-probabilities are continued together.
//!
//! Of each text's tokens the `2 · beams` best continuations are looked at. Among the first `beams` of them, those that end their text make it
//! a *hypothesis*, whose score is the sum divided by a power of its length; of the others the first `beams` are the next texts. An element is *done* when there are `beams`
//! hypotheses and, unless it stops early, no text can become better than the worst of them.

use super::decoder::Prompt;
use super::scores::{Scores, any};
use super::{
    Choice, Chosen, Cx, Nodes, Search, Step, constant_token, encoder, generated, iota, scalar, size, token,
};
use crate::import::NodeCx;
use rlx_ir::op::{Activation as A, BinaryOp as B, CmpOp, ReduceOp};
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op, Value};

/// Where the prompt's mask is, and the power of lengths.
const MASK: usize = 9;
const LENGTH_PENALTY: usize = 5;
const LOGITS_PROCESSOR: usize = 11;

/// More texts are not continued together.
const MOST_BEAMS: usize = 128;

/// The score of all texts but the first before the first token, so that they do not all begin with the same one.
const NOT_YET: f64 = -1e9;

pub(super) fn beam_search(cx: Cx) -> Nodes {
    if cx.has(LOGITS_PROCESSOR) && cx.number(LOGITS_PROCESSOR)? != 0 {
        return Err(cx.unsupported("logits_processor: the timestamps of Whisper"));
    }
    let (beams, returned) = (size(cx, 3, Some(1))?, size(cx, 4, Some(1))?);
    if beams > MOST_BEAMS || returned > beams {
        return Err(cx.malformed(format!("{returned} of {beams} beams; there may be {MOST_BEAMS}")));
    }
    let scores = Scores::new(cx, 6)?;
    let Some(&batch) = cx.shape(0)?.dims().first() else { return Err(cx.malformed("a prompt of one token")) };
    let most = size(cx, 1, None)?;
    let rows = Dim::from(batch.extent() * beams as i64);
    let (pad, eos) = (token(cx, "pad_token_id")?, token(cx, "eos_token_id")?);
    let (length, (decoder, begun)) = match cx.attrs.int("model_type", 0)? {
        0 => {
            let prompt = Prompt::new(cx, MASK)?;
            (prompt.length, prompt.begin(cx, beams)?)
        }
        1 => (Extent::Const(1), encoder::begin(cx, beams, most, MASK)?),
        other => return Err(cx.bad_attr("model_type", other)),
    };
    let Some(vocabulary) = cx.shape_of(begun.logits).dim(1).as_static() else {
        return Err(cx.unsupported("a vocabulary without a size"));
    };
    let search = Search { batch, beams, rows, prompt: length, most, pad, eos, decoder, scores };
    let stops_early = cx.attrs.int("early_stopping", 0)? == 1;
    let beam = Beam { vocabulary, stops_early, shows: cx.wants(2) };
    let (texts, state) = generated(cx, &search, begun, &beam)?;
    let state = State::of(cx, &state)?;
    let (texts, sums) = beam.results(cx, &search, texts, &state, returned)?;
    Ok(vec![texts, sums, state.shown.unwrap_or(sums)])
}

struct Beam {
    vocabulary: usize,
    stops_early: bool,
    /// Whether the scores of all steps are an output.
    shows: bool,
}

/// The state of a search.
struct State {
    /// The sums of the texts, `[rows]`.
    sums: NodeId,
    /// The hypotheses, the best first: scores `[batch, beams]`, minus infinity where there is none yet, and texts
    /// `[batch, beams, most]`.
    best: NodeId,
    best_texts: NodeId,
    /// How many there are, `[batch]`, in i64.
    count: NodeId,
    /// Which elements of the batch are done, `[batch]`.
    done: NodeId,
    /// The scores of all steps, `[most − prompt, batch, beams, vocabulary]`.
    shown: Option<NodeId>,
}

impl State {
    fn of(cx: Cx, nodes: &[NodeId]) -> Result<State, Error> {
        let &[sums, best, best_texts, count, done, ref shown @ ..] = nodes else {
            return Err(cx.malformed("a beam search without its state"));
        };
        Ok(State { sums, best, best_texts, count, done, shown: shown.first().copied() })
    }

    fn nodes(self) -> Vec<NodeId> {
        let all = [self.sums, self.best, self.best_texts, self.count, self.done];
        all.into_iter().chain(self.shown).collect()
    }
}

/// The `2 · beams` best continuations of each element of the batch, the best first, all `[batch, 2 · beams]`.
struct Candidates {
    sums: NodeId,
    /// In i32.
    tokens: NodeId,
    /// The rows of their texts, in i64.
    rows: NodeId,
    ends: NodeId,
}

impl Choice for Beam {
    fn start(&self, cx: Cx, search: &Search<'_>) -> Nodes {
        let (batch, beams) = (search.batch, Dim::Static(search.beams));
        let first = (0..search.beams).map(|i| if i == 0 { 0.0 } else { NOT_YET }).collect();
        let first = cx.constant(Value::float(DType::F32, &[search.beams], first));
        let first = cx.expand(first, vec![batch, beams])?;
        let sums = cx.reshape(first, vec![search.rows])?;
        let none = cx.scalar(DType::F32, f64::NEG_INFINITY);
        let best = cx.expand(none, vec![batch, beams])?;
        let pad = constant_token(cx, search.pad);
        let best_texts = cx.expand(pad, vec![batch, beams, Dim::Static(search.most)])?;
        let zero = cx.scalar(DType::I64, 0.0);
        let count = cx.expand(zero, vec![batch])?;
        let no = cx.scalar(DType::Bool, 0.0);
        let done = cx.expand(no, vec![batch])?;
        let shown = match self.shows {
            true => {
                let zero = cx.scalar(DType::F32, 0.0);
                let steps = Dim::from(Extent::Const(search.most as i64) - search.prompt);
                Some(cx.expand(zero, vec![steps, batch, beams, Dim::Static(self.vocabulary)])?)
            }
            false => None,
        };
        Ok(State { sums, best, best_texts, count, done, shown }.nodes())
    }

    fn next(&self, cx: Cx, search: &Search<'_>, step: &Step, state: &[NodeId]) -> Result<Chosen, Error> {
        let before = State::of(cx, state)?;
        let p = cx.add(Op::LogSoftmax { axis: 1 }, &[step.logits])?;
        let p = search.scores.apply(cx, search, step, p)?;
        let sums = cx.unsqueeze(before.sums, &[1])?;
        let sums = cx.binary(B::Add, p, sums)?;
        let shown = match before.shown {
            Some(shown) => Some(self.show(cx, search, step, shown, sums)?),
            None => None,
        };
        let all = self.candidates(cx, search, sums)?;
        let (best, best_texts, count) = self.hypotheses(cx, search, step, &before, &all)?;
        let done = self.done(cx, search, step, (best, count), &before, &all)?;
        let (tokens, parents, sums) = self.texts(cx, search, before.done, &all)?;
        let open = cx.activation(A::Not, done)?;
        let goes_on = any(cx, open)?;
        let state = State { sums, best, best_texts, count, done, shown };
        Ok(Chosen { tokens, parents: Some(parents), state: state.nodes(), goes_on })
    }
}

impl Beam {
    /// The scores of all steps with those of this one.
    fn show(
        &self,
        cx: Cx,
        search: &Search<'_>,
        step: &Step,
        shown: NodeId,
        sums: NodeId,
    ) -> Result<NodeId, Error> {
        let dims = [Dim::Static(1), search.batch, Dim::Static(search.beams), Dim::Static(self.vocabulary)];
        let sums = cx.reshape(sums, dims.to_vec())?;
        let prompt = super::number(cx, search.prompt)?;
        let at = cx.binary(B::Sub, step.length, prompt)?;
        cx.add(Op::UpdateSlice { axis: 0 }, &[shown, sums, at])
    }

    /// The best continuations by their sums `[rows, vocabulary]`.
    fn candidates(&self, cx: Cx, search: &Search<'_>, sums: NodeId) -> Result<Candidates, Error> {
        let all = Dim::Static(search.beams.saturating_mul(self.vocabulary));
        let sums = cx.reshape(sums, vec![search.batch, all])?;
        let top = Op::TopK { k: Dim::Static(2 * search.beams), axis: 1, largest: true, sorted: true };
        let top = cx.add_many(top, &[sums], 2)?;
        let parent = cx.with_scalar(B::Div, top[1], self.vocabulary as f64)?;
        let before = cx.with_scalar(B::Mul, parent, self.vocabulary as f64)?;
        let token = cx.binary(B::Sub, top[1], before)?;
        let tokens = cx.cast(token, DType::I32)?;
        let eos = constant_token(cx, search.eos);
        let ends = cx.compare(CmpOp::Eq, tokens, eos)?;
        let first = first_rows(cx, search.batch, search.beams)?;
        let rows = cx.binary(B::Add, parent, first)?;
        Ok(Candidates { sums: top[0], tokens, rows, ends })
    }

    /// The hypotheses with those that this step adds: scores, texts, and how many there are.
    fn hypotheses(
        &self,
        cx: Cx,
        search: &Search<'_>,
        step: &Step,
        before: &State,
        all: &Candidates,
    ) -> Result<(NodeId, NodeId, NodeId), Error> {
        let beams = Dim::Static(search.beams).extent();
        let ends = cx.slice_axis(all.ends, 1, Extent::Const(0), beams)?;
        let open = cx.activation(A::Not, before.done)?;
        let open = cx.unsqueeze(open, &[1])?;
        let ends = cx.binary(B::And, ends, open)?;
        let sums = cx.slice_axis(all.sums, 1, Extent::Const(0), beams)?;
        let sums = averaged(cx, sums, step.length)?;
        let none = cx.scalar(DType::F32, f64::NEG_INFINITY);
        let scores = cx.select(ends, sums, none)?;
        let rows = cx.slice_axis(all.rows, 1, Extent::Const(0), beams)?;
        let texts = cx.add(Op::Gather { axis: 0 }, &[step.texts, rows])?;
        let (best, best_texts) = merged(cx, search, before, (scores, texts), search.beams)?;
        let ends = cx.cast(ends, DType::I64)?;
        let more = cx.reduce(ends, ReduceOp::Sum, &[1], false)?;
        let count = cx.binary(B::Add, before.count, more)?;
        let count = cx.with_scalar(B::Min, count, search.beams as f64)?;
        Ok((best, best_texts, count))
    }

    /// Which elements of the batch are done behind this step.
    fn done(
        &self,
        cx: Cx,
        search: &Search<'_>,
        step: &Step,
        (best, count): (NodeId, NodeId),
        before: &State,
        all: &Candidates,
    ) -> Result<NodeId, Error> {
        let beams = cx.scalar(DType::I64, search.beams as f64);
        let mut done = cx.compare(CmpOp::Ge, count, beams)?;
        if !self.stops_early {
            // ONNX Runtime looks for the greatest sum among the `2 · beams` from place `beams · element` on, of all elements behind each
            // other: of the first element its own, of later ones also those of elements before.
            let flat = Dim::from(search.batch.extent() * 2 * search.beams as i64);
            let sums = cx.reshape(all.sums, vec![flat])?;
            let first = first_rows(cx, search.batch, search.beams)?;
            let place = iota(cx, Dim::Static(2 * search.beams))?;
            let place = cx.binary(B::Add, first, place)?;
            let sums = cx.add(Op::Gather { axis: 0 }, &[sums, place])?;
            let greatest = cx.reduce(sums, ReduceOp::Max, &[1], false)?;
            let greatest = averaged(cx, greatest, step.length)?;
            let last = cx.slice_axis(best, 1, Extent::Const(search.beams as i64 - 1), Extent::Const(1))?;
            let last = cx.reshape(last, vec![search.batch])?;
            let better = cx.compare(CmpOp::Lt, last, greatest)?;
            let none_better = cx.activation(A::Not, better)?;
            done = cx.binary(B::And, done, none_better)?;
        }
        cx.binary(B::Or, before.done, done)
    }

    /// The next texts: their last tokens, the rows that they continue, and their sums, all `[rows]`. Elements that were done
    /// before are filled up.
    fn texts(
        &self,
        cx: Cx,
        search: &Search<'_>,
        done: NodeId,
        all: &Candidates,
    ) -> Result<(NodeId, NodeId, NodeId), Error> {
        // The places of the first ones that do not end their text: those that do sort behind all others.
        let count = 2 * search.beams;
        let place = iota(cx, Dim::Static(count))?;
        let ends = cx.cast(all.ends, DType::I64)?;
        let behind = cx.with_scalar(B::Mul, ends, count as f64)?;
        let key = cx.binary(B::Add, place, behind)?;
        let top = Op::TopK { k: Dim::Static(search.beams), axis: 1, largest: false, sorted: true };
        let chosen = cx.add_many(top, &[key], 2)?[1];
        let done = cx.unsqueeze(done, &[1])?;
        let (pad, zero) = (constant_token(cx, search.pad), cx.scalar(DType::I64, 0.0));
        let nothing = cx.scalar(DType::F32, 0.0);
        let mut found = Vec::with_capacity(3);
        for (x, filler) in [(all.tokens, pad), (all.rows, zero), (all.sums, nothing)] {
            let own = cx.add(Op::GatherElements { axis: 1 }, &[x, chosen])?;
            let own = cx.select(done, filler, own)?;
            found.push(cx.reshape(own, vec![search.rows])?);
        }
        Ok((found[0], found[1], found[2]))
    }

    /// The best texts `[batch, returned, most]` and their scores: hypotheses, and of elements that are not done the texts as far as they came.
    fn results(
        &self,
        cx: Cx,
        search: &Search<'_>,
        texts: NodeId,
        state: &State,
        returned: usize,
    ) -> Result<(NodeId, NodeId), Error> {
        let (batch, beams) = (search.batch, Dim::Static(search.beams));
        let sums = cx.reshape(state.sums, vec![batch, beams])?;
        let length = super::number(cx, Extent::Const(search.most as i64))?;
        let sums = averaged(cx, sums, length)?;
        let done = cx.unsqueeze(state.done, &[1])?;
        let none = cx.scalar(DType::F32, f64::NEG_INFINITY);
        let scores = cx.select(done, none, sums)?;
        let texts = cx.reshape(texts, vec![batch, beams, Dim::Static(search.most)])?;
        let (scores, texts) = merged(cx, search, state, (scores, texts), returned)?;
        Ok((texts, scores))
    }
}

/// Sums divided by the power of the length that `length_penalty` is.
fn averaged(cx: Cx, sums: NodeId, length: NodeId) -> Result<NodeId, Error> {
    let length = cx.cast(length, DType::F32)?;
    let by = match cx.has(LENGTH_PENALTY) {
        true => {
            let power = scalar(cx, LENGTH_PENALTY, DType::F32)?;
            cx.binary(B::Pow, length, power)?
        }
        false => length,
    };
    cx.binary(B::Div, sums, by)
}

/// The first row of each element of the batch, `[batch, 1]`.
fn first_rows(cx: &mut NodeCx<'_, '_>, batch: Dim, beams: usize) -> Result<NodeId, Error> {
    let element = iota(cx, batch)?;
    let row = cx.with_scalar(B::Mul, element, beams as f64)?;
    cx.unsqueeze(row, &[1])
}

/// The `kept` best of the hypotheses and of `beams` others: scores `[batch, kept]` and texts `[batch, kept, most]`. Of equal ones those
/// that were there first.
fn merged(
    cx: Cx,
    search: &Search<'_>,
    before: &State,
    (scores, texts): (NodeId, NodeId),
    kept: usize,
) -> Result<(NodeId, NodeId), Error> {
    let (both, most) = (2 * search.beams, Dim::Static(search.most));
    let scores = cx.add(Op::Concat { axis: 1 }, &[before.best, scores])?;
    let texts = cx.add(Op::Concat { axis: 1 }, &[before.best_texts, texts])?;
    let top = Op::TopK { k: Dim::Static(kept), axis: 1, largest: true, sorted: true };
    let top = cx.add_many(top, &[scores], 2)?;
    let texts = cx.reshape(texts, vec![Dim::from(search.batch.extent() * both as i64), most])?;
    let first = first_rows(cx, search.batch, both)?;
    let rows = cx.binary(B::Add, top[1], first)?;
    let texts = cx.add(Op::Gather { axis: 0 }, &[texts, rows])?;
    Ok((top[0], texts))
}
