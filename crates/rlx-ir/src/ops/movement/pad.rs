//! Padding: a border around a tensor.

use smallvec::smallvec;

use crate::dim::{Dim, Extent};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::def::{Arity, OpDef, Ranges};
use crate::ops::{Op, OpKind, PadMode, attrs, elementwise};
use crate::oracle::strides;
use crate::shape::{Shape, Shapes};
use crate::tensor::{Elements, Value};

#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

/// [`Op::Pad`].
pub struct PadDef;

/// The position in a dimension of `size` elements that `place` maps to, which may be outside; `None` is
/// the border of constant mode. `size` is not 0 where something else than a constant is wanted.
fn source(place: i64, size: i64, mode: PadMode) -> Option<i64> {
    if (0..size).contains(&place) {
        return Some(place);
    }
    match mode {
        PadMode::Constant => None,
        PadMode::Edge => Some(place.clamp(0, size - 1)),
        PadMode::Wrap => Some(place.rem_euclid(size)),
        PadMode::Reflect if size == 1 => Some(0),
        PadMode::Reflect => {
            // There and back again, neither end twice.
            let place = place.rem_euclid(2 * (size - 1));
            Some(place.min(2 * (size - 1) - place))
        }
    }
}

impl OpDef for PadDef {
    fn arity(&self, op: &Op) -> Arity {
        match op {
            Op::Pad { mode: PadMode::Constant, .. } => Arity::Between(1, 2),
            _ => Arity::Exact(1),
        }
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Pad { before, after, mode });
        let x = inputs[0];
        let reject = |why: String| Err(Error::new(ErrorKind::Shape, format!("cannot pad {x}: {why}")));
        if [before.len(), after.len()] != [x.rank(); 2] {
            return reject("pads must be given before and after each dimension".to_string());
        }
        let negative = |e: &Extent| e.as_const().is_some_and(|c| c < 0);
        if let Some(pad) = before.iter().chain(after).find(|e| negative(e)) {
            return reject(format!("a pad of {pad} is negative; a Slice removes elements"));
        }
        let padded = |axis: usize| before[axis] != Extent::Const(0) || after[axis] != Extent::Const(0);
        if *mode != PadMode::Constant
            && let Some(axis) = (0..x.rank()).find(|&i| x.dim(i) == Dim::Static(0) && padded(i))
        {
            return reject(format!("dimension {axis} has nothing to repeat"));
        }
        if let Some(value) = inputs.get(1) {
            if value.rank() != 0 {
                return reject(format!("its value {value} is not a scalar"));
            }
            elementwise::same_dtype(OpKind::Pad, x, value)?;
        }
        let grown = |i: usize| Dim::from(before[i] + x.dim(i).extent() + after[i]);
        Ok(smallvec![x.with_dims((0..x.rank()).map(grown).collect())])
    }

    fn holds_for_all(&self, op: &Op, inputs: &[&Shape], range: Ranges<'_>) -> bool {
        let Op::Pad { before, after, mode } = op else { return false };
        let never_negative = |e: &Extent| e.range(range).min >= 0;
        let fills = |i: usize| inputs[0].dim(i).extent().range(range).min > 0;
        before.iter().chain(after).all(never_negative)
            && (*mode == PadMode::Constant || (0..inputs[0].rank()).all(fills))
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => Pad { before, mode });
        let (x, dims) = (inputs[0], results[0].static_dims().unwrap_or_default());
        let mut places = vec![Some(0usize)];
        for (axis, stride) in strides(&x.dims).into_iter().enumerate() {
            let (size, skip) = (x.dims[axis] as i64, before[axis].as_const().unwrap_or(0));
            let own: Vec<Option<usize>> = (0..dims[axis] as i64)
                .map(|i| source(i - skip, size, *mode).map(|at| (at * stride) as usize))
                .collect();
            let join = |p: &Option<usize>| own.iter().map(|&o| Some((*p)? + o?)).collect::<Vec<_>>();
            places = places.iter().flat_map(join).collect();
        }
        // The border's value is put behind the tensor, so that picking finds it there.
        let parts = if x.dtype == DType::C64 { 2 } else { 1 };
        let (mut elements, border) = (x.elements.clone(), inputs.get(1).map(|v| &v.elements));
        match (&mut elements, border) {
            (Elements::Float(v), Some(Elements::Float(b))) => v.extend_from_slice(b),
            (Elements::Int(v), Some(Elements::Int(b))) => v.extend_from_slice(b),
            (Elements::Float(v), _) => v.extend(std::iter::repeat_n(0.0, parts)),
            (Elements::Int(v), _) => v.push(0),
        }
        let extended = Value { dtype: x.dtype, dims: x.dims.clone(), elements };
        let index: Vec<usize> = places.into_iter().map(|p| p.unwrap_or(x.len())).collect();
        Ok(vec![extended.pick(&dims, &index)])
    }

    fn flops(&self, _: &Op, _: &[&Shape], _: &[Shape]) -> f64 {
        0.0
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dims = g.dims(0..=4, 1..=5);
        let dtype = g.dtype_where(|_| true);
        let mode = g.variant();
        let mut inputs = vec![g.value(dtype, &dims, -2.0..2.0)];
        if mode == PadMode::Constant && g.chance(0.6) {
            inputs.push(g.value(dtype, &[], 0.5..2.0));
        }
        let mut pads = || dims.iter().map(|_| Extent::Const(g.int(0..=3))).collect();
        let (before, after) = (pads(), pads());
        Case::new(Op::Pad { before, after, mode }, inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn padded(mode: PadMode, before: i64, after: i64) -> Vec<i128> {
        let x = Value::int(DType::I32, &[3], vec![1, 2, 3]);
        let op = Op::Pad { before: vec![Extent::Const(before)], after: vec![Extent::Const(after)], mode };
        crate::oracle::evaluate_op(&op, &[&x], &[]).unwrap()[0].ints().unwrap().to_vec()
    }

    #[test]
    fn the_modes_are_numpys_also_beyond_one_length() {
        assert_eq!(padded(PadMode::Constant, 1, 2), [0, 1, 2, 3, 0, 0]);
        assert_eq!(padded(PadMode::Edge, 2, 1), [1, 1, 1, 2, 3, 3]);
        assert_eq!(padded(PadMode::Reflect, 5, 3), [2, 1, 2, 3, 2, 1, 2, 3, 2, 1, 2]);
        assert_eq!(padded(PadMode::Wrap, 4, 2), [3, 1, 2, 3, 1, 2, 3, 1, 2]);
    }

    #[test]
    fn an_empty_tensor_has_a_constant_border_and_no_other() {
        let x = Value::float(DType::F32, &[0], vec![]);
        let border = Value::float(DType::F32, &[], vec![2.5]);
        let op = |mode| Op::Pad { before: vec![Extent::Const(1)], after: vec![Extent::Const(1)], mode };
        let out = crate::oracle::evaluate_op(&op(PadMode::Constant), &[&x, &border], &[]).unwrap();
        assert_eq!(out[0].to_f64(), [2.5, 2.5]);
        assert!(crate::oracle::evaluate_op(&op(PadMode::Edge), &[&x], &[]).is_err());
    }

    #[test]
    fn symbolic_pads_add_up() {
        let n = crate::dim::sym::named("pad_n");
        let x = Shape::from_dims(&[Dim::Dynamic(n)], DType::F32);
        let pad = Extent::sym(n).modulo(4);
        let op = Op::Pad { before: vec![pad], after: vec![Extent::Const(1)], mode: PadMode::Constant };
        let shape = PadDef.infer(&op, &[&x], &[]).unwrap();
        assert_eq!(shape[0].dim(0), Dim::from(Extent::sym(n) + pad + 1));
    }
}
