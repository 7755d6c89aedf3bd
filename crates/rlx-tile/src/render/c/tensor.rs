//! Tensor memory: `tcgen05` as functions with inline PTX, and the statements that call them.
//!
//! One warp allocates columns before the roles part, gives up the right to allocate more, and frees them when all roles are done. A fence stands on either side of what
//! orders a thread's statements on tensor memory behind another's: of a barrier of the workgroup both, of a wait for a barrier in memory the one behind it
//! (`tcgen05.commit` has the one before).

use std::collections::BTreeSet;
use std::fmt::Write;

use rlx_ir::DType;

use super::body::{Body, index};
use super::size;
use crate::group::tensor::{Accumulator, LANES, Tensor, WARP_LANES};
use crate::group::{Group, ROW, STAGE_ALIGN};
use crate::ir::{Program, Stmt};

const FUNCTIONS: &str = r#"template <int N> __device__ __forceinline__ void tensor_allocate(u32* to) {
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" :: "r"(shared_address(to)), "n"(N) : "memory");
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
}
template <int N> __device__ __forceinline__ void tensor_free(u32 address) {
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" :: "r"(address), "n"(N) : "memory");
}
__device__ __forceinline__ void tensor_before_sync() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ __forceinline__ void tensor_after_sync() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }
__device__ __forceinline__ void tensor_commit(u64* b) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" :: "r"(shared_address(b)) : "memory");
}
__device__ __forceinline__ void tensor_wait() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void tensor_mma(u32 to, u64 a, u64 b, u32 how, u32 add) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\ntcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;\n}"
    :: "r"(to), "l"(a), "l"(b), "r"(how), "r"(add) : "memory");
}
"#;

/// Columns that a load has for each time that its shape is repeated.
const LOADED: u32 = 8;
/// The most times.
const MOST_REPEATED: u32 = 16;

/// The functions that statements on tensor memory call.
pub(super) fn instructions(p: &Program, out: &mut String) {
    // Bits 46 to 48 are what descriptors of this architecture have there, 61 to 63 the swizzle, of 128 bytes; from 8 rows to the next 8 are as many bytes as those have.
    let _ = writeln!(
        out,
        "__device__ __forceinline__ u64 matrix_rows(const u16* p, u32 leading) {{
  return (u64)((shared_address(p) & 0x3ffff) >> 4) | (u64)(leading >> 4) << 16 | (u64){} << 32 | (u64)1 << 46 | (u64)2 << 61;
}}",
        STAGE_ALIGN >> 4
    );
    out.push_str(FUNCTIONS);
    let mut columns = BTreeSet::new();
    loaded(p, &p.body, &mut columns);
    columns.into_iter().flat_map(repeated).collect::<BTreeSet<u32>>().into_iter().for_each(|n| load(n, out));
}

/// Columns of the fragments that are loaded.
fn loaded(p: &Program, stmts: &[Stmt], all: &mut BTreeSet<u32>) {
    for s in stmts {
        match s {
            Stmt::Roles { consumers: body, .. } | Stmt::For { body, .. } => loaded(p, body, all),
            Stmt::Group(Group::Tensor(Tensor::Load { to, .. })) => drop(all.insert(p.fragment(*to).cols)),
            _ => {}
        }
    }
}

/// How often the shape of each load is repeated that together have so many columns.
fn repeated(cols: u32) -> Vec<u32> {
    let mut left = cols / LOADED;
    let mut all = Vec::new();
    while left > 0 {
        let n = (1 << left.ilog2()).min(MOST_REPEATED);
        all.push(n);
        left -= n;
    }
    all
}

/// `tensor_load_n(sums, address)`: 16 lanes of `8·n` columns.
fn load(n: u32, out: &mut String) {
    let list = |f: &dyn Fn(u32) -> String| (0..4 * n).map(f).collect::<Vec<_>>().join(", ");
    let _ = write!(
        out,
        "__device__ __forceinline__ void tensor_load_{n}(float (*s)[4], u32 address) {{
  asm volatile(\"tcgen05.ld.sync.aligned.16x256b.x{n}.b32 {{{}}}, [%{}];\"
    : {}
    : \"r\"(address) : \"memory\");
}}
",
        list(&|i| format!("%{i}")),
        4 * n,
        list(&|i| format!("\"=f\"(s[{}][{}])", i / 4, i % 4)),
    );
}

/// The instruction descriptor of products of 128 rows by so many columns.
fn descriptor(dtype: DType, cols: u32, depth_rows: bool) -> u32 {
    // Sums are f32; types of operands are f16 or bf16; the right one may have neighbours along the columns.
    let operand = u32::from(dtype == DType::BF16);
    1 << 4
        | operand << 7
        | operand << 10
        | u32::from(depth_rows) << 16
        | (cols >> 3) << 17
        | (LANES >> 4) << 24
}

impl Body<'_> {
    /// Before all threads meet: the second warp allocates.
    pub(super) fn allocate(&mut self) {
        let columns = self.p.tensor_columns();
        if columns > 0 {
            self.line(&format!("if (thread >> 5 == 1) tensor_allocate<{columns}>(tensor_address);"));
            self.line("tensor_before_sync();");
        }
    }

    /// Behind that: where the accumulators are. Who uses them waits for a barrier in memory first, and has a fence behind that.
    pub(super) fn allocated(&mut self) {
        if self.p.tensor_columns() > 0 {
            self.line("const u32 tensor = *tensor_address;");
        }
    }

    /// Behind the roles: the warp that allocated frees.
    pub(super) fn free(&mut self) {
        let columns = self.p.tensor_columns();
        if columns > 0 {
            self.line("tensor_before_sync();");
            self.line("__syncthreads();");
            self.line("tensor_after_sync();");
            self.line(&format!("if (thread >> 5 == 1) tensor_free<{columns}>(tensor);"));
        }
    }

    /// The address of an accumulator.
    fn accumulator(&self, of: Accumulator) -> String {
        match self.p.first_column(of) {
            0 => "tensor".to_owned(),
            first => format!("tensor + {first}"),
        }
    }

    pub(super) fn tensor(&mut self, tensor: &Tensor) {
        match tensor {
            Tensor::Mma { sum, left, row, right, depth_rows, counter } => {
                let cols = self.p.group.accumulators[sum.0 as usize].cols;
                let how = descriptor(self.p.dtype, cols, *depth_rows);
                self.matrices((*left, (row * ROW).to_string()), (*right, *depth_rows), *counter);
                let to = self.accumulator(*sum);
                self.line(&format!("tensor_mma({to}, a, b, {how:#x}u, c{} > 0 || k > 0);", counter.0));
                self.close();
            }
            Tensor::Commit(b, c) => {
                let (b, _) = self.barrier(*b, *c);
                self.line(&format!("tensor_commit({b});"));
            }
            Tensor::Fence => self.line("tensor_after_sync();"),
            Tensor::Load { to, from, row, col, depth } => {
                let (f, from) = (to.0, self.accumulator(*from));
                self.open(&format!("if ({} > 0) {{", size(*depth)));
                let lane = format!("((u32)(warp_row * {WARP_LANES} + {row}) << 16)");
                self.line(&format!("const u32 address = {from} + {lane} + (u32)({});", index(col)));
                let mut at = 0;
                for n in repeated(self.p.fragment(*to).cols) {
                    self.line(&format!("tensor_load_{n}(f{f} + {at}, address + {});", at * LOADED));
                    at += n;
                }
                self.line("tensor_wait();");
                self.line(&format!("mma_done(f{f});"));
                self.close();
                self.open("else {");
                self.zero(*to);
                self.close();
            }
        }
    }
}
