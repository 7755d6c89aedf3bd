//! Tensors made of positions: counting, triangles, one-hot rows.

use smallvec::smallvec;

use super::check_indices;
use crate::dim::{Dim, Extent};
use crate::dtype::{DType, DTypeClass};
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, NodeId};
use crate::ops::def::{Arity, OpDef, Ranges};
use crate::ops::elementwise::{Takes, static_dims};
use crate::ops::{Activation, BinaryOp, CmpOp, Op, OpKind, attrs};
use crate::oracle::around;
use crate::shape::{Shape, Shapes};
use crate::tensor::{Elements, Value};

#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

/// [`Op::Iota`].
pub struct IotaDef;

impl OpDef for IotaDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(0)
    }

    fn infer(&self, op: &Op, _: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Iota { to, axis, dtype });
        let shape = Shape::from_dims(to, *dtype);
        Takes::Numbers.check(OpKind::Iota, &shape)?;
        super::check_axis(OpKind::Iota, *axis, &shape)?;
        Ok(smallvec![shape])
    }

    fn reference(&self, op: &Op, _: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => Iota { axis, dtype });
        let dims = static_dims(&results[0])?;
        let (_, size, inner) = around(&dims, *axis);
        let places = (0..dims.iter().product()).map(|i: usize| i / inner % size);
        Ok(vec![match dtype.class() {
            DTypeClass::Float => Value::float(*dtype, &dims, places.map(|i| i as f64).collect()),
            _ => Value::int(*dtype, &dims, places.map(|i| i as i128).collect()),
        }])
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dims = g.dims(1..=4, 1..=6);
        let axis = g.size(0..=dims.len() - 1);
        let dtype = g.dtype_where(|d| Takes::Numbers.accepts(d));
        Case::new(Op::Iota { to: dims.into_iter().map(Dim::Static).collect(), axis, dtype }, vec![])
    }
}

/// The i64 vector `start, start + 1, …` of `len` elements; `start` is not negative.
pub(in crate::ops) fn count_from(graph: &mut Graph, start: Extent, len: Dim) -> Result<NodeId> {
    let to = vec![Dim::from(start + len.extent())];
    let all = graph.try_add(Op::Iota { to, axis: 0, dtype: DType::I64 }, &[])?;
    if start == Extent::Const(0) {
        return Ok(all);
    }
    graph.try_add(Op::Slice { starts: vec![start], steps: vec![1], to: vec![len] }, &[all])
}

/// [`Op::Trilu`].
pub struct TriluDef;

/// The result's rows and columns.
fn matrix_dims(x: &Shape) -> Result<(Dim, Dim)> {
    match x.dims() {
        [.., rows, columns] => Ok((*rows, *columns)),
        _ => Err(Error::new(ErrorKind::Shape, format!("Trilu of {x}, which has no matrices"))),
    }
}

impl OpDef for TriluDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, _: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        Takes::NumbersAndBools.check(OpKind::Trilu, inputs[0])?;
        matrix_dims(inputs[0])?;
        Ok(smallvec![inputs[0].clone()])
    }

    fn holds_for_all(&self, _: &Op, _: &[&Shape], _: Ranges<'_>) -> bool {
        true
    }

    fn reference(&self, op: &Op, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => Trilu { upper, k });
        let (mut out, axis) = (inputs[0].clone(), inputs[0].dims.len() - 2);
        let (rows, columns) = (out.dims[axis], out.dims[axis + 1]);
        let k = k.as_const().ok_or_else(|| Error::new(ErrorKind::Dimension, format!("{k} has no value")))?;
        let stays = |i: usize| {
            let (row, column) = (i / columns % rows, i % columns);
            let above = column as i128 - row as i128;
            if *upper { above >= k.into() } else { above <= k.into() }
        };
        match &mut out.elements {
            Elements::Float(v) => {
                v.iter_mut().enumerate().filter(|(i, _)| !stays(*i)).for_each(|(_, x)| *x = 0.0)
            }
            Elements::Int(v) => {
                v.iter_mut().enumerate().filter(|(i, _)| !stays(*i)).for_each(|(_, x)| *x = 0)
            }
        }
        Ok(vec![out])
    }

    fn decompose(&self, op: &Op, inputs: &[NodeId], graph: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        Some(decompose_trilu(op, inputs[0], graph))
    }

    fn flops(&self, _: &Op, _: &[&Shape], _: &[Shape]) -> f64 {
        0.0
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dims = g.dims(2..=4, 1..=6);
        let dtype = g.dtype_where(|d| Takes::NumbersAndBools.accepts(d));
        let op = Op::Trilu { upper: g.chance(0.5), k: Extent::Const(g.int(-7..=7)) };
        Case::new(op, vec![g.value(dtype, &dims, 0.5..3.0)])
    }
}

/// `column − row ≥ k` (or ≤), with both sides moved so that nothing counts from below 0.
fn decompose_trilu(op: &Op, x: NodeId, graph: &mut Graph) -> Result<Vec<NodeId>> {
    attrs!(op => Trilu { upper, k });
    let shape = graph.try_node(x)?.shape.clone();
    let (rows, columns) = matrix_dims(&shape)?;
    let range = |s: u32| graph.symbol_range(s);
    // Diagonals beyond the matrix are all the same, and the counts must not grow with k.
    let k = k.max_within(-rows.extent(), &range).min_within(columns, &range);
    let (above, below) = (k.max_within(0, &range), (-k).max_within(0, &range));
    let row = count_from(graph, above, rows)?;
    let row = graph.try_add(Op::Reshape { to: vec![rows, Dim::Static(1)] }, &[row])?;
    let column = count_from(graph, below, columns)?;
    let compare = if *upper { CmpOp::Ge } else { CmpOp::Le };
    let stays = graph.try_add(Op::Compare(compare), &[column, row])?;
    let zero = match shape.dtype().class() {
        DTypeClass::Float => Value::float(shape.dtype(), &[], vec![0.0]),
        _ => Value::int(shape.dtype(), &[], vec![0]),
    };
    let zero = graph.constant(zero.to_const());
    Ok(vec![graph.try_add(Op::Where, &[stays, x, zero])?])
}

/// [`Op::OneHot`].
pub struct OneHotDef;

impl OpDef for OneHotDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(2)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => OneHot { depth, axis });
        let (indices, values) = (inputs[0], inputs[1]);
        check_indices(OpKind::OneHot, indices)?;
        Takes::NumbersAndBools.check(OpKind::OneHot, values)?;
        if *axis > indices.rank() || values.dims() != [Dim::Static(2)] {
            let message = format!("OneHot of {indices} with values {values} along a new axis {axis}");
            return Err(Error::new(ErrorKind::Shape, message)
                .with_hint("the values must be two, and the axis at most the rank of the indices"));
        }
        let mut dims = indices.dims().to_vec();
        dims.insert(*axis, *depth);
        Ok(smallvec![values.with_dims(dims)])
    }

    fn holds_for_all(&self, _: &Op, _: &[&Shape], _: Ranges<'_>) -> bool {
        true
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => OneHot { axis });
        let dims = static_dims(&results[0])?;
        let (_, depth, inner) = around(&dims, *axis);
        let index = inputs[0].ints()?;
        let hot = |i: usize| {
            let (outer, place, rest) = (i / inner / depth, i / inner % depth, i % inner);
            let index = index[outer * inner + rest];
            let index = if index < 0 { index + depth as i128 } else { index };
            usize::from(index == place as i128)
        };
        let from: Vec<usize> = (0..dims.iter().product()).map(hot).collect();
        Ok(vec![inputs[1].pick(&dims, &from)])
    }

    fn decompose(&self, op: &Op, inputs: &[NodeId], graph: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        Some(decompose_one_hot(op, inputs, graph))
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dims = g.dims(0..=3, 1..=4);
        let (depth, axis) = (g.size(1..=6), g.size(0..=dims.len()));
        let dtype = g.dtype_where(|d| Takes::NumbersAndBools.accepts(d));
        // Some indices are out of range on either side.
        let indices = g.indices(&dims, depth + 2);
        let values = g.value(dtype, &[2], -2.0..2.0);
        Case::new(Op::OneHot { depth: Dim::Static(depth), axis }, vec![indices, values])
    }
}

/// The index compared with `0, 1, …` and with `-depth, …, -1`.
fn decompose_one_hot(op: &Op, inputs: &[NodeId], graph: &mut Graph) -> Result<Vec<NodeId>> {
    attrs!(op => OneHot { depth, axis });
    let indices = graph.try_node(inputs[0])?.shape.clone();
    let mut apart = indices.dims().to_vec();
    apart.insert(*axis, Dim::Static(1));
    let mut along = vec![Dim::Static(1); apart.len()];
    along[*axis] = *depth;
    let index = graph.try_add(Op::Cast { to: DType::I64 }, &[inputs[0]])?;
    let index = graph.try_add(Op::Reshape { to: apart }, &[index])?;
    let place = count_from(graph, Extent::Const(0), *depth)?;
    // depth, depth - 1, …, 1: minus the places counted from the end.
    let to = vec![Dim::from(depth.extent() + 1)];
    let back = graph.try_add(Op::Iota { to, axis: 0, dtype: DType::I64 }, &[])?;
    let back = graph
        .try_add(Op::Slice { starts: vec![depth.extent()], steps: vec![-1], to: vec![*depth] }, &[back])?;
    let back = graph.try_add(Op::Activation(Activation::Neg), &[back])?;
    let mut hits = Vec::new();
    for places in [place, back] {
        let places = graph.try_add(Op::Reshape { to: along.clone() }, &[places])?;
        hits.push(graph.try_add(Op::Compare(CmpOp::Eq), &[index, places])?);
    }
    let hot = graph.try_add(Op::Binary(BinaryOp::Or), &hits)?;
    let mut value = |i: i64| {
        let one = Op::Slice { starts: vec![Extent::Const(i)], steps: vec![1], to: vec![Dim::Static(1)] };
        let one = graph.try_add(one, &[inputs[1]])?;
        graph.try_add(Op::Reshape { to: vec![] }, &[one])
    };
    let (off, on) = (value(0)?, value(1)?);
    Ok(vec![graph.try_add(Op::Where, &[hot, on, off])?])
}
