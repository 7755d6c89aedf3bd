//! The instructions of a warp as functions of C.

use std::fmt::Write;

use crate::atom::{Arch, Atom, Vendor};
use crate::ir::{Program, Stmt};

use rlx_ir::DType;

/// Four matrices of 8 × 8 from workgroup memory: each lane says where a row is. A pointer to workgroup memory becomes its address there.
const LOADS: &str = r#"__device__ __forceinline__ u32 shared_address(const void* p) {
  return (u32)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void load_matrices(u32* r, const u16* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
    : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)) : "memory");
}
__device__ __forceinline__ void load_matrices_trans(u32* r, const u16* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
    : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)) : "memory");
}
"#;

/// Copies that do not wait: of `bytes` bytes, all read or, where `inside` does not hold, all 0.
const ASYNC: &str = r#"__device__ __forceinline__ void copy_async_16(u16* to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(shared_address(to)), "l"(from), "r"(inside ? 16 : 0) : "memory");
}
__device__ __forceinline__ void copy_async_8(u16* to, const void* from, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" :: "r"(shared_address(to)), "l"(from), "r"(inside ? 8 : 0) : "memory");
}
__device__ __forceinline__ void copy_async_4(u16* to, const void* from, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" :: "r"(shared_address(to)), "l"(from), "r"(inside ? 4 : 0) : "memory");
}
__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void copy_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }
"#;

/// Two numbers rounded to 16 bits each, the first in the low half; `FUNCTION` and `TYPE` stand for what differs.
const PACK: &str = r#"__device__ __forceinline__ u32 FUNCTION(float low, float high) {
  u32 r;
  asm("cvt.rn.TYPEx2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
"#;

/// The same on architectures without the instruction.
const PACK_APART: &str = r#"__device__ __forceinline__ u32 FUNCTION(float low, float high) {
  return (u32)ONE(low) | (u32)ONE(high) << 16;
}
"#;

/// What HIP has no name for in every version of its headers.
const ALIGN: &str = "#ifndef __align__\n#define __align__(n) __attribute__((aligned(n)))\n#endif\n";

/// What a lane has of another one, and powers of 2 by the instruction, which takes what is below the normal numbers to 0.
const ELEMENTS: &str = r#"__device__ __forceinline__ float of_lane(float x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
__device__ __forceinline__ float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
"#;

/// Brings memory to the second level of the caches.
const PREFETCH: &str = r#"__device__ __forceinline__ void prefetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" :: "l"(p)); }
"#;

/// Four lanes exchange four words each: lane `q` of them gets the words `w[q]` of all, in the order of the lanes.
const EXCHANGE: &str = r#"__device__ __forceinline__ void exchange(u32 (&w)[4], int lane) {
#pragma unroll
  for (int step = 1; step < 4; step *= 2) {
    const bool upper = (lane & step) != 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if ((i & step) != 0) continue;
      const u32 other = __shfl_sync(0xffffffffu, upper ? w[i] : w[i + step], lane ^ step);
      w[i] = upper ? other : w[i];
      w[i + step] = upper ? w[i + step] : other;
    }
  }
}
"#;

/// What [`ELEMENTS`] has, by the compiler's builtins.
const ELEMENTS_BY_BUILTIN: &str = r#"__device__ __forceinline__ float of_lane(float x, int lane) {
  return __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute(lane * 4, __builtin_bit_cast(int, x)));
}
__device__ __forceinline__ float power_of_2(float x) { return __builtin_amdgcn_exp2f(x); }
"#;

/// What the lane at the same place of the lower (0) or upper (1) half of a warp of 32 lanes has: the instruction exchanges the halves, lane by lane.
const HALVES: &str = r#"__device__ __forceinline__ u32 of_half(u32 x, int lane, int half) {
  const u32 other = __builtin_amdgcn_permlanex16(x, x, 0x76543210u, 0xfedcba98u, false, false);
  return lane >> 4 == half ? x : other;
}
"#;

/// The functions that a program's text calls: its matrix instruction, loads by a warp, pairs of rounded numbers, what statements on elements of sums
/// need and the asynchronous copies where it has any.
pub fn instructions(program: &Program) -> String {
    if program.arch.vendor() == Vendor::Apple {
        return super::simdgroup::instructions().to_owned();
    }
    let mut out = String::new();
    let nvidia = program.arch.vendor() == Vendor::Nvidia;
    let groups = program.producers() > 0;
    out.push_str(match (nvidia, groups) {
        (_, true) => "",
        (true, false) => LOADS,
        (false, false) => ALIGN,
    });
    for (function, ty, one) in [("pack_half", "f16", "to_half"), ("pack_brain", "bf16", "to_brain")] {
        let text = if nvidia && program.arch >= Arch::Sm80 { PACK } else { PACK_APART };
        out.push_str(&text.replace("FUNCTION", function).replace("TYPE", ty).replace("ONE", one));
    }
    if uses(&program.body, &|s| matches!(s, Stmt::Exp2(_) | Stmt::Reduce { .. })) {
        out.push_str(if nvidia { ELEMENTS } else { ELEMENTS_BY_BUILTIN });
    }
    if uses(&program.body, &|s| matches!(s, Stmt::Prefetch { .. })) {
        out.push_str(PREFETCH);
    }
    let exchanges = |s: &Stmt| matches!(s, Stmt::Store { to, from, .. } if program.stores_chunks(*to, *from));
    if uses(&program.body, &exchanges) {
        out.push_str(EXCHANGE);
    }
    let from_halves =
        |atom: &Atom| atom.left_of_sums().is_some_and(|all| all.iter().any(|h| h.half.is_some()));
    if uses(&program.body, &|s| matches!(s, Stmt::Convert { .. })) && program.atom().is_some_and(from_halves)
    {
        out.push_str(HALVES);
    }
    if uses(&crate::expand::expand(program).body, &|s| matches!(s, Stmt::CopyAsync(_))) {
        out.push_str(ASYNC);
    }
    if groups {
        super::groups::instructions(program, &mut out);
        return out;
    }
    match (program.atom(), nvidia) {
        (Some(atom), true) => multiply(atom, &mut out),
        (Some(atom), false) => multiply_by_builtin(atom, &mut out),
        (None, _) => {}
    }
    out
}

/// Whether there is such a statement.
fn uses(stmts: &[Stmt], such: &dyn Fn(&Stmt) -> bool) -> bool {
    stmts.iter().any(|s| match s {
        Stmt::For { body, .. } | Stmt::Pipelined { body, .. } | Stmt::Tiles { body, .. } => uses(body, such),
        Stmt::Staggered(s) => s.lists().iter().any(|list| uses(list, such)),
        Stmt::Roles { producer, multiplier, consumers } => {
            [producer, multiplier, consumers].iter().any(|list| uses(list, such))
        }
        s => such(s),
    })
}

/// `mma(sums, left, right)` in PTX.
fn multiply(atom: &Atom, out: &mut String) {
    let (a, b) = (atom.left.elements() / 2, atom.right.elements() / 2);
    let operands = |first: u32, n: u32| {
        let names: Vec<String> = (first..first + n).map(|i| format!("%{i}")).collect();
        format!("{{{}}}", names.join(", "))
    };
    let inputs = |name: &str, n: u32| {
        let names: Vec<String> = (0..n).map(|i| format!("\"r\"({name}[{i}])")).collect();
        names.join(", ")
    };
    let _ = write!(
        out,
        "__device__ __forceinline__ void mma(float* c, const u32* a, const u32* b) {{
  asm volatile(\"{} {sums}, {}, {}, {sums};\"
    : \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3]) : {}, {});
}}
",
        atom.instruction(),
        operands(4, a),
        operands(4 + a, b),
        inputs("a", a),
        inputs("b", b),
        sums = operands(0, 4),
    );
}

/// The same by the compiler's builtin.
fn multiply_by_builtin(atom: &Atom, out: &mut String) {
    // WMMA of RDNA 4, too, has its bf16 operands as integers.
    let element = if atom.dtype == DType::F16 { "_Float16" } else { "short" };
    let (first, second) = if atom.exchanged { ("b", "a") } else { ("a", "b") };
    let more = if atom.arch == Arch::Gfx90a { ", 0, 0, 0" } else { "" };
    let _ = write!(
        out,
        "__device__ __forceinline__ void mma(float* c, const u32* a, const u32* b) {{
  typedef {element} operand __attribute__((ext_vector_type({})));
  typedef float sums __attribute__((ext_vector_type({})));
  operand first, second;
  sums s;
  __builtin_memcpy(&first, {first}, sizeof first);
  __builtin_memcpy(&second, {second}, sizeof second);
  __builtin_memcpy(&s, c, sizeof s);
  s = {}(first, second, s{more});
  __builtin_memcpy(c, &s, sizeof s);
}}
",
        atom.left.elements(),
        atom.sum.elements(),
        atom.instruction(),
    );
}
