//! Inputs, parameters and outputs: their declarations, and views of their bytes.

use rlx_ir::lir::IoSlot;
use rlx_ir::tensor::{Element, slice_of, vec_of};
use rlx_ir::{ConstData, DType, Error, ErrorKind, Result, Shape, memory};

use rlx_backend::convert;

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
/// use rlx_runtime::TensorView;
/// let ids = [7i64, 8];
/// let view = TensorView::of("ids", &[1, 2], &ids)?;
/// assert_eq!(view.as_slice::<i64>()?, [7, 8]);
/// assert_eq!(view.to_f32()?, [7.0, 8.0]);
/// # Ok::<(), rlx_runtime::Error>(())
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

impl<'a> TensorView<'a> {
    /// A view of these values, row-major; its element type is that of `T`. Nothing is copied.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] when the count does not fit the dimensions.
    pub fn of<T: Element>(name: &'a str, dims: &'a [usize], values: &'a [T]) -> Result<Self> {
        let shape = Shape::new(dims, T::DTYPE);
        if shape.num_elements() != Some(values.len()) {
            let message = format!("{} values do not make {shape}", values.len());
            return Err(Error::new(ErrorKind::Shape, message));
        }
        Ok(TensorView { name, dtype: T::DTYPE, dims, bytes: bytemuck::cast_slice(values) })
    }

    /// The elements; nothing is copied.
    ///
    /// # Errors
    /// [`ErrorKind::DType`] when the tensor has another element type, [`ErrorKind::Value`] when its bytes are not aligned.
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T]> {
        slice_of(self.dtype, self.dims, self.bytes)
    }

    /// The elements of an f32 tensor; nothing is copied. [`TensorView::to_f32`] also converts.
    ///
    /// # Errors
    /// As [`TensorView::as_slice`].
    pub fn as_f32(&self) -> Result<&'a [f32]> {
        self.as_slice()
    }

    /// A copy of the elements.
    ///
    /// # Errors
    /// [`ErrorKind::DType`] when the tensor has another element type, [`ErrorKind::OutOfMemory`].
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        vec_of(self.dtype, self.dims, self.bytes)
    }
}

impl<'a> From<(&'a str, &'a ConstData)> for TensorView<'a> {
    fn from((name, data): (&'a str, &'a ConstData)) -> Self {
        TensorView { name, dtype: data.dtype(), dims: data.dims(), bytes: data.bytes() }
    }
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
