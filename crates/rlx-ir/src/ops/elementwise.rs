//! Elementwise ops: functions of one, two or three elements at the same (broadcast) position.

pub(crate) mod functions;
mod reference;

use smallvec::smallvec;

use crate::dtype::{DType, DTypeClass};
use crate::error::Result;
use crate::ops::def::{Arity, OpDef, Ranges, dtype_error};
use crate::ops::{BinaryOp, Op, OpKind, Predicate, attrs};
use crate::oracle::broadcast_offsets;
use crate::shape::{Shape, Shapes, always_broadcast_together, broadcast_shape};
use crate::tensor::{Elements, Value};
use crate::{Error, ErrorKind};

#[cfg(feature = "testing")]
use crate::{
    ops::attr::NamedVariant,
    ops::{Activation, CmpOp},
    testing::{Case, Gen},
};

/// Which element types a function takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    Floats,
    Numbers,
    Integers,
    Bools,
    Unsigned,
    NumbersAndBools,
}

impl Takes {
    pub(super) fn accepts(self, dtype: DType) -> bool {
        let class = dtype.class();
        match self {
            Takes::Floats => class == DTypeClass::Float,
            Takes::Numbers => matches!(class, DTypeClass::Float | DTypeClass::Signed | DTypeClass::Unsigned),
            Takes::Integers => dtype.is_int(),
            Takes::Bools => class == DTypeClass::Bool,
            Takes::Unsigned => class == DTypeClass::Unsigned,
            Takes::NumbersAndBools => class != DTypeClass::Complex,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Takes::Floats => "floats",
            Takes::Numbers => "numbers",
            Takes::Integers => "integers",
            Takes::Bools => "bools",
            Takes::Unsigned => "unsigned integers",
            Takes::NumbersAndBools => "numbers or bools",
        }
    }

    pub(super) fn check(self, kind: OpKind, shape: &Shape) -> Result<()> {
        if self.accepts(shape.dtype()) { Ok(()) } else { Err(dtype_error(kind, shape, self.name())) }
    }
}

fn binary_takes(op: BinaryOp) -> Takes {
    use BinaryOp as B;
    match op {
        B::And | B::Or | B::Xor => Takes::Bools,
        B::BitAnd | B::BitOr | B::BitXor => Takes::Integers,
        B::Shl | B::Shr => Takes::Unsigned,
        B::Atan2 => Takes::Floats,
        B::Max | B::Min => Takes::NumbersAndBools,
        _ => Takes::Numbers,
    }
}

/// The element types [`Op::Activation`] and [`Op::Binary`] with this function compute on.
pub fn accepts(op: &Op, dtype: DType) -> bool {
    match op {
        Op::Activation(a) => a.takes().accepts(dtype),
        Op::Binary(b) => binary_takes(*b).accepts(dtype),
        _ => true,
    }
}

pub(super) fn same_dtype(kind: OpKind, a: &Shape, b: &Shape) -> Result<()> {
    if a.dtype() == b.dtype() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::DType, format!("{kind} of {a} with {b}: element types differ"))
        .with_hint("insert a Cast"))
}

/// [`Op::Activation`].
pub struct ActivationDef;

impl OpDef for ActivationDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(1)
    }

    fn is_elementwise(&self) -> bool {
        true
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Activation(f));
        f.takes().check(OpKind::Activation, inputs[0])?;
        Ok(smallvec![inputs[0].clone()])
    }

    fn holds_for_all(&self, _: &Op, _: &[&Shape], _: Ranges<'_>) -> bool {
        true
    }

    fn reference(&self, op: &Op, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => Activation(f));
        let x = inputs[0];
        let elements = match &x.elements {
            Elements::Float(v) => Elements::Float(v.iter().copied().map(f.reference()).collect()),
            Elements::Int(v) => {
                Elements::Int(v.iter().map(|&i| reference::activation_int(*f, i, x.dtype)).collect())
            }
        };
        Ok(vec![Value { dtype: x.dtype, dims: x.dims.clone(), elements }])
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let f = g.pick(Activation::ALL);
        let dtype = g.dtype_where(|d| f.takes().accepts(d));
        let dims = g.dims(0..=4, 1..=6);
        let range = f.tested_over();
        let x = if matches!(f, Activation::Round) {
            g.untied_value(dtype, &dims)
        } else {
            g.value(dtype, &dims, range)
        };
        Case::new(Op::Activation(f), vec![x])
    }
}

/// The result of a function of two elements, broadcast.
fn zip_broadcast<T>(dims: &[usize], a: &Value, b: &Value, mut f: impl FnMut(usize, usize) -> T) -> Vec<T> {
    let (a, b) = (broadcast_offsets(&a.dims, dims), broadcast_offsets(&b.dims, dims));
    a.into_iter().zip(b).map(|(i, j)| f(i, j)).collect()
}

/// The dimensions of a shape that the oracle has fixed.
pub(super) fn static_dims(shape: &Shape) -> Result<Vec<usize>> {
    shape.static_dims().ok_or_else(|| Error::new(ErrorKind::Dimension, format!("{shape} is not fixed")))
}

/// [`Op::Binary`].
pub struct BinaryDef;

impl OpDef for BinaryDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(2)
    }

    fn is_elementwise(&self) -> bool {
        true
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Binary(f));
        same_dtype(OpKind::Binary, inputs[0], inputs[1])?;
        binary_takes(*f).check(OpKind::Binary, inputs[0])?;
        Ok(smallvec![broadcast_shape(inputs, inputs[0].dtype())?])
    }

    fn holds_for_all(&self, _: &Op, inputs: &[&Shape], _: Ranges<'_>) -> bool {
        always_broadcast_together(inputs)
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => Binary(f));
        let dims = static_dims(&results[0])?;
        let (a, b, dtype) = (inputs[0], inputs[1], inputs[0].dtype);
        Ok(vec![match (&a.elements, &b.elements) {
            (Elements::Int(x), Elements::Int(y)) => {
                let out = zip_broadcast(&dims, a, b, |i, j| reference::binary_int(*f, x[i], y[j], dtype));
                Value::int(dtype, &dims, out)
            }
            _ => {
                let (x, y) = (a.floats()?, b.floats()?);
                Value::float(
                    dtype,
                    &dims,
                    zip_broadcast(&dims, a, b, |i, j| reference::binary_f64(*f, x[i], y[j])),
                )
            }
        }])
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let f = g.pick(BinaryOp::ALL);
        let dtype = g.dtype_where(|d| binary_takes(f).accepts(d));
        let (a_dims, b_dims) = g.broadcast_dims();
        let positive =
            matches!(f, BinaryOp::Pow | BinaryOp::Div | BinaryOp::Mod | BinaryOp::Rem | BinaryOp::Atan2);
        let whole = matches!(f, BinaryOp::Pow) && dtype.is_int();
        let range = if whole {
            0.0..4.0
        } else if positive {
            0.5..4.0
        } else {
            -3.0..3.0
        };
        let (a, b) = (g.value(dtype, &a_dims, range.clone()), g.value(dtype, &b_dims, range));
        Case::new(Op::Binary(f), vec![a, b])
    }
}

/// [`Op::Compare`].
pub struct CompareDef;

impl OpDef for CompareDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(2)
    }

    fn is_elementwise(&self) -> bool {
        true
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Compare(_f));
        same_dtype(OpKind::Compare, inputs[0], inputs[1])?;
        Takes::NumbersAndBools.check(OpKind::Compare, inputs[0])?;
        Ok(smallvec![broadcast_shape(inputs, DType::Bool)?])
    }

    fn holds_for_all(&self, _: &Op, inputs: &[&Shape], _: Ranges<'_>) -> bool {
        always_broadcast_together(inputs)
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => Compare(f));
        let dims = static_dims(&results[0])?;
        let (a, b) = (inputs[0], inputs[1]);
        let out = match (&a.elements, &b.elements) {
            (Elements::Int(x), Elements::Int(y)) => {
                zip_broadcast(&dims, a, b, |i, j| reference::compare(*f, x[i].partial_cmp(&y[j])))
            }
            _ => {
                let (x, y) = (a.floats()?, b.floats()?);
                zip_broadcast(&dims, a, b, |i, j| reference::compare(*f, x[i].partial_cmp(&y[j])))
            }
        };
        Ok(vec![Value::bools(&dims, out)])
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let f = g.pick(CmpOp::ALL);
        let dtype = g.dtype_where(|d| Takes::NumbersAndBools.accepts(d));
        let (a_dims, b_dims) = g.broadcast_dims();
        let (a, b) = (g.value(dtype, &a_dims, -3.0..3.0), g.value(dtype, &b_dims, -3.0..3.0));
        Case::new(Op::Compare(f), vec![a, b])
    }
}

/// [`Op::Predicate`].
pub struct PredicateDef;

impl OpDef for PredicateDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(1)
    }

    fn is_elementwise(&self) -> bool {
        true
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Predicate(_f));
        Takes::Floats.check(OpKind::Predicate, inputs[0])?;
        Ok(smallvec![inputs[0].with_dtype(DType::Bool)])
    }

    fn holds_for_all(&self, _: &Op, _: &[&Shape], _: Ranges<'_>) -> bool {
        true
    }

    fn reference(&self, op: &Op, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => Predicate(f));
        let holds = |&x: &f64| match f {
            Predicate::IsNan => x.is_nan(),
            Predicate::IsInf => x.is_infinite(),
            Predicate::IsPosInf => x == f64::INFINITY,
            Predicate::IsNegInf => x == f64::NEG_INFINITY,
        };
        Ok(vec![Value::bools(&inputs[0].dims, inputs[0].floats()?.iter().map(holds))])
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dtype = g.dtype_where(|d| d.is_float());
        let dims = g.dims(0..=3, 1..=6);
        let mut x = g.value(dtype, &dims, -2.0..2.0);
        if let Elements::Float(v) = &mut x.elements {
            let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
            for x in v.iter_mut() {
                if g.chance(0.5) {
                    *x = g.pick(&special);
                }
            }
        }
        Case::new(Op::Predicate(g.variant()), vec![x])
    }
}

/// [`Op::Where`].
pub struct WhereDef;

impl OpDef for WhereDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(3)
    }

    fn is_elementwise(&self) -> bool {
        true
    }

    fn infer(&self, _: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        Takes::Bools.check(OpKind::Where, inputs[0])?;
        same_dtype(OpKind::Where, inputs[1], inputs[2])?;
        Ok(smallvec![broadcast_shape(inputs, inputs[1].dtype())?])
    }

    fn holds_for_all(&self, _: &Op, inputs: &[&Shape], _: Ranges<'_>) -> bool {
        always_broadcast_together(inputs)
    }

    fn reference(&self, _: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        let dims = static_dims(&results[0])?;
        let (condition, a, b) = (inputs[0], inputs[1], inputs[2]);
        let truth = condition.ints()?;
        let places = broadcast_offsets(&condition.dims, &dims)
            .into_iter()
            .zip(broadcast_offsets(&a.dims, &dims).into_iter().zip(broadcast_offsets(&b.dims, &dims)));
        let elements = match (&a.elements, &b.elements) {
            (Elements::Int(x), Elements::Int(y)) => {
                Elements::Int(places.map(|(c, (i, j))| if truth[c] != 0 { x[i] } else { y[j] }).collect())
            }
            _ => {
                let (x, y) = (a.floats()?, b.floats()?);
                Elements::Float(places.map(|(c, (i, j))| if truth[c] != 0 { x[i] } else { y[j] }).collect())
            }
        };
        Ok(vec![Value { dtype: a.dtype, dims, elements }])
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dtype = g.dtype_where(|d| Takes::NumbersAndBools.accepts(d));
        let (a_dims, b_dims) = g.broadcast_dims();
        let condition = g.value(DType::Bool, &a_dims, 0.0..2.0);
        let (a, b) = (g.value(dtype, &b_dims, -3.0..3.0), g.value(dtype, &a_dims, -3.0..3.0));
        Case::new(Op::Where, vec![condition, a, b])
    }
}

/// [`Op::Cast`].
pub struct CastDef;

impl OpDef for CastDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(1)
    }

    fn is_elementwise(&self) -> bool {
        true
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Cast { to });
        Takes::NumbersAndBools.check(OpKind::Cast, inputs[0])?;
        if to.class() == DTypeClass::Complex {
            return Err(Error::new(ErrorKind::DType, format!("cannot cast {} to {to}", inputs[0])));
        }
        Ok(smallvec![inputs[0].with_dtype(*to)])
    }

    fn holds_for_all(&self, _: &Op, _: &[&Shape], _: Ranges<'_>) -> bool {
        true
    }

    fn reference(&self, op: &Op, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => Cast { to });
        let x = inputs[0];
        let elements = match &x.elements {
            Elements::Float(v) if to.is_float() => Elements::Float(v.clone()),
            Elements::Float(v) => Elements::Int(v.iter().map(|&x| reference::float_to_int(x, *to)).collect()),
            Elements::Int(v) if to.is_float() => Elements::Float(v.iter().map(|&i| i as f64).collect()),
            Elements::Int(v) => Elements::Int(v.clone()),
        };
        Ok(vec![Value { dtype: *to, dims: x.dims.clone(), elements }])
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let usual = |g: &mut Gen| g.dtype_where(|d| Takes::NumbersAndBools.accepts(d));
        let (mut from, mut to) = (usual(g), usual(g));
        let dims = g.dims(0..=3, 1..=6);
        // Small floats and packed elements are among one type in three, in both directions.
        let small: Vec<DType> =
            DType::ALL.iter().copied().filter(|d| d.is_packed() || d.is_float()).collect();
        if g.chance(0.5) {
            (from, to) = if g.chance(0.5) { (g.pick(&small), to) } else { (from, g.pick(&small)) };
        }
        let range = if to.is_float() || to.is_signed_int() { -9.0..9.0 } else { 0.0..3.0 };
        Case::new(Op::Cast { to }, vec![g.value(from, &dims, range)])
    }
}
