//! Tensors of Rust values: [`ConstData`] from slices, and read as slices and vectors.
//!
//! ```
//! use rlx_ir::{ConstData, DType};
//! let image = ConstData::from_u8(&[1, 2, 2], &[0, 64, 128, 255])?;
//! assert_eq!((image.dtype(), image.as_slice::<u8>()?[3]), (DType::U8, 255));
//!
//! let mask = ConstData::from_bool(&[2], &[true, false])?;
//! assert_eq!(mask.to_vec::<bool>()?, [true, false]);
//! assert_eq!(image.as_f32().unwrap_err().hint(), Some("read it as u8, or convert it with `value().to_f64()`"));
//! # Ok::<(), rlx_ir::Error>(())
//! ```

use std::fmt::Debug;

use bytemuck::{CheckedBitPattern, NoUninit};
use half::{bf16, f16};

use super::ConstData;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::memory;
use crate::shape::Shape;

/// A Rust type that tensors have as elements.
pub trait Element: NoUninit + CheckedBitPattern + Debug + PartialEq {
    /// The element type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($ty:ty => $dtype:ident, $from:ident, $as:ident;)*) => {
        $(impl Element for $ty {
            const DTYPE: DType = DType::$dtype;
        })*

        /// Tensors of one element type.
        impl ConstData {
            $(
                #[doc = concat!("A tensor of ", stringify!($ty), " values, row-major.")]
                ///
                /// # Errors
                /// [`ErrorKind::Shape`] when the count does not fit the dimensions, [`ErrorKind::OutOfMemory`].
                pub fn $from(dims: &[usize], values: &[$ty]) -> Result<Self> {
                    Self::from_slice(dims, values)
                }

                #[doc = concat!("The elements of a tensor of ", stringify!($ty), " values; nothing is copied.")]
                ///
                /// # Errors
                /// As [`ConstData::as_slice`].
                pub fn $as(&self) -> Result<&[$ty]> {
                    self.as_slice()
                }
            )*
        }
    };
}

elements! {
    f32 => F32, from_f32, as_f32;
    f64 => F64, from_f64, as_f64;
    f16 => F16, from_f16, as_f16;
    bf16 => BF16, from_bf16, as_bf16;
    i8 => I8, from_i8, as_i8;
    i16 => I16, from_i16, as_i16;
    i32 => I32, from_i32, as_i32;
    i64 => I64, from_i64, as_i64;
    u8 => U8, from_u8, as_u8;
    u16 => U16, from_u16, as_u16;
    u32 => U32, from_u32, as_u32;
    u64 => U64, from_u64, as_u64;
    bool => Bool, from_bool, as_bool;
}

impl ConstData {
    /// A tensor of these values, row-major; its element type is that of `T`.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] when the count does not fit the dimensions, [`ErrorKind::OutOfMemory`].
    pub fn from_slice<T: Element>(dims: &[usize], values: &[T]) -> Result<Self> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        Self::new(T::DTYPE, dims, bytes)
    }

    /// A tensor of one value and no dimensions.
    pub fn scalar<T: Element>(value: T) -> Self {
        ConstData { dtype: T::DTYPE, dims: Vec::new(), bytes: bytemuck::bytes_of(&value).into() }
    }

    /// The elements; nothing is copied.
    ///
    /// # Errors
    /// [`ErrorKind::DType`] when the tensor has another element type.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        slice_of(self.dtype, &self.dims, &self.bytes)
    }

    /// A copy of the elements.
    ///
    /// # Errors
    /// [`ErrorKind::DType`] when the tensor has another element type, [`ErrorKind::OutOfMemory`].
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        vec_of(self.dtype, &self.dims, &self.bytes)
    }

    /// The only element of a tensor of one element, of whatever rank.
    ///
    /// # Errors
    /// [`ErrorKind::DType`] when the tensor has another element type, [`ErrorKind::Shape`] when it has not one element.
    pub fn item<T: Element>(&self) -> Result<T> {
        match self.as_slice()? {
            [one] => Ok(*one),
            _ => Err(Error::new(ErrorKind::Shape, format!("{} is not one element", self.shape()))),
        }
    }
}

/// The elements that `bytes` are; nothing is copied.
///
/// # Errors
/// [`ErrorKind::DType`] for another element type; [`ErrorKind::Value`] for bytes that are no values of it (a bool of 2), or not
/// aligned as `T` is.
pub fn slice_of<'a, T: Element>(dtype: DType, dims: &[usize], bytes: &'a [u8]) -> Result<&'a [T]> {
    check::<T>(dtype, dims)?;
    bytemuck::checked::try_cast_slice(bytes).map_err(|e| {
        let message = format!("the bytes of {} cannot be read in place: {e}", Shape::new(dims, dtype));
        Error::new(ErrorKind::Value, message).with_hint("`to_vec` reads bytes that are not aligned")
    })
}

/// The elements that `bytes` are, copied; they need not be aligned.
///
/// # Errors
/// [`ErrorKind::DType`] for another element type, [`ErrorKind::Value`] for bytes that are no values of it,
/// [`ErrorKind::OutOfMemory`].
pub fn vec_of<T: Element>(dtype: DType, dims: &[usize], bytes: &[u8]) -> Result<Vec<T>> {
    check::<T>(dtype, dims)?;
    memory::ensure(bytes.len(), || format!("the elements of {}", Shape::new(dims, dtype)))?;
    if let Ok(values) = bytemuck::checked::try_cast_slice(bytes) {
        return Ok(values.to_vec());
    }
    let element = |bytes: &[u8]| bytemuck::checked::try_pod_read_unaligned(bytes).ok();
    let values: Option<Vec<T>> = bytes.chunks_exact(std::mem::size_of::<T>()).map(element).collect();
    values.ok_or_else(|| {
        let message = format!("the bytes of {} are no values of its type", Shape::new(dims, dtype));
        Error::new(ErrorKind::Value, message)
    })
}

fn check<T: Element>(dtype: DType, dims: &[usize]) -> Result<()> {
    if dtype == T::DTYPE {
        return Ok(());
    }
    let message = format!("{} cannot be read as {}", Shape::new(dims, dtype), T::DTYPE);
    let hint = format!("read it as {dtype}, or convert it with `value().to_f64()`");
    Err(Error::new(ErrorKind::DType, message).with_hint(hint))
}

/// Tensors from and to arrays of the `ndarray` crate.
///
/// ```
/// use ndarray::array;
/// use rlx_ir::ConstData;
/// let x = ConstData::from_array(&array![[1.0f32, 2.0], [3.0, 4.0]].t())?;
/// assert_eq!(x.as_f32()?, [1.0, 3.0, 2.0, 4.0], "row-major, whatever the array's layout");
/// assert_eq!(x.as_array::<f32>()?.sum(), 10.0);
/// # Ok::<(), rlx_ir::Error>(())
/// ```
#[cfg(feature = "ndarray")]
impl ConstData {
    /// The elements of an array of any rank and layout.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`].
    pub fn from_array<S, D>(array: &ndarray::ArrayBase<S, D>) -> Result<Self>
    where
        S: ndarray::Data<Elem: Element>,
        D: ndarray::Dimension,
    {
        match array.as_slice() {
            Some(values) => Self::from_slice(array.shape(), values),
            None => {
                let values: Vec<S::Elem> = array.iter().copied().collect();
                Self::from_slice(array.shape(), &values)
            }
        }
    }

    /// The elements as an array; nothing is copied.
    ///
    /// # Errors
    /// As [`ConstData::as_slice`].
    pub fn as_array<T: Element>(&self) -> Result<ndarray::ArrayViewD<'_, T>> {
        ndarray::ArrayViewD::from_shape(self.dims.as_slice(), self.as_slice()?)
            .map_err(|e| Error::new(ErrorKind::Shape, format!("{} is no array: {e}", self.shape())))
    }

    /// A copy of the elements as an array.
    ///
    /// # Errors
    /// As [`ConstData::to_vec`].
    pub fn to_array<T: Element>(&self) -> Result<ndarray::ArrayD<T>> {
        ndarray::ArrayD::from_shape_vec(self.dims.as_slice(), self.to_vec()?)
            .map_err(|e| Error::new(ErrorKind::Shape, format!("{} is no array: {e}", self.shape())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_goes_in_and_comes_out() {
        fn both_ways<T: Element>(values: &[T]) {
            let tensor = ConstData::from_slice(&[values.len(), 1], values).unwrap();
            assert_eq!((tensor.dtype(), tensor.dims()), (T::DTYPE, &[values.len(), 1][..]));
            assert_eq!(
                (tensor.as_slice::<T>().unwrap(), &tensor.to_vec::<T>().unwrap()[..]),
                (values, values)
            );
            assert_eq!(ConstData::scalar(values[0]).item::<T>().unwrap(), values[0]);
        }
        both_ways(&[1.5f32, f32::INFINITY]);
        both_ways(&[1.5f64, -0.0]);
        both_ways(&[f16::from_f32(0.5), f16::MAX]);
        both_ways(&[bf16::from_f32(0.5), bf16::MIN]);
        both_ways(&[i8::MIN, 3]);
        both_ways(&[i16::MIN, 3]);
        both_ways(&[i32::MIN, 3]);
        both_ways(&[i64::MIN, 3]);
        both_ways(&[u8::MAX, 3]);
        both_ways(&[u16::MAX, 3]);
        both_ways(&[u32::MAX, 3]);
        both_ways(&[u64::MAX, 3]);
        both_ways(&[true, false]);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let kind = |r: Result<ConstData>| r.unwrap_err().kind();
        assert_eq!(kind(ConstData::from_i32(&[2, 2], &[1, 2, 3])), ErrorKind::Shape);
        let bytes = ConstData::from_u8(&[2], &[1, 2]).unwrap();
        assert_eq!(bytes.to_vec::<i8>().unwrap_err().kind(), ErrorKind::DType);
        assert_eq!(bytes.item::<u8>().unwrap_err().kind(), ErrorKind::Shape);
        let no_bools = ConstData::new(DType::Bool, &[2], vec![1, 2]).unwrap();
        assert_eq!(no_bools.as_bool().unwrap_err().kind(), ErrorKind::Value);
        assert_eq!(no_bools.to_vec::<bool>().unwrap_err().kind(), ErrorKind::Value);
    }

    #[test]
    fn bytes_at_any_address_are_read() {
        let bytes: Vec<u8> = std::iter::once(9).chain(1.5f64.to_le_bytes()).collect();
        assert_eq!(vec_of::<f64>(DType::F64, &[1], &bytes[1..]).unwrap(), [1.5]);
    }
}
