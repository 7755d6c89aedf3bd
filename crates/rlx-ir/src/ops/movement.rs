//! Movement: ops that rearrange elements without computing.

mod join;
mod pad;
mod slice;

pub use join::{ConcatDef, TileDef};
pub use pad::PadDef;
pub use slice::{SliceDef, resolve_slice};

use smallvec::smallvec;

use crate::dim::{Dim, Extent};
use crate::error::{Error, ErrorKind, Result};
use crate::ops::def::{Arity, OpDef, Ranges};
use crate::ops::{Op, OpKind, attrs};
use crate::oracle::{broadcast_offsets, strided_offsets, strides};
use crate::shape::{Shape, Shapes, always_broadcasts, broadcast};
use crate::sort::sort;
use crate::tensor::Value;

#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

/// The dimensions that a reshape's target `to` means for an input of shape `from`: -1 is what is left,
/// 0 the input's own dimension (with `allow_zero`: really zero).
///
/// # Errors
/// [`ErrorKind::Shape`] for several -1, other negative entries, or a -1 that does not come out even.
pub fn resolve_reshape(from: &Shape, to: &[i64], allow_zero: bool) -> Result<Vec<Dim>> {
    let extents: Vec<Extent> = to.iter().map(|&d| Extent::Const(d)).collect();
    resolve_reshape_extents(from, &extents, allow_zero)
}

/// As [`resolve_reshape`], for a target whose entries may be symbolic.
///
/// # Errors
/// As [`resolve_reshape`].
pub fn resolve_reshape_extents(from: &Shape, to: &[Extent], allow_zero: bool) -> Result<Vec<Dim>> {
    let reject = |why: &str| {
        let target: Vec<String> = to.iter().map(Extent::to_string).collect();
        Err(Error::new(ErrorKind::Shape, format!("cannot reshape {from} to [{}]: {why}", target.join(", "))))
    };
    let mut dims: Vec<Option<Extent>> = Vec::with_capacity(to.len());
    for (i, &d) in to.iter().enumerate() {
        dims.push(match d {
            Extent::Const(-1) => None,
            Extent::Const(0) if !allow_zero => match from.dims().get(i) {
                Some(own) => Some(own.extent()),
                None => return reject("0 copies a dimension that is not there"),
            },
            Extent::Const(n) if n < 0 => return reject("a dimension is not negative"),
            d => Some(d),
        });
    }
    if dims.iter().filter(|d| d.is_none()).count() > 1 {
        return reject("only one dimension can be -1");
    }
    let known = dims.iter().flatten().fold(Extent::Const(1), |n, &d| n * d);
    let total = from.elements();
    if dims.contains(&None) && known == Extent::Const(0) {
        return reject("-1 next to a dimension of 0 means nothing");
    }
    let rest = total.floor_div(known);
    let even = !dims.contains(&None)
        || match (total, known) {
            (Extent::Const(t), Extent::Const(k)) => t % k == 0,
            _ => true,
        };
    if !even {
        return reject("the element count does not come out even");
    }
    Ok(dims.into_iter().map(|d| Dim::from(d.unwrap_or(rest))).collect())
}

/// [`Op::Reshape`].
pub struct ReshapeDef;

impl OpDef for ReshapeDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Reshape { to });
        let result = inputs[0].with_dims(to.clone());
        let (before, after) = (inputs[0].elements(), result.elements());
        if let (Extent::Const(b), Extent::Const(a)) = (before, after)
            && a != b
        {
            let message = format!("cannot reshape {} to {result}: {b} elements are not {a}", inputs[0]);
            return Err(Error::new(ErrorKind::Shape, message));
        }
        Ok(smallvec![result])
    }

    fn holds_for_all(&self, op: &Op, inputs: &[&Shape], _: Ranges<'_>) -> bool {
        matches!(op, Op::Reshape { to } if inputs[0].elements() == inputs[0].with_dims(to.clone()).elements())
    }

    fn reference(&self, _: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        Ok(vec![inputs[0].with_dims(&results[0].static_dims().unwrap_or_default())])
    }

    fn flops(&self, _: &Op, _: &[&Shape], _: &[Shape]) -> f64 {
        0.0
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dims = g.dims(1..=4, 1..=5);
        let mut factors = dims.clone();
        g.shuffle(&mut factors);
        if factors.len() > 1 && g.chance(0.5) {
            let last = factors.pop().unwrap_or(1);
            factors[0] *= last;
        }
        let dtype = g.dtype_where(|_| true);
        let to = factors.into_iter().map(Dim::Static).collect();
        Case::new(Op::Reshape { to }, vec![g.value(dtype, &dims, -2.0..2.0)])
    }
}

/// [`Op::Transpose`].
pub struct TransposeDef;

fn check_permutation(kind: OpKind, perm: &[usize], shape: &Shape) -> Result<()> {
    let mut sorted = perm.to_vec();
    sort(&mut sorted);
    if sorted.iter().copied().eq(0..shape.rank()) {
        return Ok(());
    }
    let message =
        format!("{kind} by {perm:?} of {shape}: not a permutation of its {} dimensions", shape.rank());
    Err(Error::new(ErrorKind::Shape, message))
}

impl OpDef for TransposeDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Transpose { perm });
        check_permutation(OpKind::Transpose, perm, inputs[0])?;
        Ok(smallvec![inputs[0].with_dims(perm.iter().map(|&p| inputs[0].dim(p)).collect())])
    }

    fn holds_for_all(&self, _: &Op, _: &[&Shape], _: Ranges<'_>) -> bool {
        true
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => Transpose { perm });
        let (x, dims) = (inputs[0], results[0].static_dims().unwrap_or_default());
        let own = strides(&x.dims);
        let steps: Vec<i64> = perm.iter().map(|&p| own[p]).collect();
        let from = strided_offsets(&dims, 0, &steps);
        Ok(vec![x.pick(&dims, &from)])
    }

    fn flops(&self, _: &Op, _: &[&Shape], _: &[Shape]) -> f64 {
        0.0
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dims = g.dims(0..=5, 1..=4);
        let mut perm: Vec<usize> = (0..dims.len()).collect();
        g.shuffle(&mut perm);
        let dtype = g.dtype_where(|_| true);
        Case::new(Op::Transpose { perm }, vec![g.value(dtype, &dims, -2.0..2.0)])
    }
}

/// [`Op::Expand`].
pub struct ExpandDef;

impl OpDef for ExpandDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Expand { to });
        let target = inputs[0].with_dims(to.clone());
        let dims = broadcast(&[inputs[0], &target])?;
        let grows = |(&d, &t): (&Dim, &Dim)| d == t || !d.is_static() || !t.is_static();
        if dims.len() != to.len() || !dims.iter().zip(to).all(grows) {
            return Err(Error::new(ErrorKind::Shape, format!("cannot expand {} to {target}", inputs[0])));
        }
        Ok(smallvec![target])
    }

    fn holds_for_all(&self, op: &Op, inputs: &[&Shape], _: Ranges<'_>) -> bool {
        matches!(op, Op::Expand { to } if always_broadcasts(inputs, to))
    }

    fn reference(&self, _: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        let (x, dims) = (inputs[0], results[0].static_dims().unwrap_or_default());
        Ok(vec![x.pick(&dims, &broadcast_offsets(&x.dims, &dims))])
    }

    fn flops(&self, _: &Op, _: &[&Shape], _: &[Shape]) -> f64 {
        0.0
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let full = g.dims(1..=4, 1..=5);
        let mut dims: Vec<usize> = full.iter().map(|&d| if g.chance(0.4) { 1 } else { d }).collect();
        let drop = g.size(0..=dims.len());
        dims.drain(..drop);
        let dtype = g.dtype_where(|_| true);
        let to = full.into_iter().map(Dim::Static).collect();
        Case::new(Op::Expand { to }, vec![g.value(dtype, &dims, -2.0..2.0)])
    }
}
