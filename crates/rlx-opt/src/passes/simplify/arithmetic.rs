//! Rules about values: identities, strength reduction, constants gathered.

use rlx_ir::op::{Activation as A, BinaryOp as B};
use rlx_ir::{DType, DTypeClass, NodeId, Op, Result};

use super::{Rule, Simplifier};

pub(super) const RULES: &[Rule] = &[
    Rule { name: "constants-last", fast: false, apply: constants_last },
    Rule { name: "identity-operand", fast: false, apply: identity_operand },
    Rule { name: "add-zero", fast: true, apply: add_zero },
    Rule { name: "twice", fast: false, apply: twice },
    Rule { name: "cast-nothing", fast: false, apply: cast_nothing },
    Rule { name: "cast-of-cast", fast: false, apply: cast_of_cast },
    Rule { name: "relu-before-rounding", fast: true, apply: relu_before_rounding },
    Rule { name: "power", fast: false, apply: power },
    Rule { name: "root-power", fast: true, apply: root_power },
    Rule { name: "divide-by-constant", fast: false, apply: divide_by_constant },
    Rule { name: "one-over", fast: false, apply: one_over },
    Rule { name: "reciprocal-root", fast: true, apply: reciprocal_root },
    Rule { name: "times-minus-one", fast: false, apply: times_minus_one },
    Rule { name: "decided-where", fast: false, apply: decided_where },
    Rule { name: "gather-fixed", fast: true, apply: gather_fixed },
];

type Found = Result<Option<NodeId>>;

fn commutes(op: B) -> bool {
    use B::{Add, And, BitAnd, BitOr, BitXor, Max, Min, Mul, Or, Xor};
    matches!(op, Add | Mul | Max | Min | And | Or | Xor | BitAnd | BitOr | BitXor)
}

/// `c + x → x + c`: constants, and what is known before a run, are last.
fn constants_last(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let &Op::Binary(f) = op else { return Ok(None) };
    let rank = |s: &mut Simplifier<'_>, id: NodeId| match s.op(id) {
        Op::Constant { .. } => 2,
        _ => u8::from(s.is_fixed(id)),
    };
    if !commutes(f) || rank(s, inputs[0]) <= rank(s, inputs[1]) {
        return Ok(None);
    }
    s.build(op.clone(), &[inputs[1], inputs[0]]).map(Some)
}

/// `x` in place of `op(x, …)`, broadcast as the op's result is.
fn instead(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId], x: NodeId) -> Found {
    let shape = s.infer(op, inputs)?;
    if s.dtype(x) != shape.dtype() {
        return Ok(None);
    }
    s.expand(x, shape.dims().to_vec()).map(Some)
}

/// `x − 0`, `x · 1`, `x / 1`, `x ^ 1`, `x ∧ true`, `x ∨ false`, and `x + 0` for integers.
fn identity_operand(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let &Op::Binary(f) = op else { return Ok(None) };
    let Some(value) = s.uniform(inputs[1]) else { return Ok(None) };
    let float = s.dtype(inputs[0]).is_float();
    let neutral = match f {
        B::Mul | B::Div | B::Pow | B::And => value == 1.0,
        B::Sub => value == 0.0 && (!float || value.is_sign_positive()),
        B::Add => value == 0.0 && (!float || value.is_sign_negative()),
        B::Or | B::Xor => value == 0.0,
        _ => false,
    };
    if neutral { instead(s, op, inputs, inputs[0]) } else { Ok(None) }
}

/// `x + 0 → x`: changes −0 to itself where the sum would give +0.
fn add_zero(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let zero = matches!(op, Op::Binary(B::Add | B::Sub)) && s.uniform(inputs[1]) == Some(0.0);
    if zero { instead(s, op, inputs, inputs[0]) } else { Ok(None) }
}

/// `−(−x)`, `¬¬x`, `||x||`, `relu(relu(x))`, `|−x|`.
fn twice(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let (&Op::Activation(outer), &Op::Activation(inner)) = (op, s.op(inputs[0])) else { return Ok(None) };
    let below = s.input(inputs[0], 0);
    Ok(match (outer, inner) {
        (A::Neg, A::Neg) | (A::Not, A::Not) | (A::BitNot, A::BitNot) => Some(below),
        (A::Abs, A::Abs) | (A::Relu, A::Relu) => Some(inputs[0]),
        (A::Abs, A::Neg) => Some(s.build(op.clone(), &[below])?),
        _ => None,
    })
}

fn cast_nothing(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let &Op::Cast { to } = op else { return Ok(None) };
    Ok((s.dtype(inputs[0]) == to).then_some(inputs[0]))
}

/// A cast from a type whose values the type between holds exactly.
fn cast_of_cast(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let (&Op::Cast { to }, &Op::Cast { to: between }) = (op, s.op(inputs[0])) else { return Ok(None) };
    let x = s.input(inputs[0], 0);
    let from = s.dtype(x);
    // Integers become integers by wrapping, but floats become integers by saturating.
    let other_way = from.is_int() && between.is_float() && to.is_int();
    if other_way || !holds(between, from) {
        return Ok(None);
    }
    s.build(Op::Cast { to }, &[x]).map(Some)
}

/// `relu(cast(x)) → cast(relu(x))` for a cast to a shorter float, so that ops of f32 stay together, and what they give is rounded as it is
/// stored. Changes −0 to +0 where a negative number is rounded to zero.
fn relu_before_rounding(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let (&Op::Activation(A::Relu), &Op::Cast { to }) = (op, s.op(inputs[0])) else { return Ok(None) };
    let x = s.input(inputs[0], 0);
    let from = s.dtype(x);
    if !from.is_float() || !to.is_float() || !holds(from, to) || from == to {
        return Ok(None);
    }
    let x = s.build(op.clone(), &[x])?;
    s.build(Op::Cast { to }, &[x]).map(Some)
}

/// Whether every value of `inner` is exactly a value of `outer`.
pub(crate) fn holds(outer: DType, inner: DType) -> bool {
    // Bits of the significand, with the hidden one; how far the exponent reaches.
    let float = |d: DType| match d {
        DType::F64 => Some((53, 1023)),
        DType::F32 => Some((24, 127)),
        DType::F16 => Some((11, 15)),
        DType::BF16 => Some((8, 127)),
        _ => None,
    };
    if outer == inner {
        return true;
    }
    match (float(outer), float(inner)) {
        (Some((a, e)), Some((b, f))) => a >= b && e >= f,
        (Some((a, _)), None) => match (inner.class(), inner.int_range()) {
            (DTypeClass::Bool, _) => true,
            (_, Some((min, max))) => inner.is_int() && min.abs().max(max + 1) <= 1i128 << a,
            _ => false,
        },
        _ => match (inner.class(), outer.int_range(), inner.int_range()) {
            (DTypeClass::Bool, Some(_), _) => outer.is_int(),
            (_, Some((low, high)), Some((min, max))) => {
                outer.is_int() && inner.is_int() && low <= min && max <= high
            }
            _ => false,
        },
    }
}

/// `x² → x·x`.
fn power(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let square = *op == Op::Binary(B::Pow) && s.uniform(inputs[1]) == Some(2.0);
    let grows = square && s.infer(op, inputs)?.dims() != s.dims(inputs[0]);
    if !square || grows {
        return Ok(None);
    }
    s.build(Op::Binary(B::Mul), &[inputs[0], inputs[0]]).map(Some)
}

/// `x^½ → √x`, `x^−½ → 1/√x`, `x⁻¹ → 1/x`, `x³ → x·x·x`.
fn root_power(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let x = inputs[0];
    if *op != Op::Binary(B::Pow) || !s.dtype(x).is_float() {
        return Ok(None);
    }
    let Some(exponent) = s.uniform(inputs[1]) else { return Ok(None) };
    if s.infer(op, inputs)?.dims() != s.dims(x) {
        return Ok(None);
    }
    let root = match exponent {
        0.5 => A::Sqrt,
        -0.5 => A::Rsqrt,
        -1.0 => A::Recip,
        3.0 => {
            let square = s.build(Op::Binary(B::Mul), &[x, x])?;
            return s.build(Op::Binary(B::Mul), &[square, x]).map(Some);
        }
        _ => return Ok(None),
    };
    s.build(Op::Activation(root), &[x]).map(Some)
}

/// `x / c → x · (1/c)` for a power of two, or any fixed `c` when bits may change.
fn divide_by_constant(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let &[x, by] = inputs else { return Ok(None) };
    let float = s.dtype(x).is_float();
    if *op != Op::Binary(B::Div) || !float || s.is_fixed(x) || !s.is_fixed(by) {
        return Ok(None);
    }
    if let Some(c) = s.uniform(by) {
        let power_of_two = c.abs().to_bits() & ((1 << 52) - 1) == 0;
        // Within this range neither the constant nor its reciprocal is subnormal or infinite.
        let reach = if matches!(s.dtype(x), DType::F32 | DType::F64 | DType::BF16) { 100 } else { 4 };
        if (s.fast() || power_of_two) && (2f64.powi(-reach)..=2f64.powi(reach)).contains(&c.abs()) {
            let reciprocal = s.scalar(s.dtype(x), 1.0 / c)?;
            let dims = s.dims(by).to_vec();
            let reciprocal = s.expand(reciprocal, dims)?;
            return s.build(Op::Binary(B::Mul), &[x, reciprocal]).map(Some);
        }
        return Ok(None);
    }
    // Worth it when the divisor is computed once for many elements.
    if !s.fast() || s.dims(x) == s.dims(by) {
        return Ok(None);
    }
    let reciprocal = s.build(Op::Activation(A::Recip), &[by])?;
    s.build(Op::Binary(B::Mul), &[x, reciprocal]).map(Some)
}

/// `1 / x`.
fn one_over(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let one = *op == Op::Binary(B::Div) && s.uniform(inputs[0]) == Some(1.0);
    if !one || !s.dtype(inputs[0]).is_float() {
        return Ok(None);
    }
    let reciprocal = s.build(Op::Activation(A::Recip), &[inputs[1]])?;
    instead(s, op, inputs, reciprocal)
}

/// `1 / √x` as one function.
fn reciprocal_root(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let (Op::Activation(A::Recip), Op::Activation(A::Sqrt)) = (op, s.op(inputs[0])) else { return Ok(None) };
    let x = s.input(inputs[0], 0);
    s.build(Op::Activation(A::Rsqrt), &[x]).map(Some)
}

fn times_minus_one(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let minus = *op == Op::Binary(B::Mul) && s.uniform(inputs[1]) == Some(-1.0);
    if !minus || s.infer(op, inputs)?.dims() != s.dims(inputs[0]) {
        return Ok(None);
    }
    s.build(Op::Activation(A::Neg), &[inputs[0]]).map(Some)
}

/// A choice whose condition is one value, or whose branches are one.
fn decided_where(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    if *op != Op::Where {
        return Ok(None);
    }
    if inputs[1] == inputs[2] {
        return instead(s, op, inputs, inputs[1]);
    }
    match s.uniform(inputs[0]) {
        Some(condition) => instead(s, op, inputs, if condition != 0.0 { inputs[1] } else { inputs[2] }),
        None => Ok(None),
    }
}

/// `(x · a) · b → x · (a · b)` when `a` and `b` are known before a run; the same for sums.
fn gather_fixed(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let &Op::Binary(f @ (B::Add | B::Mul)) = op else { return Ok(None) };
    if *s.op(inputs[0]) != Op::Binary(f) || !s.dtype(inputs[0]).is_float() {
        return Ok(None);
    }
    let (x, a, b) = (s.input(inputs[0], 0), s.input(inputs[0], 1), inputs[1]);
    if s.is_fixed(x) || !s.is_fixed(a) || !s.is_fixed(b) {
        return Ok(None);
    }
    // Their product must not be larger than the larger of the two.
    let joined = s.infer(op, &[a, b])?;
    if joined.dims() != s.dims(a) && joined.dims() != s.dims(b) {
        return Ok(None);
    }
    let joined = s.build(Op::Binary(f), &[a, b])?;
    s.build(Op::Binary(f), &[x, joined]).map(Some)
}
