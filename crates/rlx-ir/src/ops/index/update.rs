//! A tensor with one range of an axis replaced: the next row of a cache, a window of a buffer.

use smallvec::smallvec;

use super::{check_axis, check_indices, resolve_index};
use crate::dim::Dim;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::def::{Arity, OpDef, Ranges};
use crate::ops::elementwise::{Takes, same_dtype};
use crate::ops::{Op, OpKind, attrs};
use crate::oracle::around;
use crate::shape::{Shape, Shapes, agreed_dim};
use crate::tensor::{Elements, Value};

#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

/// [`Op::UpdateSlice`].
pub struct UpdateSliceDef;

fn reject(x: &Shape, update: &Shape, starts: &Shape, why: &str) -> Error {
    let message = format!("UpdateSlice of {x} by {update} at {starts}: {why}");
    Error::new(ErrorKind::Shape, message)
}

/// For each element of dimension 0 (or for all of them), where along the axis its update begins.
fn places(x: &[usize], axis: usize, len: usize, starts: &Value) -> Result<Vec<usize>> {
    let size = x[axis];
    let place = |&start: &i128| {
        let outside = || {
            let message = format!("an update of {len} at {start} is outside a dimension of {size}");
            Error::new(ErrorKind::Value, message)
        };
        let place = resolve_index(start, size).map_err(|_| outside())?;
        if place + len <= size { Ok(place) } else { Err(outside()) }
    };
    starts.ints()?.iter().map(place).collect()
}

/// Copies the rows of `update` into `out`; `dims` are those of `out`.
fn put<T: Copy>(out: &mut [T], dims: &[usize], axis: usize, update: &[T], len: usize, places: &[usize]) {
    let (before, size, behind) = around(dims, axis);
    let per_start = before / places.len().max(1);
    for outer in 0..before {
        let place = places[outer / per_start.max(1)];
        let (to, from) = ((outer * size + place) * behind, outer * len * behind);
        out[to..to + len * behind].copy_from_slice(&update[from..from + len * behind]);
    }
}

impl OpDef for UpdateSliceDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(3)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => UpdateSlice { axis });
        let (x, update, starts) = (inputs[0], inputs[1], inputs[2]);
        check_indices(OpKind::UpdateSlice, starts)?;
        check_axis(OpKind::UpdateSlice, *axis, x)?;
        Takes::NumbersAndBools.check(OpKind::UpdateSlice, x)?;
        same_dtype(OpKind::UpdateSlice, x, update)?;
        let fits = |i: usize| match (x.dim(i), update.dim(i)) {
            (Dim::Static(have), Dim::Static(want)) if i == *axis => want <= have,
            (have, want) => i == *axis || agreed_dim(have, want).is_some(),
        };
        if x.rank() != update.rank() || !(0..x.rank()).all(fits) {
            return Err(reject(
                x,
                update,
                starts,
                "the update has the same dimensions, and is no longer along the axis",
            ));
        }
        match starts.dims() {
            [] => {}
            [count] if *axis > 0 && agreed_dim(*count, x.dim(0)).is_some() => {}
            _ => return Err(reject(x, update, starts, "one start, or one for each element of dimension 0")),
        }
        Ok(smallvec![x.clone()])
    }

    fn holds_for_all(&self, op: &Op, inputs: &[&Shape], range: Ranges<'_>) -> bool {
        let Op::UpdateSlice { axis } = op else { return false };
        let (x, update, starts) = (inputs[0], inputs[1], inputs[2]);
        let same = (0..x.rank()).all(|i| i == *axis || x.dim(i) == update.dim(i));
        let room = match (x.dim(*axis), update.dim(*axis)) {
            (have, want) if have == want => true,
            (have, want) => want.extent().range(range).max <= have.extent().range(range).min,
        };
        same && room && starts.dims().iter().all(|&count| count == x.dim(0))
    }

    fn reference(&self, op: &Op, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => UpdateSlice { axis });
        let (x, update) = (inputs[0], inputs[1]);
        let mut out = x.clone();
        // Where nothing is replaced, starts are not looked at, as indices into nothing never are.
        if update.dims.contains(&0) {
            return Ok(vec![out]);
        }
        let len = update.dims[*axis];
        let places = places(&x.dims, *axis, len, inputs[2])?;
        match (&mut out.elements, &update.elements) {
            (Elements::Float(out), Elements::Float(new)) => put(out, &x.dims, *axis, new, len, &places),
            (Elements::Int(out), Elements::Int(new)) => put(out, &x.dims, *axis, new, len, &places),
            _ => return Err(Error::new(ErrorKind::Internal, "element types differ")),
        }
        Ok(vec![out])
    }

    fn updates(&self) -> Option<usize> {
        Some(0)
    }

    fn flops(&self, _: &Op, _: &[&Shape], _: &[Shape]) -> f64 {
        0.0
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dims = g.dims(1..=4, 1..=6);
        let axis = g.size(0..=dims.len() - 1);
        let len = g.size(0..=dims[axis]);
        let each = axis > 0 && g.chance(0.5);
        let last = dims[axis] - len;
        let start = |g: &mut Gen| {
            let place = g.size(0..=last);
            if g.chance(0.3) { place as i128 - dims[axis] as i128 } else { place as i128 }
        };
        let starts: Vec<i128> = (0..if each { dims[0] } else { 1 }).map(|_| start(g)).collect();
        let starts_dims = if each { vec![dims[0]] } else { vec![] };
        let starts = Value::int(g.pick(&[crate::DType::I32, crate::DType::I64]), &starts_dims, starts);
        let mut update_dims = dims.clone();
        update_dims[axis] = len;
        let dtype = g.dtype_where(|d| Takes::NumbersAndBools.accepts(d));
        let (x, update) = (g.value(dtype, &dims, -2.0..2.0), g.value(dtype, &update_dims, -2.0..2.0));
        Case::new(Op::UpdateSlice { axis }, vec![x, update, starts])
    }
}
