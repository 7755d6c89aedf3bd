//! The decoder of a generation: what it is fed, and the caches that it extends.

use super::{Chosen, Cx, Nodes, Search, constant_token, for_beams, held, number, size, token};
use crate::import::SlotId;
use crate::proto::type_proto::Value as TypeValue;
use crate::proto::{GraphProto, ValueInfoProto};
use crate::tensor;
use rlx_ir::op::{BinaryOp as B, CmpOp, ReduceOp};
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op, Value};

/// An operand of a decoder.
pub(super) enum Feed {
    /// The last token of each text, `[rows, 1]`.
    Tokens,
    /// Its place, `[rows, 1]`: behind the tokens of the prompt, of which there are so many for each text.
    Positions(SlotId),
    /// Which tokens are no padding, `[rows, tokens]`: the first ones of these, `[rows, most]`.
    Mask(SlotId),
    /// A cache, without the last token; a whole buffer where the caches are buffers.
    Past(usize),
    /// How many tokens the buffers hold, `[1]`.
    Used,
    /// Which text the keys and values of earlier tokens are with, `[batch, beams, most]`.
    Indirection,
    /// What is the same in every step.
    Fixed(SlotId),
}

/// A decoder that extends caches by a token.
pub(super) struct Decoder<'p> {
    pub graph: &'p GraphProto,
    pub feeds: Vec<Feed>,
    /// Of a cache, the dimension of texts and that of tokens.
    pub rows_axis: usize,
    pub tokens_axis: usize,
    /// How many caches there are.
    pub caches: usize,
    /// How many rows the caches have if they are buffers that the decoder updates, and not longer with every token.
    pub buffers: Option<usize>,
    /// How many texts there are.
    pub rows: Dim,
    /// Only so many of the scores belong to tokens.
    pub vocabulary: Option<i64>,
}

/// What there is before the first token is chosen.
pub(super) struct Begun {
    /// `[rows, vocabulary]`, in f32.
    pub logits: NodeId,
    /// `[rows, most]`, in i32.
    pub texts: NodeId,
    pub caches: Vec<NodeId>,
}

/// The prompt of a decoder without an encoder.
pub(super) struct Prompt {
    pub batch: Dim,
    pub length: Extent,
    pub most: usize,
    ids: NodeId,
    mask: NodeId,
    /// The places of its tokens, and how many each row has without padding.
    places: NodeId,
    lengths: NodeId,
}

impl Prompt {
    /// Operand 0, with the mask that is operand `mask`. Padding is what the mask says or, without one, what is the padding
    /// token; places count other tokens alone.
    pub fn new(cx: Cx, mask: usize) -> Result<Prompt, Error> {
        let shape = cx.shape(0)?;
        let &[batch, length] = shape.dims() else { return Err(cx.malformed(format!("a prompt {shape}"))) };
        let most = size(cx, 1, None)?;
        let length = length.extent();
        if length.as_const().is_some_and(|n| n < 1 || n >= most as i64) {
            let message = format!("max_length = {most} for a prompt of {length} tokens");
            return Err(cx.malformed(message).with_hint("max_length counts the prompt's tokens, too"));
        }
        let ids = cx.x(0)?;
        let ids = cx.cast(ids, DType::I32)?;
        let pad = token(cx, "pad_token_id")?;
        let pad = constant_token(cx, pad);
        let own = cx.compare(CmpOp::Ne, ids, pad)?;
        let own = cx.cast(own, DType::I32)?;
        let given = match cx.has(mask) {
            true => {
                let given = cx.x(mask)?;
                let given = cx.cast(given, DType::I32)?;
                cx.reshape(given, shape.dims().to_vec())?
            }
            false => own,
        };
        let before = Op::Cumulative { op: ReduceOp::Sum, axis: 1, exclusive: true, reverse: false };
        let before = cx.add(before, &[own])?;
        let places = cx.binary(B::Mul, before, own)?;
        let lengths = cx.reduce(own, ReduceOp::Sum, &[1], false)?;
        Ok(Prompt { batch, length, most, ids, mask: given, places, lengths })
    }

    /// The decoder `decoder` over the prompt, the first time `init_decoder` where there is one.
    pub fn begin<'p>(
        self,
        cx: &mut crate::import::NodeCx<'p, '_>,
        beams: usize,
    ) -> Result<(Decoder<'p>, Begun), Error> {
        let graph = cx.attrs.graph("decoder")?;
        let first = if cx.attrs.has("init_decoder") { cx.attrs.graph("init_decoder")? } else { graph };
        let rows = Dim::from(self.batch.extent() * beams as i64);
        let vocabulary = cx.attrs.int_opt("vocab_size")?.filter(|&n| n > 0);
        let caches = caches_of(cx, graph)?;
        if caches_of(cx, first)? != caches {
            return Err(cx.malformed("init_decoder has other caches than decoder"));
        }
        let decoder = |graph, rows, feeds, buffers| Decoder {
            graph,
            feeds,
            rows_axis: 1,
            tokens_axis: 3,
            caches,
            buffers,
            rows,
            vocabulary,
        };
        let extra = extra_feeds(cx, first, caches, 1)?;
        let buffers = rows_of_buffers(cx, &extra, self.most)?;
        let over_prompt = decoder(first, self.batch, extra, buffers);
        let given = self.feeds(cx, &over_prompt)?;
        let (logits, presents) = over_prompt.run(cx, &given, Dim::from(self.length))?;
        let mut caches = Vec::with_capacity(presents.len());
        for present in presents {
            caches.push(for_beams(cx, present, 1, beams)?);
        }
        let logits = for_beams(cx, logits, 0, beams)?;
        let pad = token(cx, "pad_token_id")?;
        let texts = self.filled(cx, self.ids, pad)?;
        let texts = for_beams(cx, texts, 0, beams)?;
        let mask = self.filled(cx, self.mask, 1)?;
        let mask = for_beams(cx, mask, 0, beams)?;
        let lengths = for_beams(cx, self.lengths, 0, beams)?;
        let mut feeds = vec![Feed::Tokens, Feed::Positions(held(cx, lengths)), Feed::Mask(held(cx, mask))];
        feeds.extend((0..caches.len()).map(Feed::Past));
        feeds.extend(extra_feeds(cx, graph, caches.len(), beams)?);
        let buffers = rows_of_buffers(cx, &feeds, self.most)?;
        Ok((decoder(graph, rows, feeds, buffers), Begun { logits, texts, caches }))
    }

    /// What a decoder is given for the prompt: tokens, places, mask, caches without tokens, and what it takes behind them.
    fn feeds(&self, cx: Cx, decoder: &Decoder<'_>) -> Result<Vec<SlotId>, Error> {
        let mut given = vec![self.ids, self.places, self.mask];
        for input in &decoder.graph.input[3..3 + decoder.caches] {
            given.push(empty_cache(cx, input, self.batch, decoder.buffers.unwrap_or(0))?);
        }
        let mut given: Vec<SlotId> = given.into_iter().map(|x| held(cx, x)).collect();
        for feed in &decoder.feeds {
            let x = match feed {
                Feed::Fixed(slot) => {
                    given.push(*slot);
                    continue;
                }
                Feed::Indirection => indirection(cx, self.batch, 1, self.most)?,
                _ => cx.constant(Value::int(DType::I32, &[1], vec![0])),
            };
            given.push(held(cx, x));
        }
        Ok(given)
    }

    /// `[batch, length]` made as long as the longest text with a value.
    fn filled(&self, cx: Cx, x: NodeId, value: i64) -> Result<NodeId, Error> {
        let value = constant_token(cx, value);
        let rest = Dim::from(Extent::Const(self.most as i64) - self.length);
        let rest = cx.expand(value, vec![self.batch, rest])?;
        let whole = cx.add(Op::Concat { axis: 1 }, &[x, rest])?;
        cx.reshape(whole, vec![self.batch, Dim::Static(self.most)])
    }
}

/// How many caches a decoder has: it takes tokens, their places, a mask, caches and what [`extra_feeds`] knows, and gives scores and the
/// caches with the new tokens.
fn caches_of(cx: Cx, graph: &GraphProto) -> Result<usize, Error> {
    let caches = graph.output.len().saturating_sub(1);
    let shape = || format!("a decoder of {} inputs and {} outputs", graph.input.len(), graph.output.len());
    match graph.input.len() {
        _ if caches == 0 => Err(cx.malformed(format!("{}, without caches", shape()))),
        inputs if inputs < 3 + caches => {
            Err(cx.malformed(format!("{}: one cache for each of the outputs but the first", shape())))
        }
        _ => Ok(caches),
    }
}

/// What a decoder is given behind its caches.
fn extra_feeds(cx: Cx, graph: &GraphProto, caches: usize, beams: usize) -> Result<Vec<Feed>, Error> {
    let mut feeds = Vec::new();
    for input in &graph.input[3 + caches..] {
        match buffer_feed(cx, input.name(), beams) {
            Some(feed) => feeds.push(feed),
            None => return Err(cx.unsupported(format!("a decoder that takes \"{}\"", input.name()))),
        }
    }
    Ok(feeds)
}

/// What a decoder whose caches are buffers takes by a name.
pub(super) fn buffer_feed(cx: Cx, name: &str, beams: usize) -> Option<Feed> {
    Some(match name {
        "past_sequence_length" => Feed::Used,
        "cache_indirection" => Feed::Indirection,
        "beam_width" | "num_beams" => {
            let beams = cx.constant(Value::int(DType::I32, &[1], vec![beams as i128]));
            Feed::Fixed(held(cx, beams))
        }
        _ => return None,
    })
}

/// How many rows the caches of a decoder have that is fed these, if they are buffers.
pub(super) fn rows_of_buffers(cx: Cx, feeds: &[Feed], most: usize) -> Result<Option<usize>, Error> {
    let takes = |what: fn(&Feed) -> bool| feeds.iter().any(what);
    match (takes(|f| matches!(f, Feed::Used)), takes(|f| matches!(f, Feed::Indirection))) {
        (false, true) => {
            Err(cx.malformed("a decoder that takes cache_indirection without past_sequence_length"))
        }
        (used, _) => Ok(used.then_some(most)),
    }
}

/// That the keys and values of all tokens are with an element's first text.
fn indirection(cx: Cx, batch: Dim, beams: usize, most: usize) -> Result<NodeId, Error> {
    let zero = cx.scalar(DType::I32, 0.0);
    cx.expand(zero, vec![batch, Dim::Static(beams), Dim::Static(most)])
}

/// A cache `[2, batch, heads, rows, size]` without tokens.
fn empty_cache(cx: Cx, input: &ValueInfoProto, batch: Dim, rows: usize) -> Result<NodeId, Error> {
    use crate::proto::tensor_shape_proto::dimension::Value as Size;
    let name = input.name();
    let Some(TypeValue::TensorType(ty)) = input.r#type.as_ref().and_then(|t| t.value.as_ref()) else {
        return Err(cx.malformed(format!("the decoder's input \"{name}\" has no type")));
    };
    let sizes = ty.shape.iter().flat_map(|s| &s.dim);
    let sizes: Vec<Option<usize>> = sizes
        .map(|d| match d.value {
            Some(Size::DimValue(n)) => usize::try_from(n).ok().filter(|&n| n > 0),
            _ => None,
        })
        .collect();
    let &[Some(2), _, Some(heads), _, Some(size)] = &sizes[..] else {
        let message = format!(
            "the decoder's input \"{name}\" does not declare [2, batch, heads, past, size of a head]"
        );
        return Err(cx.unsupported(message));
    };
    let zero = cx.scalar(tensor::dtype(ty.elem_type())?, 0.0);
    let dims = [Dim::Static(2), batch, Dim::Static(heads), Dim::Static(rows), Dim::Static(size)];
    cx.expand(zero, dims.to_vec())
}

impl Decoder<'_> {
    /// Runs it: the scores behind the last token, `[rows, vocabulary]` in f32, and the caches with so many `tokens`, or the buffers.
    fn run(&self, cx: Cx, given: &[SlotId], tokens: Dim) -> Result<(NodeId, Vec<NodeId>), Error> {
        let found = cx.importer.inlined(self.graph, given)?;
        let (&scores, presents) =
            found.split_first().ok_or_else(|| cx.malformed("a decoder without outputs"))?;
        let scores = cx.importer.materialize(scores)?;
        let scores = self.scores(cx, scores)?;
        let tokens = self.buffers.map_or(tokens, Dim::Static);
        let mut caches = Vec::with_capacity(self.caches);
        for &slot in presents {
            let present = cx.importer.materialize(slot)?;
            caches.push(self.cache(cx, present, tokens)?);
        }
        Ok((scores, caches))
    }

    /// Of scores `[rows, tokens, vocabulary]` those behind the last token, `[rows, vocabulary]` in f32.
    pub fn scores(&self, cx: Cx, scores: NodeId) -> Result<NodeId, Error> {
        let shape = cx.shape_of(scores);
        let &[_, length, vocabulary] = shape.dims() else {
            return Err(
                cx.malformed(format!("a decoder that gives {shape}, not [batch, tokens, vocabulary]"))
            );
        };
        let last = cx.slice_axis(scores, 1, length.extent() - 1, Extent::Const(1))?;
        let mut scores = cx.reshape(last, vec![self.rows, vocabulary])?;
        if let Some(tokens) = self.vocabulary {
            scores = cx.slice_axis(scores, 1, Extent::Const(0), Extent::Const(tokens))?;
        }
        if cx.shape_of(scores).dim(1).as_static().is_none_or(|n| n < 2) {
            return Err(cx.unsupported(format!("a decoder that gives {shape}, whose vocabulary has no size")));
        }
        cx.cast(scores, DType::F32)
    }

    /// A cache of so many `tokens`.
    pub fn cache(&self, cx: Cx, present: NodeId, tokens: Dim) -> Result<NodeId, Error> {
        let mut to = cx.shape_of(present).dims().to_vec();
        if to.len() <= self.tokens_axis {
            return Err(cx.malformed(format!("a decoder's cache {}", cx.shape_of(present))));
        }
        (to[self.rows_axis], to[self.tokens_axis]) = (self.rows, tokens);
        cx.reshape(present, to)
    }

    /// Runs it for the last token of each text, in the body of the loop; `past` tokens, `cached` as a number, are in the caches.
    pub fn step(
        &self,
        cx: Cx,
        tokens: NodeId,
        iteration: NodeId,
        (cached, past): (NodeId, Dim),
        caches: &[NodeId],
    ) -> Result<(NodeId, Vec<NodeId>), Error> {
        let now = past.extent() + 1;
        let mut given = Vec::with_capacity(self.feeds.len());
        for feed in &self.feeds {
            let x = match *feed {
                Feed::Fixed(slot) => {
                    given.push(slot);
                    continue;
                }
                Feed::Tokens => cx.unsqueeze(tokens, &[1])?,
                Feed::Positions(lengths) => {
                    let lengths = cx.importer.materialize(lengths)?;
                    let iteration = cx.cast(iteration, DType::I32)?;
                    let place = cx.binary(B::Add, lengths, iteration)?;
                    cx.unsqueeze(place, &[1])?
                }
                Feed::Mask(mask) => {
                    let mask = cx.importer.materialize(mask)?;
                    cx.slice_axis(mask, 1, Extent::Const(0), now)?
                }
                Feed::Past(i) if self.buffers.is_some() => caches[i],
                Feed::Used => {
                    let used = cx.cast(cached, DType::I32)?;
                    cx.reshape(used, vec![Dim::Static(1)])?
                }
                Feed::Indirection => caches[self.caches],
                Feed::Past(i) => {
                    cx.slice_axis(caches[i], self.tokens_axis, Extent::Const(0), past.extent())?
                }
            };
            given.push(held(cx, x));
        }
        self.run(cx, &given, Dim::from(now))
    }

    /// How many tensors a loop carries for the caches.
    pub fn carried(&self) -> usize {
        self.caches + usize::from(self.is_indirect())
    }

    fn is_indirect(&self) -> bool {
        self.feeds.iter().any(|feed| matches!(feed, Feed::Indirection))
    }

    /// What the loop carries first: buffers for the longest text, and which texts they belong to.
    pub fn buffers(&self, cx: Cx, search: &Search<'_>, begun: Vec<NodeId>, chosen: &Chosen) -> Nodes {
        let mut carried = Vec::with_capacity(self.carried());
        for present in begun {
            let present = self.of_parents(cx, present, chosen)?;
            carried.push(self.buffer(cx, present, search.most)?);
        }
        if self.is_indirect() {
            // All texts of an element begin with the same tokens.
            carried.push(indirection(cx, search.batch, search.beams, search.most)?);
        }
        Ok(carried)
    }

    /// What the loop carries behind a step.
    pub fn next_buffers(
        &self,
        cx: Cx,
        search: &Search<'_>,
        (before, presents): (&[NodeId], Vec<NodeId>),
        chosen: &Chosen,
        cached: NodeId,
    ) -> Nodes {
        let mut carried = Vec::with_capacity(self.carried());
        let start = cx.scalar(DType::I64, 0.0);
        for (&buffer, present) in before.iter().zip(presents) {
            let present = self.of_parents(cx, present, chosen)?;
            carried.push(match self.buffers {
                Some(_) => present,
                None => cx.add(Op::UpdateSlice { axis: self.tokens_axis }, &[buffer, present, start])?,
            });
        }
        if let (true, Some(&texts)) = (self.is_indirect(), before.get(self.caches)) {
            carried.push(self.redirected(cx, search, texts, chosen, cached)?);
        }
        Ok(carried)
    }

    /// Which text each token's keys and values are with, for the texts that are continued; the last token's are with the text itself.
    fn redirected(
        &self,
        cx: Cx,
        search: &Search<'_>,
        texts: NodeId,
        chosen: &Chosen,
        cached: NodeId,
    ) -> Result<NodeId, Error> {
        let Some(parents) = chosen.parents else { return Ok(texts) };
        let dims = cx.shape_of(texts).dims().to_vec();
        let flat = cx.reshape(texts, vec![search.rows, Dim::Static(search.most)])?;
        let flat = cx.add(Op::Gather { axis: 0 }, &[flat, parents])?;
        let element = cx.with_scalar(B::Div, parents, search.beams as f64)?;
        let first = cx.with_scalar(B::Mul, element, search.beams as f64)?;
        let own = cx.binary(B::Sub, parents, first)?;
        let own = cx.cast(own, DType::I32)?;
        let own = cx.unsqueeze(own, &[1])?;
        let flat = cx.add(Op::UpdateSlice { axis: 1 }, &[flat, own, cached])?;
        cx.reshape(flat, dims)
    }

    /// A cache with the rows of the texts that are continued; they stay where they are if the decoder is told which they are.
    fn of_parents(&self, cx: Cx, present: NodeId, chosen: &Chosen) -> Result<NodeId, Error> {
        match chosen.parents {
            Some(parents) if !self.is_indirect() => {
                cx.add(Op::Gather { axis: self.rows_axis }, &[present, parents])
            }
            _ => Ok(present),
        }
    }

    /// A cache with as many tokens as the longest text has.
    fn buffer(&self, cx: Cx, present: NodeId, most: usize) -> Result<NodeId, Error> {
        let shape = cx.shape_of(present);
        let mut dims = shape.dims().to_vec();
        if dims[self.tokens_axis] == Dim::Static(most) {
            return Ok(present);
        }
        dims[self.tokens_axis] = Dim::Static(most);
        let zero = cx.scalar(shape.dtype(), 0.0);
        let buffer = cx.expand(zero, dims)?;
        let start = number(cx, Extent::Const(0))?;
        cx.add(Op::UpdateSlice { axis: self.tokens_axis }, &[buffer, present, start])
    }
}
