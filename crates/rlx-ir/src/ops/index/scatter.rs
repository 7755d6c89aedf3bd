//! Scatters: a tensor with updates put in at positions that are data.

use smallvec::smallvec;

use super::{addressed_dims, check_within, element_places, slice_places};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, NodeId};
use crate::ops::def::{Arity, OpDef};
use crate::ops::elementwise::{Takes, same_dtype};
use crate::ops::reduce::{join_f64, join_int};
use crate::ops::{Op, OpKind, ReduceOp, ScatterOp, attrs};
use crate::shape::{Shape, Shapes, agreed_dim};
use crate::tensor::{Elements, Value};

#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

/// The reduction that joins an update with what is there; `None` replaces it.
fn joining(op: ScatterOp) -> Option<ReduceOp> {
    match op {
        ScatterOp::Set => None,
        ScatterOp::Add => Some(ReduceOp::Sum),
        ScatterOp::Mul => Some(ReduceOp::Prod),
        ScatterOp::Max => Some(ReduceOp::Max),
        ScatterOp::Min => Some(ReduceOp::Min),
    }
}

fn takes(op: ScatterOp) -> Takes {
    match op {
        ScatterOp::Add | ScatterOp::Mul => Takes::Numbers,
        ScatterOp::Set | ScatterOp::Max | ScatterOp::Min => Takes::NumbersAndBools,
    }
}

/// The updates must be of the tensor's type and of these dimensions.
fn check_updates(kind: OpKind, op: ScatterOp, x: &Shape, updates: &Shape, want: &Shape) -> Result<()> {
    takes(op).check(kind, x)?;
    same_dtype(kind, x, updates)?;
    let same = |(&a, &b)| agreed_dim(a, b).is_some();
    if updates.rank() == want.rank() && updates.dims().iter().zip(want.dims()).all(same) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Shape, format!("{kind} into {x}: the updates {updates} must be {want}")))
}

/// `x` with update `i` joined into place `places[i]`, one after another.
fn scattered(x: &Value, updates: &Value, places: &[usize], op: ScatterOp) -> Result<Value> {
    let mut out = x.clone();
    match (&mut out.elements, &updates.elements) {
        (Elements::Float(out), Elements::Float(updates)) => {
            for (&place, &new) in places.iter().zip(updates) {
                out[place] = joining(op).map_or(new, |op| join_f64(op, out[place], new));
            }
        }
        (Elements::Int(out), Elements::Int(updates)) => {
            for (&place, &new) in places.iter().zip(updates) {
                out[place] = joining(op).map_or(new, |op| join_int(op, out[place], new, x.dtype));
            }
        }
        _ => return Err(Error::new(ErrorKind::Internal, "element types differ")),
    }
    Ok(out)
}

impl ScatterOp {
    /// Whether updates of this type are joined in f32, as the op decomposes, and rounded once. Rounded after each of them, a sum of
    /// ones in bf16 would end at 256; so no device joins them in their own type.
    pub fn joins_in_f32(self, dtype: DType) -> bool {
        matches!(self, ScatterOp::Add | ScatterOp::Mul) && matches!(dtype, DType::F16 | DType::BF16)
    }
}

/// `op` in f32, for types that it joins so.
fn decompose_in_f32(
    how: ScatterOp,
    op: &Op,
    inputs: &[NodeId],
    graph: &mut Graph,
) -> Option<Result<Vec<NodeId>>> {
    let &[x, indices, updates] = inputs else { return None };
    let dtype = graph.try_node(x).ok()?.shape.dtype();
    how.joins_in_f32(dtype).then(|| {
        let [x, updates] = [x, updates].map(|id| graph.try_add(Op::Cast { to: DType::F32 }, &[id]));
        let joined = graph.try_add(op.clone(), &[x?, indices, updates?])?;
        Ok(vec![graph.try_add(Op::Cast { to: dtype }, &[joined])?])
    })
}

/// An arithmetic operation for each update that is not just written.
fn scatter_flops(op: ScatterOp, updates: &Shape) -> f64 {
    joining(op).map_or(0.0, |_| updates.num_elements().unwrap_or(0) as f64)
}

/// [`Op::ScatterElements`].
pub struct ScatterElementsDef;

impl OpDef for ScatterElementsDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(3)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => ScatterElements { axis, reduction });
        let (x, indices, updates) = (inputs[0], inputs[1], inputs[2]);
        check_within(OpKind::ScatterElements, *axis, x, indices)?;
        let want = indices.with_dtype(x.dtype());
        check_updates(OpKind::ScatterElements, *reduction, x, updates, &want)?;
        Ok(smallvec![x.clone()])
    }

    fn reference(&self, op: &Op, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => ScatterElements { axis, reduction });
        let places = element_places(&inputs[0].dims, *axis, inputs[1])?;
        Ok(vec![scattered(inputs[0], inputs[2], &places, *reduction)?])
    }

    fn updates(&self) -> Option<usize> {
        Some(0)
    }

    fn decompose(&self, op: &Op, inputs: &[NodeId], graph: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        let Op::ScatterElements { reduction, .. } = op else { return None };
        decompose_in_f32(*reduction, op, inputs, graph)
    }

    fn flops(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> f64 {
        let Op::ScatterElements { reduction, .. } = op else { return 0.0 };
        scatter_flops(*reduction, inputs[2])
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let reduction: ScatterOp = g.variant();
        let dims = g.dims(1..=3, 1..=5);
        let axis = g.size(0..=dims.len() - 1);
        let size = dims[axis];
        let mut index_dims: Vec<usize> = dims.iter().map(|&d| g.size(1..=d)).collect();
        let mut indices = if reduction == ScatterOp::Set {
            g.indices(&index_dims, size)
        } else {
            // Many updates of one element show how they are rounded.
            index_dims[axis] = if g.chance(0.1) { g.size(100..=200) } else { g.size(1..=6) };
            g.indices(&index_dims, size)
        };
        if let (ScatterOp::Set, Elements::Int(index)) = (reduction, &mut indices.elements) {
            // No place is written twice: the order of updates is not what is tested.
            let mut order: Vec<i128> = (0..size as i128).collect();
            g.shuffle(&mut order);
            let (_, along, inner) = crate::oracle::around(&index_dims, axis);
            for (i, index) in index.iter_mut().enumerate() {
                *index = order[i / inner % along] - if *index < 0 { size as i128 } else { 0 };
            }
        }
        let dtype = g.dtype_where(|d| takes(reduction).accepts(d));
        let (x, updates) = (g.value(dtype, &dims, -2.0..2.0), g.value(dtype, &index_dims, -2.0..2.0));
        Case::new(Op::ScatterElements { axis, reduction }, vec![x, indices, updates])
    }
}

/// [`Op::ScatterNd`].
pub struct ScatterNdDef;

impl OpDef for ScatterNdDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(3)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => ScatterNd { reduction });
        let (x, indices, updates) = (inputs[0], inputs[1], inputs[2]);
        let count = addressed_dims(OpKind::ScatterNd, x, indices, 0)?;
        let mut want = indices.dims()[..indices.rank() - 1].to_vec();
        want.extend_from_slice(&x.dims()[count..]);
        check_updates(OpKind::ScatterNd, *reduction, x, updates, &x.with_dims(want))?;
        Ok(smallvec![x.clone()])
    }

    fn reference(&self, op: &Op, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => ScatterNd { reduction });
        let (slices, len) = slice_places(&inputs[0].dims, inputs[1], 0)?;
        let places: Vec<usize> = slices.into_iter().flat_map(|p| p..p + len).collect();
        Ok(vec![scattered(inputs[0], inputs[2], &places, *reduction)?])
    }

    fn updates(&self) -> Option<usize> {
        Some(0)
    }

    fn decompose(&self, op: &Op, inputs: &[NodeId], graph: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        let Op::ScatterNd { reduction } = op else { return None };
        decompose_in_f32(*reduction, op, inputs, graph)
    }

    fn flops(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> f64 {
        let Op::ScatterNd { reduction } = op else { return 0.0 };
        scatter_flops(*reduction, inputs[2])
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let reduction: ScatterOp = g.variant();
        let dims = g.dims(1..=4, 1..=4);
        let count = g.size(1..=dims.len());
        // The addresses of all slices, in random order: taking the first ones repeats none.
        let mut slices: Vec<usize> = (0..dims[..count].iter().product()).collect();
        g.shuffle(&mut slices);
        let rows = g.size(1..=slices.len().min(6));
        if reduction != ScatterOp::Set {
            slices[..rows].iter_mut().for_each(|s| *s /= 2);
        }
        let mut index = Vec::new();
        for &slice in &slices[..rows] {
            for (axis, &size) in dims[..count].iter().enumerate() {
                let behind: usize = dims[axis + 1..count].iter().product();
                let from_end = if g.chance(0.3) { size as i128 } else { 0 };
                index.push((slice / behind % size) as i128 - from_end);
            }
        }
        let indices = Value::int(g.pick(&[DType::I32, DType::I64]), &[rows, count], index);
        let mut update_dims = vec![rows];
        update_dims.extend_from_slice(&dims[count..]);
        let dtype = g.dtype_where(|d| takes(reduction).accepts(d));
        let (x, updates) = (g.value(dtype, &dims, -2.0..2.0), g.value(dtype, &update_dims, -2.0..2.0));
        Case::new(Op::ScatterNd { reduction }, vec![x, indices, updates])
    }
}
