//! Ops that find as many things as there are in their input's values: a dimension of their result is known only
//! when they ran.
//!
//! Such an op names the symbol of that dimension in its attribute `count`, and binds it: what comes after it in the
//! graph may use the symbol as any other. [`OpDef::counted`] gives the attribute, [`OpDef::count`] its value for given
//! operands, and [`OpDef::bound`] what it cannot exceed, which is what devices plan memory for.
//!
//! ```
//! use rlx_ir::{DType, Dim, Graph, GraphExt, Op, Shape, Value, oracle, sym};
//! let mut g = Graph::new("find");
//! let x = g.input("x", Shape::new(&[4], DType::F32));
//! let count = Dim::Dynamic(sym::named("found"));
//! let places = g.try_add(Op::NonZero { count }, &[x]).unwrap();
//! g.set_outputs(vec![places]);
//! let mut bindings = oracle::Bindings::default();
//! bindings.set_input("x", Value::float(DType::F32, &[4], vec![0.0, 2.0, 0.0, 3.0]));
//! assert_eq!(oracle::evaluate(&g, &bindings).unwrap()[0].dims, [1, 2]);
//! ```

use smallvec::smallvec;

use crate::dim::{Dim, Extent};
use crate::dtype::{DType, DTypeClass};
use crate::error::{Error, ErrorKind, Result};
use crate::ops::def::{Arity, OpDef, Ranges, dtype_error};
use crate::ops::elementwise::static_dims;
use crate::ops::{Op, OpKind, attrs};
use crate::progress::Progress;
use crate::shape::{Shape, Shapes, agreed_dim};
use crate::sort::sort_by;
use crate::tensor::{Elements, Value};

#[cfg(feature = "testing")]
use crate::{
    dim::sym,
    testing::{Case, Gen},
};

/// A count that is neither a symbol nor a number has no one who could work it out.
pub(super) fn check_count(kind: OpKind, count: Dim) -> Result<()> {
    match count {
        Dim::Expr(_) => {
            Err(Error::new(ErrorKind::Shape, format!("{kind} binds one symbol, not an expression: {count}")))
        }
        _ => Ok(()),
    }
}

/// The positions of what is not zero, in row-major order.
fn non_zero(x: &Value) -> Vec<usize> {
    let places = 0..x.len();
    match &x.elements {
        Elements::Float(v) => places.filter(|&i| v[i] != 0.0).collect(),
        Elements::Int(v) => places.filter(|&i| v[i] != 0).collect(),
    }
}

/// [`Op::NonZero`].
pub struct NonZeroDef;

impl OpDef for NonZeroDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => NonZero { count });
        if inputs[0].dtype().class() == DTypeClass::Complex {
            return Err(dtype_error(OpKind::NonZero, inputs[0], "numbers or bools"));
        }
        check_count(OpKind::NonZero, *count)?;
        Ok(smallvec![Shape::from_dims(&[Dim::Static(inputs[0].rank()), *count], DType::I64)])
    }

    fn holds_for_all(&self, _: &Op, _: &[&Shape], _: Ranges<'_>) -> bool {
        true
    }

    fn counted(&self, op: &Op) -> Option<Dim> {
        let Op::NonZero { count } = op else { return None };
        Some(*count)
    }

    fn count(&self, _: &Op, inputs: &[&Value], _: &Progress) -> Result<usize> {
        Ok(non_zero(inputs[0]).len())
    }

    fn bound(&self, _: &Op, inputs: &[&Shape]) -> Extent {
        inputs[0].elements()
    }

    fn reference(&self, _: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        let (x, dims) = (inputs[0], static_dims(&results[0])?);
        let places = non_zero(x);
        let mut steps = vec![1usize; x.dims.len()];
        for i in (1..steps.len()).rev() {
            steps[i - 1] = steps[i] * x.dims[i];
        }
        let along = |axis: usize| places.iter().map(move |p| (p, axis));
        let indices = (0..x.dims.len()).flat_map(along).map(|(p, axis)| p / steps[axis] % x.dims[axis]);
        Ok(vec![Value::int(DType::I64, &dims, indices.map(|i| i as i128).collect())])
    }

    fn flops(&self, _: &Op, inputs: &[&Shape], _: &[Shape]) -> f64 {
        inputs[0].num_elements().unwrap_or(0) as f64
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dims = g.dims(1..=3, 0..=7);
        let dtype = g.dtype_where(|d| d.class() != DTypeClass::Complex);
        let mut x = g.value(dtype, &dims, -1.0..1.0);
        // Many zeros, and sometimes nothing else.
        let most = g.pick(&[0.0, 0.3, 0.7, 1.0]);
        match &mut x.elements {
            Elements::Float(v) => v.iter_mut().for_each(|x| *x = if g.chance(most) { 0.0 } else { *x }),
            Elements::Int(v) => v.iter_mut().for_each(|x| *x = if g.chance(most) { 0 } else { *x }),
        }
        Case::new(Op::NonZero { count: Dim::Dynamic(sym::named("found")) }, vec![x])
    }
}

/// [`Op::CountUp`].
pub struct CountUpDef;

impl OpDef for CountUpDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => CountUp { count });
        if inputs[0].dtype() != DType::I64 {
            return Err(dtype_error(OpKind::CountUp, inputs[0], "an i64"));
        }
        if inputs[0].elements() != Extent::Const(1) {
            return Err(Error::new(
                ErrorKind::Shape,
                format!("CountUp to {}, which is not one number", inputs[0]),
            ));
        }
        check_count(OpKind::CountUp, *count)?;
        Ok(smallvec![Shape::from_dims(&[*count], DType::I64)])
    }

    fn holds_for_all(&self, _: &Op, _: &[&Shape], _: Ranges<'_>) -> bool {
        true
    }

    fn counted(&self, op: &Op) -> Option<Dim> {
        let Op::CountUp { count, .. } = op else { return None };
        Some(*count)
    }

    fn count(&self, op: &Op, inputs: &[&Value], _: &Progress) -> Result<usize> {
        attrs!(op => CountUp { most });
        let number = inputs[0].ints()?.first().copied().unwrap_or(0);
        let found = usize::try_from(number).ok().filter(|&n| most.as_static().is_none_or(|most| n <= most));
        found.ok_or_else(|| {
            Error::new(ErrorKind::Value, format!("{number} as a size, which is from 0 to {most}"))
        })
    }

    fn bound(&self, op: &Op, _: &[&Shape]) -> Extent {
        let Op::CountUp { most, .. } = op else { return Extent::Const(i64::MAX) };
        most.extent()
    }

    fn reference(&self, _: &Op, _: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        let dims = static_dims(&results[0])?;
        let numbers = (0..dims.iter().product()).map(|i: usize| i as i128).collect();
        Ok(vec![Value::int(DType::I64, &dims, numbers)])
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let most = g.size(0..=9);
        let number = g.size(0..=most);
        let dims = g.pick(&[[].as_slice(), &[1], &[1, 1]]);
        let op = Op::CountUp { count: Dim::Dynamic(sym::named("number")), most: Dim::Static(most) };
        Case::new(op, vec![Value::int(DType::I64, dims, vec![number as i128])])
    }
}

/// The corners `[y₁, x₁, y₂, x₂]`, the lesser ones first, of a box given by its corners or by its centre and size.
fn corners(b: &[f64], centre: bool) -> [f64; 4] {
    if centre {
        let (x, y, w, h) = (b[0], b[1], b[2] / 2.0, b[3] / 2.0);
        [y - h, x - w, y + h, x + w]
    } else {
        [b[0].min(b[2]), b[1].min(b[3]), b[0].max(b[2]), b[1].max(b[3])]
    }
}

/// The area two boxes share, as a part of the area that either covers.
fn shared_part(a: &[f64; 4], b: &[f64; 4]) -> f64 {
    let area = |c: &[f64; 4]| (c[2] - c[0]) * (c[3] - c[1]);
    let shared = [a[0].max(b[0]), a[1].max(b[1]), a[2].min(b[2]), a[3].min(b[3])];
    let (height, width) = ((shared[2] - shared[0]).max(0.0), (shared[3] - shared[1]).max(0.0));
    let (shared, a, b) = (height * width, area(a), area(b));
    if a <= 0.0 || b <= 0.0 { 0.0 } else { shared / (a + b - shared) }
}

/// [`Op::NonMaxSuppression`].
pub struct NonMaxSuppressionDef;

/// The indices `(batch, class, box)` that stay.
fn kept(op: &Op, boxes: &Value, scores: &Value) -> Result<Vec<[usize; 3]>> {
    attrs!(op => NonMaxSuppression { most, overlap, score, centre });
    let threshold = overlap;
    let (places, values) = (boxes.floats()?, scores.floats()?);
    let &[batches, classes, count] = &scores.dims[..] else {
        return Err(Error::new(ErrorKind::Shape, "scores are [batch, classes, boxes]"));
    };
    if count == 0 {
        // However many classes have no boxes.
        return Ok(Vec::new());
    }
    let mut all = Vec::new();
    for (batch, class) in (0..batches).flat_map(|b| (0..classes).map(move |c| (b, c))) {
        let at = |i: usize| values[(batch * classes + class) * count + i];
        let corners = |i: usize| corners(&places[(batch * count + i) * 4..][..4], *centre);
        let good = |&i: &usize| !at(i).is_nan() && score.is_none_or(|least| at(i) > f64::from(least));
        let mut order: Vec<usize> = (0..count).filter(good).collect();
        // A stable sort keeps equal scores in the order of the boxes.
        sort_by(&mut order, |&i, &j| at(j).partial_cmp(&at(i)).unwrap_or(std::cmp::Ordering::Equal));
        let mut chosen: Vec<usize> = Vec::new();
        for i in order {
            if chosen.len() as u64 >= *most {
                break;
            }
            let hidden = |&j: &usize| shared_part(&corners(i), &corners(j)) > f64::from(*threshold);
            if !chosen.iter().any(hidden) {
                chosen.push(i);
            }
        }
        all.extend(chosen.into_iter().map(|i| [batch, class, i]));
    }
    Ok(all)
}

impl OpDef for NonMaxSuppressionDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(2)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => NonMaxSuppression { count });
        let (boxes, scores) = (inputs[0], inputs[1]);
        if !boxes.dtype().is_float() || boxes.dtype() != scores.dtype() {
            return Err(dtype_error(OpKind::NonMaxSuppression, boxes, "boxes and scores of one float type"));
        }
        let agree = |a: Dim, b: Dim| agreed_dim(a, b).is_some();
        let fits = boxes.rank() == 3
            && scores.rank() == 3
            && agree(boxes.dim(2), Dim::Static(4))
            && agree(boxes.dim(0), scores.dim(0))
            && agree(boxes.dim(1), scores.dim(2));
        if !fits {
            let message = format!(
                "boxes {boxes} are not [batch, boxes, 4], or scores {scores} not [batch, classes, boxes]"
            );
            return Err(Error::new(ErrorKind::Shape, message));
        }
        check_count(OpKind::NonMaxSuppression, *count)?;
        Ok(smallvec![Shape::from_dims(&[*count, Dim::Static(3)], DType::I64)])
    }

    fn holds_for_all(&self, _: &Op, inputs: &[&Shape], _: Ranges<'_>) -> bool {
        let (boxes, scores) = (inputs[0], inputs[1]);
        boxes.dim(2) == Dim::Static(4) && boxes.dim(0) == scores.dim(0) && boxes.dim(1) == scores.dim(2)
    }

    fn counted(&self, op: &Op) -> Option<Dim> {
        let Op::NonMaxSuppression { count, .. } = op else { return None };
        Some(*count)
    }

    fn count(&self, op: &Op, inputs: &[&Value], _: &Progress) -> Result<usize> {
        Ok(kept(op, inputs[0], inputs[1])?.len())
    }

    fn bound(&self, op: &Op, inputs: &[&Shape]) -> Extent {
        let dim = |i: usize| inputs[1].dim(i).extent();
        let most = match op {
            Op::NonMaxSuppression { most, .. } => i64::try_from(*most).unwrap_or(i64::MAX),
            _ => i64::MAX,
        };
        let each = if most == i64::MAX { dim(2) } else { dim(2).min(most) };
        dim(0) * dim(1) * each
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        let kept = kept(op, inputs[0], inputs[1])?;
        let indices = kept.iter().flatten().map(|&i| i as i128).collect();
        Ok(vec![Value::int(DType::I64, &static_dims(&results[0])?, indices)])
    }

    fn flops(&self, _: &Op, inputs: &[&Shape], _: &[Shape]) -> f64 {
        let scores = inputs[1].num_elements().unwrap_or(0) as f64;
        scores * (scores.max(2.0).log2() + 16.0)
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let (batch, classes, boxes) = (g.size(1..=2), g.size(1..=3), g.size(0..=20));
        let op = Op::NonMaxSuppression {
            count: Dim::Dynamic(sym::named("kept")),
            most: g.pick(&[0, 1, 3, 1000, i64::MAX as u64]),
            // No quotient of the areas below.
            overlap: g.pick(&[0.0123, 0.4321]),
            score: if g.chance(0.5) { Some(0.1) } else { None },
            centre: g.chance(0.3),
        };
        let places = g.value(DType::F32, &[batch, boxes, 4], 0.0..4.0);
        let scores = g.distinct_value(DType::F32, &[batch, classes, boxes]);
        Case::new(op, vec![places, scores])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::evaluate_op;

    #[test]
    fn what_overlaps_a_better_box_goes() {
        let boxes = [[0.0, 0.0, 1.0, 1.0], [0.0, 0.1, 1.0, 1.1], [1.0, 3.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0]];
        let boxes = Value::float(DType::F32, &[1, 4, 4], boxes.concat());
        let scores = Value::float(DType::F32, &[1, 1, 4], vec![0.5, 0.9, 0.7, 0.1]);
        let run = |most, score| {
            let count = Dim::Dynamic(crate::dim::sym::named("kept"));
            let op = Op::NonMaxSuppression { count, most, overlap: 0.5, score, centre: false };
            let y = evaluate_op(&op, &[&boxes, &scores], &[]).unwrap();
            (y[0].dims[0], y[0].ints().unwrap().iter().skip(2).step_by(3).copied().collect::<Vec<_>>())
        };
        assert_eq!(run(9, Some(0.2)), (2, vec![1, 2]));
        assert_eq!(run(9, None), (3, vec![1, 2, 3]));
        assert_eq!(run(1, None), (1, vec![1]));
        assert_eq!(run(0, None), (0, vec![]));
    }

    #[test]
    fn a_count_that_is_given_must_be_right() {
        let x = Value::bools(&[2, 2], [true, false, false, true]);
        let op = |n| Op::NonZero { count: Dim::Static(n) };
        assert_eq!(evaluate_op(&op(2), &[&x], &[]).unwrap()[0].ints().unwrap(), [0, 1, 0, 1]);
        assert_eq!(evaluate_op(&op(3), &[&x], &[]).unwrap_err().kind(), ErrorKind::Value);
    }

    #[test]
    fn bounds_are_expressions_over_the_shapes() {
        let n = Dim::Dynamic(crate::dim::sym::named("anchors"));
        let scores = Shape::from_dims(&[Dim::Static(2), Dim::Static(3), n], DType::F32);
        let op = |most| Op::NonMaxSuppression { count: n, most, overlap: 0.5, score: None, centre: false };
        assert_eq!(NonMaxSuppressionDef.bound(&op(u64::MAX), &[&scores, &scores]), n.extent() * 6);
        assert_eq!(NonMaxSuppressionDef.bound(&op(7), &[&scores, &scores]), n.extent().min(7) * 6);
    }
}
