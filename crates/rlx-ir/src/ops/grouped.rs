//! Matmuls of rows with matrices chosen for each row: the experts of a mixture.

use smallvec::smallvec;

use crate::dim::Dim;
use crate::dtype::{DType, DTypeClass};
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, NodeId};
use crate::ops::def::{Arity, OpDef, dtype_error};
use crate::ops::elementwise::{same_dtype, static_dims};
use crate::ops::{Op, OpKind};
use crate::oracle::broadcast_offsets;
use crate::shape::{Shape, Shapes, agreed_dim, broadcast};
use crate::tensor::{Elements, Value};

#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

/// [`Op::GroupedMatMul`].
pub struct GroupedMatMulDef;

/// What a grouped matmul is of: rows `x` `[…, k]`, matrices `w` `[experts, k, n]`, choices `[…]`.
fn result(x: &Shape, w: &Shape, chosen: &Shape) -> Result<Shape> {
    let shape_mismatch = |why: &str| {
        let message = format!("cannot multiply rows of {x} by matrices of {w} chosen by {chosen}: {why}");
        Error::new(ErrorKind::Shape, message)
    };
    if w.rank() != 3 {
        return Err(shape_mismatch("the matrices are [experts, k, n]"));
    }
    let Some((&k, lead)) = x.dims().split_last() else { return Err(shape_mismatch("there are no rows")) };
    agreed_dim(k, w.dim(1))
        .ok_or_else(|| shape_mismatch("a row has not as many elements as a matrix has rows"))?;
    let lead = x.with_dims(lead.to_vec());
    let rows = broadcast(&[&lead, chosen])
        .map_err(|_| shape_mismatch("the rows do not broadcast to the choices"))?;
    if rows.len() != chosen.rank()
        || rows.iter().zip(chosen.dims()).any(|(&a, &b)| agreed_dim(a, b).is_none())
    {
        return Err(shape_mismatch("the rows do not broadcast to the choices"));
    }
    let mut dims: Vec<Dim> = chosen.dims().to_vec();
    dims.push(w.dim(2));
    Ok(x.with_dims(dims))
}

/// The expert that each choice names, counted from the front.
fn experts(chosen: &Value, count: usize) -> Result<Vec<usize>> {
    let place = |&index: &i128| {
        let place = if index < 0 { index + count as i128 } else { index };
        usize::try_from(place).ok().filter(|&e| e < count).ok_or_else(|| {
            Error::new(ErrorKind::Value, format!("expert {index} is out of range: there are {count}"))
        })
    };
    chosen.ints()?.iter().map(place).collect()
}

impl OpDef for GroupedMatMulDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(3)
    }

    fn infer(&self, _: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        let (x, w, chosen) = (inputs[0], inputs[1], inputs[2]);
        if matches!(x.dtype().class(), DTypeClass::Bool | DTypeClass::Complex) {
            return Err(dtype_error(OpKind::GroupedMatMul, x, "numbers"));
        }
        same_dtype(OpKind::GroupedMatMul, x, w)?;
        if !matches!(chosen.dtype(), DType::I32 | DType::I64) {
            return Err(dtype_error(OpKind::GroupedMatMul, chosen, "choices of i32 or i64"));
        }
        Ok(smallvec![result(x, w, chosen)?])
    }

    fn reference(&self, _: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        let (x, w, chosen) = (inputs[0], inputs[1], inputs[2]);
        let dims = static_dims(&results[0])?;
        let (k, n) = (w.dims[1], w.dims[2]);
        // As in the decomposition, matrices without elements are not looked for.
        let experts = if k == 0 { vec![0; chosen.len()] } else { experts(chosen, w.dims[0])? };
        let rows = broadcast_offsets(&x.dims[..x.dims.len() - 1], &chosen.dims);
        let cells = experts.iter().zip(&rows).flat_map(|(&e, &row)| (0..n).map(move |j| (e, row, j)));
        // The places of the factors of term `i` of a cell's sum.
        let factors = |(e, row, j): (usize, usize, usize), i: usize| (row * k + i, (e * k + i) * n + j);
        Ok(vec![match (&x.elements, &w.elements) {
            (Elements::Int(a), Elements::Int(b)) => {
                let sum = |cell| {
                    (0..k)
                        .map(|i| factors(cell, i))
                        .fold(0i128, |s, (p, q)| s.wrapping_add(a[p].wrapping_mul(b[q])))
                };
                Value::int(x.dtype, &dims, cells.map(sum).collect())
            }
            _ => {
                let (a, b) = (x.floats()?, w.floats()?);
                let sum = |cell| (0..k).map(|i| factors(cell, i)).fold(0.0, |s, (p, q)| s + a[p] * b[q]);
                Value::float(x.dtype, &dims, cells.map(sum).collect())
            }
        }])
    }

    /// Every row's own matrix, gathered, and a batch of matmuls of one row each.
    fn decompose(&self, _: &Op, inputs: &[NodeId], graph: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        Some(decompose(inputs, graph))
    }

    fn flops(&self, _: &Op, inputs: &[&Shape], results: &[Shape]) -> f64 {
        let k = inputs[0].dims().last().and_then(|d| d.as_static()).unwrap_or(0);
        2.0 * k as f64 * results[0].num_elements().unwrap_or(0) as f64
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dtype =
            g.dtype_where(|d| !matches!(d.class(), DTypeClass::Bool | DTypeClass::Complex) && d.bits() >= 8);
        let (experts, k, n) = (g.size(1..=5), g.size(1..=9), g.size(1..=50));
        let chosen = g.dims(0..=2, 1..=6);
        let mut x: Vec<usize> = chosen.iter().map(|&d| if g.chance(0.2) { 1 } else { d }).collect();
        x.push(k);
        let inputs = vec![
            g.value(dtype, &x, -1.0..1.0),
            g.value(dtype, &[experts, k, n], -1.0..1.0),
            g.indices(&chosen, experts),
        ];
        Case::new(Op::GroupedMatMul, inputs)
    }
}

fn decompose(inputs: &[NodeId], graph: &mut Graph) -> Result<Vec<NodeId>> {
    let (x, w, chosen) = (inputs[0], inputs[1], inputs[2]);
    let shape = |id| graph.try_node(id).map(|node| node.shape.clone());
    let x_shape = shape(x)?;
    let to = result(&x_shape, &shape(w)?, &shape(chosen)?)?;
    let matrices = graph.try_add(Op::Gather { axis: 0 }, &[w, chosen])?;
    let mut dims = x_shape.dims().to_vec();
    dims.insert(dims.len() - 1, Dim::Static(1));
    let rows = graph.try_add(Op::Reshape { to: dims }, &[x])?;
    let product = graph.try_add(Op::MatMul, &[rows, matrices])?;
    Ok(vec![graph.try_add(Op::Reshape { to: to.dims().to_vec() }, &[product])?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::evaluate_op;

    #[test]
    fn each_row_meets_the_matrix_it_chose() {
        let x = Value::float(DType::F32, &[2, 1, 2], vec![1.0, 2.0, 3.0, 4.0]);
        let w = Value::float(DType::F32, &[3, 2, 1], vec![1.0, 1.0, 10.0, 10.0, 100.0, 0.0]);
        let chosen = Value::int(DType::I64, &[2, 2], vec![0, 2, -2, 0]);
        let y = evaluate_op(&Op::GroupedMatMul, &[&x, &w, &chosen], &[]).unwrap();
        assert_eq!((y[0].dims.clone(), y[0].to_f64()), (vec![2, 2, 1], vec![3.0, 100.0, 70.0, 7.0]));
        let wrong = Value::int(DType::I64, &[2, 2], vec![0, 3, 0, 0]);
        let error = evaluate_op(&Op::GroupedMatMul, &[&x, &w, &wrong], &[]).unwrap_err();
        assert!(error.to_string().contains("expert 3 is out of range: there are 3"), "{error}");
    }

    #[test]
    fn mismatches_name_all_three_shapes() {
        let s = |dims: &[usize]| Shape::new(dims, DType::F32);
        let chosen = Shape::new(&[4], DType::I32);
        let infer = |x: &Shape, w: &Shape| GroupedMatMulDef.infer(&Op::GroupedMatMul, &[x, w, &chosen], &[]);
        assert_eq!(infer(&s(&[4, 2]), &s(&[8, 2, 3])).unwrap()[..], [s(&[4, 3])]);
        let error = infer(&s(&[4, 3]), &s(&[8, 2, 3])).unwrap_err().to_string();
        assert!(error.contains("[4, 3] f32") && error.contains("[8, 2, 3] f32") && error.contains("[4] i32"));
        assert!(infer(&s(&[5, 2]), &s(&[8, 2, 3])).is_err());
        assert!(infer(&s(&[4, 2]), &s(&[2, 3])).is_err());
        assert!(infer(&s(&[7, 4, 2]), &s(&[8, 2, 3])).is_err());
    }
}
