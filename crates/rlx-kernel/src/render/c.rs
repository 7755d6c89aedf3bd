//! What the dialects of C have in common: CUDA C, HIP C and the Metal Shading Language differ in the names of types and
//! functions, in how memory is declared, and in atomics. A [`Flavour`] is that difference; statements and expressions are written here.

use std::fmt::Write;

use rlx_ir::{DType, Result};
use rlx_math::Form;

use super::{
    Dialect, Names, c_wide as wide, comparison, float_literal, operator, reject, var_name, write_body,
};
use crate::ir::{Access, BinOp, Buffer, Const, Inst, Kernel, Ty, UnOp, Value};

/// How one dialect writes what the others write differently. Before kernels, each has the types `u8`, `u16`, `u32`, `u64` and `i64`, and
/// the functions `from_half`, `to_half`, `from_brain` and `to_brain`; before kernels that have subgroups there is `shuffle_xor`.
pub(super) trait Flavour {
    /// Its name, for messages.
    fn language(&self) -> &'static str;
    /// What ends a literal of 64 bits, without a sign before it.
    fn wide(&self) -> &'static str;
    /// The library's function `name` for values of `ty`; `None` where there is none that is as accurate as it has to be.
    fn function(&self, name: &str, ty: Ty) -> Option<String>;
    fn leading_zeros(&self, x: &str) -> String;
    /// A float as an integer: truncated, saturated, NaN as 0.
    fn to_integer(&self, to: Ty, from: Ty, x: &str) -> String;
    /// The bits of one type as another, at least one of them a float.
    fn bitcast(&self, to: Ty, from: Ty, x: &str) -> String;
    /// A float by its bits.
    fn float_of_bits(&self, c: Const) -> String;
    fn local_id(&self) -> &'static str;
    fn group_id(&self) -> &'static str;
    fn barrier(&self) -> &'static str;
    /// A word of a buffer that several invocations change, as it is read.
    fn atomic_load(&self, word: &str) -> String;
    /// Statements that replace the bits of `mask` of a word.
    fn merge(&self, word: &str, mask: &str, bits: &str) -> String;
    /// A statement that reports a fault, of the step whose number is `step`.
    fn fail(&self, step: &str, code: u32, value: &str) -> String;
}

/// A name for people as it may stand in a comment: names come from files, too, and no file may end a comment.
pub(super) fn comment(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "._-+ ".contains(c) { c } else { '_' }).collect()
}

/// The type buffers of `dtype` have.
pub(super) fn element(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F32 => "float",
        DType::F64 => "double",
        DType::I8 => "signed char",
        DType::I16 => "short",
        DType::I32 => "int",
        DType::I64 => "i64",
        _ => match dtype.bits() {
            8 => "u8",
            16 => "u16",
            32 => "u32",
            64 => "u64",
            _ => return None,
        },
    })
}

/// The functions for brain precision: `function` is what stands before a function, then come those that take a float's bits and give a float, and the other
/// way round, and what `rounded` does first to round a float.
pub(super) fn brain(function: &str, (to_float, to_bits): (&str, &str), rounded: &str) -> String {
    format!(
        "{function} float from_brain(u16 h) {{ return {to_float}((u32)h << 16); }}
{function} u16 to_brain(float f) {{
{rounded}  u32 b = {to_bits}(f);
  return (b & 0x7fffffffu) > 0x7f800000u ? (u16)((b >> 16) | 0x40u) : (u16)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}}
"
    )
}

/// What is between the braces of a kernel's function; `given` variables are declared before it.
pub(super) fn body(kernel: &Kernel, flavour: &dyn Flavour, given: usize) -> Result<String> {
    let names = Names::new(kernel);
    let c = C { kernel, names: &names, flavour };
    let mut out = String::new();
    for (i, &ty) in kernel.vars.iter().enumerate().skip(given) {
        let _ = writeln!(out, "  {} m{i};", self::ty(ty));
    }
    write_body(&c, kernel, &names, &mut out)?;
    Ok(out)
}

/// Declarations of workgroup memory, each after the word `shared`.
pub(super) fn shared(kernel: &Kernel, shared: &str) -> String {
    let declare =
        |(i, s): (usize, &crate::ir::SharedDecl)| format!("  {shared} {} s{i}[{}];\n", ty(s.ty), s.len);
    kernel.shared.iter().enumerate().map(declare).collect()
}

/// The type that values of `ty` have.
pub(super) fn ty(ty: Ty) -> &'static str {
    match ty {
        Ty::Bool => "bool",
        Ty::I32 => "int",
        Ty::U32 => "u32",
        Ty::I64 => "i64",
        Ty::U64 => "u64",
        Ty::F32 => "float",
        Ty::F64 => "double",
    }
}

/// The value of an element of a buffer of `dtype`.
pub(super) fn loaded(dtype: DType, element: String) -> String {
    match dtype {
        DType::F16 => format!("from_half({element})"),
        DType::BF16 => format!("from_brain({element})"),
        DType::Bool => format!("({element} != 0)"),
        _ => element,
    }
}

/// What an element of a buffer of `dtype` becomes by a value.
pub(super) fn stored(dtype: DType, value: &str) -> String {
    match dtype {
        DType::F16 => format!("to_half({value})"),
        DType::BF16 => format!("to_brain({value})"),
        _ => value.to_string(),
    }
}

struct C<'k> {
    kernel: &'k Kernel,
    names: &'k Names,
    flavour: &'k dyn Flavour,
}

impl C<'_> {
    fn name(&self, v: Value) -> String {
        self.names.constant(v).map_or_else(|| v.to_string(), |c| self.constant(c))
    }

    fn ty_of(&self, v: Value) -> Ty {
        self.kernel.values[v.index()]
    }

    fn dtype(&self, b: Buffer) -> DType {
        self.kernel.buffers[b.index()].dtype
    }

    fn unary(&self, op: UnOp, v: Value) -> Result<String> {
        let (x, ty) = (self.name(v), self.ty_of(v));
        let call = |name: &str| self.call(name, ty, &x);
        Ok(match op {
            UnOp::Neg if ty == Ty::I32 => format!("(int)(0u - (u32){x})"),
            UnOp::Neg if ty == Ty::I64 => format!("(i64)(0{} - (u64){x})", self.flavour.wide()),
            UnOp::Neg => format!("(-{x})"),
            UnOp::Not if ty == Ty::Bool => format!("(!{x})"),
            UnOp::Not => format!("(~{x})"),
            UnOp::Abs => return call("fabs"),
            UnOp::Floor => return call("floor"),
            UnOp::Ceil => return call("ceil"),
            UnOp::Trunc => return call("trunc"),
            UnOp::Round => return call("rint"),
            UnOp::Sqrt => return call("sqrt"),
            UnOp::LeadingZeros => self.flavour.leading_zeros(&x),
            UnOp::RoundF16 => format!("from_half(to_half({x}))"),
            UnOp::RoundBF16 => format!("from_brain(to_brain({x}))"),
            UnOp::Math(m) => match m.form() {
                Form::Library(name) => return call(name),
                _ => return self.lacks(m.name()),
            },
        })
    }

    fn binary(&self, op: BinOp, a: Value, b: Value) -> Result<String> {
        let (x, y, ty) = (self.name(a), self.name(b), self.ty_of(a));
        let call = |name: &str| self.call(name, ty, &format!("{x}, {y}"));
        Ok(match (op, operator(op)) {
            // Signed overflow is undefined in C: arithmetic that may wrap is done without a sign.
            (BinOp::Add | BinOp::Sub | BinOp::Mul, Some(o)) if ty == Ty::I32 => {
                format!("(int)((u32){x} {o} (u32){y})")
            }
            (BinOp::Add | BinOp::Sub | BinOp::Mul, Some(o)) if ty == Ty::I64 => {
                format!("(i64)((u64){x} {o} (u64){y})")
            }
            (BinOp::Shl, _) if ty == Ty::I32 => format!("(int)((u32){x} << {y})"),
            (BinOp::Shl, _) if ty == Ty::I64 => format!("(i64)((u64){x} << {y})"),
            (_, Some(o)) => format!("({x} {o} {y})"),
            (BinOp::Min, _) if ty.is_float() => return call("fmin"),
            (BinOp::Max, _) if ty.is_float() => return call("fmax"),
            (BinOp::Min, _) => format!("({x} < {y} ? {x} : {y})"),
            (BinOp::Max, _) => format!("({x} > {y} ? {x} : {y})"),
            (BinOp::Pow, _) => return call("pow"),
            (BinOp::Fmod, _) => return call("fmod"),
            _ => return call("atan2"),
        })
    }

    fn call(&self, name: &str, ty: Ty, arguments: &str) -> Result<String> {
        match self.flavour.function(name, ty) {
            Some(function) => Ok(format!("{function}({arguments})")),
            None => self.lacks(name),
        }
    }

    fn lacks<T>(&self, function: &str) -> Result<T> {
        reject(self.kernel, self.flavour.language(), format!("function {function}"))
    }

    fn convert(&self, to: Ty, v: Value) -> String {
        let (x, from) = (self.name(v), self.ty_of(v));
        match to {
            Ty::Bool => format!("({x} != 0)"),
            _ if from.is_float() && to.is_int() => self.flavour.to_integer(to, from, &x),
            _ => format!("({}){x}", ty(to)),
        }
    }

    fn bitcast(&self, to: Ty, v: Value) -> String {
        let (x, from) = (self.name(v), self.ty_of(v));
        match to.is_float() || from.is_float() {
            true => self.flavour.bitcast(to, from, &x),
            false => format!("({}){x}", ty(to)),
        }
    }
}

impl Dialect for C<'_> {
    fn ty(&self, ty: Ty) -> &'static str {
        self::ty(ty)
    }

    fn constant(&self, c: Const) -> String {
        let bits = c.bits as u32;
        match c.ty {
            Ty::Bool => (c.bits != 0).to_string(),
            Ty::I32 => format!("(int){bits}u"),
            Ty::U32 => format!("{bits}u"),
            Ty::I64 => format!("(i64){}{}", c.bits, self.flavour.wide()),
            Ty::U64 => format!("{}{}", c.bits, self.flavour.wide()),
            Ty::F32 => float_literal(f32::from_bits(bits)).unwrap_or_else(|| self.flavour.float_of_bits(c)),
            Ty::F64 => self.flavour.float_of_bits(c),
        }
    }

    fn inst(&self, inst: &Inst) -> Result<String> {
        Ok(match *inst {
            Inst::Const(c) => self.constant(c),
            Inst::Uniform(i) => format!("u[{i}]"),
            Inst::LocalId => self.flavour.local_id().to_string(),
            Inst::GroupId => self.flavour.group_id().to_string(),
            Inst::Get(var) => var_name(var),
            Inst::Unary(op, v) => self.unary(op, v)?,
            Inst::Binary(op, a, b) => self.binary(op, a, b)?,
            Inst::Compare(op, a, b) => format!("({} {} {})", self.name(a), comparison(op), self.name(b)),
            Inst::Select(c, a, b) => format!("({} ? {} : {})", self.name(c), self.name(a), self.name(b)),
            Inst::Convert(to, v) => self.convert(to, v),
            Inst::Bitcast(to, v) => self.bitcast(to, v),
            Inst::Load(b, i) => {
                let element = format!("b{}[{}]", b.0, self.name(i));
                if self.kernel.buffers[b.index()].access == Access::Atomic {
                    return Ok(self.flavour.atomic_load(&element));
                }
                loaded(self.dtype(b), element)
            }
            Inst::LoadShared(s, i) => self.shared(s, &self.name(i)),
            Inst::Fma(x, y, z) => {
                let [p, q, r] = [x, y, z].map(|v| self.name(v));
                self.call("fma", self.ty_of(x), &format!("{p}, {q}, {r}"))?
            }
            Inst::ShuffleXor(v, bits) => format!("shuffle_xor({}, {bits})", self.name(v)),
        })
    }

    fn declare(&self, ty: Ty, name: &str, value: &str) -> String {
        format!("const {} {name} = {value};", self.ty(ty))
    }

    fn load_wide(&self, values: &[Value], buffer: Buffer, index: &str) -> Result<Vec<String>> {
        wide::load(self.kernel, self.flavour, values, (buffer, index))
    }

    fn store_wide(&self, buffer: Buffer, index: &str, values: &[String]) -> Result<Vec<String>> {
        wide::store(self.kernel, self.flavour, (buffer, index), values)
    }

    fn store(&self, buffer: Buffer, index: &str, value: &str) -> Result<String> {
        if self.kernel.buffers[buffer.index()].access == Access::Atomic {
            return reject(self.kernel, self.flavour.language(), "plain store into words that are shared");
        }
        Ok(format!("b{}[{index}] = {};", buffer.0, stored(self.dtype(buffer), value)))
    }

    fn merge(&self, buffer: Buffer, index: &str, mask: &str, bits: &str) -> String {
        self.flavour.merge(&format!("b{}[{index}]", buffer.0), mask, bits)
    }

    fn counter(&self, name: &str, from: &str, to: &str, step: i32) -> String {
        format!("for (int {name} = {from}; {name} < {to}; {name} += {step}) {{")
    }

    fn barrier(&self) -> &'static str {
        self.flavour.barrier()
    }

    fn fail(&self, code: u32, value: &str) -> String {
        self.flavour.fail(&format!("u[{}]", self.kernel.uniforms.len()), code, value)
    }
}
