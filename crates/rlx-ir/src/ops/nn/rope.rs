//! Rotary embedding (Su et al. 2021; ONNX `RotaryEmbedding`, opset 23).
//!
//! The first `n_rot` elements of every head form pairs that are turned by an angle whose cosine and sine are
//! given for each position: `(a, b) → (a·cos − b·sin, b·cos + a·sin)`. The pairs are elements `j` and
//! `j + n_rot/2` or, `interleaved`, `2j` and `2j + 1`. What follows them stays.

use smallvec::smallvec;

use super::rows::{check_float, widened};
use crate::dim::{Dim, Extent};
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, GraphExt, NodeId};
use crate::ops::def::{Arity, OpDef, Ranges};
use crate::ops::{Op, OpKind, attrs};
use crate::shape::{Shape, Shapes};
use crate::tensor::Value;

#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

/// [`Op::Rope`].
pub struct RopeDef;

fn check_table(x: &Shape, what: &str, table: &Shape, half: usize) -> Result<()> {
    if table.dtype() != x.dtype() {
        let message = format!("Rope of {x} with {what} {table}: element types differ");
        return Err(Error::new(ErrorKind::DType, message).with_hint("insert a Cast"));
    }
    let differ = |a: Dim, b: Dim| a.is_static() && b.is_static() && a != b;
    let seq = x.dim(x.rank() - 2);
    let fits = match table.dims() {
        [s, n] => !differ(*s, seq) && !differ(*n, Dim::Static(half)),
        [b, s, n] => !differ(*b, x.dim(0)) && !differ(*s, seq) && !differ(*n, Dim::Static(half)),
        _ => false,
    };
    if fits {
        return Ok(());
    }
    let message = format!(
        "Rope of {x} with {what} {table}: it must be [{seq}, {half}] or [{}, {seq}, {half}]",
        x.dim(0)
    );
    Err(Error::new(ErrorKind::Shape, message))
}

impl OpDef for RopeDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(3)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Rope { head_dim, n_rot });
        let x = inputs[0];
        check_float(OpKind::Rope, x)?;
        let heads = match x.rank() {
            3 => x.dim(2).as_static().and_then(|all| all.checked_rem(*head_dim)) == Some(0),
            4 => x.dim(3) == Dim::Static(*head_dim),
            _ => false,
        };
        if !heads || n_rot % 2 != 0 || n_rot > head_dim {
            let message =
                format!("Rope of {x}: heads of {head_dim}, of which {n_rot} (an even number) are turned");
            return Err(Error::new(ErrorKind::Shape, message)
                .with_hint("the input is [batch, seq, heads·size] or [batch, heads, seq, size]"));
        }
        check_table(x, "cos", inputs[1], n_rot / 2)?;
        check_table(x, "sin", inputs[2], n_rot / 2)?;
        Ok(smallvec![x.clone()])
    }

    fn holds_for_all(&self, _: &Op, inputs: &[&Shape], _: Ranges<'_>) -> bool {
        let x = inputs[0];
        let seq = x.dim(x.rank() - 2);
        let same = |table: &&Shape| match table.dims() {
            [s, n] => *s == seq && n.is_static(),
            [b, s, n] => *b == x.dim(0) && *s == seq && n.is_static(),
            _ => false,
        };
        inputs[1..].iter().all(same)
    }

    fn reference(&self, op: &Op, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => Rope { head_dim, n_rot, interleaved });
        let (x, half) = (inputs[0], n_rot / 2);
        let mut out = x.floats()?.to_vec();
        // Every head of every position is `head_dim` neighbouring elements, in both layouts.
        for (row, head) in out.chunks_mut((*head_dim).max(1)).enumerate() {
            let (b, s) = match x.dims[..] {
                [_, heads, seq, _] => (row / (heads * seq), row % seq),
                _ => {
                    let (seq, heads) = (x.dims[1], x.dims[2] / head_dim);
                    (row / (seq * heads), row / heads % seq)
                }
            };
            for j in 0..half {
                let angle = |t: &Value| {
                    let batch = if t.dims.len() == 3 { b * t.dims[1] } else { 0 };
                    t.floats().map(|v| v[(batch + s) * half + j])
                };
                let (cos, sin) = (angle(inputs[1])?, angle(inputs[2])?);
                let (p, q) = if *interleaved { (2 * j, 2 * j + 1) } else { (j, j + half) };
                (head[p], head[q]) = (head[p] * cos - head[q] * sin, head[q] * cos + head[p] * sin);
            }
        }
        Ok(vec![Value::float(x.dtype, &x.dims, out)])
    }

    fn decompose(&self, op: &Op, inputs: &[NodeId], g: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        let Op::Rope { head_dim, n_rot, interleaved } = *op else { return None };
        if n_rot == 0 {
            return Some(Ok(vec![inputs[0]]));
        }
        Some(decompose(g, inputs, head_dim, n_rot, interleaved).map(|id| vec![id]))
    }

    fn flops(&self, _: &Op, _: &[&Shape], results: &[Shape]) -> f64 {
        3.0 * results[0].num_elements().unwrap_or(0) as f64
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let (batch, heads, seq, half) = (g.size(1..=3), g.size(1..=3), g.size(1..=5), g.size(1..=4));
        let head_dim = 2 * half + if g.chance(0.5) { 0 } else { g.size(1..=3) };
        let dims = if g.chance(0.5) {
            vec![batch, seq, heads * head_dim]
        } else {
            vec![batch, heads, seq, head_dim]
        };
        let table = if g.chance(0.5) { vec![seq, half] } else { vec![batch, seq, half] };
        let dtype = g.dtype_where(|d| d.is_float());
        let inputs = vec![
            g.value(dtype, &dims, -2.0..2.0),
            g.value(dtype, &table, -1.0..1.0),
            g.value(dtype, &table, -1.0..1.0),
        ];
        Case::new(Op::Rope { head_dim, n_rot: 2 * half, interleaved: g.chance(0.5) }, inputs)
    }
}

fn decompose(
    g: &mut Graph,
    inputs: &[NodeId],
    head_dim: usize,
    n_rot: usize,
    interleaved: bool,
) -> Result<NodeId> {
    let (shape, half) = (g.try_shape(inputs[0])?.clone(), n_rot / 2);
    let wide = widened(g, inputs)?;
    let (fixed, one) = (Dim::Static, Dim::Static(1));
    // Heads get their own dimension, and pairs two: the tables broadcast over the heads.
    let mut lead = shape.dims()[..3].to_vec();
    if shape.rank() == 3 {
        lead[2] = Dim::from(shape.dim(2).extent().floor_div(Extent::Const(head_dim as i64)));
    }
    let with = |tail: &[Dim]| lead.iter().chain(tail).copied().collect::<Vec<Dim>>();
    let x = g.try_reshape_to(wide[0], &with(&[fixed(head_dim)]))?;
    let turned = g.try_narrow(x, -1, 0, n_rot)?;
    let (pair_axis, pairs) =
        if interleaved { (-1, [fixed(half), fixed(2)]) } else { (-2, [fixed(2), fixed(half)]) };
    let turned = g.try_reshape_to(turned, &with(&pairs))?;
    let (p, q) = (g.try_narrow(turned, pair_axis, 0, 1)?, g.try_narrow(turned, pair_axis, 1, 1)?);
    let mut tables = Vec::with_capacity(2);
    for &table in &wide[1..] {
        let dims = g.try_shape(table)?.dims().to_vec();
        let (batch, seq) = if dims.len() == 3 { (dims[0], dims[1]) } else { (one, dims[0]) };
        let place = if shape.rank() == 3 { [batch, seq, one] } else { [batch, one, seq] };
        let unit = if interleaved { [fixed(half), one] } else { [one, fixed(half)] };
        tables.push(g.try_reshape_to(table, &[place.as_slice(), &unit].concat())?);
    }
    let (cos, sin) = (tables[0], tables[1]);
    let (pc, qs, qc, ps) = (g.try_mul(p, cos)?, g.try_mul(q, sin)?, g.try_mul(q, cos)?, g.try_mul(p, sin)?);
    let (first, second) = (g.try_sub(pc, qs)?, g.try_add_(qc, ps)?);
    let turned = g.try_concat(&[first, second], pair_axis)?;
    let mut y = g.try_reshape_to(turned, &with(&[fixed(n_rot)]))?;
    if n_rot < head_dim {
        let rest = g.try_narrow(x, -1, n_rot, head_dim - n_rot)?;
        y = g.try_concat(&[y, rest], -1)?;
    }
    let y = g.try_reshape_to(y, shape.dims())?;
    g.try_cast(y, shape.dtype())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, oracle::evaluate_op};

    #[test]
    fn a_quarter_turn_by_hand() {
        let x = Value::float(DType::F32, &[1, 1, 5], vec![1.0, 2.0, 3.0, 4.0, 9.0]);
        let (cos, sin) = (
            Value::float(DType::F32, &[1, 2], vec![0.0, 1.0]),
            Value::float(DType::F32, &[1, 2], vec![1.0, 0.0]),
        );
        let run = |interleaved| {
            let op = Op::Rope { head_dim: 5, n_rot: 4, interleaved };
            evaluate_op(&op, &[&x, &cos, &sin], &[]).unwrap()[0].to_f64()
        };
        assert_eq!(run(false), [-3.0, 2.0, 1.0, 4.0, 9.0]);
        assert_eq!(run(true), [-2.0, 1.0, 3.0, 4.0, 9.0]);
    }
}
