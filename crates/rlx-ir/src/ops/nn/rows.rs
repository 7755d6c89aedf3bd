//! What softmax and the norms share: rows of elements that are treated as one.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, GraphExt, NodeId};
use crate::ops::OpKind;
use crate::ops::def::dtype_error;
use crate::shape::{Shape, broadcast};

/// A tensor seen as `outer × len × inner`, the middle one being the rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    outer: usize,
    len: usize,
    inner: usize,
}

impl Rows {
    /// The rows along dimensions `from..to`.
    pub fn of(dims: &[usize], from: usize, to: usize) -> Rows {
        let count = |d: &[usize]| d.iter().product();
        Rows { outer: count(&dims[..from]), len: count(&dims[from..to]), inner: count(&dims[to..]) }
    }

    /// The result of applying `f` to every row.
    pub fn map(self, x: &[f64], f: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
        let mut out = vec![0.0; x.len()];
        for outer in 0..self.outer {
            for inner in 0..self.inner {
                let at = |i: usize| (outer * self.len + i) * self.inner + inner;
                let row: Vec<f64> = (0..self.len).map(|i| x[at(i)]).collect();
                f(&row).into_iter().enumerate().for_each(|(i, y)| out[at(i)] = y);
            }
        }
        out
    }
}

/// The op computes on floats.
pub(super) fn check_float(kind: OpKind, shape: &Shape) -> Result<()> {
    if shape.dtype().is_float() { Ok(()) } else { Err(dtype_error(kind, shape, "floats")) }
}

/// `what` is of `x`'s element type and broadcasts onto its dimensions.
pub(super) fn check_onto(kind: OpKind, x: &Shape, what: &str, shape: &Shape) -> Result<()> {
    if shape.dtype() != x.dtype() {
        let message = format!("{kind} of {x} with {what} {shape}: element types differ");
        return Err(Error::new(ErrorKind::DType, message).with_hint("insert a Cast"));
    }
    let fits = shape.rank() <= x.rank()
        && broadcast(&[x, shape]).is_ok_and(|dims| {
            let grows = |(a, b): (&Dim, &Dim)| matches!((a, b), (Dim::Static(a), Dim::Static(b)) if a != b);
            !dims.iter().zip(x.dims()).any(grows)
        });
    if fits {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Shape,
        format!("{kind} of {x} with {what} {shape}: it must broadcast onto the input"),
    ))
}

/// The element type in which a composite computes: at least f32, so that sums and squares of short floats
/// neither overflow nor lose their last digits.
pub(in crate::ops) fn wide(dtype: DType) -> DType {
    if dtype.bits() < 32 { DType::F32 } else { dtype }
}

/// `ids` in their [`wide`] type.
pub(super) fn widened(g: &mut Graph, ids: &[NodeId]) -> Result<Vec<NodeId>> {
    ids.iter()
        .map(|&id| {
            let to = wide(g.try_shape(id)?.dtype());
            g.try_cast(id, to)
        })
        .collect()
}
