//! Ops of single elements. Functions that StableHLO has are its own; the others are written out as [`rlx_math`] approximates them.

use std::cell::RefCell;

use rlx_ir::op::{Activation, BinaryOp, CmpOp, Predicate};
use rlx_ir::ops::attr::NamedVariant;
use rlx_ir::{DType, Node, Op, Result};
use rlx_math::{Approximation, Form, Function, Lanes, Visitor};

use super::dtypes::{computes, no, unsigned};
use super::writer::{Type, Val, Writer};

/// What StableHLO has of a function.
fn native(function: Function) -> Option<&'static str> {
    Some(match function {
        Function::Exp => "exponential",
        Function::Expm1 => "exponential_minus_one",
        Function::Log => "log",
        Function::Log1p => "log_plus_one",
        Function::Cbrt => "cbrt",
        Function::Sin => "sine",
        Function::Cos => "cosine",
        Function::Tanh => "tanh",
        Function::Sigmoid => "logistic",
        _ => return None,
    })
}

/// A function of StableHLO's. What is no number stays none: vectors of XLA on the CPU give 1 as the exponential of NaN.
pub(super) fn called(w: &mut Writer, op: &str, x: Val) -> Val {
    let y = w.map(op, &[x]);
    if op != "exponential" {
        return y;
    }
    let none = w.compare("NE", x, x);
    w.select(none, x, y)
}

/// Why there is no text for an op of single elements, if there is none.
pub(super) fn rejects(op: &Op, of: &[DType], to: DType) -> Option<String> {
    let known = |dtype: &DType| computes(*dtype);
    match op {
        Op::Activation(f) if of[0] == DType::F64 => {
            let function = Function::named(f.name());
            let wide = function
                .is_none_or(|f| native(f).is_some() || f.form() == Form::Formula && f != Function::Gelu);
            if wide { None } else { no("it is approximated in f32 alone") }
        }
        Op::Binary(BinaryOp::Pow) if !of[0].is_float() => no("powers are of floats"),
        Op::Cast { .. } => {
            let takes = |dtype: DType| computes(dtype) || matches!(dtype, DType::I4 | DType::U4);
            if takes(of[0]) && takes(to) { None } else { no("it is not converted") }
        }
        Op::BitCast { .. } if of[0] == DType::Bool || to == DType::Bool => no("truth values have no bits"),
        _ if of.iter().all(known) && computes(to) => None,
        _ => no("it is not computed in"),
    }
}

/// Writes a node of this family.
pub(super) fn write(w: &mut Writer, node: &Node, x: &[Val]) -> Result<Option<Val>> {
    let ty = Type::of(&node.shape)?;
    let wide: Vec<Val> = match node.op {
        Op::Binary(_) | Op::Compare(_) | Op::Where => x.iter().map(|&v| w.broadcast(v, &ty.dims)).collect(),
        _ => x.to_vec(),
    };
    Ok(Some(match &node.op {
        Op::Activation(f) => return Ok(activation(w, *f, x[0])),
        Op::Binary(op) => return Ok(binary(w, *op, wide[0], wide[1])),
        Op::Compare(op) => {
            let direction = match op {
                CmpOp::Eq => "EQ",
                CmpOp::Ne => "NE",
                CmpOp::Lt => "LT",
                CmpOp::Le => "LE",
                CmpOp::Gt => "GT",
                CmpOp::Ge => "GE",
                _ => return Ok(None),
            };
            w.compare(direction, wide[0], wide[1])
        }
        Op::Where => w.select(wide[0], wide[1], wide[2]),
        Op::Predicate(op) => predicate(w, *op, x[0]),
        Op::Cast { .. } => cast(w, x[0], ty.dtype),
        Op::BitCast { .. } => w.op("bitcast_convert", x, "", ty),
        _ => return Ok(None),
    }))
}

fn activation(w: &mut Writer, f: Activation, x: Val) -> Option<Val> {
    let (ty, dtype) = (w.ty(x).clone(), w.dtype(x));
    let zero = |w: &mut Writer| w.number(&ty, 0.0);
    let integer = !dtype.is_float();
    Some(match f {
        Activation::Relu => {
            let zero = zero(w);
            w.map("maximum", &[x, zero])
        }
        Activation::Neg => w.map("negate", &[x]),
        Activation::Abs | Activation::Round | Activation::Floor | Activation::Ceil | Activation::Trunc
            if integer && (f != Activation::Abs || unsigned(dtype)) =>
        {
            x
        }
        Activation::Abs => w.map("abs", &[x]),
        Activation::Sign if unsigned(dtype) => {
            let (zero, one) = (zero(w), w.number(&ty, 1.0));
            let any = w.compare("NE", x, zero);
            w.select(any, one, zero)
        }
        Activation::Sign => w.map("sign", &[x]),
        Activation::Not | Activation::BitNot => w.map("not", &[x]),
        Activation::Round => w.map("round_nearest_even", &[x]),
        Activation::Floor => w.map("floor", &[x]),
        Activation::Ceil => w.map("ceil", &[x]),
        Activation::Trunc => {
            let zero = zero(w);
            let (low, down, up) = (w.compare("LT", x, zero), w.map("floor", &[x]), w.map("ceil", &[x]));
            w.select(low, up, down)
        }
        Activation::Sqrt => w.map("sqrt", &[x]),
        Activation::Rsqrt => {
            let (root, one) = (w.map("sqrt", &[x]), w.number(&ty, 1.0));
            w.map("divide", &[one, root])
        }
        Activation::Recip => {
            let one = w.number(&ty, 1.0);
            w.map("divide", &[one, x])
        }
        f => approximation(w, Function::named(f.name())?, x),
    })
}

/// A function that [`rlx_math`] has: in f32, and in f64 where it is a formula.
fn approximation(w: &mut Writer, function: Function, x: Val) -> Val {
    struct Written<'c, 'w> {
        lanes: Emit<'c, 'w>,
        x: Val,
    }
    impl Visitor for Written<'_, '_> {
        type Output = Val;
        fn visit<A: Approximation>(self) -> Val {
            A::lanes(self.lanes, self.x)
        }
    }
    let dtype = w.dtype(x);
    let wide = w.convert(x, if dtype == DType::F64 { DType::F64 } else { DType::F32 });
    let ty = w.ty(wide).clone();
    let y = match native(function) {
        Some(op) => called(w, op, wide),
        None => {
            let cell = RefCell::new(&mut *w);
            function.visit(Written { lanes: Emit { w: &cell, ty: &ty }, x: wide })
        }
    };
    w.convert(y, dtype)
}

/// Lanes that are values of a program: an approximation writes its ops.
#[derive(Clone, Copy)]
struct Emit<'c, 'w> {
    w: &'c RefCell<&'w mut Writer>,
    ty: &'c Type,
}

impl Emit<'_, '_> {
    fn map(self, op: &str, inputs: &[Val]) -> Val {
        self.w.borrow_mut().map(op, inputs)
    }

    fn shift(self, op: &str, a: Val, by: i32) -> Val {
        let by = self.splat_i(by);
        self.map(op, &[a, by])
    }

    fn bits_as(self, a: Val, dtype: DType) -> Val {
        let mut w = self.w.borrow_mut();
        let ty = w.ty(a).with(dtype);
        w.op("bitcast_convert", &[a], "", ty)
    }
}

/// Writes each listed method as one op.
macro_rules! ops {
    ($($name:ident $op:literal $($operand:ident)*;)*) => {
        $(fn $name(self, $($operand: Val),*) -> Val {
            self.map($op, &[$($operand),*])
        })*
    };
}

impl Lanes for Emit<'_, '_> {
    type F = Val;
    type I = Val;
    type M = Val;
    const FUSED: bool = false;

    ops! {
        add "add" a b;
        sub "subtract" a b;
        mul "multiply" a b;
        div "divide" a b;
        sqrt "sqrt" a;
        round "round_nearest_even" a;
        floor "floor" a;
        ceil "ceil" a;
        mask_and "and" a b;
        mask_or "or" a b;
        mask_not "not" a;
        add_i "add" a b;
        sub_i "subtract" a b;
        and_i "and" a b;
        or_i "or" a b;
        xor_i "xor" a b;
        abs "abs" a;
        neg "negate" a;
    }

    fn splat(self, x: f32) -> Val {
        self.constant(f64::from(x))
    }
    fn constant(self, x: f64) -> Val {
        self.w.borrow_mut().number(self.ty, x)
    }
    fn native(self, f: Function, x: Val) -> Option<Val> {
        native(f).map(|op| called(&mut self.w.borrow_mut(), op, x))
    }
    fn mul_add(self, a: Val, b: Val, c: Val) -> Val {
        self.add(self.mul(a, b), c)
    }
    fn neg_mul_add(self, a: Val, b: Val, c: Val) -> Val {
        self.sub(c, self.mul(a, b))
    }
    fn min_raw(self, a: Val, b: Val) -> Val {
        self.select(self.lt(a, b), a, b)
    }
    fn max_raw(self, a: Val, b: Val) -> Val {
        self.select(self.lt(b, a), a, b)
    }
    fn trunc(self, a: Val) -> Val {
        self.select(self.lt(a, self.zero()), self.ceil(a), self.floor(a))
    }
    fn lt(self, a: Val, b: Val) -> Val {
        self.w.borrow_mut().compare("LT", a, b)
    }
    fn le(self, a: Val, b: Val) -> Val {
        self.w.borrow_mut().compare("LE", a, b)
    }
    fn eq(self, a: Val, b: Val) -> Val {
        self.w.borrow_mut().compare("EQ", a, b)
    }
    fn eq_i(self, a: Val, b: Val) -> Val {
        self.eq(a, b)
    }
    fn select(self, m: Val, a: Val, b: Val) -> Val {
        self.w.borrow_mut().select(m, a, b)
    }
    fn splat_i(self, x: i32) -> Val {
        let ty = self.ty.with(DType::I32);
        self.w.borrow_mut().splat(&ty, &x.to_le_bytes())
    }
    fn to_int(self, a: Val) -> Val {
        self.w.borrow_mut().convert(a, DType::I32)
    }
    fn from_int(self, a: Val) -> Val {
        self.w.borrow_mut().convert(a, DType::F32)
    }
    fn bits(self, a: Val) -> Val {
        self.bits_as(a, DType::I32)
    }
    fn from_bits(self, a: Val) -> Val {
        self.bits_as(a, DType::F32)
    }
    fn shl_i<const N: i32>(self, a: Val) -> Val {
        self.shift("shift_left", a, N)
    }
    fn shr_i<const N: i32>(self, a: Val) -> Val {
        self.shift("shift_right_arithmetic", a, N)
    }
    fn scale2(self, a: Val, n: Val) -> Val {
        // Two steps, so that neither power of two leaves the range.
        let n = self.to_int(n);
        let half = self.shr_i::<1>(n);
        let power = |n| self.from_bits(self.shl_i::<23>(self.add_i(n, self.splat_i(127))));
        let once = self.mul(a, power(half));
        self.mul(once, power(self.sub_i(n, half)))
    }
}

fn binary(w: &mut Writer, op: BinaryOp, a: Val, b: Val) -> Option<Val> {
    let float = w.dtype(a).is_float();
    let name = match op {
        BinaryOp::Add => "add",
        BinaryOp::Sub => "subtract",
        BinaryOp::Mul => "multiply",
        BinaryOp::Div if float => "divide",
        BinaryOp::Max => "maximum",
        BinaryOp::Min => "minimum",
        BinaryOp::Pow => "power",
        BinaryOp::Rem if float => "remainder",
        BinaryOp::And | BinaryOp::BitAnd => "and",
        BinaryOp::Or | BinaryOp::BitOr => "or",
        BinaryOp::Xor | BinaryOp::BitXor => "xor",
        BinaryOp::Shl => "shift_left",
        BinaryOp::Shr => "shift_right_logical",
        BinaryOp::Atan2 => "atan2",
        BinaryOp::Div => return Some(guarded(w, "divide", a, b)),
        BinaryOp::Rem => return Some(guarded(w, "remainder", a, b)),
        BinaryOp::Mod => return Some(modulo(w, a, b)),
        _ => return None,
    };
    Some(w.map(name, &[a, b]))
}

/// A quotient or remainder of integers; by zero it is 0.
fn guarded(w: &mut Writer, op: &str, a: Val, b: Val) -> Val {
    let ty = w.ty(a).clone();
    let (zero, one) = (w.number(&ty, 0.0), w.number(&ty, 1.0));
    let by_zero = w.compare("EQ", b, zero);
    let safe = w.select(by_zero, one, b);
    let result = w.map(op, &[a, safe]);
    w.select(by_zero, zero, result)
}

/// The remainder with the sign of the divisor.
fn modulo(w: &mut Writer, a: Val, b: Val) -> Val {
    let (ty, dtype) = (w.ty(a).clone(), w.dtype(a));
    let rest = if dtype.is_float() { w.map("remainder", &[a, b]) } else { guarded(w, "remainder", a, b) };
    if unsigned(dtype) {
        return rest;
    }
    let zero = w.number(&ty, 0.0);
    let (any, low, low_b) =
        (w.compare("NE", rest, zero), w.compare("LT", rest, zero), w.compare("LT", b, zero));
    let differ = w.map("xor", &[low, low_b]);
    let (wrong, sum) = (w.map("and", &[any, differ]), w.map("add", &[rest, b]));
    w.select(wrong, sum, rest)
}

fn predicate(w: &mut Writer, op: Predicate, x: Val) -> Val {
    let ty = w.ty(x).clone();
    if op == Predicate::IsNan {
        return w.compare("NE", x, x);
    }
    let (high, low) = (w.number(&ty, f64::INFINITY), w.number(&ty, f64::NEG_INFINITY));
    let (above, below) = (w.compare("EQ", x, high), w.compare("EQ", x, low));
    match op {
        Predicate::IsPosInf => above,
        Predicate::IsNegInf => below,
        _ => w.map("or", &[above, below]),
    }
}

/// Whether elements are not zero.
pub(super) fn truth(w: &mut Writer, x: Val) -> Val {
    let ty = w.ty(x).clone();
    let zero = w.number(&ty, 0.0);
    w.compare("NE", x, zero)
}

fn cast(w: &mut Writer, x: Val, to: DType) -> Val {
    let from = w.dtype(x);
    if to == DType::Bool {
        return if from == DType::Bool { x } else { truth(w, x) };
    }
    if !from.is_float() || to.is_float() {
        return w.convert(x, to);
    }
    // Floats saturate, and what is no number is 0; StableHLO leaves open what becomes of them.
    let wide = if from == DType::F64 { x } else { w.convert(x, DType::F32) };
    let (ty, result) = (w.ty(wide).clone(), w.ty(wide).with(to));
    let (least, most) = to.int_range().unwrap_or((0, 0));
    let above = w.number(&ty, most as f64 + 1.0);
    let below = w.number(&ty, least as f64);
    let (high, low) = (w.compare("GE", wide, above), w.compare("LE", wide, below));
    let none = w.compare("NE", wide, wide);
    let outside = w.map("or", &[high, low]);
    let outside = w.map("or", &[outside, none]);
    let zero = w.number(&ty, 0.0);
    let inside = w.select(outside, zero, wide);
    let inside = w.convert(inside, to);
    let [most, least] = [most, least].map(|limit| rlx_ir::Value::int(to, &[1], vec![limit]).encode());
    let (most, least) = (w.splat(&result, &most), w.splat(&result, &least));
    let bounded = w.select(high, most, inside);
    w.select(low, least, bounded)
}
