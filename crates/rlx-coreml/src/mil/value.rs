//! Values of a program: element types, named tensors, and the elements of constants.

use std::sync::Arc;

use rlx_ir::DType;

use crate::proto::mil_spec::{
    DataType, Dimension, TensorType, TensorValue, Value, ValueType, dimension, tensor_value, value,
    value_type,
};

/// An element type of MIL that programs of ours use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// 32-bit floats.
    F32,
    /// 16-bit floats.
    F16,
    /// 32-bit integers: all integers are held so.
    I32,
    /// Truth values.
    Bool,
    /// 8-bit integers, of weights only.
    I8,
    /// 8-bit integers without sign, of weights only.
    U8,
    /// Texts, of parameters only.
    Text,
}

impl Type {
    /// How elements of `dtype` are held in a program: integers as `int32`, of which a claim has made sure that every value fits. `None`:
    /// MIL computes with nothing that has their values.
    pub fn holding(dtype: DType) -> Option<Type> {
        Some(match dtype {
            DType::F32 => Type::F32,
            DType::F16 => Type::F16,
            DType::Bool => Type::Bool,
            DType::I8 | DType::I16 | DType::I32 | DType::I64 => Type::I32,
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => Type::I32,
            _ => return None,
        })
    }

    /// The type's number in packages.
    pub fn code(self) -> DataType {
        match self {
            Type::F32 => DataType::Float32,
            Type::F16 => DataType::Float16,
            Type::I32 => DataType::Int32,
            Type::Bool => DataType::Bool,
            Type::I8 => DataType::Int8,
            Type::U8 => DataType::Uint8,
            Type::Text => DataType::String,
        }
    }

    /// The type's name as a parameter of operations (`cast`).
    pub fn name(self) -> &'static str {
        match self {
            Type::F32 => "fp32",
            Type::F16 => "fp16",
            Type::I32 => "int32",
            Type::Bool => "bool",
            Type::I8 => "int8",
            Type::U8 => "uint8",
            Type::Text => "string",
        }
    }

    /// Whether it is a float.
    pub fn is_float(self) -> bool {
        matches!(self, Type::F32 | Type::F16)
    }

    /// A tensor's type in a package.
    pub fn tensor(self, dims: &[usize]) -> ValueType {
        let dimension = |&size: &usize| Dimension {
            dimension: Some(dimension::Dimension::Constant(dimension::ConstantDimension {
                size: size as u64,
            })),
        };
        let tensor = TensorType {
            data_type: self.code() as i32,
            rank: dims.len() as i64,
            dimensions: dims.iter().map(dimension).collect(),
            ..TensorType::default()
        };
        ValueType { r#type: Some(value_type::Type::TensorType(tensor)) }
    }
}

/// A value of a program, by its name.
#[derive(Debug, Clone)]
pub struct Tensor {
    /// Its name.
    pub name: Arc<str>,
    /// Its element type.
    pub ty: Type,
    /// Its dimensions.
    pub dims: Vec<usize>,
    /// Whether it is a constant of the program, which some operations ask of their weights.
    pub fixed: bool,
}

impl Tensor {
    /// How many elements it has.
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }
}

/// The elements of a small constant, which is in the program itself.
#[derive(Debug, Clone, PartialEq)]
pub enum Elements {
    /// Of `F32`.
    Floats(Vec<f32>),
    /// Of `F16`, as bits.
    Halves(Vec<u16>),
    /// Of `I32`.
    Ints(Vec<i32>),
    /// Of `Bool`.
    Bools(Vec<bool>),
    /// Of `Text`.
    Text(String),
}

impl Elements {
    /// Their type.
    pub fn ty(&self) -> Type {
        match self {
            Elements::Floats(_) => Type::F32,
            Elements::Halves(_) => Type::F16,
            Elements::Ints(_) => Type::I32,
            Elements::Bools(_) => Type::Bool,
            Elements::Text(_) => Type::Text,
        }
    }

    /// One element of a float type.
    pub fn float(ty: Type, value: f32) -> Elements {
        match ty {
            Type::F16 => Elements::Halves(vec![half_bits(value)]),
            _ => Elements::Floats(vec![value]),
        }
    }

    /// The elements as a value of a package.
    pub fn value(self, dims: &[usize]) -> Value {
        use tensor_value as tv;
        let ty = self.ty();
        let elements = match self {
            Elements::Floats(values) => tv::Value::Floats(tv::RepeatedFloats { values }),
            Elements::Ints(values) => tv::Value::Ints(tv::RepeatedInts { values }),
            Elements::Bools(values) => tv::Value::Bools(tv::RepeatedBools { values }),
            Elements::Text(text) => tv::Value::Strings(tv::RepeatedStrings { values: vec![text] }),
            Elements::Halves(values) => tv::Value::Bytes(tv::RepeatedBytes {
                values: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            }),
        };
        let immediate = value::ImmediateValue {
            value: Some(value::immediate_value::Value::Tensor(TensorValue { value: Some(elements) })),
        };
        Value {
            doc_string: String::new(),
            r#type: Some(ty.tensor(dims)),
            value: Some(value::Value::ImmediateValue(immediate)),
        }
    }
}

/// The nearest 16-bit float.
fn half_bits(value: f32) -> u16 {
    let rounded = rlx_ir::Value::float(DType::F16, &[], vec![f64::from(value)]).rounded().encode();
    u16::from_le_bytes([rounded[0], rounded[1]])
}
