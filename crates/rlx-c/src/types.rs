//! Element types and tensors, as C sees them.

use std::ffi::{c_char, c_void};

use rlx_ir::DType;

/// The type of a tensor's elements.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RlxDtype {
    /// IEEE 754 binary32: `float`.
    F32 = 0,
    /// IEEE 754 binary16.
    F16 = 1,
    /// The upper half of binary32.
    BF16 = 2,
    /// IEEE 754 binary64: `double`.
    F64 = 3,
    /// `int8_t`.
    I8 = 4,
    /// `int16_t`.
    I16 = 5,
    /// `int32_t`.
    I32 = 6,
    /// `int64_t`.
    I64 = 7,
    /// `uint8_t`.
    U8 = 8,
    /// `uint16_t`.
    U16 = 9,
    /// `uint32_t`.
    U32 = 10,
    /// `uint64_t`.
    U64 = 11,
    /// One byte, 0 or 1.
    Bool = 12,
    /// Two binary32: real, imaginary.
    C64 = 13,
}

/// The element types that C has a name for.
const DTYPES: [(RlxDtype, DType); 14] = [
    (RlxDtype::F32, DType::F32),
    (RlxDtype::F16, DType::F16),
    (RlxDtype::BF16, DType::BF16),
    (RlxDtype::F64, DType::F64),
    (RlxDtype::I8, DType::I8),
    (RlxDtype::I16, DType::I16),
    (RlxDtype::I32, DType::I32),
    (RlxDtype::I64, DType::I64),
    (RlxDtype::U8, DType::U8),
    (RlxDtype::U16, DType::U16),
    (RlxDtype::U32, DType::U32),
    (RlxDtype::U64, DType::U64),
    (RlxDtype::Bool, DType::Bool),
    (RlxDtype::C64, DType::C64),
];

/// The element type of a number that came from C; `None` for numbers that are none.
pub(crate) fn dtype_of(value: i32) -> Option<DType> {
    DTYPES.iter().find(|(c, _)| *c as i32 == value).map(|&(_, dtype)| dtype)
}

/// Its number in C; -1 for a type that C has no name for.
pub(crate) fn number_of(dtype: DType) -> i32 {
    DTYPES.iter().find(|(_, d)| *d == dtype).map_or(-1, |&(c, _)| c as i32)
}

/// A tensor in memory: row-major, in the machine's byte order.
///
/// As an input it is the caller's, and is only read while `rlx_run` works. As an output it is the run's, and is valid until
/// `rlx_run_free`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RlxTensor {
    /// The input's or output's name, UTF-8.
    pub name: *const c_char,
    /// The element type: a value of `RlxDtype`; -1 for an output of a type that C has no name for.
    pub dtype: i32,
    /// How many dimensions there are.
    pub rank: usize,
    /// The dimensions, outermost first; may be null where `rank` is 0.
    pub dims: *const usize,
    /// The elements; may be null where `bytes` is 0.
    pub data: *const c_void,
    /// How many bytes the elements take.
    pub bytes: usize,
}

/// What a model declares of an input or output. It belongs to the model, and is valid until `rlx_model_free`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RlxTensorInfo {
    /// The name, UTF-8.
    pub name: *const c_char,
    /// The element type: a value of `RlxDtype`; -1 for one that C has no name for.
    pub dtype: i32,
    /// How many dimensions there are.
    pub rank: usize,
    /// The dimensions, outermost first; -1 for a dynamic one.
    pub dims: *const i64,
    /// The names of dynamic dimensions, UTF-8; null for dimensions of a fixed size.
    pub dim_names: *const *const c_char,
}
