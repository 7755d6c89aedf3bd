//! How much memory decoding a model takes, told from its bytes before it is decoded.

use rlx_ir::{Error, memory};

/// A message that holds others, as far as they matter here.
#[derive(Clone, Copy)]
enum Message {
    Model,
    Graph,
    Node,
    Attribute,
    Function,
    Tensor,
}

/// What a field of a message is.
enum Field {
    /// Bytes that the decoder shares with the file.
    Shared,
    /// Another message.
    Holds(Message),
    /// Anything else: decoded into memory of its own.
    Other,
}

impl Message {
    fn field(self, number: u64) -> Field {
        match (self, number) {
            (Message::Model, 7) | (Message::Attribute, 6 | 11) => Field::Holds(Message::Graph),
            (Message::Model, 25) => Field::Holds(Message::Function),
            (Message::Graph, 1) | (Message::Function, 7) => Field::Holds(Message::Node),
            (Message::Graph, 5) | (Message::Attribute, 5 | 10) => Field::Holds(Message::Tensor),
            (Message::Node, 5) => Field::Holds(Message::Attribute),
            (Message::Tensor, 9) => Field::Shared,
            _ => Field::Other,
        }
    }
}

/// A byte of a list of small numbers becomes one of eight bytes, and lists grow by doubling.
const GROWTH: usize = 16;

/// How deep the decoder goes.
const DEPTH: usize = 100;

/// Whether there is memory to decode a model.
///
/// # Errors
/// [`ErrorKind::OutOfMemory`](rlx_ir::ErrorKind::OutOfMemory).
pub(crate) fn ensure_room(model: &[u8]) -> Result<(), Error> {
    let bytes = decoded(model, Message::Model, DEPTH).saturating_mul(GROWTH);
    memory::ensure(bytes, || format!("decoding a model of {} bytes", model.len()))
}

/// How many bytes of a message are decoded into memory. What is malformed counts as far as it can be read: the decoder
/// stops there, too.
fn decoded(mut bytes: &[u8], message: Message, depth: usize) -> usize {
    let whole = bytes.len();
    let mut elsewhere = 0;
    while let Some(key) = varint(&mut bytes) {
        let skipped = match key & 7 {
            0 => varint(&mut bytes).map(|_| 0),
            1 => Some(8),
            5 => Some(4),
            2 => varint(&mut bytes).and_then(|n| usize::try_from(n).ok()),
            _ => None,
        };
        let Some((content, rest)) = skipped.and_then(|n| bytes.split_at_checked(n)) else { break };
        bytes = rest;
        if key & 7 == 2 {
            elsewhere += match message.field(key >> 3) {
                Field::Shared => content.len(),
                Field::Holds(inner) if depth > 0 => content.len() - decoded(content, inner, depth - 1),
                Field::Holds(_) | Field::Other => 0,
            };
        }
    }
    whole - elsewhere
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto};

    #[test]
    fn raw_data_is_not_decoded_wherever_it_stands_and_lists_are() {
        let raw = TensorProto { raw_data: Some(vec![1; 100_000].into()), ..Default::default() };
        let list = TensorProto { int64_data: vec![1; 50_000], ..Default::default() };
        let attribute = AttributeProto { t: Some(Box::new(raw.clone())), ..Default::default() };
        let node = NodeProto { attribute: vec![attribute], ..Default::default() };
        let body = GraphProto { node: vec![node], initializer: vec![raw, list], ..Default::default() };
        let attribute = AttributeProto { g: Some(Box::new(body.clone())), ..Default::default() };
        let node = NodeProto { attribute: vec![attribute], ..Default::default() };
        let graph = GraphProto { node: vec![node], ..body };
        let model = ModelProto { graph: Some(graph), ..Default::default() }.encode_to_vec();
        let bytes = decoded(&model, Message::Model, DEPTH);
        assert!((100_000..101_000).contains(&bytes), "{bytes} of {}", model.len());
    }

    #[test]
    fn damaged_bytes_have_a_size_too() {
        let graph = GraphProto { name: Some("a graph".to_owned()), ..Default::default() };
        let model = ModelProto { graph: Some(graph), ..Default::default() }.encode_to_vec();
        for cut in 0..model.len() {
            assert!(decoded(&model[..cut], Message::Model, DEPTH) <= cut);
        }
        for byte in 0..=255 {
            assert!(decoded(&[byte; 40], Message::Model, DEPTH) <= 40);
        }
    }
}
