//! Inputs, parameters and outputs: their declarations, and views of their bytes.

use rlx_ir::lir::IoSlot;
use rlx_ir::{ConstData, DType, Error, ErrorKind, Result, Shape, memory};

use crate::convert;

/// A named input, parameter or output of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// The caller's name.
    pub name: String,
    /// The element type.
    pub dtype: DType,
    /// The declared shape.
    pub shape: Shape,
}

impl TensorInfo {
    pub(super) fn of(slot: &IoSlot) -> Self {
        TensorInfo { name: slot.name.clone(), dtype: slot.shape.dtype(), shape: slot.shape.clone() }
    }
}

/// A view of a tensor in borrowed memory: row-major, little-endian, sub-byte elements packed.
///
/// ```
/// use rlx_ir::DType;
/// use rlx_runtime::TensorView;
/// let ids = [7i64, 8];
/// let bytes: Vec<u8> = ids.iter().flat_map(|i| i.to_le_bytes()).collect();
/// let view = TensorView { name: "ids", dtype: DType::I64, dims: &[1, 2], bytes: &bytes };
/// assert_eq!(view.to_f32().unwrap(), [7.0, 8.0]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorView<'a> {
    /// The tensor's name.
    pub name: &'a str,
    /// The element type.
    pub dtype: DType,
    /// The dimensions, outermost first.
    pub dims: &'a [usize],
    /// The bytes.
    pub bytes: &'a [u8],
}

impl TensorView<'_> {
    /// The tensor with a copy of its bytes.
    ///
    /// # Errors
    /// Bytes that do not match type and dimensions.
    pub fn to_const(&self) -> Result<ConstData> {
        ConstData::new(self.dtype, self.dims, self.bytes)
    }

    /// The elements as f32.
    ///
    /// # Errors
    /// Bytes that do not match type and dimensions, or an integer that is not exact in f32.
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        let shape = Shape::new(self.dims, self.dtype);
        let elements = shape.num_elements().filter(|_| shape.size_bytes() == Some(self.bytes.len()));
        let n = elements.ok_or_else(|| {
            let message = format!("{} bytes do not make {shape}", self.bytes.len());
            Error::new(ErrorKind::Shape, message)
        })?;
        let mut out = memory::zeroed(n * convert::floats_per_element(self.dtype), || self.name.to_owned())?;
        convert::to_f32(self.dtype, self.bytes, n, &mut out)?;
        Ok(out)
    }
}
