//! The [`Builder`]: writes kernels, simplifying as it goes.
//!
//! Every value goes through [`Builder::inst`], which folds constants, drops arithmetic that changes nothing
//! (`simplify.rs`) and makes equal values once. The short forms (`add`, `div`, …) are what schedules
//! are written in.
//!
//! ```
//! use rlx_ir::DType;
//! use rlx_kernel::{build::Builder, ir::Access};
//! let mut b = Builder::new("double", 64);
//! let x = b.buffer("x", DType::F32, Access::Read);
//! let y = b.buffer("y", DType::F32, Access::Write);
//! let n = b.uniform("n", 0, i32::MAX);
//! let i = b.global_id();
//! let inside = b.lt(i, n);
//! b.if_then(inside, |b| {
//!     let v = b.load(x, i);
//!     let twice = b.add(v, v);
//!     b.store(y, i, twice);
//! });
//! let kernel = b.finish();
//! rlx_kernel::verify::verify(&kernel).unwrap();
//! ```

use std::collections::HashMap;

use rlx_ir::DType;

use crate::ir::{
    Access, BinOp, Buffer, BufferDecl, Cmp, Const, Inst, Kernel, MathFn, Shared, SharedDecl, Stmt, Ty, UnOp,
    Value, Var, type_of,
};
use crate::simplify::{self, Simplified};

/// The smallest and largest value an `i32` may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The smallest.
    pub min: i64,
    /// The largest.
    pub max: i64,
}

impl Range {
    /// Nothing is known.
    pub const FULL: Range = Range { min: i32::MIN as i64, max: i32::MAX as i64 };
}

/// Writes one kernel.
#[derive(Debug)]
pub struct Builder {
    kernel: Kernel,
    /// Open lists, innermost last.
    blocks: Vec<Vec<Stmt>>,
    /// Values made so far in each open list.
    made: Vec<HashMap<Inst, Value>>,
    defs: Vec<Option<Inst>>,
    ranges: Vec<Range>,
    /// The open list that each value stands in, counted from the outermost.
    levels: Vec<usize>,
    /// The outermost list that it could stand in: arithmetic is as far out as what it is made of.
    reach: Vec<usize>,
}

/// Open lists that [`Builder::leave`] left.
#[derive(Debug)]
pub struct Left {
    blocks: Vec<Vec<Stmt>>,
    made: Vec<HashMap<Inst, Value>>,
}

impl Builder {
    /// A kernel without statements.
    pub fn new(name: impl Into<String>, workgroup: u32) -> Self {
        let kernel = Kernel {
            name: name.into(),
            buffers: Vec::new(),
            uniforms: Vec::new(),
            shared: Vec::new(),
            vars: Vec::new(),
            values: Vec::new(),
            workgroup,
            subgroup: None,
            body: Vec::new(),
        };
        Builder {
            kernel,
            blocks: vec![Vec::new()],
            made: vec![HashMap::new()],
            defs: Vec::new(),
            ranges: Vec::new(),
            levels: Vec::new(),
            reach: Vec::new(),
        }
    }

    /// The kernel so far, without the statements of open lists.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The finished kernel, without values that nothing uses.
    pub fn finish(mut self) -> Kernel {
        self.kernel.body = self.blocks.pop().unwrap_or_default();
        simplify::drop_unused(&mut self.kernel);
        self.kernel
    }

    /// Declares the next buffer.
    pub fn buffer(&mut self, name: impl Into<String>, dtype: DType, access: Access) -> Buffer {
        self.kernel.buffers.push(BufferDecl { name: name.into(), dtype, access });
        Buffer((self.kernel.buffers.len() - 1) as u32)
    }

    /// Declares the next uniform, known to be in `min..=max`.
    pub fn uniform(&mut self, name: impl Into<String>, min: i32, max: i32) -> Value {
        self.kernel.uniforms.push(name.into());
        let v = self.inst(Inst::Uniform((self.kernel.uniforms.len() - 1) as u32));
        self.ranges[v.index()] = Range { min: i64::from(min), max: i64::from(max) };
        v
    }

    /// Declares workgroup memory.
    pub fn shared(&mut self, ty: Ty, len: u32) -> Shared {
        self.kernel.shared.push(SharedDecl { ty, len });
        Shared((self.kernel.shared.len() - 1) as u32)
    }

    /// States the number of invocations of a subgroup: see [`Kernel::subgroup`].
    pub fn set_subgroup(&mut self, lanes: Option<u32>) {
        self.kernel.subgroup = lanes;
    }

    /// Declares a variable without a value.
    pub fn declare_var(&mut self, ty: Ty) -> Var {
        self.kernel.vars.push(ty);
        Var((self.kernel.vars.len() - 1) as u32)
    }

    /// Declares a variable that starts with `value`.
    pub fn var(&mut self, value: Value) -> Var {
        let var = self.declare_var(self.ty(value));
        self.set(var, value);
        var
    }

    /// The type of a value.
    pub fn ty(&self, v: Value) -> Ty {
        self.kernel.values[v.index()]
    }

    /// The type of a variable.
    pub fn var_ty(&self, v: Var) -> Ty {
        self.kernel.vars[v.index()]
    }

    /// What is known of an `i32` value.
    pub fn range(&self, v: Value) -> Range {
        self.ranges[v.index()]
    }

    /// Quotient and remainder of `i32` by one division, where the divisor is no constant.
    pub fn div_rem(&mut self, x: Value, y: Value) -> (Value, Value) {
        let quotient = self.div(x, y);
        if self.as_const(y).is_some() || self.as_const(quotient).is_some() {
            return (quotient, self.rem(x, y));
        }
        let whole = self.mul(quotient, y);
        let rest = self.sub(x, whole);
        let (of, by) = (self.range(x), self.range(y));
        if of.min >= 0 && by.min >= 0 {
            self.assume(rest, 0, of.max.min(by.max - 1).max(0));
        }
        (quotient, rest)
    }

    /// States what is known of an `i32` value.
    pub fn assume(&mut self, v: Value, min: i64, max: i64) {
        self.ranges[v.index()] = Range { min, max };
    }

    /// The instruction that made a value; `None` for loop counters.
    pub fn def(&self, v: Value) -> Option<Inst> {
        self.defs[v.index()]
    }

    /// The instruction that makes a value, if one alone does.
    pub(crate) fn definition(&self, v: Value) -> Option<Inst> {
        self.defs[v.index()]
    }

    /// The constant a value is.
    pub fn as_const(&self, v: Value) -> Option<Const> {
        match self.defs[v.index()] {
            Some(Inst::Const(c)) => Some(c),
            _ => None,
        }
    }

    fn fresh(&mut self, ty: Ty, def: Option<Inst>, range: Range, (level, reach): (usize, usize)) -> Value {
        self.kernel.values.push(ty);
        self.defs.push(def);
        self.ranges.push(range);
        self.levels.push(level);
        self.reach.push(reach);
        Value((self.kernel.values.len() - 1) as u32)
    }

    /// The value of `inst`, simplified, made once.
    ///
    /// # Panics
    /// When the operands do not fit the instruction: a fault of a schedule, found by its tests.
    pub fn inst(&mut self, inst: Inst) -> Value {
        let inst = match simplify::simplify(self, inst) {
            Simplified::Value(v) => return v,
            Simplified::Inst(inst) => inst,
        };
        // What depends on state is not the same value twice.
        let pure =
            !matches!(inst, Inst::Get(_) | Inst::Load(..) | Inst::LoadShared(..) | Inst::ShuffleXor(..));
        if pure && let Some(&v) = self.made.iter().rev().find_map(|made| made.get(&inst)) {
            return v;
        }
        let Some(ty) = type_of(&inst, &self.kernel) else {
            panic!("kernel {:?}: operands do not fit {inst:?}", self.kernel.name)
        };
        let range = simplify::range_of(self, &inst);
        // Constants and uniforms are visible everywhere: they stand at the top.
        let top = matches!(inst, Inst::Const(_) | Inst::Uniform(_) | Inst::LocalId | Inst::GroupId);
        let level = if top { 0 } else { self.depth() };
        let mut reach = if pure { 0 } else { level };
        simplify::operands(&inst, &mut |v| reach = reach.max(self.reach[v.index()]));
        let v = self.fresh(ty, Some(inst), range, (level, reach));
        self.blocks[level].push(Stmt::Let(v, inst));
        if pure {
            self.made[level].insert(inst, v);
        }
        v
    }

    fn push(&mut self, stmt: Stmt) {
        if let Some(block) = self.blocks.last_mut() {
            block.push(stmt);
        }
    }

    /// Opens an inner list: statements go there until [`Builder::close`].
    pub fn open(&mut self) {
        self.blocks.push(Vec::new());
        self.made.push(HashMap::new());
    }

    /// Closes the innermost list and gives it.
    pub fn close(&mut self) -> Vec<Stmt> {
        self.made.pop();
        self.blocks.pop().unwrap_or_default()
    }

    /// How many lists are open around the innermost one.
    pub fn depth(&self) -> usize {
        self.blocks.len() - 1
    }

    /// The outermost of the open lists in which a value could be made, arithmetic of what is there.
    pub fn reach(&self, v: Value) -> usize {
        self.reach[v.index()]
    }

    /// Leaves the lists within list number `depth`, so that statements go there, in front of what is being written, until [`Builder::enter`].
    pub fn leave(&mut self, depth: usize) -> Left {
        let from = (depth + 1).min(self.blocks.len());
        Left { blocks: self.blocks.split_off(from), made: self.made.split_off(from) }
    }

    /// Goes back into lists that were left.
    pub fn enter(&mut self, left: Left) {
        self.blocks.extend(left.blocks);
        self.made.extend(left.made);
    }

    /// A value of lists that were left, made again in this one, which is as far out as it reaches.
    pub fn again(&mut self, v: Value) -> Value {
        let Some(mut inst) = self.def(v).filter(|_| self.levels[v.index()] > self.depth()) else { return v };
        simplify::replace_operands(&mut inst, &mut |of| self.again(of));
        let made = self.inst(inst);
        self.ranges[made.index()] = self.ranges[v.index()];
        made
    }

    /// A choice between two finished lists.
    pub fn push_if(&mut self, cond: Value, then: Vec<Stmt>, otherwise: Vec<Stmt>) {
        self.push(Stmt::If { cond, then, otherwise });
    }

    /// The counter of a loop from `from` to before `to`.
    pub fn counter(&mut self, from: Value, to: Value) -> Value {
        let least = self.range(from).min;
        let range = Range { min: least, max: (self.range(to).max - 1).max(least) };
        // It is known in the loop's list, which is to be opened.
        let within = self.blocks.len();
        self.fresh(Ty::I32, None, range, (within, within))
    }

    /// A loop over a finished list.
    pub fn push_for(&mut self, counter: Value, from: Value, to: Value, step: i32, body: Vec<Stmt>) {
        self.push(Stmt::For { counter, from, to, step, body });
    }

    fn block(&mut self, f: impl FnOnce(&mut Self)) -> Vec<Stmt> {
        self.open();
        f(self);
        self.close()
    }

    /// An `i32` constant.
    pub fn int(&mut self, v: i32) -> Value {
        self.inst(Inst::Const(Const::int(Ty::I32, i64::from(v))))
    }

    /// A `u32` constant.
    pub fn word(&mut self, v: u32) -> Value {
        self.inst(Inst::Const(Const::int(Ty::U32, i64::from(v))))
    }

    /// A constant.
    pub fn constant(&mut self, c: Const) -> Value {
        self.inst(Inst::Const(c))
    }

    /// A number in any type but bool: integers take its integer part.
    pub fn number(&mut self, ty: Ty, v: f64) -> Value {
        let c = if ty.is_float() { Const::float(ty, v) } else { Const::int(ty, v as i64) };
        self.inst(Inst::Const(c))
    }

    /// The invocation's number within the dispatch.
    pub fn global_id(&mut self) -> Value {
        let (group, local) = (self.inst(Inst::GroupId), self.inst(Inst::LocalId));
        let size = self.int(self.kernel.workgroup as i32);
        let start = self.mul(group, size);
        self.add(start, local)
    }

    /// A function of one value.
    pub fn unary(&mut self, op: UnOp, v: Value) -> Value {
        self.inst(Inst::Unary(op, v))
    }

    /// A function of the mathematical library.
    pub fn math(&mut self, f: MathFn, v: Value) -> Value {
        self.unary(UnOp::Math(f), v)
    }

    /// A function of two values.
    pub fn binary(&mut self, op: BinOp, a: Value, b: Value) -> Value {
        self.inst(Inst::Binary(op, a, b))
    }

    /// `sum + x·y`, of floats rounded once where the device can ([`TypeSupport::fma`](crate::TypeSupport::fma)).
    pub fn multiply_add(&mut self, x: Value, y: Value, sum: Value) -> Value {
        if self.ty(sum).is_float() {
            return self.inst(Inst::Fma(x, y, sum));
        }
        let product = self.mul(x, y);
        self.add(sum, product)
    }

    /// What a value is in the invocation whose number differs in these bits: [`Inst::ShuffleXor`], of any type.
    pub fn shuffle_xor(&mut self, v: Value, bits: u32) -> Value {
        if self.ty(v) != Ty::Bool {
            return self.inst(Inst::ShuffleXor(v, bits));
        }
        let word = self.convert(Ty::U32, v);
        let other = self.inst(Inst::ShuffleXor(word, bits));
        self.convert(Ty::Bool, other)
    }

    /// A comparison.
    pub fn compare(&mut self, op: Cmp, a: Value, b: Value) -> Value {
        self.inst(Inst::Compare(op, a, b))
    }

    /// `c ? a : b`.
    pub fn select(&mut self, c: Value, a: Value, b: Value) -> Value {
        self.inst(Inst::Select(c, a, b))
    }

    /// The value in another type.
    pub fn convert(&mut self, ty: Ty, v: Value) -> Value {
        self.inst(Inst::Convert(ty, v))
    }

    /// The same bits as another type.
    pub fn bitcast(&mut self, ty: Ty, v: Value) -> Value {
        self.inst(Inst::Bitcast(ty, v))
    }

    /// The present value of a variable.
    pub fn get(&mut self, var: Var) -> Value {
        self.inst(Inst::Get(var))
    }

    /// Changes a variable.
    pub fn set(&mut self, var: Var, value: Value) {
        self.push(Stmt::Set(var, value));
    }

    /// An element of a buffer.
    pub fn load(&mut self, buffer: Buffer, index: Value) -> Value {
        self.inst(Inst::Load(buffer, index))
    }

    /// `count` neighbouring elements of a buffer, from one on whose number is a multiple of `count` (one of [`WIDTHS`](crate::ir::WIDTHS)).
    pub fn load_wide(&mut self, buffer: Buffer, index: Value, count: usize) -> Vec<Value> {
        let ty = Ty::of(self.kernel.buffers[buffer.index()].dtype);
        let here = (self.depth(), self.depth());
        let values: Vec<Value> = (0..count).map(|_| self.fresh(ty, None, Range::FULL, here)).collect();
        self.push(Stmt::LoadWide { values: values.clone(), buffer, index });
        values
    }

    /// An element of workgroup memory.
    pub fn load_shared(&mut self, shared: Shared, index: Value) -> Value {
        self.inst(Inst::LoadShared(shared, index))
    }

    /// Writes an element of a buffer.
    pub fn store(&mut self, buffer: Buffer, index: Value, value: Value) {
        self.push(Stmt::Store { buffer, index, value });
    }

    /// Writes neighbouring elements of a buffer, from one on whose number is a multiple of how many they are (one of [`WIDTHS`](crate::ir::WIDTHS)).
    pub fn store_wide(&mut self, buffer: Buffer, index: Value, values: Vec<Value>) {
        self.push(Stmt::StoreWide { buffer, index, values });
    }

    /// Writes an element of workgroup memory.
    pub fn store_shared(&mut self, shared: Shared, index: Value, value: Value) {
        self.push(Stmt::StoreShared { shared, index, value });
    }

    /// Replaces some bits of a word.
    pub fn merge_bits(&mut self, buffer: Buffer, index: Value, mask: Value, bits: Value) {
        self.push(Stmt::MergeBits { buffer, index, mask, bits });
    }

    /// Waits for the workgroup.
    pub fn barrier(&mut self) {
        self.push(Stmt::Barrier);
    }

    /// Reports a fault.
    pub fn fail(&mut self, code: u32, value: Value) {
        self.push(Stmt::Fail { code, value });
    }

    /// Runs `then` where `cond` holds.
    pub fn if_then(&mut self, cond: Value, then: impl FnOnce(&mut Self)) {
        self.if_else(cond, then, |_| {});
    }

    /// Runs one of two lists; only the one that runs when the condition is constant.
    pub fn if_else(&mut self, cond: Value, then: impl FnOnce(&mut Self), otherwise: impl FnOnce(&mut Self)) {
        match self.as_const(cond) {
            Some(c) if c.bits != 0 => then(self),
            Some(_) => otherwise(self),
            None => {
                let then = self.block(then);
                let otherwise = self.block(otherwise);
                self.push(Stmt::If { cond, then, otherwise });
            }
        }
    }

    /// Runs `body` with a counter from `from` to before `to`, growing by `step`.
    pub fn for_step(&mut self, from: Value, to: Value, step: i32, body: impl FnOnce(&mut Self, Value)) {
        let counter = self.counter(from, to);
        let body = self.block(|b| body(b, counter));
        self.push_for(counter, from, to, step, body);
    }

    /// Runs `body` with a counter from 0 to before `to`.
    pub fn for_each(&mut self, to: Value, body: impl FnOnce(&mut Self, Value)) {
        let zero = self.int(0);
        self.for_step(zero, to, 1, body);
    }
}

macro_rules! short_forms {
    ($($name:ident = $op:ident, $doc:literal;)*) => {
        impl Builder {
            $(#[doc = $doc]
            pub fn $name(&mut self, a: Value, b: Value) -> Value {
                self.binary(BinOp::$op, a, b)
            })*
        }
    };
}
short_forms! {
    add = Add, "`a + b`.";
    sub = Sub, "`a - b`.";
    mul = Mul, "`a * b`.";
    div = Div, "`a / b`.";
    rem = Rem, "The remainder of integers.";
    min = Min, "The lesser.";
    max = Max, "The greater.";
    and = And, "Bitwise or logical and.";
    or = Or, "Bitwise or logical or.";
    xor = Xor, "Bitwise or logical exclusive or.";
}

macro_rules! comparisons {
    ($($name:ident = $op:ident, $doc:literal;)*) => {
        impl Builder {
            $(#[doc = $doc]
            pub fn $name(&mut self, a: Value, b: Value) -> Value {
                self.compare(Cmp::$op, a, b)
            })*
        }
    };
}
comparisons! {
    eq = Eq, "`a == b`.";
    ne = Ne, "`a != b`.";
    lt = Lt, "`a < b`.";
    le = Le, "`a <= b`.";
    gt = Gt, "`a > b`.";
    ge = Ge, "`a >= b`.";
}

impl Builder {
    /// Shift left by a constant.
    pub fn shl(&mut self, v: Value, by: u32) -> Value {
        let by = self.word(by);
        self.binary(BinOp::Shl, v, by)
    }

    /// Shift right by a constant.
    pub fn shr(&mut self, v: Value, by: u32) -> Value {
        let by = self.word(by);
        self.binary(BinOp::Shr, v, by)
    }

    /// `-x`.
    pub fn neg(&mut self, v: Value) -> Value {
        self.unary(UnOp::Neg, v)
    }

    /// Logical not, or every bit inverted.
    pub fn not(&mut self, v: Value) -> Value {
        self.unary(UnOp::Not, v)
    }
}
