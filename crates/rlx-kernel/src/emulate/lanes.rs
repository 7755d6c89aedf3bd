//! [`Lanes`] that are values of a kernel: an approximation of [`rlx_math`] writes its instructions.

use std::cell::RefCell;

use rlx_math::{Form, Lanes};

use crate::build::Builder;
use crate::ir::{BinOp, Cmp, MathFn, Ty, UnOp, Value};

/// Where instructions are written to. The builder is borrowed for one instruction at a time.
#[derive(Clone, Copy)]
pub(super) struct Emit<'c, 'b> {
    b: &'c RefCell<&'b mut Builder>,
    ty: Ty,
    library: bool,
}

impl<'c, 'b> Emit<'c, 'b> {
    /// For values of `ty`, an f32 or (in formulas) an f64. `library` says whether the device has a good library.
    pub(super) fn new(b: &'c RefCell<&'b mut Builder>, ty: Ty, library: bool) -> Self {
        Emit { b, ty, library: library || ty == Ty::F64 }
    }

    fn with(self, f: impl FnOnce(&mut Builder) -> Value) -> Value {
        f(&mut self.b.borrow_mut())
    }

    fn unary(self, op: UnOp, a: Value) -> Value {
        self.with(|b| b.unary(op, a))
    }

    fn binary(self, op: BinOp, a: Value, b: Value) -> Value {
        self.with(|builder| builder.binary(op, a, b))
    }

    fn compare(self, op: Cmp, a: Value, b: Value) -> Value {
        self.with(|builder| builder.compare(op, a, b))
    }
}

/// Writes each listed method as one instruction.
macro_rules! instructions {
    ($($how:ident: $($name:ident $op:path),*;)*) => {
        $($(instructions!(@ $how $name $op);)*)*
    };
    (@ unary $name:ident $op:path) => {
        fn $name(self, a: Value) -> Value {
            self.unary($op, a)
        }
    };
    (@ $how:ident $name:ident $op:path) => {
        fn $name(self, a: Value, b: Value) -> Value {
            self.$how($op, a, b)
        }
    };
}

impl Lanes for Emit<'_, '_> {
    type F = Value;
    type I = Value;
    type M = Value;
    const FUSED: bool = false;

    instructions! {
        unary: sqrt UnOp::Sqrt, round UnOp::Round, floor UnOp::Floor, ceil UnOp::Ceil, trunc UnOp::Trunc,
            abs UnOp::Abs, neg UnOp::Neg, mask_not UnOp::Not;
        binary: add BinOp::Add, sub BinOp::Sub, mul BinOp::Mul, div BinOp::Div, mask_and BinOp::And,
            mask_or BinOp::Or, add_i BinOp::Add, sub_i BinOp::Sub, and_i BinOp::And, or_i BinOp::Or,
            xor_i BinOp::Xor;
        compare: lt Cmp::Lt, le Cmp::Le, eq Cmp::Eq, eq_i Cmp::Eq;
    }

    fn splat(self, x: f32) -> Value {
        self.constant(f64::from(x))
    }
    fn constant(self, x: f64) -> Value {
        self.with(|b| b.number(self.ty, x))
    }
    fn native(self, f: MathFn, x: Value) -> Option<Value> {
        let has = self.library && matches!(f.form(), Form::Library(_));
        has.then(|| self.with(|b| b.math(f, x)))
    }

    fn mul_add(self, a: Value, b: Value, c: Value) -> Value {
        self.add(self.mul(a, b), c)
    }
    fn neg_mul_add(self, a: Value, b: Value, c: Value) -> Value {
        self.sub(c, self.mul(a, b))
    }
    // By comparison: minimum and maximum are for numbers alone.
    fn min_raw(self, a: Value, b: Value) -> Value {
        self.select(self.lt(a, b), a, b)
    }
    fn max_raw(self, a: Value, b: Value) -> Value {
        self.select(self.lt(b, a), a, b)
    }
    fn select(self, m: Value, a: Value, b: Value) -> Value {
        self.with(|builder| builder.select(m, a, b))
    }

    fn splat_i(self, x: i32) -> Value {
        self.with(|b| b.int(x))
    }
    fn to_int(self, a: Value) -> Value {
        self.with(|b| b.convert(Ty::I32, a))
    }
    fn from_int(self, a: Value) -> Value {
        self.with(|b| b.convert(Ty::F32, a))
    }
    fn bits(self, a: Value) -> Value {
        self.with(|b| b.bitcast(Ty::I32, a))
    }
    fn from_bits(self, a: Value) -> Value {
        self.with(|b| b.bitcast(Ty::F32, a))
    }
    fn shl_i<const N: i32>(self, a: Value) -> Value {
        self.with(|b| b.shl(a, N as u32))
    }
    fn shr_i<const N: i32>(self, a: Value) -> Value {
        self.with(|b| b.shr(a, N as u32))
    }

    fn scale2(self, a: Value, n: Value) -> Value {
        // Two steps, so that neither power of two leaves the range.
        let n = self.to_int(n);
        let half = self.shr_i::<1>(n);
        let power = |n| self.from_bits(self.shl_i::<23>(self.add_i(n, self.splat_i(127))));
        let once = self.mul(a, power(half));
        self.mul(once, power(self.sub_i(n, half)))
    }
}
