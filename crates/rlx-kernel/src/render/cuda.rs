//! CUDA C and HIP C, freestanding: no header is included, so that NVRTC or hiprtc alone compiles it. The two differ in what
//! stands before the kernel.

use std::fmt::Write;

use rlx_ir::{DType, Result};
use rlx_math::Form;

use super::{Dialect, Names, comparison, float_literal, operator, reject, var_name, write_body};
use crate::ir::{Access, BinOp, Buffer, Const, Inst, Kernel, Ty, UnOp, Value};

const TYPES: &str = "typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
typedef unsigned long long u64; typedef long long i64;
";

/// Brain precision.
const BRAIN: &str = r#"__device__ __forceinline__ float from_brain(u16 h) { return __uint_as_float((u32)h << 16); }
__device__ __forceinline__ u16 to_brain(float f) {
  u32 b = __float_as_uint(f);
  return (b & 0x7fffffffu) > 0x7f800000u ? (u16)((b >> 16) | 0x40u) : (u16)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}
"#;

/// Half precision by the conversions of the instruction set.
const CUDA: &str = r#"__device__ __forceinline__ float from_half(u16 h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
__device__ __forceinline__ u16 to_half(float f) { u16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
"#;

/// Half precision by the compiler's own type. HIP's conversions to integers are plain casts, which say nothing about values out
/// of range; these saturate and take NaN to 0 as CUDA's do.
const HIP: &str = r#"__device__ __forceinline__ float from_half(u16 h) { return (float)__builtin_bit_cast(_Float16, h); }
__device__ __forceinline__ u16 to_half(float f) { return __builtin_bit_cast(u16, (_Float16)f); }
template <class T, class F> __device__ __forceinline__ T saturated(F x, F from, F to, T least, T most) {
  return x != x ? (T)0 : x < from ? least : x >= to ? most : (T)x;
}
#define __float2int_rz(x) saturated<int, float>(x, -2147483648.0f, 2147483648.0f, (int)0x80000000u, 0x7fffffff)
#define __double2int_rz(x) saturated<int, double>(x, -2147483648.0, 2147483648.0, (int)0x80000000u, 0x7fffffff)
#define __float2uint_rz(x) saturated<u32, float>(x, 0.0f, 4294967296.0f, 0u, 0xffffffffu)
#define __double2uint_rz(x) saturated<u32, double>(x, 0.0, 4294967296.0, 0u, 0xffffffffu)
#define __float2ll_rz(x) saturated<i64, float>(x, -9223372036854775808.0f, 9223372036854775808.0f, (i64)0x8000000000000000ull, 0x7fffffffffffffffll)
#define __double2ll_rz(x) saturated<i64, double>(x, -9223372036854775808.0, 9223372036854775808.0, (i64)0x8000000000000000ull, 0x7fffffffffffffffll)
#define __float2ull_rz(x) saturated<u64, float>(x, 0.0f, 18446744073709551616.0f, 0ull, 0xffffffffffffffffull)
#define __double2ull_rz(x) saturated<u64, double>(x, 0.0, 18446744073709551616.0, 0ull, 0xffffffffffffffffull)
"#;

/// The kernel in CUDA C; `entry` is its name, without C++ mangling.
///
/// # Errors
/// [`rlx_ir::ErrorKind::Internal`] for an element type that buffers cannot have.
pub fn cuda(kernel: &Kernel, entry: &str) -> Result<String> {
    write(kernel, entry, CUDA)
}

/// The kernel in HIP C; as [`cuda`].
///
/// # Errors
/// As [`cuda`].
pub fn hip(kernel: &Kernel, entry: &str) -> Result<String> {
    write(kernel, entry, HIP)
}

/// What stands before kernels in CUDA C: names of types, conversions of half and brain precision.
pub fn cuda_prelude() -> String {
    format!("{TYPES}{CUDA}{BRAIN}")
}

/// What stands before kernels in HIP C, the conversions from floats to integers among it.
pub fn hip_prelude() -> String {
    format!("{TYPES}{HIP}{BRAIN}")
}

/// The statements of a kernel in CUDA C with its variables declared before, for code that has its buffers as `b0`, … and its uniforms as `u`. The
/// first `given` variables are declared and set by that code.
///
/// # Errors
/// As [`cuda`].
pub fn cuda_body(kernel: &Kernel, given: usize) -> Result<String> {
    let names = Names::new(kernel);
    let d = Cuda { kernel, names: &names };
    let mut out = String::new();
    for (i, &ty) in kernel.vars.iter().enumerate().skip(given) {
        let _ = writeln!(out, "  {} m{i};", d.ty(ty));
    }
    write_body(&d, kernel, &names, &mut out)?;
    Ok(out)
}

/// The type of buffers of `dtype` in CUDA C; `None` where they cannot have it.
pub fn cuda_element(dtype: DType) -> Option<&'static str> {
    element(dtype)
}

fn write(kernel: &Kernel, entry: &str, conversions: &str) -> Result<String> {
    let names = Names::new(kernel);
    let d = Cuda { kernel, names: &names };
    let mut out = format!("// {}\n{TYPES}{conversions}{BRAIN}", comment(&kernel.name));
    let _ = write!(
        out,
        "extern \"C\" __global__ void __launch_bounds__({}) {entry}(const int* __restrict__ u",
        kernel.workgroup
    );
    for (i, b) in kernel.buffers.iter().enumerate() {
        let Some(element) = element(b.dtype) else {
            return reject(kernel, "CUDA C", format!("buffer of {}", b.dtype));
        };
        let constant = if b.access == Access::Read { "const " } else { "" };
        let _ = write!(out, ",\n    {constant}{element}* __restrict__ b{i} /* {} */", comment(&b.name));
    }
    if kernel.can_fail() {
        out.push_str(",\n    u32* __restrict__ fault");
    }
    out.push_str(") {\n");
    for (i, s) in kernel.shared.iter().enumerate() {
        let _ = writeln!(out, "  __shared__ {} s{i}[{}];", d.ty(s.ty), s.len);
    }
    for (i, &ty) in kernel.vars.iter().enumerate() {
        let _ = writeln!(out, "  {} m{i};", d.ty(ty));
    }
    write_body(&d, kernel, &names, &mut out)?;
    out.push_str("}\n");
    Ok(out)
}

/// A name for people as it may stand in a comment: names come from files, too, and no file may end a comment.
fn comment(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "._-+ ".contains(c) { c } else { '_' }).collect()
}

/// The type buffers of `dtype` have.
fn element(dtype: DType) -> Option<&'static str> {
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

struct Cuda<'k> {
    kernel: &'k Kernel,
    names: &'k Names,
}

impl Cuda<'_> {
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
        // The functions of f32 end in f.
        let f = if ty == Ty::F64 { "" } else { "f" };
        Ok(match op {
            UnOp::Neg if ty == Ty::I32 => format!("(int)(0u - (u32){x})"),
            UnOp::Neg if ty == Ty::I64 => format!("(i64)(0ull - (u64){x})"),
            UnOp::Neg => format!("(-{x})"),
            UnOp::Not if ty == Ty::Bool => format!("(!{x})"),
            UnOp::Not => format!("(~{x})"),
            UnOp::Abs => format!("fabs{f}({x})"),
            UnOp::Floor => format!("floor{f}({x})"),
            UnOp::Ceil => format!("ceil{f}({x})"),
            UnOp::Trunc => format!("trunc{f}({x})"),
            UnOp::Round => format!("rint{f}({x})"),
            UnOp::Sqrt => format!("sqrt{f}({x})"),
            UnOp::LeadingZeros => format!("(u32)__clz((int){x})"),
            UnOp::RoundF16 => format!("from_half(to_half({x}))"),
            UnOp::RoundBF16 => format!("from_brain(to_brain({x}))"),
            UnOp::Math(m) => match m.form() {
                Form::Library(name) => format!("{name}{f}({x})"),
                _ => return reject(self.kernel, "CUDA C", format!("function {}", m.name())),
            },
        })
    }

    fn binary(&self, op: BinOp, a: Value, b: Value) -> String {
        let (x, y, ty) = (self.name(a), self.name(b), self.ty_of(a));
        let f = if ty == Ty::F64 { "" } else { "f" };
        let call = |name: &str| format!("{name}({x}, {y})");
        match (op, operator(op)) {
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
            (BinOp::Min, _) if ty.is_float() => call(&format!("fmin{f}")),
            (BinOp::Max, _) if ty.is_float() => call(&format!("fmax{f}")),
            (BinOp::Min, _) => format!("({x} < {y} ? {x} : {y})"),
            (BinOp::Max, _) => format!("({x} > {y} ? {x} : {y})"),
            (BinOp::Pow, _) => call(&format!("pow{f}")),
            (BinOp::Fmod, _) => call(&format!("fmod{f}")),
            _ => call(&format!("atan2{f}")),
        }
    }

    fn convert(&self, to: Ty, v: Value) -> String {
        let (x, from) = (self.name(v), self.ty_of(v));
        let source = match from {
            Ty::F32 => "float",
            Ty::F64 => "double",
            _ if to == Ty::Bool => return format!("({x} != 0)"),
            _ => return format!("({}){x}", self.ty(to)),
        };
        // The instructions truncate, saturate and take NaN to 0.
        match to {
            Ty::Bool => format!("({x} != 0)"),
            Ty::I32 => format!("__{source}2int_rz({x})"),
            Ty::U32 => format!("__{source}2uint_rz({x})"),
            Ty::I64 => format!("({x} == {x} ? __{source}2ll_rz({x}) : 0ll)"),
            Ty::U64 => format!("({x} > 0 ? __{source}2ull_rz({x}) : 0ull)"),
            Ty::F32 | Ty::F64 => format!("({}){x}", self.ty(to)),
        }
    }

    fn bitcast(&self, to: Ty, v: Value) -> String {
        let x = self.name(v);
        match (to, self.ty_of(v)) {
            (Ty::F32, _) => format!("__uint_as_float((u32){x})"),
            (Ty::I32, Ty::F32) => format!("__float_as_int({x})"),
            (Ty::U32, Ty::F32) => format!("__float_as_uint({x})"),
            (Ty::F64, _) => format!("__longlong_as_double((i64){x})"),
            (_, Ty::F64) => format!("({})__double_as_longlong({x})", self.ty(to)),
            _ => format!("({}){x}", self.ty(to)),
        }
    }
}

impl Dialect for Cuda<'_> {
    fn ty(&self, ty: Ty) -> &'static str {
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

    fn constant(&self, c: Const) -> String {
        let bits = c.bits as u32;
        match c.ty {
            Ty::Bool => (c.bits != 0).to_string(),
            Ty::I32 => format!("(int){bits}u"),
            Ty::U32 => format!("{bits}u"),
            Ty::I64 => format!("(i64){}ull", c.bits),
            Ty::U64 => format!("{}ull", c.bits),
            Ty::F32 => {
                float_literal(f32::from_bits(bits)).unwrap_or_else(|| format!("__uint_as_float({bits:#x}u)"))
            }
            Ty::F64 => format!("__longlong_as_double({:#x}ll)", c.bits),
        }
    }

    fn inst(&self, inst: &Inst) -> Result<String> {
        Ok(match *inst {
            Inst::Const(c) => self.constant(c),
            Inst::Uniform(i) => format!("u[{i}]"),
            Inst::LocalId => "(int)threadIdx.x".to_string(),
            Inst::GroupId => "(int)(blockIdx.y * gridDim.x + blockIdx.x)".to_string(),
            Inst::Get(var) => var_name(var),
            Inst::Unary(op, v) => self.unary(op, v)?,
            Inst::Binary(op, a, b) => self.binary(op, a, b),
            Inst::Compare(op, a, b) => format!("({} {} {})", self.name(a), comparison(op), self.name(b)),
            Inst::Select(c, a, b) => format!("({} ? {} : {})", self.name(c), self.name(a), self.name(b)),
            Inst::Convert(to, v) => self.convert(to, v),
            Inst::Bitcast(to, v) => self.bitcast(to, v),
            Inst::Load(b, i) => {
                let element = format!("b{}[{}]", b.0, self.name(i));
                match self.dtype(b) {
                    DType::F16 => format!("from_half({element})"),
                    DType::BF16 => format!("from_brain({element})"),
                    DType::Bool => format!("({element} != 0)"),
                    _ => element,
                }
            }
            Inst::LoadShared(s, i) => format!("s{}[{}]", s.0, self.name(i)),
        })
    }

    fn declare(&self, ty: Ty, name: &str, value: &str) -> String {
        format!("const {} {name} = {value};", self.ty(ty))
    }

    fn store(&self, buffer: Buffer, index: &str, value: &str) -> Result<String> {
        let value = match self.dtype(buffer) {
            DType::F16 => format!("to_half({value})"),
            DType::BF16 => format!("to_brain({value})"),
            _ => value.to_string(),
        };
        Ok(format!("b{}[{index}] = {value};", buffer.0))
    }

    fn merge(&self, buffer: Buffer, index: &str, mask: &str, bits: &str) -> String {
        let word = format!("&b{}[{index}]", buffer.0);
        format!("atomicAnd({word}, ~({mask})); atomicOr({word}, {bits});")
    }

    fn counter(&self, name: &str, from: &str, to: &str, step: i32) -> String {
        format!("for (int {name} = {from}; {name} < {to}; {name} += {step}) {{")
    }

    fn barrier(&self) -> &'static str {
        "__syncthreads();"
    }

    fn fail(&self, code: u32, value: &str) -> String {
        let i = self.kernel.uniforms.len();
        format!(
            "if (atomicAdd(&fault[0], 1u) == 0u) {{ fault[1] = (u32)u[{i}]; fault[2] = {code}u; \
             fault[3] = (u32){value}; }}"
        )
    }
}
