//! How much memory a model takes once it is decoded, computed before decoding.
//!
//! An empty message takes two bytes in the file and hundreds in memory, so a small file could need a lot of memory. Lists of
//! numbers and strings grow too, but by a known factor. Raw bytes of tensors stay in the file.

use crate::proto::tensor_shape_proto::Dimension;
use crate::proto::*;
use std::mem::size_of;

/// A kind of message that may be there many times, or have such messages in it.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    SparseTensor,
    Function,
    Training,
    ValueInfo,
    Type,
    TensorType,
    Shape,
    Dimension,
    Annotation,
    Device,
    Sharding,
    ShardedDim,
    Entry,
    Opset,
    Configuration,
}

impl Kind {
    /// What one takes in memory.
    fn size(self) -> usize {
        match self {
            Kind::Model => size_of::<ModelProto>(),
            Kind::Graph => size_of::<GraphProto>(),
            Kind::Node => size_of::<NodeProto>(),
            Kind::Attribute => size_of::<AttributeProto>(),
            Kind::Tensor => size_of::<TensorProto>(),
            Kind::SparseTensor => size_of::<SparseTensorProto>(),
            Kind::Function => size_of::<FunctionProto>(),
            Kind::Training => size_of::<TrainingInfoProto>(),
            Kind::ValueInfo => size_of::<ValueInfoProto>(),
            Kind::Type => size_of::<TypeProto>(),
            Kind::TensorType => size_of::<type_proto::Tensor>(),
            Kind::Shape => size_of::<TensorShapeProto>(),
            Kind::Dimension => size_of::<Dimension>(),
            Kind::Annotation => size_of::<TensorAnnotation>(),
            Kind::Device => size_of::<NodeDeviceConfigurationProto>(),
            Kind::Sharding => size_of::<ShardingSpecProto>(),
            Kind::ShardedDim => size_of::<ShardedDimProto>(),
            Kind::Entry => size_of::<StringStringEntryProto>(),
            Kind::Opset => size_of::<OperatorSetIdProto>(),
            Kind::Configuration => size_of::<DeviceConfigurationProto>(),
        }
    }

    /// Whether the decoder leaves the bytes of a field where they are: `raw_data`.
    fn shares(self, field: u64) -> bool {
        matches!((self, field), (Kind::Tensor, 9))
    }

    /// The fields that are messages.
    fn messages(self) -> &'static [(u64, Kind)] {
        use Kind as K;
        match self {
            K::Model => &[
                (7, K::Graph),
                (8, K::Opset),
                (14, K::Entry),
                (20, K::Training),
                (25, K::Function),
                (26, K::Configuration),
            ],
            K::Graph => &[
                (1, K::Node),
                (5, K::Tensor),
                (11, K::ValueInfo),
                (12, K::ValueInfo),
                (13, K::ValueInfo),
                (14, K::Annotation),
                (15, K::SparseTensor),
                (16, K::Entry),
            ],
            K::Node => &[(5, K::Attribute), (9, K::Entry), (10, K::Device)],
            K::Attribute => &[
                (5, K::Tensor),
                (6, K::Graph),
                (10, K::Tensor),
                (11, K::Graph),
                (14, K::Type),
                (15, K::Type),
                (22, K::SparseTensor),
                (23, K::SparseTensor),
            ],
            K::Tensor => &[(13, K::Entry), (16, K::Entry)],
            K::SparseTensor => &[(1, K::Tensor), (2, K::Tensor)],
            K::Function => {
                &[(7, K::Node), (9, K::Opset), (11, K::Attribute), (12, K::ValueInfo), (14, K::Entry)]
            }
            K::Training => &[(1, K::Graph), (2, K::Graph), (3, K::Entry), (4, K::Entry)],
            K::ValueInfo => &[(2, K::Type), (4, K::Entry)],
            // The kinds of types that have a type inside of them look alike: field 1 or 2.
            K::Type => &[(1, K::TensorType), (4, K::Type), (5, K::Type), (8, K::TensorType), (9, K::Type)],
            K::TensorType => &[(2, K::Shape)],
            K::Shape => &[(1, K::Dimension)],
            K::Annotation => &[(2, K::Entry)],
            K::Device => &[(2, K::Sharding)],
            K::Sharding => &[(3, K::Entry), (4, K::ShardedDim)],
            K::ShardedDim => &[(2, K::Entry)],
            K::Dimension | K::Entry | K::Opset | K::Configuration => &[],
        }
    }
}

/// The decoder goes no deeper.
const MOST_LEVELS: usize = 100;

/// A byte of a list of small numbers becomes one of eight bytes, and lists grow by doubling.
const GROWTH: usize = 16;

/// What decoding a model takes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decoded {
    /// Bytes that the messages take in memory, without their lists and texts.
    pub structure: usize,
    /// Bytes of lists and texts in the file.
    pub lists: usize,
}

impl Decoded {
    /// Of a model's bytes. Where they are damaged, of what is before the damage.
    pub fn of(model: &[u8]) -> Decoded {
        let mut total = Decoded::default();
        total.add(Kind::Model, model, MOST_LEVELS);
        total
    }

    /// All of it in memory, at most.
    pub fn bytes(self) -> usize {
        self.structure.saturating_add(self.lists.saturating_mul(GROWTH))
    }

    /// Adds a message of this kind; `None` if it is damaged.
    fn add(&mut self, kind: Kind, mut bytes: &[u8], levels: usize) -> Option<()> {
        self.structure = self.structure.saturating_add(kind.size());
        while !bytes.is_empty() {
            let tag = varint(&mut bytes)?;
            let length = match tag & 7 {
                // Lists of numbers need not be packed.
                0 => {
                    let before = bytes.len();
                    varint(&mut bytes)?;
                    self.lists += before - bytes.len();
                    0
                }
                1 => 8,
                2 => usize::try_from(varint(&mut bytes)?).ok()?,
                5 => 4,
                _ => return None,
            };
            let (content, rest) = bytes.split_at_checked(length)?;
            bytes = rest;
            let message = kind.messages().iter().find(|(field, _)| *field == tag >> 3);
            match (tag & 7, message) {
                (1 | 5, _) => self.lists += content.len(),
                (2, Some(&(_, inner))) if levels > 0 => self.add(inner, content, levels - 1)?,
                (2, None) if !kind.shares(tag >> 3) => self.lists += content.len(),
                _ => {}
            }
        }
        Some(())
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    #[test]
    fn messages_are_counted_and_numbers_are_not() {
        let attribute = AttributeProto { ints: vec![1; 1000], ..Default::default() };
        let node = NodeProto { attribute: vec![attribute; 3], ..Default::default() };
        let graph = GraphProto { node: vec![node; 5], ..Default::default() };
        let model = ModelProto { graph: Some(graph), ..Default::default() };
        let want =
            Kind::Model.size() + Kind::Graph.size() + 5 * Kind::Node.size() + 15 * Kind::Attribute.size();
        let bytes = model.encode_to_vec();
        assert_eq!(Decoded::of(&bytes), Decoded { structure: want, lists: 15_000 });
        assert!(Decoded::of(&bytes[..bytes.len() / 2]).structure < want);
        assert_eq!(Decoded::of(&[0xFF; 20]).structure, Kind::Model.size());
    }

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
        assert_eq!(Decoded::of(&model).lists, 100_000);
    }

    #[test]
    fn damaged_bytes_have_a_size_too() {
        let graph = GraphProto { name: Some("a graph".to_owned()), ..Default::default() };
        let model = ModelProto { graph: Some(graph), ..Default::default() }.encode_to_vec();
        let most = Decoded::of(&model);
        for cut in 0..model.len() {
            let found = Decoded::of(&model[..cut]);
            assert!(found.structure <= most.structure && found.lists <= most.lists);
        }
        for byte in 0..=255 {
            assert!(Decoded::of(&[byte; 40]).lists <= 40);
        }
    }
}
