//! The kernel language: data that says what one dispatch computes.
//!
//! A [`Kernel`] is a list of statements run by every invocation of every workgroup. Values are immutable and
//! typed ([`Ty`]); state is in variables, in memory shared by a workgroup, and in buffers. Indices are `i32`
//! and count elements. Sizes, strides and offsets are *uniforms*: one small array of `i32` that each dispatch
//! is given, so that a kernel serves every size.
//!
//! The text form of a kernel is its [`std::fmt::Display`]; [`Kernel::hash`] names it in caches.

use rlx_ir::DType;
use serde::{Deserialize, Serialize};

/// Elementary functions. Where a device has no good library, they are written out ([`mod@crate::emulate`]).
pub use rlx_math::Function as MathFn;

/// The type a value is computed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Ty {
    /// A truth value.
    Bool,
    /// Signed, 32 bits, wrapping.
    I32,
    /// Unsigned, 32 bits, wrapping.
    U32,
    /// Signed, 64 bits, wrapping.
    I64,
    /// Unsigned, 64 bits, wrapping.
    U64,
    /// IEEE binary32.
    F32,
    /// IEEE binary64.
    F64,
}

impl Ty {
    /// The name in the text form.
    pub const fn name(self) -> &'static str {
        match self {
            Ty::Bool => "bool",
            Ty::I32 => "i32",
            Ty::U32 => "u32",
            Ty::I64 => "i64",
            Ty::U64 => "u64",
            Ty::F32 => "f32",
            Ty::F64 => "f64",
        }
    }

    /// Whether this is a floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self, Ty::F32 | Ty::F64)
    }

    /// Whether this is an integer type (bool is not).
    pub const fn is_int(self) -> bool {
        matches!(self, Ty::I32 | Ty::U32 | Ty::I64 | Ty::U64)
    }

    /// Whether this is a signed integer type.
    pub const fn is_signed(self) -> bool {
        matches!(self, Ty::I32 | Ty::I64)
    }

    /// Bits a value has; bool counts as 1.
    pub const fn bits(self) -> u32 {
        match self {
            Ty::Bool => 1,
            Ty::I32 | Ty::U32 | Ty::F32 => 32,
            Ty::I64 | Ty::U64 | Ty::F64 => 64,
        }
    }

    /// The type elements of `dtype` are computed in. Types without arithmetic of their own (8-bit and
    /// smaller floats, complex) are moved as raw bits of the unsigned type that holds them.
    pub const fn of(dtype: DType) -> Ty {
        match dtype {
            DType::F32 | DType::F16 | DType::BF16 => Ty::F32,
            DType::F64 => Ty::F64,
            DType::I8 | DType::I16 | DType::I32 | DType::I4 | DType::I2 => Ty::I32,
            DType::I64 => Ty::I64,
            DType::U64 | DType::C64 => Ty::U64,
            DType::Bool => Ty::Bool,
            _ => Ty::U32,
        }
    }
}

/// A value, by its number in [`Kernel::values`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Value(pub u32);

/// A variable, by its number in [`Kernel::vars`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Var(pub u32);

/// A buffer, by its number in [`Kernel::buffers`]: the binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Buffer(pub u32);

/// Workgroup memory, by its number in [`Kernel::shared`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shared(pub u32);

impl Value {
    /// The position in [`Kernel::values`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Var {
    /// The position in [`Kernel::vars`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Buffer {
    /// The position in [`Kernel::buffers`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Shared {
    /// The position in [`Kernel::shared`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a kernel does with a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Access {
    /// It only reads.
    Read,
    /// It writes, and may read.
    Write,
    /// Several invocations change parts of one word: every access is atomic, the elements are `u32` words.
    Atomic,
}

/// A buffer a kernel is bound to.
#[derive(Debug, Clone, PartialEq)]
pub struct BufferDecl {
    /// A name for people.
    pub name: String,
    /// The element type as stored; what indices count.
    pub dtype: DType,
    /// What the kernel does with it.
    pub access: Access,
}

/// Memory shared by the invocations of a workgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedDecl {
    /// The type of its elements.
    pub ty: Ty,
    /// How many.
    pub len: u32,
}

/// A constant, by the bits of its value (bool: 0 or 1; 32-bit types: the low half).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Const {
    /// Its type.
    pub ty: Ty,
    /// Its bits.
    pub bits: u64,
}

/// Functions of one value. The result has the operand's type unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum UnOp {
    /// `-x`, wrapping.
    Neg,
    /// Logical not of a bool, every bit inverted of an integer.
    Not,
    /// `|x|` of a float.
    Abs,
    /// To the integer below.
    Floor,
    /// To the integer above.
    Ceil,
    /// To the integer towards zero.
    Trunc,
    /// To the nearest integer, ties to even.
    Round,
    /// Square root.
    Sqrt,
    /// Leading zero bits of a `u32`.
    LeadingZeros,
    /// An `f32` rounded to nearest even in binary16.
    RoundF16,
    /// An `f32` rounded to nearest even in bfloat16.
    RoundBF16,
    /// An elementary function.
    Math(#[serde(with = "by_name")] MathFn),
}

/// Functions are stored by their names.
mod by_name {
    use super::MathFn;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(f: &MathFn, serializer: S) -> Result<S::Ok, S::Error> {
        f.name().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<MathFn, D::Error> {
        let name = String::deserialize(deserializer)?;
        MathFn::named(&name).ok_or_else(|| D::Error::custom(format!("there is no function {name:?}")))
    }
}

/// Functions of two values of one type, which is the result's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BinOp {
    /// Sum, wrapping.
    Add,
    /// Difference, wrapping.
    Sub,
    /// Product, wrapping.
    Mul,
    /// Quotient; of integers truncated, the divisor is not 0 and the quotient representable.
    Div,
    /// Remainder of integers with the sign of the dividend; same conditions as [`BinOp::Div`].
    Rem,
    /// The lesser; of floats, neither is NaN.
    Min,
    /// The greater; of floats, neither is NaN.
    Max,
    /// Bitwise or logical and.
    And,
    /// Bitwise or logical or.
    Or,
    /// Bitwise or logical exclusive or.
    Xor,
    /// Shift left by less than the width.
    Shl,
    /// Shift right by less than the width; signed types keep their sign.
    Shr,
    /// Power of floats.
    Pow,
    /// Remainder of floats with the sign of the dividend.
    Fmod,
    /// The angle of the point (second, first).
    Atan2,
}

/// Comparisons of two values of one type; a bool results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// What computes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Inst {
    /// A constant.
    Const(Const),
    /// Uniform number `.0`, an `i32`.
    Uniform(u32),
    /// The invocation's number within its workgroup, an `i32`.
    LocalId,
    /// The workgroup's number within the dispatch, an `i32`.
    GroupId,
    /// The present value of a variable.
    Get(Var),
    /// A function of one value.
    Unary(UnOp, Value),
    /// A function of two values.
    Binary(BinOp, Value, Value),
    /// A comparison.
    Compare(Cmp, Value, Value),
    /// The second value where the first (a bool) holds, else the third.
    Select(Value, Value, Value),
    /// The value in another type: floats to integers truncate, saturate, NaN to 0; integers wrap; anything
    /// to bool is `≠ 0`.
    Convert(Ty, Value),
    /// The same bits as another type of the same width.
    Bitcast(Ty, Value),
    /// An element of a buffer, in the type [`Ty::of`] its element type.
    Load(Buffer, Value),
    /// An element of workgroup memory.
    LoadShared(Shared, Value),
    /// The product of the first two values, plus the third: floats of one type, rounded once.
    Fma(Value, Value, Value),
    /// What the value is in the invocation whose number differs from this one's in the bits `.1`, another one of its subgroup
    /// ([`Kernel::subgroup`]). All of them have to be here; any type but bool.
    ShuffleXor(Value, u32),
}

/// Numbers of invocations that a subgroup may have for kernels to exchange values within it.
pub const SUBGROUPS: [u32; 4] = [8, 16, 32, 64];

/// How many elements [`Stmt::LoadWide`] may read, and [`Stmt::StoreWide`] may write.
pub const WIDTHS: [usize; 2] = [4, 8];

/// Which neighbouring elements a language accesses together ([`Stmt::LoadWide`], [`Stmt::StoreWide`]);
/// elsewhere each is accessed by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WideAccess {
    /// Elements of 32 bits.
    Words,
    /// Elements of 32 bits, floats of 16, and what those are moved as.
    All,
}

impl WideAccess {
    /// Whether elements of a type are read, and written, together.
    pub fn has(self, dtype: DType) -> bool {
        match self {
            WideAccess::Words => dtype.bits() == 32,
            WideAccess::All => WideAccess::is_known(dtype),
        }
    }

    /// Whether any language accesses several elements of a type together.
    pub fn is_known(dtype: DType) -> bool {
        dtype.bits() == 32 || dtype.bits() == 16 && (dtype.is_float() || dtype == DType::U16)
    }
}

/// A statement.
#[derive(Debug, Clone, PartialEq)]
pub enum Stmt {
    /// Computes a value.
    Let(Value, Inst),
    /// Reads neighbouring elements of a buffer, as many as there are values ([`WIDTHS`]), from one on whose number is a multiple of
    /// that. A device may read all of them by one access.
    LoadWide {
        /// What they are.
        values: Vec<Value>,
        /// Where from.
        buffer: Buffer,
        /// The first element.
        index: Value,
    },
    /// Changes a variable.
    Set(Var, Value),
    /// Writes an element of a buffer, rounded to its element type.
    Store {
        /// Where to.
        buffer: Buffer,
        /// The element.
        index: Value,
        /// What.
        value: Value,
    },
    /// Writes neighbouring elements of a buffer, each rounded to its element type, as many as there are values ([`WIDTHS`]), from one on whose number is a
    /// multiple of that. A device may write all of them by one access.
    StoreWide {
        /// Where to.
        buffer: Buffer,
        /// The first element.
        index: Value,
        /// What.
        values: Vec<Value>,
    },
    /// Writes an element of workgroup memory.
    StoreShared {
        /// Where to.
        shared: Shared,
        /// The element.
        index: Value,
        /// What.
        value: Value,
    },
    /// Replaces the bits of a word that `mask` has by those of `bits` (a subset of the mask), leaving the
    /// others to anyone who changes them at the same time.
    MergeBits {
        /// Where to; an [`Access::Atomic`] buffer.
        buffer: Buffer,
        /// The word.
        index: Value,
        /// Which bits change.
        mask: Value,
        /// What they become.
        bits: Value,
    },
    /// Runs one of two lists.
    If {
        /// Which.
        cond: Value,
        /// When it holds.
        then: Vec<Stmt>,
        /// When it does not.
        otherwise: Vec<Stmt>,
    },
    /// Runs a list with a counter from `from` to before `to`.
    For {
        /// The counter, an `i32`.
        counter: Value,
        /// Its first value.
        from: Value,
        /// What it stays below.
        to: Value,
        /// By how much it grows, at least 1.
        step: i32,
        /// What is repeated.
        body: Vec<Stmt>,
    },
    /// Waits until every invocation of the workgroup is here; workgroup memory written before is visible
    /// after.
    Barrier,
    /// Reports a fault (the first one is kept): an index out of range.
    Fail {
        /// Which fault: the axis.
        code: u32,
        /// The offending value, an `i32`; the nearest one where it is further away.
        value: Value,
    },
}

/// One dispatch's code.
#[derive(Debug, Clone, PartialEq)]
pub struct Kernel {
    /// A name for people; no part of the hash.
    pub name: String,
    /// The buffers it is bound to, in order.
    pub buffers: Vec<BufferDecl>,
    /// Names of the uniforms, in order; each is an `i32`.
    pub uniforms: Vec<String>,
    /// Workgroup memory.
    pub shared: Vec<SharedDecl>,
    /// Types of the variables.
    pub vars: Vec<Ty>,
    /// Types of the values.
    pub values: Vec<Ty>,
    /// Invocations of a workgroup.
    pub workgroup: u32,
    /// Invocations of a subgroup, one of [`SUBGROUPS`], where any of them exchange values ([`Inst::ShuffleXor`]): those whose numbers begin at a multiple of it. The
    /// workgroup is so many whole ones, and the device's are as large.
    pub subgroup: Option<u32>,
    /// What each invocation runs.
    pub body: Vec<Stmt>,
}

impl Kernel {
    /// Bytes of workgroup memory.
    pub fn shared_bytes(&self) -> usize {
        let size = |s: &SharedDecl| s.len as usize * (s.ty.bits() as usize).div_ceil(8).max(4);
        self.shared.iter().map(size).sum()
    }

    /// Whether its invocations give each other values.
    pub fn works_together(&self) -> bool {
        self.shared_bytes() > 0 || self.subgroup.is_some()
    }

    /// Whether any invocation may report a fault, so that the dispatch needs the fault buffer.
    pub fn can_fail(&self) -> bool {
        any_stmt(&self.body, &|s| matches!(s, Stmt::Fail { .. }))
    }

    /// Calls `f` on every statement, outer before inner.
    pub fn for_each_stmt<'a>(&'a self, f: &mut dyn FnMut(&'a Stmt)) {
        walk(&self.body, f);
    }
}

fn any_stmt(stmts: &[Stmt], is: &dyn Fn(&Stmt) -> bool) -> bool {
    stmts.iter().any(|s| {
        is(s)
            || match s {
                Stmt::If { then, otherwise, .. } => any_stmt(then, is) || any_stmt(otherwise, is),
                Stmt::For { body, .. } => any_stmt(body, is),
                _ => false,
            }
    })
}

fn walk<'a>(stmts: &'a [Stmt], f: &mut dyn FnMut(&'a Stmt)) {
    for s in stmts {
        f(s);
        match s {
            Stmt::If { then, otherwise, .. } => {
                walk(then, f);
                walk(otherwise, f);
            }
            Stmt::For { body, .. } => walk(body, f),
            _ => {}
        }
    }
}

impl Const {
    /// A bool.
    pub const fn bool(v: bool) -> Self {
        Const { ty: Ty::Bool, bits: v as u64 }
    }

    /// An integer, wrapped into `ty`.
    pub const fn int(ty: Ty, v: i64) -> Self {
        let bits = match ty {
            Ty::I64 | Ty::U64 => v as u64,
            Ty::Bool => (v != 0) as u64,
            _ => v as u32 as u64,
        };
        Const { ty, bits }
    }

    /// A float, rounded to `ty`.
    pub fn float(ty: Ty, v: f64) -> Self {
        let bits = if ty == Ty::F64 { v.to_bits() } else { u64::from((v as f32).to_bits()) };
        Const { ty, bits }
    }

    /// The value of an `i32` constant.
    pub const fn as_i32(self) -> Option<i32> {
        if matches!(self.ty, Ty::I32) { Some(self.bits as u32 as i32) } else { None }
    }
}

/// The type `inst` computes, from the types of values and variables; `None` where operands do not fit.
pub fn type_of(inst: &Inst, k: &Kernel) -> Option<Ty> {
    let ty = |v: Value| k.values.get(v.index()).copied();
    Some(match *inst {
        Inst::Const(c) => c.ty,
        Inst::Uniform(i) => (k.uniforms.len() > i as usize).then_some(Ty::I32)?,
        Inst::LocalId | Inst::GroupId => Ty::I32,
        Inst::Get(var) => *k.vars.get(var.index())?,
        Inst::Unary(op, v) => {
            let t = ty(v)?;
            let fits = match op {
                UnOp::Neg => t.is_float() || t.is_int(),
                UnOp::Not => t == Ty::Bool || t.is_int(),
                UnOp::LeadingZeros => t == Ty::U32,
                UnOp::RoundF16 | UnOp::RoundBF16 => t == Ty::F32,
                _ => t.is_float(),
            };
            fits.then_some(t)?
        }
        Inst::Binary(op, a, b) => {
            let t = ty(a)?;
            let shift = matches!(op, BinOp::Shl | BinOp::Shr);
            let same = ty(b)? == if shift { Ty::U32 } else { t };
            let fits = match op {
                BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::Div | BinOp::Min | BinOp::Max => t != Ty::Bool,
                BinOp::Rem | BinOp::Shl | BinOp::Shr => t.is_int(),
                BinOp::And | BinOp::Or | BinOp::Xor => !t.is_float(),
                BinOp::Pow | BinOp::Fmod | BinOp::Atan2 => t.is_float(),
            };
            (same && fits).then_some(t)?
        }
        Inst::Compare(_, a, b) => {
            let t = ty(a)?;
            (ty(b)? == t && t != Ty::Bool).then_some(Ty::Bool)?
        }
        Inst::Select(c, a, b) => (ty(c)? == Ty::Bool && ty(a)? == ty(b)?).then(|| ty(a))??,
        Inst::Convert(to, v) => ty(v).map(|_| to)?,
        Inst::Bitcast(to, v) => (ty(v)?.bits() == to.bits() && to != Ty::Bool).then_some(to)?,
        Inst::Load(b, i) => {
            (ty(i)? == Ty::I32).then(|| k.buffers.get(b.index()).map(|b| Ty::of(b.dtype)))??
        }
        Inst::LoadShared(s, i) => (ty(i)? == Ty::I32).then(|| k.shared.get(s.index()).map(|s| s.ty))??,
        Inst::Fma(x, y, z) => {
            let t = ty(x)?;
            (t.is_float() && ty(y)? == t && ty(z)? == t).then_some(t)?
        }
        Inst::ShuffleXor(v, _) => ty(v).filter(|&t| t != Ty::Bool)?,
    })
}
