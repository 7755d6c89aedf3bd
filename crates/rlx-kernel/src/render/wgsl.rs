//! WGSL, the language of WebGPU. What it has not in its first version is emulated; only a kernel with buffers of 16-bit integers
//! ([`crate::TypeSupport::int16`]) enables wgpu's extension for them.

use std::fmt::Write;

use rlx_ir::{DType, Result};

use super::wgsl_wide::{Wide, widths};
use super::{Dialect, Names, comparison, float_literal, operator, reject, var_name, write_body};
use crate::ir::{Access, BinOp, Buffer, Const, Inst, Kernel, Shared, Ty, UnOp, Value};

/// How to write a kernel in WGSL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WgslOptions {
    /// Declare every buffer for reading and writing, so that ranges of one pool can be bound for both.
    pub read_write: bool,
    /// Keep every index within its buffer or workgroup memory: for kernels that no one vouches for, on devices that do not
    /// see to it themselves.
    pub checked: bool,
    /// Write the remainder of signed integers as division and subtraction: what becomes GLSL, where `%` of a negative number is undefined.
    pub divided_remainders: bool,
    /// Read eight neighbouring elements as four numbers of 64 bits, on devices that have those and for which the number of elements that are read counts:
    /// processors, whose drivers read each element of a lane by itself.
    pub long_words: bool,
    /// Read uniforms from places that the driver knows only when it runs the kernel. Mesa's driver for processors compiles a kernel again for the values of
    /// uniforms that bound its loops, whenever it runs one whose loops it can unroll then, which takes ten times as long as the kernel.
    pub opaque_uniforms: bool,
}

/// Functions whose own forms leave NaN and what is out of range to the device. `zero` is a 0 that no compiler
/// knows: constants that are no finite numbers are rejected otherwise.
const PRELUDE: &str = "\
var<private> zero: u32 = 0u;
fn f32_bits(bits: u32) -> f32 { return bitcast<f32>(bits | zero); }
fn to_i32(x: f32) -> i32 {
  if ((bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u) { return 0; }
  if (x >= 2147483648.0f) { return 2147483647; }
  if (x <= -2147483648.0f) { return bitcast<i32>(0x80000000u); }
  return i32(x);
}
fn to_u32(x: f32) -> u32 {
  if (!(x > 0.0f)) { return 0u; }
  if (x >= 4294967296.0f) { return 0xffffffffu; }
  return u32(x);
}
";

/// Rounding to 16 bits by integers, ties to even: the language leaves the direction to the device.
const ROUND: &str = "\
fn round_f16(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  let sign = bits & 0x80000000u;
  let size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) { return x; }
  if (size >= 0x477ff000u) { return bitcast<f32>(sign | 0x7f800000u | zero); }
  if (size >= 0x38800000u) { return bitcast<f32>(sign | ((size + 0xfffu + ((size >> 13u) & 1u)) & 0xffffe000u)); }
  let shift = min(126u - (size >> 23u), 25u);
  let digits = (size & 0x7fffffu) | 0x800000u;
  let whole = digits >> shift;
  let rest = digits & ((1u << shift) - 1u);
  let half = 1u << (shift - 1u);
  let up = u32(rest > half || (rest == half && (whole & 1u) == 1u));
  return bitcast<f32>(sign | bitcast<u32>(f32(whole + up) * 5.9604644775390625e-8f));
}
fn round_bf16(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) { return x; }
  return bitcast<f32>((bits + 0x7fffu + ((bits >> 16u) & 1u)) & 0xffff0000u);
}
";

/// What stands before a function with the statements of [`wgsl_body`].
pub fn wgsl_prelude() -> String {
    format!("{PRELUDE}{ROUND}")
}

/// The statements of a kernel with its variables declared before, for code that has its buffers as `b0`, …, those of f16 as `array<f16>`, and its uniforms as
/// `u`. The first `given` variables are declared and set by that code.
///
/// # Errors
/// As [`wgsl`].
pub fn wgsl_body(kernel: &Kernel, given: usize) -> Result<String> {
    if let Some(wide) = kernel.values.iter().find(|t| t.bits() > 32) {
        return reject(kernel, "WGSL", wide.name());
    }
    let (names, wide) = (Names::new(kernel), vec![None; kernel.buffers.len()]);
    let (checked, divided_remainders, opaque_uniforms) = (false, false, false);
    let wide = &wide;
    let d = Wgsl { kernel, names: &names, checked, divided_remainders, opaque_uniforms, wide, halves: true };
    let mut out = String::new();
    for (i, &ty) in kernel.vars.iter().enumerate().skip(given) {
        let _ = writeln!(out, "  var m{i}: {};", d.ty(ty));
    }
    write_body(&d, kernel, &names, &mut out)?;
    Ok(out)
}

/// The kernel in WGSL; the entry point is `main`.
///
/// # Errors
/// [`rlx_ir::ErrorKind::Internal`] for a type or function that WGSL lacks.
pub fn wgsl(kernel: &Kernel, options: WgslOptions) -> Result<String> {
    let names = Names::new(kernel);
    let WgslOptions { checked, divided_remainders, long_words, opaque_uniforms, .. } = options;
    let wide = widths(kernel, long_words);
    let wide = &wide;
    let d = Wgsl { kernel, names: &names, checked, divided_remainders, opaque_uniforms, wide, halves: false };
    let shorts = kernel.buffers.iter().any(|b| b.dtype == DType::U16);
    let enabled = if shorts { "enable wgpu_int16;\n" } else { "" };
    let mut out = format!("{enabled}// {}\n", kernel.name);
    let slots = (kernel.uniforms.len() + 1).div_ceil(4);
    let _ = writeln!(out, "@group(0) @binding(0) var<uniform> u: array<vec4<i32>, {slots}>;");
    for (i, b) in kernel.buffers.iter().enumerate() {
        let access = if b.access == Access::Read && !options.read_write { "read" } else { "read_write" };
        let element = match (b.dtype, b.access) {
            (DType::U32, Access::Atomic) => "atomic<u32>",
            (DType::U32, _) => "u32",
            (DType::I32, _) => "i32",
            (DType::F32, _) => "f32",
            (DType::U16, Access::Read | Access::Write) => "u16",
            (other, _) => return reject(kernel, "WGSL", format!("buffer of {other}")),
        };
        let element = wide[i].map_or(element.to_string(), |wide| wide.of(element));
        let binding = i + 1;
        let _ = writeln!(
            out,
            "@group(0) @binding({binding}) var<storage, {access}> b{i}: array<{element}>; // {}",
            b.name
        );
    }
    if kernel.can_fail() {
        let binding = kernel.buffers.len() + 1;
        let _ = writeln!(
            out,
            "@group(0) @binding({binding}) var<storage, read_write> fault: array<atomic<u32>, 4>;"
        );
    }
    for (i, s) in kernel.shared.iter().enumerate() {
        let _ = writeln!(out, "var<workgroup> s{i}: array<{}, {}>;", d.ty(s.ty), s.len);
    }
    if let Some(wide) = kernel.values.iter().find(|t| t.bits() > 32) {
        return reject(kernel, "WGSL", wide.name());
    }
    out.push_str(PRELUDE);
    let _ = writeln!(out, "@compute @workgroup_size({})", kernel.workgroup);
    // Which invocations a subgroup has, no one promises: where that counts, they are numbered by it.
    let local = match kernel.subgroup {
        None => "@builtin(local_invocation_index) local: u32",
        Some(_) => "@builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) lane: u32",
    };
    let _ = writeln!(
        out,
        "fn main({local}, @builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {{"
    );
    if let Some(lanes) = kernel.subgroup {
        let _ = writeln!(out, "  let local = subgroup * {lanes}u + lane;");
    }
    if opaque_uniforms {
        // Grids have two dimensions: it is 0.
        out.push_str("  let away = groups.z - 1u;\n");
    }
    for (i, &ty) in kernel.vars.iter().enumerate() {
        let _ = writeln!(out, "  var m{i}: {};", d.ty(ty));
    }
    write_body(&d, kernel, &names, &mut out)?;
    out.push_str("}\n");
    Ok(out)
}

struct Wgsl<'k> {
    kernel: &'k Kernel,
    names: &'k Names,
    checked: bool,
    divided_remainders: bool,
    opaque_uniforms: bool,
    /// Which buffers are arrays of several elements each.
    wide: &'k [Option<Wide>],
    /// Whether f16 is a type of the language, and 16 bits can be rounded to ([`wgsl_prelude`]).
    halves: bool,
}

impl Wgsl<'_> {
    /// What a buffer's array has at `index`.
    fn at(&self, buffer: Buffer, index: &str) -> String {
        match self.checked {
            true => format!("b{0}[min(u32({index}), arrayLength(&b{0}) - 1u)]", buffer.0),
            false => format!("b{}[{index}]", buffer.0),
        }
    }

    /// The element of a buffer.
    fn element(&self, buffer: Buffer, index: &str) -> String {
        match self.wide[buffer.index()] {
            Some(wide) => format!("{}[{index} & 3i]", self.at(buffer, &wide.place(index, 0))),
            None => self.at(buffer, index),
        }
    }

    fn is_short(&self, buffer: Buffer) -> bool {
        self.kernel.buffers[buffer.index()].dtype == DType::U16
    }

    fn name(&self, v: Value) -> String {
        self.names.constant(v).map_or_else(|| v.to_string(), |c| self.constant(c))
    }

    fn ty_of(&self, v: Value) -> Ty {
        self.kernel.values[v.index()]
    }

    fn unary(&self, op: UnOp, v: Value) -> Result<String> {
        let x = self.name(v);
        let function = match op {
            UnOp::Neg if self.ty_of(v) == Ty::U32 => return Ok(format!("(0u - {x})")),
            UnOp::Neg => return Ok(format!("(-{x})")),
            UnOp::Not if self.ty_of(v) == Ty::Bool => return Ok(format!("(!{x})")),
            UnOp::Not => return Ok(format!("(~{x})")),
            UnOp::Abs => "abs",
            UnOp::Floor => "floor",
            UnOp::Ceil => "ceil",
            UnOp::Trunc => "trunc",
            UnOp::Round => "round",
            UnOp::Sqrt => "sqrt",
            UnOp::LeadingZeros => "countLeadingZeros",
            UnOp::RoundF16 if self.halves => "round_f16",
            UnOp::RoundBF16 if self.halves => "round_bf16",
            UnOp::RoundF16 | UnOp::RoundBF16 | UnOp::Math(_) => {
                return reject(self.kernel, "WGSL", format!("{op:?} of known accuracy"));
            }
        };
        Ok(format!("{function}({x})"))
    }

    fn binary(&self, op: BinOp, a: Value, b: Value) -> Result<String> {
        let (x, y) = (self.name(a), self.name(b));
        match (op, operator(op)) {
            (BinOp::Xor, _) if self.ty_of(a) == Ty::Bool => Ok(format!("({x} != {y})")),
            (BinOp::Rem, _) if self.divided_remainders && self.ty_of(a) == Ty::I32 => {
                Ok(format!("({x} - {x} / {y} * {y})"))
            }
            (_, Some(operator)) => Ok(format!("({x} {operator} {y})")),
            (BinOp::Min, _) => Ok(format!("min({x}, {y})")),
            (BinOp::Max, _) => Ok(format!("max({x}, {y})")),
            _ => reject(self.kernel, "WGSL", format!("{op:?} of known accuracy")),
        }
    }

    fn convert(&self, to: Ty, v: Value) -> String {
        let x = self.name(v);
        match (to, self.ty_of(v)) {
            (Ty::I32, Ty::F32) => format!("to_i32({x})"),
            (Ty::U32, Ty::F32) => format!("to_u32({x})"),
            _ => format!("{}({x})", self.ty(to)),
        }
    }
}

impl Dialect for Wgsl<'_> {
    fn ty(&self, ty: Ty) -> &'static str {
        ty.name()
    }

    fn constant(&self, c: Const) -> String {
        let bits = c.bits as u32;
        match c.ty {
            Ty::Bool => (c.bits != 0).to_string(),
            Ty::U32 => format!("{bits}u"),
            Ty::F32 => float_literal(f32::from_bits(bits)).unwrap_or_else(|| format!("f32_bits({bits:#x}u)")),
            _ => match bits as i32 {
                i32::MIN => "bitcast<i32>(0x80000000u)".to_string(),
                v if v < 0 => format!("({v}i)"),
                v => format!("{v}i"),
            },
        }
    }

    fn inst(&self, inst: &Inst) -> Result<String> {
        Ok(match *inst {
            Inst::Const(c) => self.constant(c),
            Inst::Uniform(i) if self.opaque_uniforms => format!("u[{}u + away][{}]", i / 4, i % 4),
            Inst::Uniform(i) => format!("u[{}][{}]", i / 4, i % 4),
            Inst::LocalId => "i32(local)".to_string(),
            Inst::GroupId => "i32(group.y * groups.x + group.x)".to_string(),
            Inst::Get(var) => var_name(var),
            Inst::Unary(op, v) => return self.unary(op, v),
            Inst::Binary(op, a, b) => return self.binary(op, a, b),
            Inst::Compare(op, a, b) => format!("({} {} {})", self.name(a), comparison(op), self.name(b)),
            Inst::Select(c, a, b) => format!("select({}, {}, {})", self.name(b), self.name(a), self.name(c)),
            Inst::Convert(to, v) => self.convert(to, v),
            Inst::Bitcast(to, v) => format!("bitcast<{}>({})", self.ty(to), self.name(v)),
            Inst::Load(b, i) => match self.kernel.buffers[b.index()].access {
                Access::Atomic => format!("atomicLoad(&{})", self.element(b, &self.name(i))),
                _ if self.is_short(b) => format!("u32({})", self.element(b, &self.name(i))),
                _ if self.kernel.buffers[b.index()].dtype == DType::F16 => {
                    format!("f32({})", self.element(b, &self.name(i)))
                }
                _ => self.element(b, &self.name(i)),
            },
            Inst::LoadShared(s, i) => self.shared(s, &self.name(i)),
            Inst::ShuffleXor(v, bits) => format!("subgroupShuffleXor({}, {bits}u)", self.name(v)),
            // The language's may round the product.
            Inst::Fma(..) => return reject(self.kernel, "WGSL", "sum of a product that is rounded once"),
        })
    }

    fn declare(&self, ty: Ty, name: &str, value: &str) -> String {
        format!("let {name}: {} = {value};", self.ty(ty))
    }

    fn load_wide(&self, values: &[Value], buffer: Buffer, index: &str) -> Result<Vec<String>> {
        let Some(wide) = self.wide[buffer.index()] else {
            return reject(self.kernel, "WGSL", "access to several elements of such a buffer");
        };
        let ty = self.ty(Ty::of(self.kernel.buffers[buffer.index()].dtype));
        let read = |part: usize| self.at(buffer, &wide.place(index, part));
        Ok(wide.lines(values, ty, &read))
    }

    fn store_wide(&self, buffer: Buffer, index: &str, values: &[String]) -> Result<Vec<String>> {
        let Some(wide) = self.wide[buffer.index()] else {
            return reject(self.kernel, "WGSL", "access to several elements of such a buffer");
        };
        let ty = self.ty(Ty::of(self.kernel.buffers[buffer.index()].dtype));
        let written = |part: usize| self.at(buffer, &wide.place(index, part));
        Ok(wide.stores(values, ty, &written))
    }

    fn store(&self, buffer: Buffer, index: &str, value: &str) -> Result<String> {
        let value = if self.is_short(buffer) { format!("u16({value})") } else { value.to_string() };
        Ok(format!("{} = {value};", self.element(buffer, index)))
    }

    fn shared(&self, shared: Shared, index: &str) -> String {
        let len = self.kernel.shared[shared.index()].len;
        match self.checked {
            true => format!("s{}[min(u32({index}), {}u)]", shared.0, len.saturating_sub(1)),
            false => format!("s{}[{index}]", shared.0),
        }
    }

    fn merge(&self, buffer: Buffer, index: &str, mask: &str, bits: &str) -> String {
        let word = format!("&{}", self.element(buffer, index));
        format!("atomicAnd({word}, ~({mask})); atomicOr({word}, {bits});")
    }

    fn counter(&self, name: &str, from: &str, to: &str, step: i32) -> String {
        format!("for (var {name}: i32 = {from}; {name} < {to}; {name} += {step}) {{")
    }

    fn barrier(&self) -> &'static str {
        "workgroupBarrier();"
    }

    fn fail(&self, code: u32, value: &str) -> String {
        let i = self.kernel.uniforms.len();
        format!(
            "if (atomicAdd(&fault[0], 1u) == 0u) {{ atomicStore(&fault[1], u32(u[{}][{}])); \
             atomicStore(&fault[2], {code}u); atomicStore(&fault[3], bitcast<u32>({value})); }}",
            i / 4,
            i % 4
        )
    }
}
