//! 64-bit integers as pairs of `u32`, low word first. All arithmetic is exact modulo 2⁶⁴.

use super::{Emulator, Rep};
use crate::build::Builder;
use crate::ir::{BinOp, Cmp, Const, Inst, Ty, UnOp, Value};

type Pair = (Value, Value);

impl Emulator<'_> {
    /// The instruction on pairs, when it takes or gives any.
    pub(super) fn pair_inst(&mut self, inst: &Inst) -> Option<Rep> {
        if self.types.int64 {
            return None;
        }
        let wide = |e: &Self, v: Value| e.is_pair(e.ty(v));
        let (low, high) = match *inst {
            Inst::Const(c) if self.is_pair(c.ty) => {
                (self.b.word(c.bits as u32), self.b.word((c.bits >> 32) as u32))
            }
            Inst::Unary(op, v) if wide(self, v) => {
                let x = self.rep(v).two();
                if op == UnOp::Neg { negated(&mut self.b, x) } else { (self.b.not(x.0), self.b.not(x.1)) }
            }
            Inst::Binary(op, x, y) if wide(self, x) => {
                let (signed, p) = (self.ty(x).is_signed(), self.rep(x).two());
                if matches!(op, BinOp::Shl | BinOp::Shr) {
                    let by = self.one(y);
                    shifted(&mut self.b, op, p, by, signed)
                } else {
                    let q = self.rep(y).two();
                    binary(&mut self.b, op, p, q, signed)
                }
            }
            Inst::Compare(op, x, y) if wide(self, x) => {
                let (signed, p, q) = (self.ty(x).is_signed(), self.rep(x).two(), self.rep(y).two());
                return Some(Rep::One(compare(&mut self.b, op, p, q, signed)));
            }
            Inst::Select(c, x, y) if wide(self, x) => {
                let (c, p, q) = (self.one(c), self.rep(x).two(), self.rep(y).two());
                select(&mut self.b, c, p, q)
            }
            Inst::Bitcast(_, v) if wide(self, v) => return Some(self.rep(v)),
            Inst::Convert(to, v) => return self.converted(to, v),
            _ => return None,
        };
        Some(Rep::Two(low, high))
    }

    fn converted(&mut self, to: Ty, v: Value) -> Option<Rep> {
        let from = self.ty(v);
        let b = &mut self.b;
        let rep = self.values[v.index()]?;
        if matches!(from, Ty::I64 | Ty::U64) {
            let (low, high) = rep.two();
            return Some(match to {
                Ty::I64 | Ty::U64 => rep,
                Ty::U32 => Rep::One(low),
                Ty::I32 => Rep::One(b.bitcast(Ty::I32, low)),
                Ty::Bool => {
                    let any = b.or(low, high);
                    Rep::One(b.convert(Ty::Bool, any))
                }
                _ => Rep::One(to_float(b, (low, high), from.is_signed())),
            });
        }
        if !matches!(to, Ty::I64 | Ty::U64) {
            return None;
        }
        let v = rep.one();
        let zero = b.word(0);
        let (low, high) = match from {
            Ty::I32 => {
                let sign = b.shr(v, 31);
                (b.bitcast(Ty::U32, v), b.bitcast(Ty::U32, sign))
            }
            Ty::Bool => (b.convert(Ty::U32, v), zero),
            Ty::U32 => (v, zero),
            _ => from_float(b, v, to == Ty::I64),
        };
        Some(Rep::Two(low, high))
    }
}

fn select(b: &mut Builder, c: Value, x: Pair, y: Pair) -> Pair {
    (b.select(c, x.0, y.0), b.select(c, x.1, y.1))
}

fn added(b: &mut Builder, x: Pair, y: Pair) -> Pair {
    let low = b.add(x.0, y.0);
    let carry = b.lt(low, x.0);
    let carry = b.convert(Ty::U32, carry);
    let high = b.add(x.1, y.1);
    (low, b.add(high, carry))
}

fn subtracted(b: &mut Builder, x: Pair, y: Pair) -> Pair {
    let borrow = b.lt(x.0, y.0);
    let borrow = b.convert(Ty::U32, borrow);
    let high = b.sub(x.1, y.1);
    (b.sub(x.0, y.0), b.sub(high, borrow))
}

fn negated(b: &mut Builder, x: Pair) -> Pair {
    let zero = b.word(0);
    subtracted(b, (zero, zero), x)
}

/// The full product of two words, by halves of 16 bits.
fn product(b: &mut Builder, x: Value, y: Value) -> Pair {
    let mask = b.word(0xFFFF);
    let (x0, x1, y0, y1) = (b.and(x, mask), b.shr(x, 16), b.and(y, mask), b.shr(y, 16));
    let (low, cross, other, high) = (b.mul(x0, y0), b.mul(x1, y0), b.mul(x0, y1), b.mul(x1, y1));
    // Each sum stays below 2³²: (2¹⁶−1)² + 2·(2¹⁶−1) = 2³² − 1.
    let carry = b.shr(low, 16);
    let middle = b.add(cross, carry);
    let part = b.and(middle, mask);
    let part = b.add(part, other);
    let (top, more) = (b.shr(middle, 16), b.shr(part, 16));
    let high = b.add(high, top);
    (b.mul(x, y), b.add(high, more))
}

fn multiplied(b: &mut Builder, x: Pair, y: Pair) -> Pair {
    let (low, high) = product(b, x.0, y.0);
    let (p, q) = (b.mul(x.0, y.1), b.mul(x.1, y.0));
    let high = b.add(high, p);
    (low, b.add(high, q))
}

fn binary(b: &mut Builder, op: BinOp, x: Pair, y: Pair, signed: bool) -> Pair {
    match op {
        BinOp::Add => added(b, x, y),
        BinOp::Sub => subtracted(b, x, y),
        BinOp::Mul => multiplied(b, x, y),
        BinOp::Min | BinOp::Max => {
            let (p, q) = if op == BinOp::Min { (x, y) } else { (y, x) };
            let less = compare(b, Cmp::Lt, p, q, signed);
            select(b, less, x, y)
        }
        BinOp::Div | BinOp::Rem => divided(b, op, x, y, signed),
        op => (b.binary(op, x.0, y.0), b.binary(op, x.1, y.1)),
    }
}

fn compare(b: &mut Builder, op: Cmp, x: Pair, y: Pair, signed: bool) -> Value {
    match op {
        Cmp::Eq | Cmp::Ne => {
            let (low, high) = (b.eq(x.0, y.0), b.eq(x.1, y.1));
            let equal = b.and(low, high);
            if op == Cmp::Eq { equal } else { b.not(equal) }
        }
        Cmp::Gt => compare(b, Cmp::Lt, y, x, signed),
        Cmp::Ge => {
            let less = compare(b, Cmp::Lt, x, y, signed);
            b.not(less)
        }
        Cmp::Le => {
            let less = compare(b, Cmp::Lt, y, x, signed);
            b.not(less)
        }
        Cmp::Lt => {
            let (x1, y1) =
                if signed { (b.bitcast(Ty::I32, x.1), b.bitcast(Ty::I32, y.1)) } else { (x.1, y.1) };
            let (less, tied, low) = (b.lt(x1, y1), b.eq(x.1, y.1), b.lt(x.0, y.0));
            let by_low = b.and(tied, low);
            b.or(less, by_low)
        }
    }
}

/// Shift by less than 64.
fn shifted(b: &mut Builder, op: BinOp, x: Pair, by: Value, signed: bool) -> Pair {
    let (mask, width, zero) = (b.word(31), b.word(32), b.word(0));
    let within = b.and(by, mask);
    let far = b.ge(by, width);
    // A shift by 32 − within in two steps, for it may be 32.
    let rest = b.sub(mask, within);
    if op == BinOp::Shl {
        let low = b.binary(BinOp::Shl, x.0, within);
        let over = b.shr(x.0, 1);
        let over = b.binary(BinOp::Shr, over, rest);
        let high = b.binary(BinOp::Shl, x.1, within);
        let high = b.or(high, over);
        return select(b, far, (zero, low), (low, high));
    }
    let (high, fill) = if signed {
        let top = b.bitcast(Ty::I32, x.1);
        let (high, fill) = (b.binary(BinOp::Shr, top, within), b.shr(top, 31));
        (b.bitcast(Ty::U32, high), b.bitcast(Ty::U32, fill))
    } else {
        (b.binary(BinOp::Shr, x.1, within), zero)
    };
    let low = b.binary(BinOp::Shr, x.0, within);
    let over = b.shl(x.1, 1);
    let over = b.binary(BinOp::Shl, over, rest);
    let low = b.or(low, over);
    select(b, far, (high, fill), (low, high))
}

fn is_negative(b: &mut Builder, x: Pair) -> Value {
    let (top, zero) = (b.bitcast(Ty::I32, x.1), b.int(0));
    b.lt(top, zero)
}

fn magnitude(b: &mut Builder, x: Pair) -> (Pair, Value) {
    let negative = is_negative(b, x);
    let minus = negated(b, x);
    (select(b, negative, minus, x), negative)
}

fn divided(b: &mut Builder, op: BinOp, x: Pair, y: Pair, signed: bool) -> Pair {
    if !signed {
        let (quotient, rest) = long_division(b, x, y);
        return if op == BinOp::Div { quotient } else { rest };
    }
    let ((p, p_negative), (q, q_negative)) = (magnitude(b, x), magnitude(b, y));
    let (quotient, rest) = long_division(b, p, q);
    let (result, negative) =
        if op == BinOp::Div { (quotient, b.xor(p_negative, q_negative)) } else { (rest, p_negative) };
    let minus = negated(b, result);
    select(b, negative, minus, result)
}

/// Quotient and remainder of unsigned integers, one bit at a time.
fn long_division(b: &mut Builder, x: Pair, y: Pair) -> (Pair, Pair) {
    let zero = b.word(0);
    let pair_var = |b: &mut Builder, p: Pair| (b.var(p.0), b.var(p.1));
    let (dividend, quotient, rest) = (pair_var(b, x), pair_var(b, (zero, zero)), pair_var(b, (zero, zero)));
    let bits = b.int(64);
    b.for_each(bits, |b, _| {
        let one = b.word(1);
        let d = (b.get(dividend.0), b.get(dividend.1));
        let r = (b.get(rest.0), b.get(rest.1));
        let q = (b.get(quotient.0), b.get(quotient.1));
        let next = b.shr(d.1, 31);
        let d = shifted(b, BinOp::Shl, d, one, false);
        // The remainder is below the divisor, but twice of it may not fit: then it is not below.
        let lost = b.shr(r.1, 31);
        let lost = b.convert(Ty::Bool, lost);
        let r = shifted(b, BinOp::Shl, r, one, false);
        let r = (b.or(r.0, next), r.1);
        let q = shifted(b, BinOp::Shl, q, one, false);
        let fits = compare(b, Cmp::Ge, r, y, false);
        let fits = b.or(fits, lost);
        let less = subtracted(b, r, y);
        let r = select(b, fits, less, r);
        let bit = b.convert(Ty::U32, fits);
        let q = (b.or(q.0, bit), q.1);
        for (var, v) in [(dividend, d), (rest, r), (quotient, q)] {
            b.set(var.0, v.0);
            b.set(var.1, v.1);
        }
    });
    ((b.get(quotient.0), b.get(quotient.1)), (b.get(rest.0), b.get(rest.1)))
}

/// A 64-bit integer as `f32`, rounded to nearest even.
fn to_float(b: &mut Builder, x: Pair, signed: bool) -> Value {
    let no = b.constant(Const::bool(false));
    let (m, negative) = if signed { magnitude(b, x) } else { (x, no) };
    let (zero, width, last) = (b.word(0), b.word(32), b.word(63));
    let (low_zeros, high_zeros) = (b.unary(UnOp::LeadingZeros, m.0), b.unary(UnOp::LeadingZeros, m.1));
    let all = b.add(low_zeros, width);
    let no_high = b.eq(m.1, zero);
    let zeros = b.select(no_high, all, high_zeros);
    let zeros = b.min(zeros, last);
    // The top 32 bits, with a last one that says whether anything follows, convert with one rounding.
    let (low, high) = shifted(b, BinOp::Shl, m, zeros, false);
    let follows = b.ne(low, zero);
    let follows = b.convert(Ty::U32, follows);
    let top = b.or(high, follows);
    let value = b.convert(Ty::F32, top);
    let exponent = b.word(127 + 32);
    let exponent = b.sub(exponent, zeros);
    let scale = b.shl(exponent, 23);
    let scale = b.bitcast(Ty::F32, scale);
    let value = b.mul(value, scale);
    let minus = b.neg(value);
    b.select(negative, minus, value)
}

/// An `f32` as a 64-bit integer: truncated, saturating, NaN to 0.
fn from_float(b: &mut Builder, x: Value, signed: bool) -> Pair {
    let bits = b.bitcast(Ty::U32, x);
    let (fraction, hidden, exponents) = (b.word(0x7F_FFFF), b.word(0x80_0000), b.word(0xFF));
    let mantissa = b.and(bits, fraction);
    let mantissa = b.or(mantissa, hidden);
    let exponent = b.shr(bits, 23);
    let exponent = b.and(exponent, exponents);
    let (unit, most_left, most_right) = (b.word(150), b.word(40), b.word(31));
    // mantissa · 2^(exponent − 150)
    let is_left = b.ge(exponent, unit);
    let left = b.sub(exponent, unit);
    let left = b.min(left, most_left);
    let right = b.sub(unit, exponent);
    let right = b.min(right, most_right);
    let zero = b.word(0);
    let left = b.select(is_left, left, zero);
    let right = b.select(is_left, zero, right);
    let grown = shifted(b, BinOp::Shl, (mantissa, zero), left, false);
    let shrunk = b.binary(BinOp::Shr, mantissa, right);
    let v = select(b, is_left, grown, (shrunk, zero));
    let fzero = b.number(Ty::F32, 0.0);
    let negative = b.lt(x, fzero);
    let minus = negated(b, v);
    let (ones, top) = (b.word(u32::MAX), b.word(0x8000_0000));
    let size = b.unary(UnOp::Abs, x);
    let limit =
        b.number(Ty::F32, if signed { 9_223_372_036_854_775_808.0 } else { 18_446_744_073_709_551_616.0 });
    let too_large = b.ge(size, limit);
    let v = if signed {
        let most = b.word(0x7FFF_FFFF);
        let saturated = select(b, negative, (zero, top), (ones, most));
        let v = select(b, negative, minus, v);
        select(b, too_large, saturated, v)
    } else {
        let v = select(b, too_large, (ones, ones), v);
        select(b, negative, (zero, zero), v)
    };
    let nan = crate::schedule::elementwise::is_nan(b, x);
    select(b, nan, (zero, zero), v)
}
