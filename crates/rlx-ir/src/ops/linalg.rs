//! Matmuls.

use smallvec::smallvec;

use crate::dim::{Dim, Extent};
use crate::dtype::DTypeClass;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, NodeId};
use crate::ops::def::{Arity, OpDef, Ranges, dtype_error};
use crate::ops::elementwise::{Takes, same_dtype};
use crate::ops::{Op, OpKind, attrs};
use crate::oracle::{broadcast_offsets, strided_offsets, strides};
use crate::shape::{Shape, Shapes, agreed_dim, always_broadcasts, broadcast};
use crate::tensor::{Elements, Value};

#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

/// [`Op::MatMul`].
pub struct MatMulDef;

/// Whether two inner dimensions may be multiplied: equal, or not both known.
fn inner_fits(a: Dim, b: Dim) -> bool {
    a == b || !(a.is_static() && b.is_static())
}

/// A matmul seen as batches of `m×k · k×n`, vectors made into matrices.
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
        let shape_mismatch = || {
            Error::new(ErrorKind::Shape, format!("cannot multiply {a} by {b}"))
                .with_hint("the last dimension of the left must equal the last but one of the right")
        };
        if a.rank() == 0 || b.rank() == 0 {
            return Err(shape_mismatch());
        }
        let (a_is_vector, b_is_vector) = (a.rank() == 1, b.rank() == 1);
        let k = a.dim(a.rank() - 1);
        let b_k = b.dim(b.rank().saturating_sub(2));
        if !inner_fits(k, b_k) {
            return Err(shape_mismatch());
        }
        let lead = |s: &Shape| s.with_dims(s.dims()[..s.rank().saturating_sub(2)].to_vec());
        let batch = broadcast(&[&lead(a), &lead(b)]).map_err(|_| shape_mismatch())?;
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

/// Adds the matmul of an `m×k` and a `k×n` matrix to `out`, row by row.
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

/// The matmuls of all batches; `places` says where each batch's matrices are.
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

    fn infer(&self, _: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
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
        Ok(smallvec![Shape::from_dims(&MatMulDims::of(a, b)?.result(), a.dtype())])
    }

    fn holds_for_all(&self, _: &Op, inputs: &[&Shape], _: Ranges<'_>) -> bool {
        let (a, b) = (inputs[0], inputs[1]);
        let lead = |s: &Shape| s.with_dims(s.dims()[..s.rank().saturating_sub(2)].to_vec());
        let inner_agrees = a.dims().last() == b.dims().get(b.rank().saturating_sub(2));
        inner_agrees && MatMulDims::of(a, b).is_ok_and(|d| always_broadcasts(&[&lead(a), &lead(b)], &d.batch))
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

/// [`Op::DotGeneral`].
pub struct DotGeneralDef;

/// One operand's dimensions by what becomes of them.
#[derive(Debug, Clone, PartialEq)]
struct Roles {
    batch: Vec<usize>,
    free: Vec<usize>,
    contract: Vec<usize>,
}

impl Roles {
    fn of(x: &Shape, batch: &[usize], contract: &[usize]) -> Result<Roles> {
        let mut seen = vec![false; x.rank()];
        for &axis in batch.iter().chain(contract) {
            match seen.get_mut(axis) {
                Some(seen) if !*seen => *seen = true,
                _ => {
                    let message = format!("DotGeneral of {x}: axis {axis} is not there or named twice");
                    return Err(Error::new(ErrorKind::Shape, message));
                }
            }
        }
        let free = (0..x.rank()).filter(|&i| !seen[i]).collect();
        Ok(Roles { batch: batch.to_vec(), free, contract: contract.to_vec() })
    }

    /// Both operands' dimensions.
    fn both(op: &Op, a: &Shape, b: &Shape) -> Result<(Roles, Roles)> {
        attrs!(op => DotGeneral { lhs_contract, rhs_contract, lhs_batch, rhs_batch });
        Ok((Roles::of(a, lhs_batch, lhs_contract)?, Roles::of(b, rhs_batch, rhs_contract)?))
    }

    /// For each index of these dimensions, its offset in a tensor.
    fn offsets(axes: &[usize], x: &Value) -> Vec<usize> {
        let own = strides(&x.dims);
        let (sizes, steps): (Vec<usize>, Vec<i64>) = axes.iter().map(|&i| (x.dims[i], own[i])).unzip();
        strided_offsets(&sizes, 0, &steps)
    }
}

impl OpDef for DotGeneralDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(2)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        let (a, b) = (inputs[0], inputs[1]);
        Takes::Numbers.check(OpKind::DotGeneral, a)?;
        same_dtype(OpKind::DotGeneral, a, b)?;
        let (of_a, of_b) = Roles::both(op, a, b)?;
        let shape_mismatch = |what: &str| {
            Error::new(ErrorKind::Shape, format!("DotGeneral of {a} with {b}: the {what} do not pair up"))
        };
        let paired = |x: &[usize], y: &[usize], what: &str| -> Result<Vec<Dim>> {
            if x.len() != y.len() {
                return Err(shape_mismatch(what));
            }
            let agree = |(&i, &j): (&usize, &usize)| {
                agreed_dim(a.dim(i), b.dim(j)).ok_or_else(|| shape_mismatch(what))
            };
            x.iter().zip(y).map(agree).collect()
        };
        paired(&of_a.contract, &of_b.contract, "dimensions to sum over")?;
        let mut dims = paired(&of_a.batch, &of_b.batch, "batch dimensions")?;
        dims.extend(of_a.free.iter().map(|&i| a.dim(i)));
        dims.extend(of_b.free.iter().map(|&i| b.dim(i)));
        Ok(smallvec![a.with_dims(dims)])
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        let (a, b) = (inputs[0], inputs[1]);
        let (of_a, of_b) = Roles::both(op, &a.shape(), &b.shape())?;
        // The places of the two factors of each term of each result's sum.
        let rows = (Roles::offsets(&of_a.free, a), Roles::offsets(&of_b.free, b));
        let terms = (Roles::offsets(&of_a.contract, a), Roles::offsets(&of_b.contract, b));
        let batches = Roles::offsets(&of_a.batch, a).into_iter().zip(Roles::offsets(&of_b.batch, b));
        let mut places = Vec::new();
        for (batch_a, batch_b) in batches {
            for row in &rows.0 {
                places.extend(rows.1.iter().map(|column| (batch_a + row, batch_b + column)));
            }
        }
        let steps = || terms.0.iter().zip(&terms.1);
        let dims = results[0].static_dims().unwrap_or_default();
        Ok(vec![match (&a.elements, &b.elements) {
            (Elements::Int(x), Elements::Int(y)) => {
                let sum = |&(i, j): &(usize, usize)| {
                    steps().fold(0i128, |sum, (p, q)| sum.wrapping_add(x[i + p].wrapping_mul(y[j + q])))
                };
                Value::int(a.dtype, &dims, places.iter().map(sum).collect())
            }
            _ => {
                let (x, y) = (a.floats()?, b.floats()?);
                let sum =
                    |&(i, j): &(usize, usize)| steps().fold(0.0, |sum, (p, q)| sum + x[i + p] * y[j + q]);
                Value::float(a.dtype, &dims, places.iter().map(sum).collect())
            }
        }])
    }

    fn decompose(&self, op: &Op, inputs: &[NodeId], graph: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        Some(decompose_dot(op, inputs[0], inputs[1], graph))
    }

    fn flops(&self, op: &Op, inputs: &[&Shape], results: &[Shape]) -> f64 {
        let Op::DotGeneral { lhs_contract, .. } = op else { return 0.0 };
        let size = |&i: &usize| inputs[0].dims().get(i).and_then(|d| d.as_static()).unwrap_or(0) as f64;
        2.0 * lhs_contract.iter().map(size).product::<f64>() * results[0].num_elements().unwrap_or(0) as f64
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let shared = (g.dims(0..=2, 1..=4), g.dims(0..=2, 1..=4));
        let dtype = g.dtype_where(|d| Takes::Numbers.accepts(d));
        let mut operand = || {
            let mut sizes = [shared.0.clone(), shared.1.clone()].concat();
            sizes.extend(g.dims(0..=2, 1..=4));
            let mut order: Vec<usize> = (0..sizes.len()).collect();
            g.shuffle(&mut order);
            let dims: Vec<usize> = order.iter().map(|&i| sizes[i]).collect();
            let axis_of = |i: usize| order.iter().position(|&o| o == i).unwrap_or(0);
            let paired = shared.0.len() + shared.1.len();
            let batch: Vec<usize> = (0..shared.0.len()).map(axis_of).collect();
            let contract: Vec<usize> = (shared.0.len()..paired).map(axis_of).collect();
            (g.value(dtype, &dims, -1.0..1.0), batch, contract)
        };
        let ((a, lhs_batch, lhs_contract), (b, rhs_batch, rhs_contract)) = (operand(), operand());
        Case::new(Op::DotGeneral { lhs_contract, rhs_contract, lhs_batch, rhs_batch }, vec![a, b])
    }
}

/// Both operands as batches of matrices, multiplied.
fn decompose_dot(op: &Op, a: NodeId, b: NodeId, graph: &mut Graph) -> Result<Vec<NodeId>> {
    let (a_shape, b_shape) = (graph.try_node(a)?.shape.clone(), graph.try_node(b)?.shape.clone());
    let result = crate::ops::def::infer(op, &[&a_shape, &b_shape], &[])?.remove(0);
    let (of_a, of_b) = Roles::both(op, &a_shape, &b_shape)?;
    let mut matrices = |x: NodeId, shape: &Shape, batch: &[usize], rows: &[usize], columns: &[usize]| {
        let perm = [batch, rows, columns].concat();
        let x = graph.try_add(Op::Transpose { perm }, &[x])?;
        let joined =
            |axes: &[usize]| Dim::from(axes.iter().fold(Extent::Const(1), |n, &i| n * shape.dim(i).extent()));
        let mut to: Vec<Dim> = batch.iter().map(|&i| shape.dim(i)).collect();
        to.extend([joined(rows), joined(columns)]);
        graph.try_add(Op::Reshape { to }, &[x])
    };
    let a = matrices(a, &a_shape, &of_a.batch, &of_a.free, &of_a.contract)?;
    let b = matrices(b, &b_shape, &of_b.batch, &of_b.contract, &of_b.free)?;
    let product = graph.try_add(Op::MatMul, &[a, b])?;
    Ok(vec![graph.try_add(Op::Reshape { to: result.dims().to_vec() }, &[product])?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::evaluate_op;
    use crate::{DType, sym};

    #[test]
    fn a_dot_of_symbolic_batches_keeps_its_symbols() {
        let (batch, seq) = (Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ));
        let a = Shape::from_dims(&[seq, batch, Dim::Static(8)], DType::F32);
        let b = Shape::from_dims(&[batch, Dim::Static(3), Dim::Static(8)], DType::F32);
        let op = Op::DotGeneral {
            lhs_contract: vec![2],
            rhs_contract: vec![2],
            lhs_batch: vec![1],
            rhs_batch: vec![0],
        };
        let shape = DotGeneralDef.infer(&op, &[&a, &b], &[]).unwrap().remove(0);
        assert_eq!(shape.to_string(), "[batch, seq, 3] f32");
        let mut graph = Graph::new("dot");
        let (x, y) = (graph.input("a", a), graph.input("b", b));
        let out = decompose_dot(&op, x, y, &mut graph).unwrap();
        assert_eq!(graph.shape(out[0]).to_string(), "[batch, seq, 3] f32");
        graph.set_outputs(out);
        crate::verify_ok(&graph).unwrap();
    }

    #[test]
    fn axes_that_do_not_pair_up_are_rejected() {
        let x = Shape::new(&[2, 3], DType::F32);
        let reject = |lhs: Vec<usize>, rhs: Vec<usize>| {
            let op =
                Op::DotGeneral { lhs_contract: lhs, rhs_contract: rhs, lhs_batch: vec![], rhs_batch: vec![] };
            DotGeneralDef.infer(&op, &[&x, &x], &[]).is_err()
        };
        assert!(reject(vec![0], vec![1]) && reject(vec![0], vec![]) && reject(vec![0, 0], vec![0, 0]));
        assert!(reject(vec![2], vec![2]) && !reject(vec![1], vec![1]));
    }

    #[test]
    fn wide_unsigned_products_wrap() {
        let x = Value::int(DType::U64, &[1, 2], vec![i128::from(u64::MAX), 3]);
        let y = Value::int(DType::U64, &[2, 1], vec![i128::from(u64::MAX), 5]);
        assert_eq!(evaluate_op(&Op::MatMul, &[&x, &y], &[]).unwrap()[0].ints().unwrap(), [16]);
    }
}
