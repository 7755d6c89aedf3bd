//! The Metal Shading Language, Apple's dialect of C++14.
//!
//! **Arithmetic is IEEE's.** Metal's compiler takes floats for real numbers unless it is told otherwise, so the text tells it: nothing is
//! reordered, contracted or assumed to be finite. The pragmas that say so are Metal 3.2's (macOS 15, iOS 18), and an older compiler rejects
//! the text instead of passing over them. As far as the language promises, floats that are not normal may still become 0.
//!
//! **Functions.** Only those that the language rounds correctly are called. Elementary ones are emulated, as for WGSL
//! ([`crate::TypeSupport::MSL`]); there is no binary64.
//!
//! **Buffers** are at the indices at which wgpu's layouts bind them: in the order of the bindings.

use std::fmt::Write;

use rlx_ir::{DType, Result};

use super::c::{self, Flavour, comment};
use super::{c_wide, reject};
use crate::ir::{Access, BufferDecl, Const, Kernel, Ty};

const PRELUDE: &str = "\
#include <metal_stdlib>
#if __METAL_VERSION__ < 320
#error \"this needs the Metal Shading Language 3.2\"
#endif
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
using namespace metal;
typedef uchar u8; typedef ushort u16; typedef uint u32; typedef ulong u64; typedef long i64;
inline float from_half(u16 h) { return (float)as_type<half>(h); }
inline u16 to_half(float f) { return as_type<u16>((half)f); }
template <class T> inline T saturated(float x, float from, float to, T least, T most) {
  return (as_type<u32>(x) & 0x7fffffffu) > 0x7f800000u ? (T)0 : x < from ? least : x >= to ? most : (T)x;
}
inline int to_int(float x) { return saturated<int>(x, -2147483648.0f, 2147483648.0f, (int)0x80000000u, 0x7fffffff); }
inline u32 to_uint(float x) { return saturated<u32>(x, 0.0f, 4294967296.0f, 0u, 0xffffffffu); }
inline i64 to_long(float x) { return saturated<i64>(x, -9223372036854775808.0f, 9223372036854775808.0f, (i64)0x8000000000000000ul, 0x7fffffffffffffffl); }
inline u64 to_ulong(float x) { return saturated<u64>(x, 0.0f, 18446744073709551616.0f, 0ul, 0xfffffffffffffffful); }
";

/// What stands before a kernel that exchanges values within SIMD groups. Integers of 64 bits are exchanged as two words.
const SHUFFLE: &str = "\
template <class T> inline T shuffle_xor(T x, ushort bits) { return simd_shuffle_xor(x, bits); }
inline u64 shuffle_xor(u64 x, ushort bits) {
  return (u64)simd_shuffle_xor((u32)x, bits) | (u64)simd_shuffle_xor((u32)(x >> 32), bits) << 32;
}
inline i64 shuffle_xor(i64 x, ushort bits) { return (i64)shuffle_xor((u64)x, bits); }
";

/// The kernel in the Metal Shading Language; `entry` is its name.
///
/// # Errors
/// [`rlx_ir::ErrorKind::Internal`] for a type or function that the language lacks.
pub fn msl(kernel: &Kernel, entry: &str) -> Result<String> {
    let wide = c_wide::prelude(kernel, "inline", "device ");
    let shuffle = kernel.subgroup.map(|_| SHUFFLE).unwrap_or_default();
    let mut out = format!("// {}\n{}{wide}{shuffle}", comment(&kernel.name), msl_prelude());
    let _ = write!(
        out,
        "[[max_total_threads_per_threadgroup({})]] kernel void {entry}(\n    constant int* u [[buffer(0)]]",
        kernel.workgroup
    );
    for (i, b) in kernel.buffers.iter().enumerate() {
        let Some(element) = element(b) else {
            return reject(kernel, LANGUAGE, format!("buffer of {}", b.dtype));
        };
        let constant = if b.access == Access::Read { "const " } else { "" };
        let name = comment(&b.name);
        let _ = write!(out, ",\n    device {constant}{element}* b{i} [[buffer({})]] /* {name} */", i + 1);
    }
    if kernel.can_fail() {
        let _ = write!(out, ",\n    device atomic_uint* fault [[buffer({})]]", kernel.buffers.len() + 1);
    }
    // The language does not say which invocations a SIMD group has: where that counts, they are numbered by it.
    out.push_str(match kernel.subgroup {
        None => ",\n    uint local [[thread_index_in_threadgroup]]",
        Some(_) => {
            ",\n    uint simd [[simdgroup_index_in_threadgroup]]\
             ,\n    uint lane [[thread_index_in_simdgroup]]"
        }
    });
    out.push_str(
        ",\n    uint3 group [[threadgroup_position_in_grid]]\
         ,\n    uint3 groups [[threadgroups_per_grid]]) {\n",
    );
    if let Some(lanes) = kernel.subgroup {
        let _ = writeln!(out, "  const uint local = simd * {lanes}u + lane;");
    }
    out += &c::shared(kernel, "threadgroup");
    out += &msl_body(kernel, 0)?;
    out.push_str("}\n");
    Ok(out)
}

/// What stands before kernels: pragmas, names of types, conversions.
pub fn msl_prelude() -> String {
    format!("{PRELUDE}{}", c::brain("inline", ("as_type<float>", "as_type<u32>"), ""))
}

/// The statements of a kernel with its variables declared before, for code that has its buffers as `b0`, … and its uniforms as `u`. The
/// first `given` variables are declared and set by that code.
///
/// # Errors
/// As [`msl`].
pub fn msl_body(kernel: &Kernel, given: usize) -> Result<String> {
    if let Some(double) = kernel.values.iter().find(|&&t| t == Ty::F64) {
        return reject(kernel, LANGUAGE, double.name());
    }
    c::body(kernel, &Msl, given)
}

/// The type of buffers of `dtype` that no two invocations change; `None` where they cannot have it.
pub fn msl_element(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F64 => None,
        DType::I8 => Some("char"),
        dtype => c::element(dtype),
    }
}

const LANGUAGE: &str = "the Metal Shading Language";

/// The type of a buffer's elements.
fn element(buffer: &BufferDecl) -> Option<&'static str> {
    match (buffer.dtype, buffer.access) {
        (DType::U32, Access::Atomic) => Some("atomic_uint"),
        (_, Access::Atomic) => None,
        (dtype, _) => msl_element(dtype),
    }
}

struct Msl;

impl Flavour for Msl {
    fn language(&self) -> &'static str {
        LANGUAGE
    }

    fn wide(&self) -> &'static str {
        "ul"
    }

    fn function(&self, name: &str, ty: Ty) -> Option<String> {
        let exact =
            matches!(name, "fabs" | "floor" | "ceil" | "trunc" | "rint" | "fmin" | "fmax" | "sqrt" | "fma");
        // Square roots are correctly rounded among the precise functions alone.
        let space = if name == "sqrt" { "precise::" } else { "" };
        (exact && ty == Ty::F32).then(|| format!("{space}{name}"))
    }

    fn leading_zeros(&self, x: &str) -> String {
        format!("clz({x})")
    }

    fn to_integer(&self, to: Ty, _: Ty, x: &str) -> String {
        let function = match to {
            Ty::I32 => "to_int",
            Ty::U32 => "to_uint",
            Ty::I64 => "to_long",
            _ => "to_ulong",
        };
        format!("{function}({x})")
    }

    fn bitcast(&self, to: Ty, _: Ty, x: &str) -> String {
        let to = match to {
            Ty::F32 => "float",
            Ty::I32 => "int",
            _ => "u32",
        };
        format!("as_type<{to}>({x})")
    }

    fn float_of_bits(&self, c: Const) -> String {
        format!("as_type<float>({:#x}u)", c.bits as u32)
    }

    fn local_id(&self) -> &'static str {
        "(int)local"
    }

    fn group_id(&self) -> &'static str {
        "(int)(group.y * groups.x + group.x)"
    }

    fn barrier(&self) -> &'static str {
        "threadgroup_barrier(mem_flags::mem_threadgroup);"
    }

    fn atomic_load(&self, word: &str) -> String {
        format!("atomic_load_explicit(&{word}, memory_order_relaxed)")
    }

    fn merge(&self, word: &str, mask: &str, bits: &str) -> String {
        format!(
            "atomic_fetch_and_explicit(&{word}, ~({mask}), memory_order_relaxed); \
             atomic_fetch_or_explicit(&{word}, {bits}, memory_order_relaxed);"
        )
    }

    fn fail(&self, step: &str, code: u32, value: &str) -> String {
        let store = |i: u32, value: &str| {
            format!("atomic_store_explicit(&fault[{i}], {value}, memory_order_relaxed);")
        };
        format!(
            "if (atomic_fetch_add_explicit(&fault[0], 1u, memory_order_relaxed) == 0u) {{ {} {} {} }}",
            store(1, &format!("(u32){step}")),
            store(2, &format!("{code}u")),
            store(3, &format!("(u32){value}")),
        )
    }
}
