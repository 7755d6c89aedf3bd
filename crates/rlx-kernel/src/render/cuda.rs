//! CUDA C and HIP C, freestanding: no header is included, so that NVRTC or hiprtc alone compiles it. The two differ in what
//! stands before the kernel.

use std::fmt::Write;

use rlx_ir::{DType, Result};

use super::c::{self, Flavour, comment, element};
use super::{Parameters, c_wide, reject};
use crate::ir::{Access, Const, Kernel, Ty};

const TYPES: &str = "typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
typedef unsigned long long u64; typedef long long i64;
";

/// Threads of a multiprocessor of which each has as many registers (128) as it takes to have eight accesses under way.
const ENOUGH: u32 = 512;

const FUNCTION: &str = "__device__ __forceinline__";

/// Half precision by the conversions of the instruction set.
const CUDA: &str = r#"__device__ __forceinline__ float from_half(u16 h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
__device__ __forceinline__ u16 to_half(float f) { u16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
"#;

/// Rounding to brain precision by the instruction that there is since sm_80. What it makes of NaN is NaN, too, with other bits.
const CUDA_BRAIN: &str = r#"#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  u16 h; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h;
#endif
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

/// What stands before a kernel in CUDA C that exchanges values within warps: the instruction for any type.
const CUDA_SHUFFLE: &str = "template <class T> __device__ __forceinline__ T shuffle_xor(T x, int bits) { return __shfl_xor_sync(0xffffffffu, x, bits); }
";

/// The same in HIP C, by the instruction that takes a word from any lane of a wave of so many.
fn hip_shuffle(lanes: u32) -> String {
    let mut out = format!(
        "{FUNCTION} int shuffled(int x, int bits) {{ return __builtin_amdgcn_ds_bpermute((((int)threadIdx.x ^ bits) & {}) << 2, x); }}
struct LowHigh {{ int low, high; }};
",
        lanes - 1
    );
    for (ty, of) in [
        ("int", "int"),
        ("u32", "int"),
        ("float", "int"),
        ("i64", "LowHigh"),
        ("u64", "LowHigh"),
        ("double", "LowHigh"),
    ] {
        let other = match of {
            "int" => "shuffled(q, bits)",
            _ => "LowHigh{shuffled(q.low, bits), shuffled(q.high, bits)}",
        };
        let _ = writeln!(
            out,
            "{FUNCTION} {ty} shuffle_xor({ty} x, int bits) {{ const {of} q = __builtin_bit_cast({of}, x); return __builtin_bit_cast({ty}, {other}); }}"
        );
    }
    out
}

/// The kernel in CUDA C; `entry` is its name, without C++ mangling.
///
/// # Errors
/// [`rlx_ir::ErrorKind::Internal`] for an element type that buffers cannot have.
pub fn cuda(kernel: &Kernel, entry: &str) -> Result<String> {
    // NVIDIA's compiler saves registers, so that many workgroups run at once, by multiplying what was read before it reads more. Where a loop reads
    // neighbours together, it is told how few are enough: then it reads all that an iteration multiplies first.
    let enough = (ENOUGH / kernel.workgroup).max(1);
    let workgroups = if c_wide::are_read_in_loops(kernel) { format!(", {enough}") } else { String::new() };
    let shuffle = kernel.subgroup.map(|_| CUDA_SHUFFLE).unwrap_or_default();
    write(kernel, entry, &(cuda_prelude() + shuffle), &workgroups)
}

/// The kernel in HIP C; as [`cuda`].
///
/// # Errors
/// As [`cuda`].
pub fn hip(kernel: &Kernel, entry: &str) -> Result<String> {
    let shuffle = kernel.subgroup.map(hip_shuffle).unwrap_or_default();
    write(kernel, entry, &(hip_prelude() + &shuffle), "")
}

/// What stands before kernels in CUDA C: names of types, conversions of half and brain precision.
pub fn cuda_prelude() -> String {
    prelude(CUDA, CUDA_BRAIN)
}

/// What stands before kernels in HIP C, the conversions from floats to integers among it.
pub fn hip_prelude() -> String {
    prelude(HIP, "")
}

fn prelude(conversions: &str, rounded: &str) -> String {
    format!("{TYPES}{conversions}{}", c::brain(FUNCTION, ("__uint_as_float", "__float_as_uint"), rounded))
}

/// The declaration of the type that uniforms have in CUDA C and HIP C, and the parameter that they are: `u[i]` is one of them. Passed by value, they are
/// operands of instructions, in memory for constants that the launch fills; otherwise each is loaded.
fn uniforms(of: Parameters) -> (String, &'static str) {
    if !of.by_value() {
        return (String::new(), "const int* __restrict__ u");
    }
    let words = of.uniform_bytes() / 4;
    let at = format!("{FUNCTION} int operator[](int i) const {{ return of[i]; }}");
    (format!("struct Uniforms {{ int of[{words}]; {at} }};\n"), "const Uniforms u")
}

/// The statements of a kernel in CUDA C with its variables declared before, for code that has its buffers as `b0`, … and its uniforms as `u`. The
/// first `given` variables are declared and set by that code.
///
/// # Errors
/// As [`cuda`].
pub fn cuda_body(kernel: &Kernel, given: usize) -> Result<String> {
    c::body(kernel, &Cuda, given)
}

/// The type of buffers of `dtype` in CUDA C; `None` where they cannot have it.
pub fn cuda_element(dtype: DType) -> Option<&'static str> {
    element(dtype)
}

/// A kernel with these conversions of half precision; what is said of how many workgroups run at once stands behind the number of its invocations.
fn write(kernel: &Kernel, entry: &str, prelude: &str, workgroups: &str) -> Result<String> {
    let wide = c_wide::prelude(kernel, FUNCTION, "");
    let (declared, uniforms) = uniforms(Parameters::of(kernel));
    let mut out = format!("// {}\n{prelude}{wide}{declared}", comment(&kernel.name));
    let _ = write!(
        out,
        "extern \"C\" __global__ void __launch_bounds__({}{workgroups}) {entry}({uniforms}",
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
    out += &c::shared(kernel, "__shared__");
    out += &c::body(kernel, &Cuda, 0)?;
    out.push_str("}\n");
    Ok(out)
}

/// CUDA C and HIP C, whose functions have the same names.
struct Cuda;

impl Flavour for Cuda {
    fn language(&self) -> &'static str {
        "CUDA C"
    }

    fn wide(&self) -> &'static str {
        "ull"
    }

    /// The functions of f32 end in f.
    fn function(&self, name: &str, ty: Ty) -> Option<String> {
        Some(format!("{name}{}", if ty == Ty::F64 { "" } else { "f" }))
    }

    fn leading_zeros(&self, x: &str) -> String {
        format!("(u32)__clz((int){x})")
    }

    /// The instructions truncate, saturate and take NaN to 0, but for those to 64 bits.
    fn to_integer(&self, to: Ty, from: Ty, x: &str) -> String {
        let source = if from == Ty::F64 { "double" } else { "float" };
        match to {
            Ty::I32 => format!("__{source}2int_rz({x})"),
            Ty::U32 => format!("__{source}2uint_rz({x})"),
            Ty::I64 => format!("({x} == {x} ? __{source}2ll_rz({x}) : 0ll)"),
            _ => format!("({x} > 0 ? __{source}2ull_rz({x}) : 0ull)"),
        }
    }

    fn bitcast(&self, to: Ty, from: Ty, x: &str) -> String {
        match (to, from) {
            (Ty::F32, _) => format!("__uint_as_float((u32){x})"),
            (Ty::F64, _) => format!("__longlong_as_double((i64){x})"),
            (Ty::I32, _) => format!("__float_as_int({x})"),
            (Ty::U32, _) => format!("__float_as_uint({x})"),
            (Ty::I64, _) => format!("(i64)__double_as_longlong({x})"),
            _ => format!("(u64)__double_as_longlong({x})"),
        }
    }

    fn float_of_bits(&self, c: Const) -> String {
        match c.ty {
            Ty::F64 => format!("__longlong_as_double({:#x}ll)", c.bits),
            _ => format!("__uint_as_float({:#x}u)", c.bits as u32),
        }
    }

    fn local_id(&self) -> &'static str {
        "(int)threadIdx.x"
    }

    fn group_id(&self) -> &'static str {
        "(int)(blockIdx.y * gridDim.x + blockIdx.x)"
    }

    fn barrier(&self) -> &'static str {
        "__syncthreads();"
    }

    fn atomic_load(&self, word: &str) -> String {
        word.to_owned()
    }

    fn merge(&self, word: &str, mask: &str, bits: &str) -> String {
        format!("atomicAnd(&{word}, ~({mask})); atomicOr(&{word}, {bits});")
    }

    fn fail(&self, step: &str, code: u32, value: &str) -> String {
        format!(
            "if (atomicAdd(&fault[0], 1u) == 0u) {{ fault[1] = (u32){step}; fault[2] = {code}u; \
             fault[3] = (u32){value}; }}"
        )
    }
}
