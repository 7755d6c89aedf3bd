//! Tensors as Rust types: nested arrays for fixed dimensions, slices and [`Dense`] for open ones. What the
//! structs of [`crate::rlx_model`] take and give.
//!
//! ```
//! use rlx_runtime::typed::{self, DenseView};
//! let flat = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
//! let matrix: &[[f32; 3]; 2] = typed::nested(&flat)?;
//! assert_eq!(matrix[1], [4.0, 5.0, 6.0]);
//! // [batch, seq, 3] with batch 1 and seq 2:
//! let view = DenseView::<[f32; 3], 2>::new(matrix, [1, 2])?;
//! assert_eq!(view.rows().len(), 2);
//! # Ok::<(), rlx_runtime::Error>(())
//! ```

pub use half::{bf16, f16};

use rlx_ir::tensor::vec_of;
use rlx_ir::{Error, ErrorKind, Result, Shape, WeightStore};

use crate::compiled::{CompiledGraph, TensorView};

pub use rlx_ir::tensor::Element;

macro_rules! elements {
    ($($ty:ty),*) => {$(
        impl Nested for $ty {
            type Element = $ty;

            fn flatten(values: &[Self]) -> &[$ty] {
                values
            }

            fn group(flat: &[$ty]) -> Option<&[Self]> {
                Some(flat)
            }
        }
    )*};
}

/// An element, or nested arrays of elements: `[[f32; 3]; 2]`.
pub trait Nested: Copy {
    /// What it is made of.
    type Element: Element;

    /// The elements one after the other.
    fn flatten(values: &[Self]) -> &[Self::Element];

    /// The elements by arrays; `None` when some are left over.
    fn group(flat: &[Self::Element]) -> Option<&[Self]>;
}

elements!(f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, bool);

impl<T: Nested, const N: usize> Nested for [T; N] {
    type Element = T::Element;

    fn flatten(values: &[Self]) -> &[T::Element] {
        T::flatten(values.as_flattened())
    }

    fn group(flat: &[T::Element]) -> Option<&[Self]> {
        match N {
            // Arrays without elements: how many there are, the elements do not tell.
            0 => None,
            _ => match T::group(flat)?.as_chunks() {
                (arrays, []) => Some(arrays),
                _ => None,
            },
        }
    }
}

fn shape_mismatch<T: Nested>(count: usize) -> Error {
    let message = format!("{count} elements do not make {}", std::any::type_name::<T>());
    Error::new(ErrorKind::Shape, message)
}

/// Flat elements as one nested array, such as `[[f32; 3]; 2]`; nothing is copied.
///
/// # Errors
/// [`ErrorKind::Shape`] for another number of elements.
pub fn nested<T: Nested>(flat: &[T::Element]) -> Result<&T> {
    match T::group(flat) {
        Some([one]) => Ok(one),
        _ => Err(shape_mismatch::<T>(flat.len())),
    }
}

/// Flat elements as rows, such as `[f32; 64]`; nothing is copied.
///
/// # Errors
/// [`ErrorKind::Shape`] when elements are left over.
pub fn nested_rows<T: Nested>(flat: &[T::Element]) -> Result<&[T]> {
    T::group(flat).ok_or_else(|| shape_mismatch::<T>(flat.len()))
}

/// The bytes of a nested array.
pub fn bytes_of<T: Nested>(value: &T) -> &[u8] {
    bytes_of_rows(std::slice::from_ref(value))
}

/// The bytes of rows.
pub fn bytes_of_rows<T: Nested>(rows: &[T]) -> &[u8] {
    bytemuck::cast_slice(T::flatten(rows))
}

/// A tensor with `N` leading dynamic dimensions over rows of fixed dimensions; borrowed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DenseView<'a, T, const N: usize> {
    rows: &'a [T],
    dims: [usize; N],
}

impl<'a, T: Nested, const N: usize> DenseView<'a, T, N> {
    /// `rows` in row-major order of `dims`.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] when there are more or fewer rows than the dimensions say.
    pub fn new(rows: &'a [T], dims: [usize; N]) -> Result<Self> {
        check_rows(rows.len(), dims)?;
        Ok(DenseView { rows, dims })
    }

    /// The rows.
    pub fn rows(&self) -> &'a [T] {
        self.rows
    }

    /// The leading dimensions.
    pub fn dims(&self) -> [usize; N] {
        self.dims
    }
}

/// A tensor with `N` leading dynamic dimensions over rows of fixed dimensions.
#[derive(Debug, Clone, PartialEq)]
pub struct Dense<T, const N: usize> {
    rows: Vec<T>,
    dims: [usize; N],
}

impl<T: Nested, const N: usize> Dense<T, N> {
    /// `rows` in row-major order of `dims`.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] when there are more or fewer rows than the dimensions say.
    pub fn new(rows: Vec<T>, dims: [usize; N]) -> Result<Self> {
        check_rows(rows.len(), dims)?;
        Ok(Dense { rows, dims })
    }

    /// The rows.
    pub fn rows(&self) -> &[T] {
        &self.rows
    }

    /// The rows, taken out.
    pub fn into_rows(self) -> Vec<T> {
        self.rows
    }

    /// The leading dimensions.
    pub fn dims(&self) -> [usize; N] {
        self.dims
    }

    /// The same, borrowed.
    pub fn view(&self) -> DenseView<'_, T, N> {
        DenseView { rows: &self.rows, dims: self.dims }
    }
}

fn check_rows<const N: usize>(count: usize, dims: [usize; N]) -> Result<()> {
    if dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)) == Some(count) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Shape, format!("{count} rows do not make dimensions {dims:?}")))
}

/// Sets all of a model's parameters.
///
/// # Errors
/// A parameter without weights, or weights of the wrong shape or type.
pub fn load(compiled: &mut CompiledGraph, weights: &WeightStore) -> Result<()> {
    let missing = compiled.try_set_weights(weights)?;
    if missing.is_empty() {
        return Ok(());
    }
    let message = format!("there are no weights for {}", missing.join(", "));
    Err(Error::new(ErrorKind::Binding, message))
}

/// Outputs as typed values.
pub mod read {
    use super::{Dense, Element, Error, ErrorKind, Nested, Result, Shape, TensorView, vec_of};

    /// The rows of an output.
    fn decode<T: Nested>(view: &TensorView<'_>) -> Result<Vec<T>> {
        let wrong = || {
            let shape = Shape::new(view.dims, view.dtype);
            let message = format!("output {:?} is {shape}, not of {}", view.name, std::any::type_name::<T>());
            Error::new(ErrorKind::Internal, message)
        };
        if view.dtype != T::Element::DTYPE {
            return Err(wrong());
        }
        let flat: Vec<T::Element> = vec_of(view.dtype, view.dims, view.bytes).map_err(|_| wrong())?;
        Ok(T::group(&flat).ok_or_else(wrong)?.to_vec())
    }

    fn given<'a>(view: Option<TensorView<'a>>) -> Result<TensorView<'a>> {
        view.ok_or_else(|| Error::new(ErrorKind::Internal, "the graph has fewer outputs than its model"))
    }

    /// One element.
    ///
    /// # Errors
    /// An output of another type or shape.
    pub fn scalar<T: Element + Nested<Element = T>>(view: Option<TensorView<'_>>) -> Result<Box<T>> {
        let view = given(view)?;
        match decode::<T>(&view)?[..] {
            [one] => Ok(Box::new(one)),
            _ => Err(Error::new(ErrorKind::Internal, format!("output {:?} is not a scalar", view.name))),
        }
    }

    /// A tensor of fixed dimensions.
    ///
    /// # Errors
    /// An output of another type or shape.
    pub fn fixed<T: Nested, const N: usize>(view: Option<TensorView<'_>>) -> Result<Box<[T; N]>> {
        let view = given(view)?;
        // Through a vector, so that a large array is never on the stack.
        decode::<T>(&view)?.try_into().map_err(|rows: Vec<T>| {
            let message = format!("output {:?} has {} rows, not {N}", view.name, rows.len());
            Error::new(ErrorKind::Internal, message)
        })
    }

    /// A tensor whose first dimension is dynamic.
    ///
    /// # Errors
    /// An output of another type or shape.
    pub fn rows<T: Nested>(view: Option<TensorView<'_>>) -> Result<Vec<T>> {
        decode(&given(view)?)
    }

    /// A tensor with several dynamic dimensions.
    ///
    /// # Errors
    /// An output of another type or shape.
    pub fn dense<T: Nested, const N: usize>(view: Option<TensorView<'_>>) -> Result<Dense<T, N>> {
        let view = given(view)?;
        let dims = view.dims.first_chunk::<N>().copied().ok_or_else(|| {
            Error::new(ErrorKind::Internal, format!("output {:?} has fewer than {N} dimensions", view.name))
        })?;
        Dense::new(decode(&view)?, dims)
    }
}
