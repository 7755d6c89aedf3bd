//! A decoder behind an encoder, as those of T5 and BART.
//!
//! The graph `encoder` runs once: it gives the encoder's states, the keys and values of them that every step looks at, and the first step of the decoder. What it gives as
//! `present_…` is what the decoder takes as `past_…`; what the decoder gives as `present_…` itself grows with every token.

use super::decoder::{Begun, Decoder, Feed, buffer_feed, rows_of_buffers};
use super::{Cx, constant_token, for_beams, held, token};
use crate::import::{NodeCx, SlotId};
use crate::proto::type_proto::Value as TypeValue;
use crate::proto::{GraphProto, ValueInfoProto};
use rlx_ir::op::{CmpOp, ReduceOp};
use rlx_ir::{DType, Dim, Error, NodeId, Op};

/// Runs the encoder on operand 0 and on the mask that is operand `mask`.
pub(super) fn begin<'p>(
    cx: &mut NodeCx<'p, '_>,
    beams: usize,
    most: usize,
    mask: usize,
) -> Result<(Decoder<'p>, Begun), Error> {
    let (encoder, graph) = (cx.attrs.graph("encoder")?, cx.attrs.graph("decoder")?);
    let shape = cx.shape(0)?;
    let &[batch, _] = shape.dims() else { return Err(cx.malformed(format!("texts {shape}"))) };
    if most < 2 {
        return Err(
            cx.malformed(format!("max_length = {most}: the first token is the one that starts all texts"))
        );
    }
    let ids = cx.x(0)?;
    let ids = cx.cast(ids, DType::I32)?;
    let mask = own_tokens(cx, ids, mask)?;
    let start = token(cx, "decoder_start_token_id")?;
    let start = constant_token(cx, start);
    let start = cx.expand(start, vec![batch, Dim::Static(1)])?;
    let given: Vec<SlotId> = [ids, mask, start].into_iter().map(|x| held(cx, x)).collect();
    let given = given.get(..encoder.input.len()).ok_or_else(|| {
        cx.malformed(format!(
            "an encoder of {} inputs, not of tokens, mask and first tokens",
            encoder.input.len()
        ))
    })?;
    let found = cx.importer.inlined(encoder, given)?;
    let made = Made { encoder, found, beams };
    let feeds = made.feeds(cx, graph, mask)?;
    let caches = graph.output.len().saturating_sub(1);
    if caches == 0 {
        return Err(cx.malformed("a decoder without caches"));
    }
    let decoder = Decoder {
        graph,
        buffers: rows_of_buffers(cx, &feeds, most)?,
        feeds,
        rows_axis: 0,
        tokens_axis: 2,
        caches,
        rows: Dim::from(batch.extent() * beams as i64),
        vocabulary: cx.attrs.int_opt("vocab_size")?.filter(|&n| n > 0),
    };
    let logits = made.of(cx, "logits")?;
    let logits = decoder.scores(cx, logits)?;
    let mut begun = Vec::with_capacity(caches);
    for output in &graph.output[1..] {
        let present = made.of(cx, output.name())?;
        begun.push(decoder.cache(cx, present, Dim::Static(1))?);
    }
    let pad = token(cx, "pad_token_id")?;
    let pad = constant_token(cx, pad);
    let rest = cx.expand(pad, vec![batch, Dim::Static(most - 1)])?;
    let texts = cx.add(Op::Concat { axis: 1 }, &[start, rest])?;
    let texts = for_beams(cx, texts, 0, beams)?;
    Ok((decoder, Begun { logits, texts, caches: begun }))
}

/// What an encoder gave, by name, once for each text.
struct Made<'p> {
    encoder: &'p GraphProto,
    found: Vec<SlotId>,
    beams: usize,
}

impl Made<'_> {
    /// What the decoder `graph` is given in every step, with the encoder's mask.
    fn feeds(&self, cx: Cx, graph: &GraphProto, mask: NodeId) -> Result<Vec<Feed>, Error> {
        let mut feeds = Vec::with_capacity(graph.input.len());
        for (i, input) in graph.input.iter().enumerate() {
            feeds.push(match input.name() {
                _ if i == 0 && one_token(input) => Feed::Tokens,
                _ if i == 0 => {
                    return Err(cx.unsupported("a decoder that is given whole texts in every step"));
                }
                "encoder_attention_mask" => {
                    let mask = for_beams(cx, mask, 0, self.beams)?;
                    Feed::Fixed(held(cx, mask))
                }
                name @ "encoder_hidden_states" => Feed::Fixed(self.held(cx, name)?),
                name if let Some(feed) = buffer_feed(cx, name, self.beams) => feed,
                name => match name.strip_prefix("past_").map(|rest| format!("present_{rest}")) {
                    Some(present) => match graph.output.iter().skip(1).position(|o| o.name() == present) {
                        Some(cache) => Feed::Past(cache),
                        None => Feed::Fixed(self.held(cx, &present)?),
                    },
                    None => return Err(cx.unsupported(format!("a decoder that takes \"{name}\""))),
                },
            });
        }
        Ok(feeds)
    }

    fn of(&self, cx: Cx, name: &str) -> Result<NodeId, Error> {
        let at = self.encoder.output.iter().position(|output| output.name() == name);
        let slot = at.and_then(|at| self.found.get(at).copied());
        let slot = slot.ok_or_else(|| cx.malformed(format!("the encoder does not give \"{name}\"")))?;
        let x = cx.importer.materialize(slot)?;
        if cx.shape_of(x).rank() == 0 {
            return Err(cx.malformed(format!("the encoder's \"{name}\" is one number")));
        }
        for_beams(cx, x, 0, self.beams)
    }

    fn held(&self, cx: Cx, name: &str) -> Result<SlotId, Error> {
        let x = self.of(cx, name)?;
        Ok(held(cx, x))
    }
}

/// Which tokens an encoder sees, `[batch, length]` in i32: what operand `mask` says or, without one, all but the padding in front. Padding behind may be the
/// token that ends a text.
fn own_tokens(cx: Cx, ids: NodeId, mask: usize) -> Result<NodeId, Error> {
    if cx.has(mask) {
        let given = cx.x(mask)?;
        let given = cx.cast(given, DType::I32)?;
        let dims = cx.shape_of(ids).dims().to_vec();
        return cx.reshape(given, dims);
    }
    let pad = token(cx, "pad_token_id")?;
    let pad = constant_token(cx, pad);
    let own = cx.compare(CmpOp::Ne, ids, pad)?;
    let own = cx.cast(own, DType::I32)?;
    let sums = Op::Cumulative { op: ReduceOp::Sum, axis: 1, exclusive: false, reverse: false };
    let sums = cx.add(sums, &[own])?;
    let zero = cx.scalar(DType::I32, 0.0);
    let seen = cx.compare(CmpOp::Gt, sums, zero)?;
    cx.cast(seen, DType::I32)
}

/// Whether an input is declared as one token for each text; else ONNX Runtime gives the decoder all tokens so far.
fn one_token(input: &ValueInfoProto) -> bool {
    use crate::proto::tensor_shape_proto::dimension::Value as Size;
    let Some(TypeValue::TensorType(ty)) = input.r#type.as_ref().and_then(|t| t.value.as_ref()) else {
        return false;
    };
    let second = ty.shape.as_ref().and_then(|shape| shape.dim.get(1));
    second.is_some_and(|dim| dim.value == Some(Size::DimValue(1)))
}
