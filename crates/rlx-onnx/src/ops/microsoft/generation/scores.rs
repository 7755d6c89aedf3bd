//! What changes the scores of tokens before one is chosen, in the order in which ONNX Runtime does it: the penalty of repetition, n-grams that must not
//! repeat, masks of the vocabulary, the least length, temperature, and the penalty of presence.

use super::{Cx, Search, Step, for_beams, iota, scalar};
use crate::import::NodeCx;
use rlx_ir::op::{BinaryOp as B, CmpOp, ReduceOp, ScatterOp};
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op};

/// The score of what must not be chosen.
const LOWEST: f64 = f32::MIN as f64;

/// N-grams up to this length are looked for.
const MOST_TOKENS: i64 = 256;

/// Operands and attributes that change scores; operands that an op does not have are `None`.
pub(super) struct Scores {
    pub least_length: usize,
    pub repetition: usize,
    pub vocabulary: usize,
    /// Of the first token alone.
    pub prefix: usize,
    ngram: i64,
    temperature: f32,
    presence: Option<(usize, f32)>,
}

impl Scores {
    /// `first` is the operand of the penalty of repetition; masks are behind it.
    pub fn new(cx: &NodeCx<'_, '_>, first: usize) -> Result<Scores, Error> {
        let ngram = cx.attrs.int("no_repeat_ngram_size", 0)?;
        if !(0..=MOST_TOKENS).contains(&ngram) {
            return Err(cx.bad_attr("no_repeat_ngram_size", ngram));
        }
        Ok(Scores {
            least_length: 2,
            repetition: first,
            vocabulary: first + 1,
            prefix: first + 2,
            ngram,
            temperature: 1.0,
            presence: None,
        })
    }

    /// As [`Scores::new`], with what `Sampling` has beside.
    pub fn of_sampling(cx: &NodeCx<'_, '_>) -> Result<Scores, Error> {
        let temperature = cx.attrs.float("temperature", 1.0)?;
        let penalty = cx.attrs.float("presence_penalty", 0.0)?;
        let presence = (cx.has(7) && penalty != 0.0).then_some((7, penalty));
        Ok(Scores { temperature, presence, ..Scores::new(cx, 3)? })
    }

    /// The scores `[rows, vocabulary]` after all of it.
    pub fn apply(&self, cx: Cx, search: &Search<'_>, step: &Step, scores: NodeId) -> Result<NodeId, Error> {
        let mut x = scores;
        let lowest = cx.scalar(DType::F32, LOWEST);
        let known = cx.floats(self.repetition);
        if cx.has(self.repetition) && !known.is_ok_and(|penalty| penalty == [1.0]) {
            x = self.repeated(cx, step, x)?;
        }
        if self.ngram > 0 {
            x = self.without_ngrams(cx, search, step, x)?;
        }
        if cx.has(self.vocabulary) {
            let mask = cx.x(self.vocabulary)?;
            x = masked(cx, mask, x, lowest)?;
        }
        if step.first && cx.has(self.prefix) {
            let mask = cx.x(self.prefix)?;
            let mask = for_beams(cx, mask, 0, search.beams)?;
            x = masked(cx, mask, x, lowest)?;
        }
        if cx.has(self.least_length) {
            let least = scalar(cx, self.least_length, DType::I64)?;
            let short = cx.compare(CmpOp::Lt, step.length, least)?;
            let tokens = cx.shape_of(x).dim(1);
            let token = iota(cx, tokens)?;
            let eos = cx.scalar(DType::I64, search.eos as f64);
            let ends = cx.compare(CmpOp::Eq, token, eos)?;
            let ends = cx.binary(B::And, ends, short)?;
            x = cx.select(ends, lowest, x)?;
        }
        if self.temperature > 0.0 && self.temperature != 1.0 {
            x = cx.with_scalar(B::Div, x, f64::from(self.temperature))?;
        }
        if let Some((operand, penalty)) = self.presence {
            let mask = cx.x(operand)?;
            let mask = cx.cast(mask, DType::F32)?;
            let less = cx.with_scalar(B::Mul, mask, f64::from(penalty))?;
            x = cx.binary(B::Sub, x, less)?;
        }
        Ok(x)
    }

    /// Scores of tokens that a text has already become less: times the penalty below 0, else divided by it.
    fn repeated(&self, cx: Cx, step: &Step, x: NodeId) -> Result<NodeId, Error> {
        let texts = own_tokens(cx, step)?;
        let zero = cx.scalar(DType::F32, 0.0);
        let one = cx.scalar(DType::F32, 1.0);
        let shape = cx.shape_of(x);
        let none = cx.expand(zero, shape.dims().to_vec())?;
        let dims = cx.shape_of(texts).dims().to_vec();
        let ones = cx.expand(one, dims)?;
        let op = Op::ScatterElements { axis: 1, reduction: ScatterOp::Set };
        let seen = cx.add(op, &[none, texts, ones])?;
        let seen = cx.compare(CmpOp::Gt, seen, zero)?;
        let penalty = scalar(cx, self.repetition, DType::F32)?;
        let below = cx.compare(CmpOp::Lt, x, zero)?;
        let more = cx.binary(B::Mul, x, penalty)?;
        let less = cx.binary(B::Div, x, penalty)?;
        let changed = cx.select(below, more, less)?;
        cx.select(seen, changed, x)
    }

    /// No token that would repeat an n-gram of its text: where the last n − 1 tokens stand elsewhere, the one behind them.
    fn without_ngrams(&self, cx: Cx, search: &Search<'_>, step: &Step, x: NodeId) -> Result<NodeId, Error> {
        let (n, most) = (self.ngram, search.most as i64);
        if n > most {
            return Ok(x);
        }
        let texts = own_tokens(cx, step)?;
        let starts = Extent::Const(most - n + 1);
        let place = iota(cx, Dim::from(starts))?;
        let end = cx.with_scalar(B::Add, place, n as f64)?;
        let whole = cx.compare(CmpOp::Le, end, step.length)?;
        let mut equal = cx.expand(whole, vec![search.rows, Dim::from(starts)])?;
        for i in 0..n - 1 {
            let window = cx.slice_axis(texts, 1, Extent::Const(i), starts)?;
            let at = cx.with_scalar(B::Add, step.length, (i - (n - 1)) as f64)?;
            let at = cx.with_scalar(B::Max, at, 0.0)?;
            let at = cx.reshape(at, vec![Dim::Static(1)])?;
            let last = cx.add(Op::Gather { axis: 1 }, &[texts, at])?;
            let same = cx.compare(CmpOp::Eq, window, last)?;
            equal = cx.binary(B::And, equal, same)?;
        }
        let (low, high) = (cx.scalar(DType::F32, LOWEST), cx.scalar(DType::F32, f64::INFINITY));
        let update = cx.select(equal, low, high)?;
        let token = cx.slice_axis(texts, 1, Extent::Const(n - 1), starts)?;
        let op = Op::ScatterElements { axis: 1, reduction: ScatterOp::Min };
        cx.add(op, &[x, token, update])
    }
}

/// The texts with their first token in place of the padding behind them.
fn own_tokens(cx: Cx, step: &Step) -> Result<NodeId, Error> {
    let columns = cx.shape_of(step.texts).dim(1);
    let column = iota(cx, columns)?;
    let own = cx.compare(CmpOp::Lt, column, step.length)?;
    let first = cx.slice_axis(step.texts, 1, Extent::Const(0), Extent::Const(1))?;
    cx.select(own, step.texts, first)
}

fn masked(cx: Cx, mask: NodeId, x: NodeId, lowest: NodeId) -> Result<NodeId, Error> {
    let zero = cx.scalar(cx.shape_of(mask).dtype(), 0.0);
    let out = cx.compare(CmpOp::Eq, mask, zero)?;
    cx.select(out, lowest, x)
}

/// Whether any of some bools holds, as one bool.
pub(super) fn any(cx: Cx, x: NodeId) -> Result<NodeId, Error> {
    let number = cx.cast(x, DType::I32)?;
    let most = cx.reduce(number, ReduceOp::Max, &[0], false)?;
    let zero = cx.scalar(DType::I32, 0.0);
    cx.compare(CmpOp::Gt, most, zero)
}
