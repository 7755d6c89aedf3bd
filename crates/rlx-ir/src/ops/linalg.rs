//! Matrix products.

use crate::dim::Dim;
use crate::dtype::DTypeClass;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::def::{Arity, OpDef, dtype_error};
use crate::ops::{Op, OpKind};
use crate::oracle::broadcast_offsets;
use crate::shape::{Shape, broadcast};
use crate::tensor::{Elements, Value};

#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

/// [`Op::MatMul`].
pub struct MatMulDef;

/// Whether two inner dimensions may be multiplied: equal, or not both known.
fn inner_fits(a: Dim, b: Dim) -> bool {
    a == b || !(a.is_static() && b.is_static())
}

/// A matrix product seen as batches of `m×k · k×n`, vectors made into matrices.
#[derive(Debug, Clone, PartialEq)]
pub struct MatMulDims {
    /// The broadcast leading dimensions.
    pub batch: Vec<Dim>,
    /// Rows of the left matrix; 1 when it is a vector.
    pub m: Dim,
    /// The dimension summed over.
    pub k: Dim,
    /// Columns of the right matrix; 1 when it is a vector.
    pub n: Dim,
    /// Whether the left operand is a vector: the result then has no row dimension.
    pub a_is_vector: bool,
    /// Whether the right operand is a vector: the result then has no column dimension.
    pub b_is_vector: bool,
}

impl MatMulDims {
    /// The dimensions of `a · b` by NumPy's rules.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] naming both shapes.
    pub fn of(a: &Shape, b: &Shape) -> Result<MatMulDims> {
        let misfit = || {
            Error::new(ErrorKind::Shape, format!("cannot multiply {a} by {b}"))
                .with_hint("the last dimension of the left must equal the last but one of the right")
        };
        if a.rank() == 0 || b.rank() == 0 {
            return Err(misfit());
        }
        let (a_is_vector, b_is_vector) = (a.rank() == 1, b.rank() == 1);
        let k = a.dim(a.rank() - 1);
        let b_k = b.dim(b.rank().saturating_sub(2));
        if !inner_fits(k, b_k) {
            return Err(misfit());
        }
        let lead = |s: &Shape| s.with_dims(s.dims()[..s.rank().saturating_sub(2)].to_vec());
        let batch = broadcast(&[&lead(a), &lead(b)]).map_err(|_| misfit())?;
        let one = Dim::Static(1);
        let m = if a_is_vector { one } else { a.dim(a.rank() - 2) };
        let n = if b_is_vector { one } else { b.dim(b.rank() - 1) };
        let k = if k.is_static() { k } else { b_k };
        Ok(MatMulDims { batch, m, k, n, a_is_vector, b_is_vector })
    }

    /// The result's dimensions.
    pub fn result(&self) -> Vec<Dim> {
        let mut dims = self.batch.clone();
        if !self.a_is_vector {
            dims.push(self.m);
        }
        if !self.b_is_vector {
            dims.push(self.n);
        }
        dims
    }
}

/// Adds the product of an `m×k` and a `k×n` matrix to `out`, row by row.
fn add_product<T: Copy>(
    out: &mut [T],
    (a, b): (&[T], &[T]),
    (m, k, n): (usize, usize, usize),
    fma: impl Fn(T, T, T) -> T,
) {
    for row in 0..m {
        let sums = &mut out[row * n..(row + 1) * n];
        for i in 0..k {
            let (factor, b_row) = (a[row * k + i], &b[i * n..(i + 1) * n]);
            sums.iter_mut().zip(b_row).for_each(|(sum, &y)| *sum = fma(*sum, factor, y));
        }
    }
}

/// The products of all batches; `places` says where each batch's matrices are.
fn products<T: Copy>(
    (a, b): (&[T], &[T]),
    places: &[(usize, usize)],
    (m, k, n): (usize, usize, usize),
    zero: T,
    fma: impl Fn(T, T, T) -> T,
) -> Vec<T> {
    let mut out = vec![zero; places.len() * m * n];
    for (batch, &(i, j)) in places.iter().enumerate() {
        let (a, b) = (&a[i * m * k..(i + 1) * m * k], &b[j * k * n..(j + 1) * k * n]);
        add_product(&mut out[batch * m * n..(batch + 1) * m * n], (a, b), (m, k, n), &fma);
    }
    out
}

impl OpDef for MatMulDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(2)
    }

    fn infer(&self, _: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Vec<Shape>> {
        let (a, b) = (inputs[0], inputs[1]);
        for s in inputs {
            if matches!(s.dtype().class(), DTypeClass::Bool | DTypeClass::Complex) {
                return Err(dtype_error(OpKind::MatMul, s, "numbers"));
            }
        }
        if a.dtype() != b.dtype() {
            let message = format!("cannot multiply {a} by {b}: element types differ");
            return Err(Error::new(ErrorKind::DType, message).with_hint("insert a Cast"));
        }
        Ok(vec![Shape::from_dims(&MatMulDims::of(a, b)?.result(), a.dtype())])
    }

    fn reference(&self, _: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        let (a, b) = (inputs[0], inputs[1]);
        let d = MatMulDims::of(&a.shape(), &b.shape())?;
        let fixed = |dim: Dim| dim.as_static().unwrap_or(0);
        let (m, k, n) = (fixed(d.m), fixed(d.k), fixed(d.n));
        let batch: Vec<usize> = d.batch.iter().map(|&x| fixed(x)).collect();
        let lead = |v: &Value| v.dims[..v.dims.len().saturating_sub(2)].to_vec();
        let places: Vec<_> = broadcast_offsets(&lead(a), &batch)
            .into_iter()
            .zip(broadcast_offsets(&lead(b), &batch))
            .collect();
        let dims = results[0].static_dims().unwrap_or_default();
        let sizes = (m, k, n);
        Ok(vec![match (&a.elements, &b.elements) {
            (Elements::Int(x), Elements::Int(y)) => {
                // Wrapping keeps the sum right modulo any narrower width.
                let fma = |s: i128, p: i128, q: i128| s.wrapping_add(p.wrapping_mul(q));
                Value::int(a.dtype, &dims, products((x, y), &places, sizes, 0, fma))
            }
            _ => {
                let fma = |s: f64, p: f64, q: f64| s + p * q;
                Value::float(a.dtype, &dims, products((a.floats()?, b.floats()?), &places, sizes, 0.0, fma))
            }
        }])
    }

    fn flops(&self, _: &Op, inputs: &[&Shape], results: &[Shape]) -> f64 {
        let k = inputs[0].dims().last().and_then(|d| d.as_static()).unwrap_or(0);
        2.0 * k as f64 * results[0].num_elements().unwrap_or(0) as f64
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dtype =
            g.dtype_where(|d| !matches!(d.class(), DTypeClass::Bool | DTypeClass::Complex) && d.bits() >= 8);
        let (m, k, n) = (g.size(1..=9), g.size(1..=9), g.size(1..=50));
        let (mut a, mut b) = if g.chance(0.5) { g.broadcast_dims() } else { (vec![], vec![]) };
        a.truncate(2);
        b.truncate(2);
        if a.len() == b.len() && broadcast(&[&Shape::new(&a, dtype), &Shape::new(&b, dtype)]).is_err() {
            b.clone_from(&a);
        }
        a.extend([m, k]);
        b.extend([k, n]);
        if broadcast(&[&Shape::new(&a[..a.len() - 2], dtype), &Shape::new(&b[..b.len() - 2], dtype)]).is_err()
        {
            b = vec![k, n];
        }
        if g.chance(0.1) {
            a = vec![k];
        }
        if g.chance(0.1) {
            b = vec![k];
        }
        Case::new(Op::MatMul, vec![g.value(dtype, &a, -1.0..1.0), g.value(dtype, &b, -1.0..1.0)])
    }
}
