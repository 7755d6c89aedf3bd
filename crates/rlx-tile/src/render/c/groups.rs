//! The group level: barriers in memory, bulk copies and `wgmma` as functions with inline PTX, and the statements that call them.
//!
//! Workgroup memory is dynamic, so that it may be larger than the 48 KiB that a kernel can declare: tiles one behind the other, then barriers.
//! [`Program::shared_bytes`] says how much a launch gives.

use std::fmt::Write;

use rlx_ir::Result;

use super::body::{Body, index};
use super::size;
use crate::group::{Barrier, DEPTH, GROUP, GROUP_ROWS, Group, PanelTile, Panels};
use crate::ir::{Counter, Fragment, Index, Program, Stmt};
use crate::layout::CHUNK;

const PRELUDE: &str = r#"__device__ __forceinline__ u32 shared_address(const void* p) {
  return (u32)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void barrier_init(u64* b, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(shared_address(b)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void barrier_expect(u64* b, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(shared_address(b)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(u64* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(shared_address(b)) : "memory");
}
__device__ __forceinline__ void barrier_wait(u64* b, u32 parity) {
  u32 ended;
  do {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
      : "=r"(ended) : "r"(shared_address(b)), "r"(parity) : "memory");
  } while (!ended);
}
__device__ __forceinline__ void copy_bulk(u16* to, const u16* from, u32 bytes, u64* b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
    :: "r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(b)) : "memory");
}
__device__ __forceinline__ void mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void mma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void mma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory"); }
__device__ __forceinline__ u64 core_matrices(const u16* p, u32 leading, u32 stride) {
  return (u64)(shared_address(p) >> 4 & 0x3fff) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32;
}
"#;

/// The functions that programs of the group level call.
pub fn instructions(p: &Program, out: &mut String) {
    out.push_str(PRELUDE);
    let mut widths: Vec<u32> = p.fragments.iter().map(|f| f.cols).collect();
    widths.sort_unstable();
    widths.dedup();
    for n in widths {
        multiply(p, n, out);
    }
}

/// `mma_group_n(sums, left, right)`: 64 rows by `n` columns. The last operands add to the sums, take both operands as they are, and both with
/// neighbours along the depth.
fn multiply(p: &Program, n: u32, out: &mut String) {
    let ty = p.atom().map_or("f16", |atom| atom.short());
    let sums = n / 2;
    let list = |f: &dyn Fn(u32) -> String| (0..sums).map(f).collect::<Vec<_>>().join(", ");
    let _ = write!(
        out,
        "__device__ __forceinline__ void mma_group_{n}(float (&s)[{}][4], u64 a, u64 b) {{
  asm volatile(\"wgmma.mma_async.sync.aligned.m{GROUP_ROWS}n{n}k{DEPTH}.f32.{ty}.{ty} {{{}}}, %{sums}, %{}, 1, 1, 1, 0, 0;\"
    : {}
    : \"l\"(a), \"l\"(b) : \"memory\");
}}
",
        n / 8,
        list(&|i| format!("%{i}")),
        sums + 1,
        list(&|i| format!("\"+f\"(s[{}][{}])", i / 4, i % 4)),
    );
}

/// Tiles and barriers in dynamic workgroup memory.
pub fn declare_shared(p: &Program, out: &mut String) {
    if p.producers() == 0 {
        return;
    }
    let (shared, flight) = (p.shared_bytes(), p.bytes_in_flight());
    let _ = writeln!(
        out,
        "  // {shared} bytes of dynamic workgroup memory.\n  // {flight} bytes of bulk copies under way."
    );
    out.push_str("  extern __shared__ __align__(128) u16 dynamic[];\n");
    let mut at = 0;
    for (i, t) in p.group.tiles.iter().enumerate() {
        let _ = writeln!(out, "  u16* const s{i} = dynamic + {};", at / 2);
        at += t.bytes();
    }
    for (i, b) in p.group.barriers.iter().enumerate() {
        let _ = writeln!(out, "  u64* const barrier{i} = (u64*)(dynamic + {});", at / 2);
        at += 8 * u64::from(b.stages);
    }
}

/// Where the panels of this batch begin.
pub fn declare_panels(p: &Program, out: &mut String) {
    for (i, panels) in p.group.panels.iter().enumerate() {
        let buffer = panels.buffer.index();
        let _ = write!(out, "  const u16* const p{i} = (const u16*)b{buffer} + {}", size(panels.base));
        for (d, &stride) in panels.batch.iter().enumerate() {
            let _ = write!(out, " + (i64)n{d} * {}", size(stride));
        }
        out.push_str(";\n");
    }
}

impl Body<'_> {
    /// Barriers are ready before the roles part. The producer is the warp behind the consumers.
    pub(super) fn roles(&mut self, producer: &[Stmt], consumers: &[Stmt]) -> Result<()> {
        let p = self.p;
        self.open("if (thread == 0) {");
        for (i, b) in p.group.barriers.iter().enumerate() {
            for stage in 0..b.stages {
                self.line(&format!("barrier_init(barrier{i} + {stage}, {});", b.arrivals));
            }
        }
        self.line("barrier_init_fence();");
        self.close();
        self.line("__syncthreads();");
        let warps = p.warps.0 * p.warps.1;
        self.open(&format!("if (thread == {}) {{", warps * p.arch.lanes()));
        self.block(producer)?;
        self.close();
        self.open(&format!("if (warp_row < {warps}) {{"));
        self.line(&format!("const int warp_group = thread / {GROUP};"));
        self.block(consumers)?;
        self.close();
        Ok(())
    }

    /// A barrier of this iteration's stage, and the number of its phase.
    fn barrier(&self, b: Barrier, c: Counter) -> (String, String) {
        let stages = self.p.group.barriers[b.0 as usize].stages;
        (format!("barrier{} + c{} % {stages}", b.0, c.0), format!("c{} / {stages}", c.0))
    }

    pub(super) fn group(&mut self, g: &Group) {
        match g {
            Group::WaitFull(b, c) => {
                let (b, phase) = self.barrier(*b, *c);
                self.line(&format!("barrier_wait({b}, {phase} & 1);"));
            }
            Group::WaitEmpty(b, c) => {
                let (b, phase) = self.barrier(*b, *c);
                self.line(&format!("barrier_wait({b}, ({phase} & 1) ^ 1);"));
            }
            Group::Expect(b, c, bytes) => {
                let (b, _) = self.barrier(*b, *c);
                self.line(&format!("barrier_expect({b}, {bytes});"));
            }
            Group::Arrive(b, c) => {
                let (b, _) = self.barrier(*b, *c);
                self.line(&format!("if (lane == 0) barrier_arrive({b});"));
            }
            Group::Copy { from, panel, to, barrier, counter } => {
                self.copy_bulk((*from, panel), *to, *barrier, *counter);
            }
            Group::Fence => self.line("mma_fence();"),
            Group::Mma { sum, left, row, right, counter } => {
                self.mma_group(*sum, (*left, *row), *right, *counter);
            }
            Group::Commit => self.line("mma_commit();"),
            Group::WaitMma(n) => self.line(&format!("mma_wait<{n}>();")),
        }
    }

    /// A tile's stage of this iteration.
    fn panel_stage(&self, tile: PanelTile, c: Counter) -> String {
        let t = self.p.group.tiles[tile.0 as usize];
        format!("s{} + c{} % {} * {}", tile.0, c.0, t.stages, t.rows * t.depth)
    }

    fn copy_bulk(
        &mut self,
        (from, panel): (Panels, &Index),
        to: PanelTile,
        barrier: Barrier,
        counter: Counter,
    ) {
        let (t, panels) = (self.p.group.tiles[to.0 as usize], &self.p.group.panels[from.0 as usize]);
        let (to, (barrier, _)) = (self.panel_stage(to, counter), self.barrier(barrier, counter));
        let whole = format!("(i64)({}) * {} * {}", index(panel), panels.rows, size(panels.depth));
        let step = format!("(i64)c{} * {}", counter.0, t.rows * t.depth);
        let from = format!("p{} + {whole} + {step}", from.0);
        self.line(&format!("copy_bulk({to}, {from}, {}, {barrier});", t.stage_bytes()));
    }

    fn mma_group(
        &mut self,
        sum: Fragment,
        (left, row): (PanelTile, u32),
        right: PanelTile,
        counter: Counter,
    ) {
        let (a, b) = (self.p.group.tiles[left.0 as usize], self.p.group.tiles[right.0 as usize]);
        let (n, chunks) = (self.p.fragment(sum).cols, DEPTH / CHUNK);
        self.unrolled("k", a.depth / DEPTH);
        let rows = format!("({row} + warp_group * {GROUP_ROWS}) * {CHUNK}");
        for (name, first, tile, id) in [("a", format!(" + {rows}"), a, left), ("b", String::new(), b, right)]
        {
            let at = format!("{}{first} + k * {}", self.panel_stage(id, counter), chunks * tile.rows * CHUNK);
            self.line(&format!(
                "const u64 {name} = core_matrices({at}, {}, {});",
                tile.leading_bytes(),
                tile.stride_bytes()
            ));
        }
        self.line(&format!("mma_group_{n}(f{}, a, b);", sum.0));
        self.close();
    }
}
