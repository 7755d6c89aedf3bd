//! Strings, sequences, optionals and maps: what a model may declare that is no plain tensor.
//!
//! The graph language has tensors of numbers only, and every device computes them. So the importer takes the rest apart:
//!
//! | declared | in the graph |
//! |---|---|
//! | `tensor(string) x` | `x`, a tensor of i64 *codes*: code `i` stands for `structure.strings["x"][i]`, and an input has −1 for every string that is not there |
//! | `sequence(T) x` of 3 elements | `x.0`, `x.1`, `x.2`; how many an input has is said by [`ImportOptions::sequence_lengths`](crate::ImportOptions) |
//! | `optional(T) x` | as `T x`; an input without a value is named in [`ImportOptions::absent`](crate::ImportOptions) |
//! | `sequence(map(K, V)) x`, of `ZipMap` | `x`, a tensor `[rows, keys]`, whose keys are `structure.maps["x"]` |
//! | `map(K, V) x`, an input | `x`, a tensor `[1, keys]` with 0 for what is not in the map, whose keys are `structure.maps["x"]` |
//!
//! ```
//! use rlx_onnx::{StringTable, StringTensor};
//! let colours = StringTable::new(["red", "green"]);
//! let x = StringTensor { dims: vec![3], elements: vec!["green".into(), "blue".into(), "red".into()] };
//! assert_eq!(colours.encode(&x).unwrap().value().ints().unwrap(), [1, -1, 0]);
//! let y = colours.encode(&StringTensor { dims: vec![1], elements: vec!["red".into()] }).unwrap();
//! assert_eq!(colours.decode(&y).unwrap().elements, ["red"]);
//! ```

use crate::external::ExternalFiles;
use crate::proto::tensor_proto::DataType;
use crate::proto::type_proto::Value as TypeValue;
use crate::proto::{TensorProto, TypeProto};
use crate::tensor::{RawTensor, extents};
use bytes::Bytes;
use prost::Message;
use rlx_ir::{ConstData, DType, Error, ErrorKind, Value};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What the graph's inputs and outputs stand for, by their names in the model, where they are no plain tensors.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Structure {
    /// The strings that a tensor's codes stand for.
    pub strings: BTreeMap<String, StringTable>,
    /// How many elements a sequence has: tensors of the graph with the names `NAME.0`, `NAME.1`, ….
    pub sequences: BTreeMap<String, usize>,
    /// The keys of a map: the columns of a tensor.
    pub maps: BTreeMap<String, MapKeys>,
}

/// The keys of a map, in the order of the tensor's columns.
#[derive(Debug, Clone, PartialEq)]
pub enum MapKeys {
    /// Numbers.
    Ints(Vec<i64>),
    /// Strings.
    Strings(Vec<String>),
}

/// A tensor of strings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StringTensor {
    /// Extents.
    pub dims: Vec<usize>,
    /// The strings in row-major order.
    pub elements: Vec<String>,
}

/// Different strings, each with its code: its position.
#[derive(Debug, Clone, Default)]
pub struct StringTable {
    strings: Arc<[String]>,
    codes: Arc<HashMap<String, i64>>,
}

impl PartialEq for StringTable {
    fn eq(&self, other: &Self) -> bool {
        self.strings == other.strings
    }
}

impl StringTable {
    /// The table of these strings; of equal ones the first has the code.
    pub fn new<S: Into<String>>(strings: impl IntoIterator<Item = S>) -> StringTable {
        let strings: Arc<[String]> = strings.into_iter().map(Into::into).collect();
        let mut codes = HashMap::with_capacity(strings.len());
        for (i, s) in strings.iter().enumerate() {
            codes.entry(s.clone()).or_insert(i as i64);
        }
        StringTable { strings, codes: Arc::new(codes) }
    }

    /// The strings by their codes.
    pub fn strings(&self) -> &[String] {
        &self.strings
    }

    /// Strings as codes, a tensor of i64; −1 where the table has not got them.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] where the number of strings is not what the extents ask for.
    pub fn encode(&self, x: &StringTensor) -> Result<ConstData, Error> {
        let codes: Vec<i64> = x.elements.iter().map(|s| self.codes.get(s).copied().unwrap_or(-1)).collect();
        ConstData::from_i64(&x.dims, &codes)
    }

    /// The strings that codes stand for.
    ///
    /// # Errors
    /// [`ErrorKind::DType`] where they are not i64, [`ErrorKind::Value`] for a code that is none.
    pub fn decode(&self, x: &ConstData) -> Result<StringTensor, Error> {
        if x.dtype() != DType::I64 {
            return Err(Error::new(ErrorKind::DType, format!("codes of strings are i64, not {}", x.shape())));
        }
        self.decode_value(&x.value())
    }

    fn decode_value(&self, x: &Value) -> Result<StringTensor, Error> {
        let string = |&code: &i128| {
            let found = usize::try_from(code).ok().and_then(|i| self.strings.get(i)).cloned();
            found.ok_or_else(|| {
                let message = format!("code {code} of a table of {} strings", self.strings.len());
                Error::new(ErrorKind::Value, message)
            })
        };
        let elements = x.ints()?.iter().map(string).collect::<Result<_, _>>()?;
        Ok(StringTensor { dims: x.dims.clone(), elements })
    }
}

/// Whether a tensor of the file holds strings.
pub(crate) fn is_strings(proto: &TensorProto) -> bool {
    proto.data_type == Some(DataType::String as i32)
}

/// The strings of a tensor of the file.
pub(crate) fn strings_of(proto: &TensorProto) -> Result<StringTensor, Error> {
    let read = || {
        let malformed = |message: String| Error::new(ErrorKind::Malformed, message);
        let dims = extents(&proto.dims)?;
        let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        let count = if dims.contains(&0) { Some(0) } else { count };
        if count != Some(proto.string_data.len()) {
            return Err(malformed(format!("{} strings for the extents {dims:?}", proto.string_data.len())));
        }
        let text = |s: &Bytes| std::str::from_utf8(s).map(str::to_owned);
        let elements = proto.string_data.iter().map(text).collect::<Result<_, _>>();
        let elements = elements.map_err(|e| malformed(format!("a string that is not UTF-8: {e}")))?;
        Ok(StringTensor { dims, elements })
    };
    read().map_err(|e: Error| e.with_origin(format!("tensor \"{}\"", proto.name())))
}

/// A value of any type that a model may declare, as the test cases of the format store it.
#[derive(Debug, Clone, PartialEq)]
pub enum FileValue {
    /// A tensor of numbers.
    Tensor(RawTensor),
    /// A tensor of strings.
    Strings(StringTensor),
    /// A sequence.
    Sequence(Vec<FileValue>),
    /// An optional that holds nothing.
    Nothing,
}

/// The message of a sequence in a file of its own.
#[derive(Clone, PartialEq, ::prost::Message)]
struct SequenceProto {
    #[prost(message, repeated, tag = "3")]
    tensors: Vec<TensorProto>,
    #[prost(message, repeated, tag = "5")]
    sequences: Vec<SequenceProto>,
}

/// The message of an optional in a file of its own.
#[derive(Clone, PartialEq, ::prost::Message)]
struct OptionalProto {
    #[prost(message, optional, tag = "3")]
    tensor: Option<TensorProto>,
    #[prost(message, optional, tag = "5")]
    sequence: Option<SequenceProto>,
}

/// Decodes a value of a declared type from a separate file (the `.pb` files of the ONNX test cases).
///
/// # Errors
/// [`ErrorKind::Malformed`], as [`read_tensor_file`](crate::read_tensor_file); [`ErrorKind::Unsupported`] for maps.
pub fn read_value_file(bytes: impl Into<Bytes>, declared: &TypeProto) -> Result<FileValue, Error> {
    let bytes = bytes.into();
    match &declared.value {
        Some(TypeValue::SequenceType(_)) => sequence(decoded::<SequenceProto>(bytes)?),
        Some(TypeValue::OptionalType(_)) => {
            let optional = decoded::<OptionalProto>(bytes)?;
            match (optional.tensor, optional.sequence) {
                (Some(tensor), _) => file_tensor(&tensor),
                (None, Some(of)) => sequence(of),
                (None, None) => Ok(FileValue::Nothing),
            }
        }
        Some(TypeValue::MapType(_)) => Err(Error::new(ErrorKind::Unsupported, "maps in files of their own")),
        _ => file_tensor(&decoded::<TensorProto>(bytes)?),
    }
}

fn decoded<M: Message + Default>(bytes: Bytes) -> Result<M, Error> {
    M::decode(bytes)
        .map_err(|e| Error::new(ErrorKind::Malformed, format!("not an ONNX value: {e}")).with_source(e))
}

fn sequence(proto: SequenceProto) -> Result<FileValue, Error> {
    let tensors = proto.tensors.iter().map(file_tensor);
    let sequences = proto.sequences.into_iter().map(sequence);
    Ok(FileValue::Sequence(tensors.chain(sequences).collect::<Result<_, _>>()?))
}

fn file_tensor(proto: &TensorProto) -> Result<FileValue, Error> {
    if is_strings(proto) {
        return strings_of(proto).map(FileValue::Strings);
    }
    RawTensor::read(proto, &ExternalFiles::new(None)).map(FileValue::Tensor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_outside_of_the_table_are_errors() {
        let table = StringTable::new(["a", "b", "a"]);
        let unknown = ConstData::from_i64(&[1], &[-1]).unwrap();
        assert_eq!(table.decode(&unknown).unwrap_err().kind(), ErrorKind::Value);
        assert!(table.decode(&ConstData::from_f32(&[1], &[0.0]).unwrap()).is_err());
        let x = StringTensor { dims: vec![2], elements: vec!["a".into()] };
        assert!(table.encode(&x).is_err());
    }

    #[test]
    fn a_wrong_number_of_strings_and_other_bytes_than_utf_8_are_errors() {
        let tensor = |dims: &[i64], strings: &[&'static [u8]]| TensorProto {
            data_type: Some(DataType::String as i32),
            dims: dims.to_vec(),
            string_data: strings.iter().map(|s| Bytes::from_static(s)).collect(),
            ..Default::default()
        };
        assert_eq!(strings_of(&tensor(&[2], &[b"a", "ß".as_bytes()])).unwrap().elements, ["a", "ß"]);
        for bad in
            [tensor(&[2], &[b"a"]), tensor(&[1], &[b"\xff"]), tensor(&[-1], &[]), tensor(&[i64::MAX, 4], &[])]
        {
            assert_eq!(strings_of(&bad).unwrap_err().kind(), ErrorKind::Malformed);
        }
    }
}
