//! Tensors put together: one behind another, or one repeated.

use smallvec::smallvec;

use crate::dim::{Dim, Extent};
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, NodeId};
use crate::ops::def::{Arity, OpDef, Ranges};
use crate::ops::{Op, OpKind, attrs, elementwise};
use crate::oracle::{strided_offsets, strides};
use crate::shape::{Shape, Shapes, agreed_dim};
use crate::tensor::{Elements, Value};

#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

/// [`Op::Concat`].
pub struct ConcatDef;

impl OpDef for ConcatDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::AtLeast(1)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Concat { axis });
        let shape_mismatch = |other: &Shape, why: &str| {
            let message = format!("cannot concatenate {} and {other} along axis {axis}: {why}", inputs[0]);
            Error::new(ErrorKind::Shape, message)
        };
        if *axis >= inputs[0].rank() {
            return Err(shape_mismatch(inputs[0], "there is no such axis"));
        }
        let mut dims = inputs[0].dims().to_vec();
        for other in &inputs[1..] {
            elementwise::same_dtype(OpKind::Concat, inputs[0], other)?;
            if other.rank() != dims.len() {
                return Err(shape_mismatch(other, "the ranks differ"));
            }
            for (i, slot) in dims.iter_mut().enumerate().filter(|(i, _)| i != axis) {
                let agreed = agreed_dim(*slot, other.dim(i));
                *slot = agreed.ok_or_else(|| shape_mismatch(other, &format!("dimension {i} differs")))?;
            }
        }
        // Neighbours of one size are counted: the sum of very many would make as many expressions.
        let alike = inputs.chunk_by(|a, b| a.dim(*axis) == b.dim(*axis));
        let sizes = alike.map(|group| group[0].dim(*axis).extent() * group.len() as i64);
        dims[*axis] = Dim::from(sizes.fold(Extent::Const(0), |sum, size| sum + size));
        Ok(smallvec![inputs[0].with_dims(dims)])
    }

    fn holds_for_all(&self, op: &Op, inputs: &[&Shape], _: Ranges<'_>) -> bool {
        let Op::Concat { axis } = op else { return false };
        let same = |s: &&Shape| (0..s.rank()).all(|i| i == *axis || s.dim(i) == inputs[0].dim(i));
        inputs.iter().all(same)
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => Concat { axis });
        let dims = elementwise::static_dims(&results[0])?;
        let outer: usize = dims[..*axis].iter().product();
        let mut elements = match inputs[0].elements {
            Elements::Float(_) => Elements::Float(Vec::new()),
            Elements::Int(_) => Elements::Int(Vec::new()),
        };
        for i in 0..outer {
            for x in inputs {
                let block = x.elements.len() / outer;
                let range = i * block..(i + 1) * block;
                match (&mut elements, &x.elements) {
                    (Elements::Float(out), Elements::Float(v)) => out.extend_from_slice(&v[range]),
                    (Elements::Int(out), Elements::Int(v)) => out.extend_from_slice(&v[range]),
                    _ => return Err(Error::new(ErrorKind::Internal, "element types differ")),
                }
            }
        }
        Ok(vec![Value { dtype: inputs[0].dtype, dims, elements }])
    }

    fn flops(&self, _: &Op, _: &[&Shape], _: &[Shape]) -> f64 {
        0.0
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dims = g.dims(1..=4, 1..=5);
        let axis = g.size(0..=dims.len() - 1);
        let dtype = g.dtype_where(|_| true);
        let inputs = (0..g.size(1..=4)).map(|_| {
            let mut dims = dims.clone();
            dims[axis] = g.size(0..=4);
            g.value(dtype, &dims, -2.0..2.0)
        });
        let inputs = inputs.collect();
        Case::new(Op::Concat { axis }, inputs)
    }
}

/// [`Op::Tile`].
pub struct TileDef;

impl OpDef for TileDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Tile { repeats });
        let x = inputs[0];
        if repeats.len() != x.rank() {
            let message = format!("cannot tile {x}: {} repeats for {} dimensions", repeats.len(), x.rank());
            return Err(Error::new(ErrorKind::Shape, message));
        }
        let dims = x.dims().iter().zip(repeats).map(|(d, r)| Dim::from(d.extent() * r.extent()));
        Ok(smallvec![x.with_dims(dims.collect())])
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => Tile { repeats });
        let (x, dims) = (inputs[0], elementwise::static_dims(&results[0])?);
        // Each dimension is seen as two: the repeats, which do not move, and the own elements.
        let (mut sizes, mut steps) = (Vec::new(), Vec::new());
        for ((&d, stride), r) in x.dims.iter().zip(strides(&x.dims)).zip(repeats) {
            sizes.extend([r.as_static().unwrap_or(0), d]);
            steps.extend([0, stride]);
        }
        Ok(vec![x.pick(&dims, &strided_offsets(&sizes, 0, &steps))])
    }

    fn decompose(&self, op: &Op, inputs: &[NodeId], graph: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        Some(decompose_tile(op, inputs[0], graph))
    }

    fn flops(&self, _: &Op, _: &[&Shape], _: &[Shape]) -> f64 {
        0.0
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dims = g.dims(0..=4, 1..=4);
        let repeats = dims.iter().map(|_| Dim::Static(g.size(1..=3))).collect();
        let dtype = g.dtype_where(|_| true);
        Case::new(Op::Tile { repeats }, vec![g.value(dtype, &dims, -2.0..2.0)])
    }
}

/// A dimension of 1 before each, made as long as the repeats, and joined with it.
fn decompose_tile(op: &Op, x: NodeId, graph: &mut Graph) -> Result<Vec<NodeId>> {
    attrs!(op => Tile { repeats });
    let dims = graph.try_node(x)?.shape.dims().to_vec();
    let apart = dims.iter().flat_map(|&d| [Dim::Static(1), d]).collect();
    let repeated = dims.iter().zip(repeats).flat_map(|(&d, &r)| [r, d]).collect();
    let joined = dims.iter().zip(repeats).map(|(d, r)| Dim::from(d.extent() * r.extent())).collect();
    let apart = graph.try_add(Op::Reshape { to: apart }, &[x])?;
    let repeated = graph.try_add(Op::Expand { to: repeated }, &[apart])?;
    Ok(vec![graph.try_add(Op::Reshape { to: joined }, &[repeated])?])
}
