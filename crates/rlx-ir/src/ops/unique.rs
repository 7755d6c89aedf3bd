//! Distinct rows of a matrix.

use std::cmp::Ordering;

use smallvec::smallvec;

use crate::dim::{Dim, Extent};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::data::check_count;
use crate::ops::def::{Arity, OpDef, Ranges};
use crate::ops::elementwise::{Takes, static_dims};
use crate::ops::{Op, OpKind, attrs};
use crate::progress::Progress;
use crate::shape::{Shape, Shapes};
use crate::sort::sort_by;
use crate::tensor::{Elements, Value};

#[cfg(feature = "testing")]
use crate::{
    dim::sym,
    dtype::DTypeClass,
    testing::{Case, Gen},
};

/// [`Op::Unique`].
pub struct UniqueDef;

/// The order of two rows: that of their first elements that differ. NaN is greater than any number, and equal to NaN.
fn compare(x: &Value, a: usize, b: usize) -> Ordering {
    let width = x.dims[1];
    let order = |i: usize| match &x.elements {
        Elements::Float(v) => {
            let (a, b) = (v[a * width + i], v[b * width + i]);
            a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
        }
        Elements::Int(v) => v[a * width + i].cmp(&v[b * width + i]),
    };
    (0..width).map(order).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
}

/// The distinct rows, each as the list of where it is.
fn groups(x: &Value, sorted: bool) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..x.dims[0]).collect();
    // A stable sort keeps equal rows in the order of their places.
    sort_by(&mut order, |&a, &b| compare(x, a, b));
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for row in order {
        match groups.last_mut() {
            Some(group) if compare(x, group[0], row).is_eq() => group.push(row),
            _ => groups.push(vec![row]),
        }
    }
    if !sorted {
        sort_by(&mut groups, |a, b| a[0].cmp(&b[0]));
    }
    groups
}

impl OpDef for UniqueDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Unique { count });
        let x = inputs[0];
        Takes::NumbersAndBools.check(OpKind::Unique, x)?;
        if x.rank() != 2 {
            return Err(Error::new(ErrorKind::Shape, format!("Unique of {x}, which is no matrix of rows")));
        }
        check_count(OpKind::Unique, *count)?;
        let list = |dim: Dim| Shape::from_dims(&[dim], DType::I64);
        Ok(smallvec![list(*count), list(x.dim(0)), list(*count)])
    }

    fn holds_for_all(&self, _: &Op, _: &[&Shape], _: Ranges<'_>) -> bool {
        true
    }

    fn counted(&self, op: &Op) -> Option<Dim> {
        let Op::Unique { count, .. } = op else { return None };
        Some(*count)
    }

    fn count(&self, op: &Op, inputs: &[&Value], _: &Progress) -> Result<usize> {
        attrs!(op => Unique { sorted });
        Ok(groups(inputs[0], *sorted).len())
    }

    fn bound(&self, _: &Op, inputs: &[&Shape]) -> Extent {
        inputs[0].dim(0).extent()
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => Unique { sorted });
        let groups = groups(inputs[0], *sorted);
        let mut which = vec![0; inputs[0].dims[0]];
        for (i, group) in groups.iter().enumerate() {
            group.iter().for_each(|&row| which[row] = i as i128);
        }
        let first = groups.iter().map(|g| g[0] as i128).collect();
        let counts = groups.iter().map(|g| g.len() as i128).collect();
        let lists = [first, which, counts].into_iter().zip(results);
        lists.map(|(list, shape)| Ok(Value::int(DType::I64, &static_dims(shape)?, list))).collect()
    }

    fn flops(&self, _: &Op, inputs: &[&Shape], _: &[Shape]) -> f64 {
        let elements = inputs[0].num_elements().unwrap_or(0) as f64;
        elements * elements.max(2.0).log2()
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dims = [g.size(0..=9), g.size(0..=3)];
        let dtype = g.dtype_where(|d| d.class() != DTypeClass::Complex);
        // Few values, so that some are equal.
        let x = g.value(dtype, &dims, -0.25..0.25);
        Case::new(Op::Unique { count: Dim::Dynamic(sym::named("distinct")), sorted: g.chance(0.5) }, vec![x])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::evaluate_op;

    #[test]
    fn rows_are_found_in_order_of_value_or_of_place() {
        let x = Value::int(DType::I32, &[6, 1], vec![2, 1, 1, 3, 4, 3]);
        let run = |sorted| {
            let op = Op::Unique { count: Dim::Dynamic(crate::dim::sym::named("distinct")), sorted };
            let y = evaluate_op(&op, &[&x], &[]).unwrap();
            y.iter().map(|v| v.ints().unwrap().to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(run(false), [vec![0, 1, 3, 4], vec![0, 1, 1, 2, 3, 2], vec![1, 2, 2, 1]]);
        assert_eq!(run(true), [vec![1, 0, 3, 4], vec![1, 0, 0, 2, 3, 2], vec![2, 1, 2, 1]]);
        let nan = Value::float(DType::F32, &[3, 1], vec![f64::NAN, -1.0, f64::NAN]);
        let op = Op::Unique { count: Dim::Dynamic(crate::dim::sym::named("distinct")), sorted: true };
        assert_eq!(evaluate_op(&op, &[&nan], &[]).unwrap()[1].ints().unwrap(), [1, 0, 1]);
    }

    #[test]
    fn rows_of_nothing_may_be_too_many_to_be_counted() {
        let op = Op::Unique { count: Dim::Dynamic(crate::dim::sym::named("distinct")), sorted: true };
        let run =
            |rows| evaluate_op(&op, &[&Value::empty(&Shape::new(&[rows, 0], DType::I32)).unwrap()], &[]);
        assert_eq!(run(3).unwrap()[2].ints().unwrap(), [3]);
        assert_eq!(run(1 << 40).unwrap_err().kind(), ErrorKind::OutOfMemory);
    }
}
