//! Integer tensors whose elements are known while importing, as numbers or as expressions over dimensions.
//!
//! Exporters compute shapes with ordinary ops: `Shape → Gather → Concat → Reshape`. Carrying such small tensors as
//! [`Extent`]s recovers the shape they compute (the target `[batch, seq, 12, 64]`), and none of these nodes
//! reaches the graph.

use super::slot::MOST_DIMS;
use rlx_ir::{ConstData, DType, Extent, Shape, SymRange, Value};

/// Larger tensors are data, not shapes.
pub(crate) const MOST_ELEMENTS: usize = 4096;

/// A small tensor of integers or truth values, every element known.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Known {
    pub dtype: DType,
    pub dims: Vec<usize>,
    pub values: Vec<Extent>,
}

impl Known {
    /// `None` when a number does not fit the type (the op would wrap around) or there are too many elements.
    pub fn new(dtype: DType, dims: Vec<usize>, values: Vec<Extent>) -> Option<Known> {
        let (min, max) = dtype.int_range()?;
        let fits = |v: &Extent| v.as_const().is_none_or(|c| (min..=max).contains(&i128::from(c)));
        let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        let whole = count == Some(values.len()) && values.len() <= MOST_ELEMENTS && dims.len() <= MOST_DIMS;
        // No elements, but other dimensions of any size.
        Shape::new(&dims, dtype).check_size().ok()?;
        (whole && values.iter().all(fits)).then_some(Known { dtype, dims, values })
    }

    /// A vector of i64, the type shapes have.
    pub fn vector(values: Vec<Extent>) -> Option<Known> {
        Known::new(DType::I64, vec![values.len()], values)
    }

    /// A tensor of numbers, when it is small, of an integer type, and its values fit i64.
    pub fn from_const(data: &ConstData) -> Option<Known> {
        if data.num_elements() > MOST_ELEMENTS || data.dtype().int_range().is_none() {
            return None;
        }
        let value = data.value();
        let numbers = value.ints().ok()?.iter().map(|&v| i64::try_from(v).ok().map(Extent::Const));
        Known::new(data.dtype(), data.dims().to_vec(), numbers.collect::<Option<_>>()?)
    }

    /// The numbers, when no element is symbolic.
    pub fn numbers(&self) -> Option<Vec<i64>> {
        self.values.iter().map(|v| v.as_const()).collect()
    }

    /// The tensor as stored data, when no element is symbolic.
    pub fn to_const(&self) -> Option<ConstData> {
        let numbers = self.numbers()?.into_iter().map(i128::from).collect();
        Some(Value::int(self.dtype, &self.dims, numbers).to_const())
    }

    /// The elements at these flat positions.
    pub fn pick(&self, dims: Vec<usize>, at: impl IntoIterator<Item = usize>) -> Option<Known> {
        let values = at.into_iter().map(|i| self.values.get(i).copied()).collect::<Option<_>>()?;
        Known::new(self.dtype, dims, values)
    }

    /// The same elements with other dimensions.
    pub fn with_dims(&self, dims: Vec<usize>) -> Option<Known> {
        Known::new(self.dtype, dims, self.values.clone())
    }

    /// Broadcast to larger dimensions by NumPy's rule; `None` when it does not fit.
    pub fn broadcast_to(&self, dims: &[usize]) -> Option<Known> {
        let lead = dims.len().checked_sub(self.dims.len())?;
        let fits = self.dims.iter().zip(&dims[lead..]).all(|(&a, &b)| a == b || a == 1);
        let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
        if !fits || count > MOST_ELEMENTS {
            return None;
        }
        let position = |mut flat: usize| {
            let (mut at, mut stride) = (0, 1);
            for (axis, &extent) in dims.iter().enumerate().rev() {
                let index = flat % extent;
                flat /= extent;
                if axis >= lead {
                    let own = self.dims[axis - lead];
                    at += if own == 1 { 0 } else { index * stride };
                    stride *= own;
                }
            }
            at
        };
        self.pick(dims.to_vec(), (0..count).map(position))
    }
}

/// The dimensions two known tensors broadcast to.
pub(crate) fn broadcast_dims(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let at = |dims: &[usize], i: usize| (i + dims.len()).checked_sub(rank).map_or(1, |i| dims[i]);
    let join = |i: usize| match (at(a, i), at(b, i)) {
        (x, y) if x == y => Some(x),
        (1, x) | (x, 1) => Some(x),
        _ => None,
    };
    (0..rank).map(join).collect()
}

/// The known range of an expression over dimensions, each of which is at least 0.
pub(crate) fn range(e: Extent) -> SymRange {
    e.range(&|_| SymRange::DIM)
}

/// Whether two expressions are equal, when that is certain.
pub(crate) fn equal(a: Extent, b: Extent) -> Option<bool> {
    if a.is_too_large() || b.is_too_large() {
        return None;
    }
    let distance = a.distance(b, &|_| SymRange::DIM);
    if a == b { Some(true) } else { (distance.min > 0 || distance.max < 0).then_some(false) }
}

/// Whether `a < b`, when that is certain.
pub(crate) fn less(a: Extent, b: Extent) -> Option<bool> {
    let range = a.distance(b, &|_| SymRange::DIM);
    if range.max < 0 {
        Some(true)
    } else if range.min >= 0 {
        Some(false)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlx_ir::sym;

    #[test]
    fn broadcasts_as_numpy_does() {
        let c = |v: &[i64]| v.iter().map(|&x| Extent::Const(x)).collect::<Vec<_>>();
        let column = Known::new(DType::I64, vec![2, 1], c(&[1, 2])).unwrap();
        let wide = column.broadcast_to(&[2, 2, 3]).unwrap();
        assert_eq!(wide.numbers().unwrap(), [1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2]);
        assert_eq!(column.broadcast_to(&[3, 3]), None);
        assert_eq!(broadcast_dims(&[2, 1], &[3]), Some(vec![2, 3]));
        assert_eq!(broadcast_dims(&[2], &[3]), None);
    }

    #[test]
    fn comparisons_are_answered_only_when_certain() {
        let s = Extent::sym(sym::SEQ);
        assert_eq!(equal(s, Extent::Const(-1)), Some(false));
        assert_eq!(equal(s, Extent::Const(1)), None);
        assert_eq!(equal(s + 1, s + 1), Some(true));
        assert_eq!(less(s, Extent::Const(0)), Some(false));
        assert_eq!(less(Extent::Const(-1), s), Some(true));
    }

    #[test]
    fn numbers_outside_the_type_are_not_known() {
        assert_eq!(Known::new(DType::U8, vec![1], vec![Extent::Const(256)]), None);
        assert_eq!(Known::new(DType::I64, vec![2], vec![Extent::Const(1)]), None);
    }
}
