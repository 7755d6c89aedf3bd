//! Functions of elements at one position.

use rlx_ir::op::{Activation, BinaryOp, CmpOp, Predicate};
use rlx_ir::ops::attr::NamedVariant;

use super::context::{Ctx, MAX_RANK, cast, expanded, held, reshaped};
use crate::mil::{Mil, Tensor, Type};

/// Functions that MIL has by a name of its own, of floats.
fn own_name(f: Activation) -> Option<&'static str> {
    Some(match f {
        Activation::Silu => "silu",
        Activation::Relu => "relu",
        Activation::Sigmoid => "sigmoid",
        Activation::Tanh => "tanh",
        Activation::Exp => "exp",
        Activation::Sqrt => "sqrt",
        Activation::Abs => "abs",
        Activation::Sin => "sin",
        Activation::Cos => "cos",
        Activation::Tan => "tan",
        Activation::Atan => "atan",
        Activation::Round => "round",
        Activation::Floor => "floor",
        Activation::Ceil => "ceil",
        Activation::Sign => "sign",
        Activation::Erf => "erf",
        Activation::Asin => "asin",
        Activation::Acos => "acos",
        Activation::Sinh => "sinh",
        Activation::Cosh => "cosh",
        Activation::Atanh => "atanh",
        Activation::Softplus => "softplus",
        Activation::Softsign => "softsign",
        _ => return None,
    })
}

/// A function of one element.
pub fn activation(ctx: &mut Ctx<'_>, f: Activation) -> Mil<Tensor> {
    let x = ctx.x(0);
    match x.ty {
        Type::Bool => match f {
            Activation::Not => Ok(ctx.unary("logical_not", &x)),
            _ => Err(format!("MIL has no {} of bools", f.name())),
        },
        Type::I32 => of_integers(ctx, f, &x),
        _ => match own_name(f) {
            Some(name) => Ok(ctx.unary(name, &x)),
            None => composed(ctx, f, &x),
        },
    }
}

fn of_integers(ctx: &mut Ctx<'_>, f: Activation, x: &Tensor) -> Mil<Tensor> {
    match f {
        Activation::Round | Activation::Floor | Activation::Ceil | Activation::Trunc => Ok(x.clone()),
        Activation::Relu => Ok(ctx.with_number("maximum", x, 0.0)),
        Activation::Sign => Ok(ctx.unary("sign", x)),
        Activation::Abs => {
            ctx.fits()?;
            Ok(ctx.unary("abs", x))
        }
        Activation::Neg => {
            ctx.fits()?;
            Ok(ctx.with_number("mul", x, -1.0))
        }
        _ => Err(format!("MIL has no {} of integers", f.name())),
    }
}

/// Functions of floats that are several operations.
fn composed(ctx: &mut Ctx<'_>, f: Activation, x: &Tensor) -> Mil<Tensor> {
    let (ty, dims) = (x.ty, x.dims.clone());
    let one = ctx.b.number(ty, 1.0);
    Ok(match f {
        Activation::Gelu | Activation::GeluApprox => {
            let mode = ctx.b.text(if f == Activation::Gelu { "EXACT" } else { "TANH_APPROXIMATION" });
            ctx.b.op("gelu", &[("x", x.into()), ("mode", (&mode).into())], ty, &dims)
        }
        // MIL's logarithm adds a small number to its operand unless told otherwise; its reciprocals are taken by division for that.
        Activation::Log => logarithm(ctx, x),
        Activation::Rsqrt => {
            let root = ctx.unary("sqrt", x);
            ctx.binary("real_div", &one, &root, ty, &dims)
        }
        Activation::Recip => ctx.binary("real_div", &one, x, ty, &dims),
        Activation::Neg => ctx.with_number("mul", x, -1.0),
        Activation::Trunc => {
            let (down, up) = (ctx.unary("floor", x), ctx.unary("ceil", x));
            let negative = ctx.compare_number("less", x, 0.0);
            ctx.select(&negative, &up, &down)
        }
        Activation::Mish => {
            let soft = ctx.unary("softplus", x);
            let bent = ctx.unary("tanh", &soft);
            ctx.binary("mul", x, &bent, ty, &dims)
        }
        Activation::HardSwish => {
            let (slope, middle) = (ctx.b.number(ty, 1.0 / 6.0), ctx.b.number(ty, 0.5));
            let inputs = [("x", x.into()), ("alpha", (&slope).into()), ("beta", (&middle).into())];
            let gate = ctx.b.op("sigmoid_hard", &inputs, ty, &dims);
            ctx.binary("mul", x, &gate, ty, &dims)
        }
        Activation::Expm1 => {
            // eˣ − 1 = 2·sinh(x/2)·e^(x/2), which loses nothing near 0.
            let half = ctx.with_number("mul", x, 0.5);
            let (sinh, exp) = (ctx.unary("sinh", &half), ctx.unary("exp", &half));
            let product = ctx.binary("mul", &sinh, &exp, ty, &dims);
            ctx.with_number("mul", &product, 2.0)
        }
        Activation::Log1p => {
            // ln(1 + x) = 2·atanh(x / (2 + x)) near 0.
            let sum = ctx.with_number("add", x, 2.0);
            let ratio = ctx.binary("real_div", x, &sum, ty, &dims);
            let near = ctx.unary("atanh", &ratio);
            let near = ctx.with_number("mul", &near, 2.0);
            let more = ctx.with_number("add", x, 1.0);
            let far = logarithm(ctx, &more);
            let magnitude = ctx.unary("abs", x);
            let is_near = ctx.compare_number("less", &magnitude, 0.5);
            ctx.select(&is_near, &near, &far)
        }
        Activation::Asinh => {
            // atanh(x / √(1 + x²)) near 0, ±ln(|x| + √(1 + x²)) beyond.
            let square = ctx.binary("mul", x, x, ty, &dims);
            let more = ctx.with_number("add", &square, 1.0);
            let root = ctx.unary("sqrt", &more);
            let ratio = ctx.binary("real_div", x, &root, ty, &dims);
            let near = ctx.unary("atanh", &ratio);
            let magnitude = ctx.unary("abs", x);
            let sum = ctx.binary("add", &magnitude, &root, ty, &dims);
            let log = logarithm(ctx, &sum);
            let sign = ctx.unary("sign", x);
            let far = ctx.binary("mul", &sign, &log, ty, &dims);
            let is_near = ctx.compare_number("less", &magnitude, 1.0);
            ctx.select(&is_near, &near, &far)
        }
        Activation::Acosh => {
            // atanh(√((x−1)(x+1)) / x) near 1, ln(x + √((x−1)(x+1))) beyond.
            let (less, more) = (ctx.with_number("sub", x, 1.0), ctx.with_number("add", x, 1.0));
            let product = ctx.binary("mul", &less, &more, ty, &dims);
            let root = ctx.unary("sqrt", &product);
            let ratio = ctx.binary("real_div", &root, x, ty, &dims);
            let near = ctx.unary("atanh", &ratio);
            let sum = ctx.binary("add", x, &root, ty, &dims);
            let far = logarithm(ctx, &sum);
            let is_near = ctx.compare_number("less", x, 1.5);
            ctx.select(&is_near, &near, &far)
        }
        Activation::Cbrt => {
            let magnitude = ctx.unary("abs", x);
            let root = ctx.with_number("pow", &magnitude, 1.0 / 3.0);
            let sign = ctx.unary("sign", x);
            ctx.binary("mul", &sign, &root, ty, &dims)
        }
        _ => return Err(format!("MIL has no {}", f.name())),
    })
}

/// The natural logarithm of the operand itself.
fn logarithm(ctx: &mut Ctx<'_>, x: &Tensor) -> Tensor {
    let nothing = ctx.b.number(x.ty, 0.0);
    ctx.b.op("log", &[("x", x.into()), ("epsilon", (&nothing).into())], x.ty, &x.dims)
}

/// The operands of an elementwise op with at most five dimensions, broadcast as in the graph: neighbouring dimensions that all run
/// through in the same way are merged. Gives the result's dimensions with them.
fn merged(ctx: &mut Ctx<'_>) -> Mil<(Vec<Tensor>, Vec<usize>)> {
    let out = ctx.out().to_vec();
    if out.len() <= MAX_RANK {
        return Ok((ctx.ins.clone(), held(&out)));
    }
    let padded = |dims: &[usize]| [vec![1; out.len() - dims.len()], dims.to_vec()].concat();
    let operands: Vec<Vec<usize>> = ctx.given.iter().map(|given| padded(&given.dims)).collect();
    let (mut dims, mut parts) = (Vec::new(), vec![Vec::<usize>::new(); operands.len()]);
    let axes: Vec<usize> = (0..out.len()).filter(|&axis| out[axis] != 1).collect();
    let alike = |a: usize, b: usize| operands.iter().all(|d| (d[a] == out[a]) == (d[b] == out[b]));
    for axes in axes.chunk_by(|&a, &b| alike(a, b)) {
        dims.push(axes.iter().map(|&axis| out[axis]).product());
        for (part, operand) in parts.iter_mut().zip(&operands) {
            part.push(axes.iter().map(|&axis| operand[axis]).product());
        }
    }
    if dims.is_empty() {
        (dims, parts) = (vec![1], vec![vec![1]; operands.len()]);
    }
    if dims.len() > MAX_RANK {
        return Err(format!("tensors have at most {MAX_RANK} dimensions"));
    }
    let ins = ctx.ins.clone();
    let ins = ins.iter().zip(&parts).map(|(x, dims)| reshaped(ctx.b, x, dims)).collect();
    Ok((ins, dims))
}

/// A function of two elements.
pub fn binary(ctx: &mut Ctx<'_>, f: BinaryOp) -> Mil<Tensor> {
    let (ins, dims) = merged(ctx)?;
    let (x, y) = (&ins[0], &ins[1]);
    let result = match x.ty {
        Type::Bool => {
            let op = match f {
                BinaryOp::And => "logical_and",
                BinaryOp::Or => "logical_or",
                BinaryOp::Xor => "logical_xor",
                _ => return Err(format!("MIL has no {} of bools", f.name())),
            };
            ctx.binary(op, x, y, Type::Bool, &dims)
        }
        Type::I32 => integers(ctx, f, x, y, &dims)?,
        _ => floats(ctx, f, x, y, &dims)?,
    };
    let (_, out) = ctx.held_out()?;
    Ok(reshaped(ctx.b, &result, &out))
}

fn floats(ctx: &mut Ctx<'_>, f: BinaryOp, x: &Tensor, y: &Tensor, dims: &[usize]) -> Mil<Tensor> {
    let op = match f {
        BinaryOp::Add => "add",
        BinaryOp::Sub => "sub",
        BinaryOp::Mul => "mul",
        BinaryOp::Div => "real_div",
        BinaryOp::Max => "maximum",
        BinaryOp::Min => "minimum",
        BinaryOp::Pow => "pow",
        BinaryOp::Mod | BinaryOp::Rem => return Ok(remainder(ctx, f, x, y, dims)),
        _ => return Err(format!("MIL has no {}", f.name())),
    };
    Ok(ctx.binary(op, x, y, x.ty, dims))
}

/// Remainders of floats. MIL's is `x - y·floor(x/y)`, which is NaN of an infinite divisor, where a smaller dividend is what is left.
fn remainder(ctx: &mut Ctx<'_>, f: BinaryOp, x: &Tensor, y: &Tensor, dims: &[usize]) -> Tensor {
    let (x, y) = (expanded(ctx.b, x, dims), expanded(ctx.b, y, dims));
    let (a, b) = (ctx.unary("abs", &x), ctx.unary("abs", &y));
    let (divided, smaller) =
        (ctx.binary("mod", &a, &b, x.ty, dims), ctx.binary("less", &a, &b, Type::Bool, dims));
    let rest = ctx.select(&smaller, &a, &divided);
    let (negated, negative) = (ctx.with_number("mul", &rest, -1.0), ctx.compare_number("less", &x, 0.0));
    let rest = ctx.select(&negative, &negated, &rest);
    if f == BinaryOp::Rem {
        return rest;
    }
    // Moved to the side of the divisor.
    let (left, low) = (ctx.compare_number("not_equal", &rest, 0.0), ctx.compare_number("less", &rest, 0.0));
    let y_low = ctx.compare_number("less", &y, 0.0);
    let differs = ctx.binary("logical_xor", &low, &y_low, Type::Bool, dims);
    let moves = ctx.binary("logical_and", &left, &differs, Type::Bool, dims);
    let moved = ctx.binary("add", &rest, &y, x.ty, dims);
    ctx.select(&moves, &moved, &rest)
}

fn integers(ctx: &mut Ctx<'_>, f: BinaryOp, x: &Tensor, y: &Tensor, dims: &[usize]) -> Mil<Tensor> {
    let op = match f {
        BinaryOp::Add => "add",
        BinaryOp::Sub => "sub",
        BinaryOp::Mul => "mul",
        BinaryOp::Max => return Ok(ctx.binary("maximum", x, y, Type::I32, dims)),
        BinaryOp::Min => return Ok(ctx.binary("minimum", x, y, Type::I32, dims)),
        BinaryOp::Div | BinaryOp::Mod | BinaryOp::Rem => return quotient(ctx, f, x, y, dims),
        _ => return Err(format!("MIL has no {} of integers", f.name())),
    };
    ctx.fits()?;
    Ok(ctx.binary(op, x, y, Type::I32, dims))
}

/// Division and remainders of integers: MIL's are towards −∞, and of a divisor of 0 the graph says 0.
fn quotient(ctx: &mut Ctx<'_>, f: BinaryOp, x: &Tensor, y: &Tensor, dims: &[usize]) -> Mil<Tensor> {
    ctx.fits()?;
    let (x, y) = (expanded(ctx.b, x, dims), expanded(ctx.b, y, dims));
    let by_zero = ctx.compare_number("equal", &y, 0.0);
    let one = ctx.b.number(Type::I32, 1.0);
    let divisor = ctx.select(&by_zero, &one, &y);
    let down = ctx.binary("floor_div", &x, &divisor, Type::I32, dims);
    let product = ctx.binary("mul", &down, &divisor, Type::I32, dims);
    let rest = ctx.binary("sub", &x, &product, Type::I32, dims);
    let result = if f == BinaryOp::Mod {
        rest
    } else {
        // One more where something is left and the signs differ, which is where −∞ and 0 are on different sides.
        let (left, low) =
            (ctx.compare_number("not_equal", &rest, 0.0), ctx.compare_number("less", &down, 0.0));
        let inexact = ctx.binary("logical_and", &left, &low, Type::Bool, dims);
        let step = cast(ctx.b, &inexact, Type::I32);
        if f == BinaryOp::Div {
            ctx.binary("add", &down, &step, Type::I32, dims)
        } else {
            let back = ctx.binary("mul", &step, &divisor, Type::I32, dims);
            ctx.binary("sub", &rest, &back, Type::I32, dims)
        }
    };
    let zero = ctx.b.number(Type::I32, 0.0);
    Ok(ctx.select(&by_zero, &zero, &result))
}

/// A comparison.
pub fn compare(ctx: &mut Ctx<'_>, f: CmpOp) -> Mil<Tensor> {
    let (ins, dims) = merged(ctx)?;
    let op = match f {
        CmpOp::Eq => "equal",
        CmpOp::Ne => "not_equal",
        CmpOp::Lt => "less",
        CmpOp::Le => "less_equal",
        CmpOp::Gt => "greater",
        CmpOp::Ge => "greater_equal",
        _ => return Err(format!("MIL has no {}", f.name())),
    };
    // Of bools MIL compares nothing.
    let comparable = |ctx: &mut Ctx<'_>, x: &Tensor| {
        if x.ty == Type::Bool { cast(ctx.b, x, Type::I32) } else { x.clone() }
    };
    let (x, y) = (comparable(ctx, &ins[0]), comparable(ctx, &ins[1]));
    let result = ctx.binary(op, &x, &y, Type::Bool, &dims);
    let (_, out) = ctx.held_out()?;
    Ok(reshaped(ctx.b, &result, &out))
}

/// `Where`.
pub fn choose(ctx: &mut Ctx<'_>) -> Mil<Tensor> {
    let (ins, dims) = merged(ctx)?;
    let condition = expanded(ctx.b, &ins[0], &dims);
    let result = ctx.select(&condition, &ins[1], &ins[2]);
    let (_, out) = ctx.held_out()?;
    Ok(reshaped(ctx.b, &result, &out))
}

/// A question about each float.
pub fn predicate(ctx: &mut Ctx<'_>, p: Predicate) -> Mil<Tensor> {
    let x = ctx.x(0);
    let dims = x.dims.clone();
    Ok(match p {
        Predicate::IsNan => ctx.binary("not_equal", &x, &x, Type::Bool, &dims),
        Predicate::IsInf => {
            let magnitude = ctx.unary("abs", &x);
            ctx.compare_number("equal", &magnitude, f32::INFINITY)
        }
        Predicate::IsPosInf => ctx.compare_number("equal", &x, f32::INFINITY),
        Predicate::IsNegInf => ctx.compare_number("equal", &x, f32::NEG_INFINITY),
        _ => return Err(format!("MIL has no {}", p.name())),
    })
}
