//! Shapes: dimensions and an element type.
//!
//! ```
//! use rlx_ir::{DType, Dim, Shape, sym};
//! let s = Shape::from_dims(&[Dim::Dynamic(sym::BATCH), Dim::Static(3)], DType::F32);
//! assert_eq!(s.to_string(), "[batch, 3] f32");
//! assert_eq!(s.num_elements(), None);
//! ```

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::dim::{Dim, DimBinding, Extent, check_extents};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};

/// No tensor has more elements: bits and bytes of them can be counted in an `i64`.
const MAX_ELEMENTS: u64 = 1 << 56;

/// The shapes of a node's results, of which most have one.
pub type Shapes = SmallVec<[Shape; 1]>;

/// Dimensions, outermost first, and an element type. Copies share the dimensions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: Arc<[Dim]>,
    dtype: DType,
}

impl Shape {
    /// A shape of fixed dimensions.
    pub fn new(dims: &[usize], dtype: DType) -> Self {
        Shape { dims: dims.iter().map(|&d| Dim::Static(d)).collect(), dtype }
    }

    /// A shape of fixed or symbolic dimensions.
    pub fn from_dims(dims: &[Dim], dtype: DType) -> Self {
        Shape { dims: dims.into(), dtype }
    }

    /// A shape without dimensions: one element.
    pub fn scalar(dtype: DType) -> Self {
        Shape { dims: Arc::default(), dtype }
    }

    /// How many dimensions there are.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[Dim] {
        &self.dims
    }

    /// Dimension `i`.
    ///
    /// # Panics
    /// When `i` is not below the rank.
    pub fn dim(&self, i: usize) -> Dim {
        self.dims[i]
    }

    /// The same dimensions with another element type.
    pub fn with_dtype(&self, dtype: DType) -> Self {
        Shape { dims: Arc::clone(&self.dims), dtype }
    }

    /// The same element type with other dimensions.
    pub fn with_dims(&self, dims: Vec<Dim>) -> Self {
        Shape { dims: dims.into(), dtype: self.dtype }
    }

    /// As [`Shape::with_dims`], from an iterator.
    pub(crate) fn with_each_dim(&self, dims: impl Iterator<Item = Dim>) -> Self {
        let dims: SmallVec<[Dim; 8]> = dims.collect();
        Shape { dims: Arc::from(&*dims), dtype: self.dtype }
    }

    /// Whether every dimension is fixed.
    pub fn is_static(&self) -> bool {
        self.dims.iter().all(|d| d.is_static())
    }

    /// The fixed dimensions; `None` if one is symbolic.
    pub fn static_dims(&self) -> Option<Vec<usize>> {
        self.dims.iter().map(|d| d.as_static()).collect()
    }

    /// How many elements there are; `None` if a dimension is symbolic or the product overflows.
    pub fn num_elements(&self) -> Option<usize> {
        self.dims.iter().try_fold(1usize, |n, d| n.checked_mul(d.as_static()?))
    }

    /// How many elements there are, as an expression.
    pub fn elements(&self) -> Extent {
        self.dims.iter().fold(Extent::Const(1), |n, d| n * d.extent())
    }

    /// Bytes in storage; `None` if a dimension is symbolic or the product overflows.
    pub fn size_bytes(&self) -> Option<usize> {
        self.dtype.storage_bytes(self.num_elements()?)
    }

    /// Whether its elements can be counted and addressed, as far as its dimensions are fixed. Dimensions of 0 do not help:
    /// strides are computed from the others.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] naming the shape; [`ErrorKind::Dimension`] for an expression beyond the limits.
    pub fn check_size(&self) -> Result<()> {
        check_extents(self.dims.iter().filter(|d| matches!(d, Dim::Expr(_))).map(|d| d.extent()))?;
        let sizes = self.dims.iter().map(|d| d.as_static().unwrap_or(1).max(1) as u64);
        let count = { sizes }.try_fold(1u64, |n, d| n.checked_mul(d));
        if count.is_some_and(|n| n <= MAX_ELEMENTS) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::OutOfMemory, format!("{self} has more elements than any memory holds")))
    }

    /// Whether no dimension becomes negative by these values, which [`Shape::bind`] makes 0.
    ///
    /// # Errors
    /// [`ErrorKind::Dimension`] naming the dimension.
    pub fn check_binding(&self, binding: &DimBinding) -> Result<()> {
        let negative = |d: &&Dim| matches!(d.extent().bind(binding), Extent::Const(c) if c < 0);
        // Sizes and values of symbols are not negative.
        let made = self.dims.iter().filter(|d| matches!(d, Dim::Expr(_)));
        let Some(dim) = { made }.find(negative) else { return Ok(()) };
        let message = format!("dimension {dim} of {self} would be {}", dim.extent().bind(binding));
        Err(Error::new(ErrorKind::Dimension, message))
    }

    /// Puts the bound symbols' values in; symbols that are bound but not used are ignored, and what would be negative is 0
    /// (see [`Shape::check_binding`]).
    pub fn bind(&self, binding: &DimBinding) -> Shape {
        if self.is_static() {
            return self.clone();
        }
        Shape { dims: self.dims.iter().map(|d| d.bind(binding)).collect(), dtype: self.dtype }
    }

    /// `axis` counted from the end when negative, checked against the rank.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] when it is outside `-rank..rank`.
    pub fn axis(&self, axis: i64) -> Result<usize> {
        normalize_axis(axis, self.rank())
            .map_err(|e| Error::new(ErrorKind::Shape, format!("{} of shape {self}", e.message())))
    }
}

/// `axis` counted from the end when negative, checked against `rank`.
///
/// # Errors
/// [`ErrorKind::Shape`] when it is outside `-rank..rank`.
pub fn normalize_axis(axis: i64, rank: usize) -> Result<usize> {
    let shifted = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
    shifted
        .and_then(|a| usize::try_from(a).ok())
        .filter(|&a| a < rank)
        .ok_or_else(|| Error::new(ErrorKind::Shape, format!("axis {axis} is outside the {rank} dimensions")))
}

/// The dimension two broadcast dimensions make, by NumPy's rule.
///
/// Different symbols may still agree at run time, or one of them be 1, which the run checks: the result is then their
/// maximum, or 0 where one of them is 0. A symbol against a fixed size above 1 gives the fixed size.
pub fn broadcast_dim(a: Dim, b: Dim) -> Option<Dim> {
    match (a, b) {
        _ if a == b => Some(a),
        (Dim::Static(1), other) | (other, Dim::Static(1)) => Some(other),
        (Dim::Static(_), Dim::Static(_)) => None,
        (fixed @ Dim::Static(_), _) | (_, fixed @ Dim::Static(_)) => Some(fixed),
        _ => Some(Dim::from(a.extent().broadcast(b.extent()))),
    }
}

/// The dimension that two dimensions which must be equal have; `None` when they are known to differ.
///
/// Different symbols may still agree at run time, which the run checks.
pub(crate) fn agreed_dim(a: Dim, b: Dim) -> Option<Dim> {
    match (a, b) {
        (Dim::Static(x), Dim::Static(y)) if x != y => None,
        (_, Dim::Static(_)) => Some(b),
        _ => Some(a),
    }
}

/// Whether `shapes` broadcast to `to` whatever values their symbols take: aligned from the right, each dimension is 1 or
/// the same expression as that of `to`.
pub(crate) fn always_broadcasts(shapes: &[&Shape], to: &[Dim]) -> bool {
    shapes.iter().all(|s| {
        to.len().checked_sub(s.rank()).is_some_and(|skip| {
            s.dims().iter().zip(&to[skip..]).all(|(&d, &t)| d == Dim::Static(1) || d == t)
        })
    })
}

/// The shape that `shapes` broadcast to, by NumPy's rule. Mostly they have the same dimensions, whose memory is shared then.
///
/// # Errors
/// As [`broadcast`].
pub(crate) fn broadcast_shape(shapes: &[&Shape], dtype: DType) -> Result<Shape> {
    match shapes.split_first() {
        Some((first, others)) if others.iter().all(|s| s.dims == first.dims) => Ok(first.with_dtype(dtype)),
        _ => Ok(Shape::from_dims(&broadcast(shapes)?, dtype)),
    }
}

/// Whether `shapes` broadcast together whatever values their symbols take.
pub(crate) fn always_broadcast_together(shapes: &[&Shape]) -> bool {
    broadcast_shape(shapes, DType::Bool).is_ok_and(|to| always_broadcasts(shapes, to.dims()))
}

/// The dimensions `shapes` broadcast to, by NumPy's rule (trailing dimensions align).
///
/// # Errors
/// [`ErrorKind::Shape`] naming both shapes.
pub fn broadcast(shapes: &[&Shape]) -> Result<Vec<Dim>> {
    let rank = shapes.iter().map(|s| s.rank()).max().unwrap_or(0);
    let mut dims = vec![Dim::Static(1); rank];
    for shape in shapes {
        let skip = rank - shape.rank();
        for (slot, &d) in dims[skip..].iter_mut().zip(shape.dims()) {
            *slot = broadcast_dim(*slot, d).ok_or_else(|| {
                let all: Vec<String> = shapes.iter().map(|s| s.to_string()).collect();
                Error::new(ErrorKind::Shape, format!("cannot broadcast {} together", all.join(" with ")))
                    .with_hint("aligned from the right, dimensions must be equal or one of them 1")
            })?;
        }
    }
    Ok(dims)
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, d) in self.dims.iter().enumerate() {
            write!(f, "{}{d}", if i == 0 { "" } else { ", " })?;
        }
        write!(f, "] {}", self.dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dim::sym;

    #[test]
    fn symbols_broadcast_as_their_values_do() {
        let (b, s) = (Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ));
        let made = broadcast_dim(b, s).unwrap().extent();
        for (x, y) in [(0, 1), (1, 0), (0, 0), (1, 1), (1, 7), (7, 1), (7, 7)] {
            let want = broadcast_dim(Dim::Static(x), Dim::Static(y)).and_then(Dim::as_static);
            let value = |symbol| Some(if symbol == sym::BATCH { x } else { y } as i64);
            assert_eq!(made.eval(&value), want.map(|n| n as i64), "{x} with {y}");
        }
    }

    #[test]
    fn broadcasting_follows_numpy() {
        let f = |d: &[usize]| Shape::new(d, DType::F32);
        let ok = broadcast(&[&f(&[8, 1, 6]), &f(&[7, 1])]).unwrap();
        assert_eq!(ok, [8, 7, 6].map(Dim::Static));
        let e = broadcast(&[&f(&[2, 3]), &f(&[4])]).unwrap_err();
        assert!(e.to_string().contains("[2, 3] f32 with [4] f32"));
        let b = Dim::Dynamic(sym::BATCH);
        assert_eq!(broadcast_dim(b, Dim::Static(1)), Some(b));
        assert_eq!(broadcast_dim(b, Dim::Static(4)), Some(Dim::Static(4)));
    }

    #[test]
    fn axes_count_from_either_end() {
        let s = Shape::new(&[2, 3], DType::F32);
        assert_eq!(s.axis(-1).unwrap(), 1);
        assert!(s.axis(2).unwrap_err().to_string().contains("[2, 3] f32"));
    }

    #[test]
    fn binding_makes_shapes_static() {
        let s = Shape::from_dims(&[Dim::Dynamic(sym::BATCH), Dim::Static(3)], DType::F16);
        let bound = s.bind(&DimBinding::batch_seq(2, 9));
        assert_eq!(bound, Shape::new(&[2, 3], DType::F16));
        assert_eq!(bound.size_bytes(), Some(12));
    }
}
