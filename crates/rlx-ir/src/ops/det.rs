//! Determinants.

use smallvec::smallvec;

use crate::error::{Error, ErrorKind, Result};
use crate::ops::def::{Arity, OpDef, Ranges};
use crate::ops::elementwise::{Takes, static_dims};
use crate::ops::{Op, OpKind};
use crate::shape::{Shape, Shapes, agreed_dim};
use crate::tensor::Value;

#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

/// [`Op::Det`].
pub struct DetDef;

/// The determinant by Gaussian elimination, the largest element of each column as its pivot.
fn determinant(mut m: Vec<f64>, n: usize) -> f64 {
    let mut det = 1.0;
    for column in 0..n {
        let size = |row: usize| m[row * n + column].abs();
        let pivot = (column + 1..n).fold(column, |best, row| if size(row) > size(best) { row } else { best });
        if pivot != column {
            (0..n).for_each(|i| m.swap(pivot * n + i, column * n + i));
            det = -det;
        }
        let top = m[column * n + column];
        det *= top;
        if top == 0.0 {
            return if det.is_nan() { det } else { 0.0 };
        }
        for row in column + 1..n {
            let factor = m[row * n + column] / top;
            for i in column..n {
                m[row * n + i] -= factor * m[column * n + i];
            }
        }
    }
    det
}

impl OpDef for DetDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, _: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        let x = inputs[0];
        Takes::Floats.check(OpKind::Det, x)?;
        let [front @ .., rows, columns] = x.dims() else {
            return Err(Error::new(ErrorKind::Shape, format!("Det of {x}, which has no matrices")));
        };
        if agreed_dim(*rows, *columns).is_none() {
            return Err(Error::new(ErrorKind::Shape, format!("Det of {x}, whose matrices are not square")));
        }
        Ok(smallvec![x.with_dims(front.to_vec())])
    }

    fn holds_for_all(&self, _: &Op, inputs: &[&Shape], _: Ranges<'_>) -> bool {
        matches!(inputs[0].dims(), [.., rows, columns] if rows == columns)
    }

    fn reference(&self, _: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        let (x, dims) = (inputs[0], static_dims(&results[0])?);
        let n = x.dims.last().copied().unwrap_or(0);
        let values = x.floats()?;
        let count: usize = dims.iter().product();
        let found = (0..count).map(|i| determinant(values[i * n * n..(i + 1) * n * n].to_vec(), n)).collect();
        Ok(vec![Value::float(x.dtype, &dims, found)])
    }

    fn flops(&self, _: &Op, inputs: &[&Shape], _: &[Shape]) -> f64 {
        let elements = inputs[0].num_elements().unwrap_or(0) as f64;
        let n = inputs[0].dims().last().and_then(|d| d.as_static()).unwrap_or(1) as f64;
        elements * n * 2.0 / 3.0
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let n = g.size(0..=5);
        let mut dims = g.dims(0..=2, 0..=3);
        dims.extend([n, n]);
        let dtype = g.dtype_where(|d| d.is_float());
        Case::new(Op::Det, vec![g.value(dtype, &dims, -1.0..1.0)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn determinants_by_hand() {
        assert_eq!(determinant(vec![], 0), 1.0);
        assert_eq!(determinant(vec![0.0, 2.0, 3.0, 0.0], 2), -6.0);
        assert_eq!(determinant(vec![2.0, 0.0, 1.0, 0.0, 4.0, 0.0, 1.0, 0.0, 2.0], 3), 12.0);
        assert_eq!(determinant(vec![1.0, 2.0, 2.0, 4.0], 2), 0.0);
    }
}
