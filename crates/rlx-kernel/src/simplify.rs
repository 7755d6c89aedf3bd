//! The simplifier: what an instruction becomes before it is written down.
//!
//! | rule | before | after |
//! |---|---|---|
//! | constants fold | `2 * 3` | `6` |
//! | neutral elements | `x + 0`, `x * 1`, `x / 1`, `x % 1` | `x`, `x`, `x`, `0` |
//! | powers of two, `x ≥ 0` | `x * 8`, `x / 8`, `x % 8` | `x << 3`, `x >> 3`, `x & 7` |
//! | a remainder | `x - x / 9 * 9`, `x - ((x >> 3) << 3)` | `x % 9`, `x & 7` |
//! | ranges | `x / 9`, `x % 9`, `x < 9` for `x` in `0..9` | `0`, `x`, `true` |
//! | what is rounded | `round_bf16(max(round_bf16(x), 0))` | `max(round_bf16(x), 0)` |
//!
//! Floats are left alone otherwise, but for folding, so that bits never change.

use crate::build::{Builder, Range};
use crate::eval;
use crate::ir::{BinOp, Cmp, Const, Inst, Kernel, Stmt, Ty, UnOp, Value};

/// What an instruction became.
pub(crate) enum Simplified {
    /// A value that is there already.
    Value(Value),
    /// This.
    Inst(Inst),
}

use Simplified::{Inst as Becomes, Value as Is};

fn constant(c: Const) -> Simplified {
    Becomes(Inst::Const(c))
}

/// Simplifies one instruction.
pub(crate) fn simplify(b: &mut Builder, inst: Inst) -> Simplified {
    match inst {
        Inst::Unary(op, v) => match b.as_const(v) {
            // Library functions are left to the device, which may compute them otherwise.
            Some(c) if !matches!(op, UnOp::Math(_)) => {
                constant(Const { ty: c.ty, bits: eval::unary(op, c.ty, c.bits) })
            }
            _ if matches!(op, UnOp::RoundF16 | UnOp::RoundBF16) && is_rounded(b, op, v, MOST_BEHIND) => Is(v),
            _ => Becomes(inst),
        },
        Inst::Binary(op, x, y) => binary(b, op, x, y),
        Inst::Compare(op, x, y) => compare(b, op, x, y),
        Inst::Select(c, x, y) => match b.as_const(c) {
            Some(c) => Is(if c.bits != 0 { x } else { y }),
            None if x == y => Is(x),
            None => Becomes(inst),
        },
        Inst::Convert(to, v) => {
            let from = b.ty(v);
            match b.as_const(v) {
                _ if from == to => Is(v),
                Some(c) => constant(Const { ty: to, bits: eval::convert(to, from, c.bits) }),
                None => Becomes(inst),
            }
        }
        Inst::Bitcast(to, v) => match b.as_const(v) {
            _ if b.ty(v) == to => Is(v),
            Some(c) => constant(Const { ty: to, bits: c.bits }),
            None => Becomes(inst),
        },
        Inst::Fma(x, y, z) => match [x, y, z].map(|v| b.as_const(v)) {
            [Some(p), Some(q), Some(r)] => {
                constant(Const { ty: p.ty, bits: eval::fma(p.ty, [p, q, r].map(|c| c.bits)) })
            }
            _ => Becomes(inst),
        },
        _ => Becomes(inst),
    }
}

/// How many instructions [`is_rounded`] looks behind a value.
const MOST_BEHIND: usize = 4;

/// Whether a value is one that rounding by `op` leaves as it is: rounded, or chosen among such.
fn is_rounded(b: &Builder, op: UnOp, v: Value, behind: usize) -> bool {
    let all = |values: &[Value]| behind > 0 && values.iter().all(|&v| is_rounded(b, op, v, behind - 1));
    match b.definition(v) {
        Some(Inst::Const(c)) => eval::unary(op, c.ty, c.bits) == c.bits,
        Some(Inst::Unary(rounded, _)) if rounded == op => true,
        Some(Inst::Unary(UnOp::Neg | UnOp::Abs, x)) => all(&[x]),
        Some(Inst::Select(_, x, y) | Inst::Binary(BinOp::Min | BinOp::Max, x, y)) => all(&[x, y]),
        _ => false,
    }
}

fn binary(b: &mut Builder, op: BinOp, x: Value, y: Value) -> Simplified {
    let ty = b.ty(x);
    let (cx, cy) = (b.as_const(x), b.as_const(y));
    let library = matches!(op, BinOp::Pow | BinOp::Fmod | BinOp::Atan2);
    if let (Some(p), Some(q)) = (cx, cy)
        && !library
        && let Some(bits) = eval::binary(op, ty, p.bits, q.bits)
    {
        return constant(Const { ty, bits });
    }
    if ty.is_float() {
        return Becomes(Inst::Binary(op, x, y));
    }
    let commutes =
        matches!(op, BinOp::Add | BinOp::Mul | BinOp::And | BinOp::Or | BinOp::Xor | BinOp::Min | BinOp::Max);
    // Constants are on the right.
    if commutes && cx.is_some() && cy.is_none() {
        return binary(b, op, y, x);
    }
    match cy {
        Some(c) => with_constant(b, op, x, y, c),
        None if op == BinOp::Sub => difference(b, x, y),
        None => by_range(b, op, x, y).unwrap_or(Becomes(Inst::Binary(op, x, y))),
    }
}

/// `x - y` of integers, which is a remainder where `y` is the multiple of a constant next to `x`: what [`Builder::div_rem`] makes of a divisor that was
/// none then.
fn difference(b: &mut Builder, x: Value, y: Value) -> Simplified {
    let constant_of = |v| b.as_const(v).map(|c| eval::int(c.ty, c.bits));
    if let Some(Inst::Binary(times, quotient, by)) = b.definition(y)
        && let Some(Inst::Binary(through, of, divisor)) = b.definition(quotient)
        && let Some(number) = constant_of(by).filter(|_| of == x && constant_of(by) == constant_of(divisor))
    {
        match (times, through) {
            (BinOp::Mul, BinOp::Div) => return simplify(b, Inst::Binary(BinOp::Rem, x, by)),
            (BinOp::Shl, BinOp::Shr) => {
                let below = Const::int(b.ty(x), 1i64.wrapping_shl(number as u32).wrapping_sub(1));
                let mask = b.constant(below);
                return simplify(b, Inst::Binary(BinOp::And, x, mask));
            }
            _ => {}
        }
    }
    Becomes(Inst::Binary(BinOp::Sub, x, y))
}

/// Integers and bools with a constant on the right.
fn with_constant(b: &mut Builder, op: BinOp, x: Value, y: Value, c: Const) -> Simplified {
    let (ty, value) = (c.ty, eval::int(c.ty, c.bits));
    let all_ones = if ty == Ty::Bool { 1 } else { eval::int(ty, u64::MAX) };
    match (op, value) {
        (BinOp::Add | BinOp::Sub | BinOp::Shl | BinOp::Shr | BinOp::Or | BinOp::Xor, 0) => return Is(x),
        (BinOp::Mul | BinOp::Div, 1) => return Is(x),
        (BinOp::Mul | BinOp::And, 0) | (BinOp::Rem, 1) => return constant(Const::int(ty, 0)),
        (BinOp::And, v) if v == all_ones => return Is(x),
        (BinOp::Or, v) if v == all_ones => return constant(c),
        _ => {}
    }
    if let Some(done) = by_range(b, op, x, y) {
        return done;
    }
    let nonnegative = matches!(ty, Ty::U32 | Ty::U64) || (ty == Ty::I32 && b.range(x).min >= 0);
    if value > 1 && value & (value - 1) == 0 && nonnegative {
        let shift = value.trailing_zeros();
        match op {
            BinOp::Div => {
                let by = b.word(shift);
                return simplify(b, Inst::Binary(BinOp::Shr, x, by));
            }
            BinOp::Rem => {
                let mask = b.constant(Const::int(ty, (value - 1) as i64));
                return Becomes(Inst::Binary(BinOp::And, x, mask));
            }
            BinOp::Mul => {
                let by = b.word(shift);
                return Becomes(Inst::Binary(BinOp::Shl, x, by));
            }
            _ => {}
        }
    }
    Becomes(Inst::Binary(op, x, y))
}

/// Divisions, remainders and choices of `i32` that ranges decide.
fn by_range(b: &Builder, op: BinOp, x: Value, y: Value) -> Option<Simplified> {
    if b.ty(x) != Ty::I32 || b.ty(y) != Ty::I32 {
        return None;
    }
    let (r, s) = (b.range(x), b.range(y));
    let below = r.min >= 0 && r.max < s.min;
    match op {
        BinOp::Div if below => Some(constant(Const::int(Ty::I32, 0))),
        BinOp::Rem if below => Some(Is(x)),
        BinOp::Min if r.max <= s.min => Some(Is(x)),
        BinOp::Min if s.max <= r.min => Some(Is(y)),
        BinOp::Max if r.min >= s.max => Some(Is(x)),
        BinOp::Max if s.min >= r.max => Some(Is(y)),
        _ => None,
    }
}

fn compare(b: &Builder, op: Cmp, x: Value, y: Value) -> Simplified {
    let ty = b.ty(x);
    if let (Some(p), Some(q)) = (b.as_const(x), b.as_const(y)) {
        return constant(Const::bool(eval::compare(op, ty, p.bits, q.bits)));
    }
    if ty == Ty::I32 {
        let (r, s) = (b.range(x), b.range(y));
        let known = match op {
            Cmp::Lt if r.max < s.min => Some(true),
            Cmp::Lt if r.min >= s.max => Some(false),
            Cmp::Ge if r.min >= s.max => Some(true),
            Cmp::Ge if r.max < s.min => Some(false),
            Cmp::Le if r.max <= s.min => Some(true),
            Cmp::Le if r.min > s.max => Some(false),
            Cmp::Gt if r.min > s.max => Some(true),
            Cmp::Gt if r.max <= s.min => Some(false),
            _ => None,
        };
        if let Some(known) = known {
            return constant(Const::bool(known));
        }
    }
    Becomes(Inst::Compare(op, x, y))
}

/// What is known of the result of `inst`, when it is an `i32`.
pub(crate) fn range_of(b: &Builder, inst: &Inst) -> Range {
    let range = match *inst {
        Inst::Const(c) => c.as_i32().map(|v| Range { min: i64::from(v), max: i64::from(v) }),
        Inst::LocalId => Some(Range { min: 0, max: i64::from(b.kernel().workgroup) - 1 }),
        Inst::GroupId => Some(Range { min: 0, max: i64::from(i32::MAX) }),
        Inst::Binary(op, x, y) if b.ty(x) == Ty::I32 => binary_range(b, op, x, y),
        Inst::Select(_, x, y) if b.ty(x) == Ty::I32 => {
            let (r, s) = (b.range(x), b.range(y));
            Some(Range { min: r.min.min(s.min), max: r.max.max(s.max) })
        }
        Inst::Convert(Ty::I32, v) if b.ty(v) == Ty::Bool => Some(Range { min: 0, max: 1 }),
        _ => None,
    };
    match range {
        // Indices do not overflow: the host checks sizes. Beyond i32 nothing is known.
        Some(r) if r.min >= Range::FULL.min => Range { min: r.min, max: r.max.min(Range::FULL.max) },
        _ => Range::FULL,
    }
}

fn binary_range(b: &Builder, op: BinOp, x: Value, y: Value) -> Option<Range> {
    let (r, s) = (b.range(x), b.range(y));
    let constant = b.as_const(y).and_then(Const::as_i32).map(i64::from);
    Some(match op {
        BinOp::Add => Range { min: r.min + s.min, max: r.max + s.max },
        BinOp::Sub => Range { min: r.min - s.max, max: r.max - s.min },
        BinOp::Mul if r.min >= 0 && s.min >= 0 => {
            Range { min: r.min * s.min, max: r.max.saturating_mul(s.max) }
        }
        BinOp::Div if r.min >= 0 && s.min >= 1 => Range { min: r.min / s.max, max: r.max / s.min },
        BinOp::Rem if r.min >= 0 && s.min >= 0 => Range { min: 0, max: (s.max - 1).max(0).min(r.max) },
        BinOp::Min => Range { min: r.min.min(s.min), max: r.max.min(s.max) },
        BinOp::Max => Range { min: r.min.max(s.min), max: r.max.max(s.max) },
        BinOp::And if r.min >= 0 => {
            Range { min: 0, max: constant.filter(|&c| c >= 0).unwrap_or(r.max).min(r.max) }
        }
        BinOp::And => Range { min: 0, max: constant.filter(|&c| c >= 0)? },
        BinOp::Shl | BinOp::Shr if r.min >= 0 => {
            let by = b.as_const(y)?.bits.min(31) as u32;
            if op == BinOp::Shl {
                Range { min: r.min << by, max: r.max.saturating_mul(1 << by) }
            } else {
                Range { min: r.min >> by, max: r.max >> by }
            }
        }
        _ => return None,
    })
}

/// The operands of an instruction.
pub(crate) fn operands(inst: &Inst, f: &mut dyn FnMut(Value)) {
    match *inst {
        Inst::Const(_) | Inst::Uniform(_) | Inst::LocalId | Inst::GroupId | Inst::Get(_) => {}
        Inst::Unary(_, v) | Inst::Convert(_, v) | Inst::Bitcast(_, v) | Inst::Load(_, v) => f(v),
        Inst::LoadShared(_, v) | Inst::ShuffleXor(v, _) => f(v),
        Inst::Binary(_, x, y) | Inst::Compare(_, x, y) => {
            f(x);
            f(y);
        }
        Inst::Select(x, y, z) | Inst::Fma(x, y, z) => {
            f(x);
            f(y);
            f(z);
        }
    }
}

/// Removes values that nothing uses and statements that do nothing, and numbers what is left densely.
pub(crate) fn drop_unused(kernel: &mut Kernel) {
    let mut used = vec![false; kernel.values.len()];
    mark(&kernel.body, &mut used);
    let mut map = vec![Value(0); kernel.values.len()];
    let mut values = Vec::new();
    rename(&mut kernel.body, &used, &mut map, &mut values, &kernel.values);
    kernel.values = values;
}

/// Walks backwards, so that a use is seen before the definition.
fn mark(stmts: &[Stmt], used: &mut [bool]) {
    let need = |v: Value, used: &mut [bool]| used[v.index()] = true;
    for s in stmts.iter().rev() {
        match s {
            Stmt::Let(v, inst) => {
                if used[v.index()] {
                    operands(inst, &mut |x| need(x, used));
                }
            }
            Stmt::LoadWide { values, index, .. } => {
                if values.iter().any(|v| used[v.index()]) {
                    values.iter().for_each(|&v| need(v, used));
                    need(*index, used);
                }
            }
            Stmt::Set(_, v) | Stmt::Fail { value: v, .. } => need(*v, used),
            Stmt::Store { index, value, .. } | Stmt::StoreShared { index, value, .. } => {
                need(*index, used);
                need(*value, used);
            }
            Stmt::StoreWide { index, values, .. } => {
                need(*index, used);
                values.iter().for_each(|&v| need(v, used));
            }
            Stmt::MergeBits { index, mask, bits, .. } => {
                need(*index, used);
                need(*mask, used);
                need(*bits, used);
            }
            Stmt::If { cond, then, otherwise } => {
                mark(then, used);
                mark(otherwise, used);
                if !(is_empty(then, used) && is_empty(otherwise, used)) {
                    need(*cond, used);
                }
            }
            Stmt::For { counter, from, to, body, .. } => {
                mark(body, used);
                if !is_empty(body, used) {
                    need(*counter, used);
                    need(*from, used);
                    need(*to, used);
                }
            }
            Stmt::Barrier => {}
        }
    }
}

fn is_empty(stmts: &[Stmt], used: &[bool]) -> bool {
    stmts.iter().all(|s| match s {
        Stmt::Let(v, _) => !used[v.index()],
        Stmt::LoadWide { values, .. } => values.iter().all(|v| !used[v.index()]),
        Stmt::If { then, otherwise, .. } => is_empty(then, used) && is_empty(otherwise, used),
        Stmt::For { body, .. } => is_empty(body, used),
        _ => false,
    })
}

fn rename(stmts: &mut Vec<Stmt>, used: &[bool], map: &mut [Value], values: &mut Vec<Ty>, old: &[Ty]) {
    let define = |v: &mut Value, map: &mut [Value], values: &mut Vec<Ty>| {
        values.push(old[v.index()]);
        map[v.index()] = Value((values.len() - 1) as u32);
        *v = map[v.index()];
    };
    stmts.retain(|s| !is_empty(std::slice::from_ref(s), used));
    for s in stmts {
        match s {
            Stmt::Let(v, inst) => {
                rename_inst(inst, map);
                define(v, map, values);
            }
            Stmt::LoadWide { values: read, index, .. } => {
                *index = map[index.index()];
                read.iter_mut().for_each(|v| define(v, map, values));
            }
            Stmt::Set(_, v) | Stmt::Fail { value: v, .. } => *v = map[v.index()],
            Stmt::Store { index, value, .. } | Stmt::StoreShared { index, value, .. } => {
                *index = map[index.index()];
                *value = map[value.index()];
            }
            Stmt::StoreWide { index, values, .. } => {
                values.iter_mut().chain([index]).for_each(|v| *v = map[v.index()]);
            }
            Stmt::MergeBits { index, mask, bits, .. } => {
                for v in [index, mask, bits] {
                    *v = map[v.index()];
                }
            }
            Stmt::If { cond, then, otherwise } => {
                *cond = map[cond.index()];
                rename(then, used, map, values, old);
                rename(otherwise, used, map, values, old);
            }
            Stmt::For { counter, from, to, body, .. } => {
                *from = map[from.index()];
                *to = map[to.index()];
                define(counter, map, values);
                rename(body, used, map, values, old);
            }
            Stmt::Barrier => {}
        }
    }
}

fn rename_inst(inst: &mut Inst, map: &[Value]) {
    replace_operands(inst, &mut |v| map[v.index()]);
}

/// Gives an instruction other operands.
pub(crate) fn replace_operands(inst: &mut Inst, f: &mut dyn FnMut(Value) -> Value) {
    let mut to = |v: &mut Value| *v = f(*v);
    match inst {
        Inst::Const(_) | Inst::Uniform(_) | Inst::LocalId | Inst::GroupId | Inst::Get(_) => {}
        Inst::Unary(_, v) | Inst::Convert(_, v) | Inst::Bitcast(_, v) | Inst::Load(_, v) => to(v),
        Inst::LoadShared(_, v) | Inst::ShuffleXor(v, _) => to(v),
        Inst::Binary(_, x, y) | Inst::Compare(_, x, y) => {
            to(x);
            to(y);
        }
        Inst::Select(x, y, z) | Inst::Fma(x, y, z) => {
            to(x);
            to(y);
            to(z);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_arithmetic_gets_cheaper() {
        let mut b = Builder::new("t", 64);
        let n = b.uniform("n", 0, i32::MAX);
        let (one, eight, nine, zero) = (b.int(1), b.int(8), b.int(9), b.int(0));
        assert_eq!(b.mul(n, one), n);
        assert_eq!(b.div(n, one), n);
        assert_eq!(b.rem(n, one), zero);
        let q = b.div(n, eight);
        assert!(matches!(b.def(q), Some(Inst::Binary(BinOp::Shr, x, _)) if x == n));
        let r = b.rem(n, eight);
        assert!(matches!(b.def(r), Some(Inst::Binary(BinOp::And, x, _)) if x == n));
        assert_eq!(b.range(r), Range { min: 0, max: 7 });
        assert_eq!(b.rem(r, nine), r);
        assert_eq!(b.div(r, nine), zero);
        let holds = b.lt(r, nine);
        assert_eq!(b.as_const(holds), Some(Const::bool(true)));
        // A stride may be negative: no shift.
        let s = b.uniform("s", i32::MIN, i32::MAX);
        let q = b.div(s, eight);
        assert!(matches!(b.def(q), Some(Inst::Binary(BinOp::Div, ..))));
    }

    #[test]
    fn what_is_left_of_a_multiple_is_a_remainder() {
        let mut b = Builder::new("t", 64);
        let x = b.uniform("x", i32::MIN, i32::MAX);
        for by in [9, 8, 2, -1, -8, i32::MAX, i32::MIN] {
            let by = b.int(by);
            let quotient = b.div(x, by);
            let multiple = b.mul(quotient, by);
            let rest = b.sub(x, multiple);
            assert!(
                matches!(b.def(rest), Some(Inst::Binary(BinOp::Rem, of, divisor)) if of == x && divisor == by)
            );
        }
        // By a shift it is a mask, of negative numbers as well.
        for shift in [1, 3, 31] {
            let quotient = b.shr(x, shift);
            let multiple = b.shl(quotient, shift);
            let rest = b.sub(x, multiple);
            let Some(Inst::Binary(BinOp::And, of, mask)) = b.def(rest) else { panic!("by {shift}") };
            let mask = b.as_const(mask).and_then(Const::as_i32);
            assert_eq!((of, mask), (x, Some(((1i64 << shift) - 1) as i32)));
            for of in [i32::MIN, -9, -1, 0, 1, 8, i32::MAX] {
                assert_eq!(of.wrapping_sub(of >> shift << shift), of & mask.unwrap_or(0), "{of} by {shift}");
            }
        }
        // Another number, another multiple, a divisor that is no constant.
        let (z, eight, nine) = (b.uniform("z", 1, i32::MAX), b.int(8), b.int(9));
        let quotient = b.div(x, nine);
        for (of, by) in [(x, eight), (z, nine), (x, z)] {
            let multiple = b.mul(quotient, by);
            let rest = b.sub(of, multiple);
            assert!(matches!(b.def(rest), Some(Inst::Binary(BinOp::Sub, ..))));
        }
        let quotient = b.div(x, z);
        let multiple = b.mul(quotient, z);
        let rest = b.sub(x, multiple);
        assert!(matches!(b.def(rest), Some(Inst::Binary(BinOp::Sub, ..))));
    }

    #[test]
    fn a_division_by_zero_is_not_folded() {
        let mut b = Builder::new("t", 64);
        let (one, zero) = (b.int(1), b.int(0));
        let q = b.div(one, zero);
        assert!(b.as_const(q).is_none());
    }
}
