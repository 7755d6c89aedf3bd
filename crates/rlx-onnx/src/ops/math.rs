//! Arithmetic: elementwise functions, and ops composed of them.

use super::{Emit, Entry, nodes};
use crate::import::NodeCx;
use rlx_ir::op::{Activation as A, BinaryOp as B, CmpOp};
use rlx_ir::{DType, Error, NodeId};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

const fn activation(op: &'static str, f: A) -> Entry {
    Entry::op(op, Emit::Activation(f))
}

const fn binary(op: &'static str, f: B) -> Entry {
    Entry::op(op, Emit::Binary(f))
}

pub(super) const OPS: &[Entry] = &[
    activation("Abs", A::Abs),
    activation("Acos", A::Acos),
    activation("Acosh", A::Acosh),
    activation("Asin", A::Asin),
    activation("Asinh", A::Asinh),
    activation("Atan", A::Atan),
    activation("Atanh", A::Atanh),
    activation("BitwiseNot", A::BitNot),
    activation("Ceil", A::Ceil),
    activation("Cos", A::Cos),
    activation("Cosh", A::Cosh),
    activation("Erf", A::Erf),
    activation("Exp", A::Exp),
    activation("Floor", A::Floor),
    activation("HardSwish", A::HardSwish),
    activation("Log", A::Log),
    activation("Mish", A::Mish),
    activation("Neg", A::Neg),
    activation("Reciprocal", A::Recip),
    activation("Relu", A::Relu),
    activation("Round", A::Round),
    activation("Sigmoid", A::Sigmoid),
    activation("Sign", A::Sign),
    activation("Sin", A::Sin),
    activation("Sinh", A::Sinh),
    activation("Softplus", A::Softplus),
    activation("Softsign", A::Softsign),
    activation("Sqrt", A::Sqrt),
    activation("Tan", A::Tan),
    activation("Tanh", A::Tanh),
    binary("Add", B::Add),
    binary("Sub", B::Sub),
    binary("Mul", B::Mul),
    binary("Div", B::Div),
    binary("BitwiseAnd", B::BitAnd),
    binary("BitwiseOr", B::BitOr),
    binary("BitwiseXor", B::BitXor),
    nodes("BitShift", bit_shift),
    nodes("Celu", celu),
    nodes("Clip", clip),
    nodes("Elu", elu),
    nodes("Gelu", gelu),
    nodes("HardSigmoid", hard_sigmoid),
    nodes("LeakyRelu", leaky_relu),
    nodes("Max", max),
    nodes("Mean", mean),
    nodes("Min", min),
    nodes("Mod", modulo),
    nodes("Pow", pow),
    nodes("PRelu", prelu),
    nodes("Selu", selu),
    nodes("Shrink", shrink),
    nodes("Sum", sum),
    nodes("SwiGLU", swiglu),
    nodes("Swish", swish),
    nodes("ThresholdedRelu", thresholded_relu),
];

fn bit_shift(cx: Cx) -> Nodes {
    let f = match cx.attrs.text("direction", "")? {
        "LEFT" => B::Shl,
        "RIGHT" => B::Shr,
        other => return Err(cx.malformed(format!("direction = \"{other}\""))),
    };
    let (a, b, dtype) = (cx.x(0)?, cx.x(1)?, cx.dtype(0)?);
    let unsigned = match dtype {
        DType::I8 => DType::U8,
        DType::I16 => DType::U16,
        DType::I32 => DType::U32,
        DType::I64 => DType::U64,
        _ => return Ok(vec![cx.binary(f, a, b)?]),
    };
    // A negative number of places is a huge one.
    let places = cx.cast(b, unsigned)?;
    let shifted = |cx: Cx, a: NodeId| {
        let bits = cx.cast(a, unsigned)?;
        let y = cx.binary(f, bits, places)?;
        cx.cast(y, dtype)
    };
    if f == B::Shl {
        return Ok(vec![shifted(cx, a)?]);
    }
    // Copies of the sign come in from the left.
    let zero = cx.scalar(dtype, 0.0);
    let negative = cx.compare(CmpOp::Lt, a, zero)?;
    let flipped = cx.activation(A::BitNot, a)?;
    let a = cx.select(negative, flipped, a)?;
    let y = shifted(cx, a)?;
    let flipped = cx.activation(A::BitNot, y)?;
    Ok(vec![cx.select(negative, flipped, y)?])
}

/// `max(0, x) + min(0, α·(e^(x/α) − 1))`
fn celu(cx: Cx) -> Nodes {
    let (x, alpha) = (cx.x(0)?, f64::from(cx.attrs.float("alpha", 1.0)?));
    let scaled = cx.with_scalar(B::Div, x, alpha)?;
    let negative = exp_minus_one(cx, scaled)?;
    let negative = cx.with_scalar(B::Mul, negative, alpha)?;
    let negative = cx.with_scalar(B::Min, negative, 0.0)?;
    let positive = cx.with_scalar(B::Max, x, 0.0)?;
    Ok(vec![cx.binary(B::Add, positive, negative)?])
}

fn exp_minus_one(cx: Cx, x: NodeId) -> Result<NodeId, Error> {
    let e = cx.activation(A::Exp, x)?;
    cx.with_scalar(B::Sub, e, 1.0)
}

/// Where `x < 0` (or `≤`), `negative`; else `x`.
fn where_negative(cx: Cx, x: NodeId, negative: NodeId) -> Result<NodeId, Error> {
    let dtype = cx.shape_of(x).dtype();
    let zero = cx.scalar(dtype, 0.0);
    let below = cx.compare(CmpOp::Lt, x, zero)?;
    cx.select(below, negative, x)
}

/// Bounds are attributes before opset 11, operands from then on. The upper bound wins.
fn clip(cx: Cx) -> Nodes {
    let mut x = cx.x(0)?;
    let dtype = cx.dtype(0)?;
    for (i, name, f) in [(1, "min", B::Max), (2, "max", B::Min)] {
        let bound = match (cx.opset < 11, cx.x_opt(i)?) {
            (true, _) => cx.attrs.float_opt(name)?.map(|v| cx.scalar(dtype, f64::from(v))),
            (false, operand) => operand,
        };
        if let Some(bound) = bound {
            x = cx.binary(f, x, bound)?;
        }
    }
    Ok(vec![x])
}

fn elu(cx: Cx) -> Nodes {
    let (x, alpha) = (cx.x(0)?, cx.attrs.float("alpha", 1.0)?);
    let negative = exp_minus_one(cx, x)?;
    let negative = cx.with_scalar(B::Mul, negative, f64::from(alpha))?;
    Ok(vec![where_negative(cx, x, negative)?])
}

fn gelu(cx: Cx) -> Nodes {
    let f = match cx.attrs.text("approximate", "none")? {
        "none" => A::Gelu,
        "tanh" => A::GeluApprox,
        other => return Err(cx.bad_attr("approximate", other)),
    };
    let x = cx.x(0)?;
    Ok(vec![cx.activation(f, x)?])
}

fn hard_sigmoid(cx: Cx) -> Nodes {
    let (alpha, beta) = (cx.attrs.float("alpha", 0.2)?, cx.attrs.float("beta", 0.5)?);
    let x = cx.x(0)?;
    let y = cx.with_scalar(B::Mul, x, f64::from(alpha))?;
    let y = cx.with_scalar(B::Add, y, f64::from(beta))?;
    let y = cx.with_scalar(B::Min, y, 1.0)?;
    Ok(vec![cx.with_scalar(B::Max, y, 0.0)?])
}

fn leaky_relu(cx: Cx) -> Nodes {
    let (x, alpha) = (cx.x(0)?, cx.attrs.float("alpha", 0.01)?);
    let negative = cx.with_scalar(B::Mul, x, f64::from(alpha))?;
    Ok(vec![where_negative(cx, x, negative)?])
}

fn prelu(cx: Cx) -> Nodes {
    let (x, slope) = (cx.x(0)?, cx.x(1)?);
    let negative = cx.binary(B::Mul, x, slope)?;
    Ok(vec![where_negative(cx, x, negative)?])
}

fn variadic(cx: Cx, f: B) -> Result<NodeId, Error> {
    let all = cx.all()?;
    let (&first, rest) = all.split_first().ok_or_else(|| cx.malformed("no operands"))?;
    rest.iter().try_fold(first, |a, &b| cx.binary(f, a, b))
}

fn max(cx: Cx) -> Nodes {
    Ok(vec![variadic(cx, B::Max)?])
}

fn min(cx: Cx) -> Nodes {
    Ok(vec![variadic(cx, B::Min)?])
}

fn sum(cx: Cx) -> Nodes {
    Ok(vec![variadic(cx, B::Add)?])
}

fn mean(cx: Cx) -> Nodes {
    let total = variadic(cx, B::Add)?;
    let count = cx.operands() as f64;
    Ok(vec![cx.with_scalar(B::Div, total, count)?])
}

/// `fmod` = 1 is C's remainder; otherwise Python's, for integers.
fn modulo(cx: Cx) -> Nodes {
    let f = if cx.attrs.flag("fmod", false)? { B::Rem } else { B::Mod };
    let (a, b) = (cx.x(0)?, cx.x(1)?);
    Ok(vec![cx.binary(f, a, b)?])
}

/// The result has the base's type; an integer base with a float exponent is computed in the exponent's type.
fn pow(cx: Cx) -> Nodes {
    let (base, exponent) = (cx.x(0)?, cx.x(1)?);
    let (to, other) = (cx.dtype(0)?, cx.dtype(1)?);
    let common: DType = if other.is_float() && !to.is_float() { other } else { to };
    let (base, exponent) = (cx.cast(base, common)?, cx.cast(exponent, common)?);
    let y = cx.binary(B::Pow, base, exponent)?;
    Ok(vec![cx.cast(y, to)?])
}

/// `γ·(α·eˣ − α)` below zero, `γ·x` above.
fn selu(cx: Cx) -> Nodes {
    let alpha = f64::from(cx.attrs.float("alpha", 1.673_263_2)?);
    let gamma = f64::from(cx.attrs.float("gamma", 1.050_701)?);
    let x = cx.x(0)?;
    let negative = exp_minus_one(cx, x)?;
    let negative = cx.with_scalar(B::Mul, negative, alpha)?;
    let y = where_negative(cx, x, negative)?;
    Ok(vec![cx.with_scalar(B::Mul, y, gamma)?])
}

/// `x + bias` below `−λ`, `x − bias` above `λ`, else 0.
fn shrink(cx: Cx) -> Nodes {
    let (bias, lambda) = (f64::from(cx.attrs.float("bias", 0.0)?), f64::from(cx.attrs.float("lambd", 0.5)?));
    let (x, dtype) = (cx.x(0)?, cx.dtype(0)?);
    let (low, high, zero) = (cx.scalar(dtype, -lambda), cx.scalar(dtype, lambda), cx.scalar(dtype, 0.0));
    let (raised, lowered) = (cx.with_scalar(B::Add, x, bias)?, cx.with_scalar(B::Sub, x, bias)?);
    let above = cx.compare(CmpOp::Gt, x, high)?;
    let y = cx.select(above, lowered, zero)?;
    let below = cx.compare(CmpOp::Lt, x, low)?;
    Ok(vec![cx.select(below, raised, y)?])
}

/// `x·sigmoid(α·x)`
fn swish(cx: Cx) -> Nodes {
    let (x, alpha) = (cx.x(0)?, cx.attrs.float("alpha", 1.0)?);
    if alpha == 1.0 {
        return Ok(vec![cx.activation(A::Silu, x)?]);
    }
    let gate = cx.with_scalar(B::Mul, x, f64::from(alpha))?;
    let gate = cx.activation(A::Sigmoid, gate)?;
    Ok(vec![cx.binary(B::Mul, x, gate)?])
}

/// `swish(a)·b`, without broadcasting.
fn swiglu(cx: Cx) -> Nodes {
    let gate = swish(cx)?[0];
    let b = cx.x(1)?;
    Ok(vec![cx.binary(B::Mul, gate, b)?])
}

fn thresholded_relu(cx: Cx) -> Nodes {
    let (x, alpha, dtype) = (cx.x(0)?, cx.attrs.float("alpha", 1.0)?, cx.dtype(0)?);
    let (bound, zero) = (cx.scalar(dtype, f64::from(alpha)), cx.scalar(dtype, 0.0));
    let above = cx.compare(CmpOp::Gt, x, bound)?;
    Ok(vec![cx.select(above, x, zero)?])
}
