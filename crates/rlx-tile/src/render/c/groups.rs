//! The group level: barriers in memory, tensor copies and `wgmma` as functions with inline PTX, and the statements that call them.
//!
//! Maps are parameters by value, which copies are given the address of. Dimensions are theirs: [`crate::tensor_map`].
//!
//! Workgroup memory is dynamic, so that it may be larger than the 48 KiB that a kernel can declare: tiles one behind the other, then barriers.
//! [`Program::shared_bytes`] says how much a launch gives.

use std::collections::BTreeSet;
use std::fmt::Write;

use rlx_ir::Result;

use super::body::{Body, index};
use super::size;
use crate::group::{Barrier, DEPTH, GROUP, GROUP_ROWS, Group, GroupTile, ROW, STAGE_ALIGN, Staggered};
use crate::ir::{Counter, Fragment, Index, Program, Role, Stmt};
use crate::layout::CHUNK_BYTES;
use crate::tensor_map::{Map, MapDecl};

const BARRIERS: &str = r#"__device__ __forceinline__ u32 shared_address(const void* p) {
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
"#;

const WGMMA: &str = r#"__device__ __forceinline__ void mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void mma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void mma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory"); }
"#;

/// Registers that an instruction sets which is done only behind a wait: the compiler would use them before it.
pub(super) const DONE: &str = r#"template <int N> __device__ __forceinline__ void mma_done(float (&s)[N][4]) {
#pragma unroll
  for (int i = 0; i < N; i++) {
    asm volatile("" : "+f"(s[i][0]), "+f"(s[i][1]), "+f"(s[i][2]), "+f"(s[i][3]) :: "memory");
  }
}
"#;

const PREFETCH_MAP: &str = r#"__device__ __forceinline__ void prefetch_map(const Map* map) { asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory"); }
"#;

const REGISTERS: &str = r#"template <int N> __device__ __forceinline__ void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N)); }
template <int N> __device__ __forceinline__ void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(N)); }
"#;

/// Registers that are set before a fence or a wait: the compiler would set them behind it, too.
const SET: &str = r#"template <int N> __device__ __forceinline__ void mma_set(float (&s)[N][4]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(s[i][0]), "+f"(s[i][1]), "+f"(s[i][2]), "+f"(s[i][3]) :: "memory");
}
template <int N> __device__ __forceinline__ void mma_set(u32 (&s)[N][4]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+r"(s[i][0]), "+r"(s[i][1]), "+r"(s[i][2]), "+r"(s[i][3]) :: "memory");
}
"#;

/// The functions that programs of the group level call.
pub fn instructions(p: &Program, out: &mut String) {
    out.push_str(BARRIERS);
    if p.group.accumulators.is_empty() {
        out.push_str(WGMMA);
    }
    out.push_str(DONE);
    let dims = |map: &MapDecl| p.grid.batch.len() + if p.view(map.view).heads.is_some() { 3 } else { 2 };
    let plain = p.maps().iter().filter(|map| p.view(map.view).window.is_none()).map(dims);
    // Programs of windows have it, too.
    plain
        .chain([p.grid.batch.len() + 2])
        .collect::<BTreeSet<_>>()
        .into_iter()
        .for_each(|dims| copy_tensor(dims, out));
    out.push_str(PREFETCH_MAP);
    if p.group.registers.is_some() {
        out.push_str(REGISTERS);
    }
    let axes = p.maps().iter().filter_map(|map| p.view(map.view).window.as_ref().map(|w| w.axes.len()));
    axes.for_each(|axes| copy_window(axes, out));
    if !p.group.accumulators.is_empty() {
        super::tensor::instructions(p, out);
        return;
    }
    // Bits 62 and 63 are the swizzle, of 128 bytes; from 8 rows to the next 8 are as many bytes as those have.
    let _ = writeln!(
        out,
        "__device__ __forceinline__ u64 matrix_rows(const u16* p, u32 leading) {{
  return (u64)((shared_address(p) & 0x3ffff) >> 4) | (u64)(leading >> 4) << 16 | (u64){} << 32 | (u64)1 << 62;
}}",
        STAGE_ALIGN >> 4
    );
    let mut all = Vec::new();
    multiplications(&p.body, &mut all);
    let mut shapes: Vec<Shape> = all
        .into_iter()
        .map(|(f, left, depth_rows)| Shape { n: p.fragment(f).cols, left, depth_rows })
        .collect();
    shapes.sort_unstable();
    shapes.dedup();
    if shapes.iter().any(|shape| shape.left) {
        out.push_str(SET);
    }
    shapes.iter().for_each(|shape| multiply(p, shape, out));
}

/// What multiplications differ in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    /// Columns of the sums.
    n: u32,
    /// Rows of the right operand run along the depth.
    depth_rows: bool,
    /// The left operand is in registers.
    left: bool,
}

impl Shape {
    fn name(&self) -> String {
        let (rows, left) = (if self.depth_rows { "_rows" } else { "" }, if self.left { "_left" } else { "" });
        format!("mma_group_{}{rows}{left}", self.n)
    }
}

/// The fragments of multiplications, whether their left operands are in registers, and whether rows of their right operands run along the depth.
fn multiplications(stmts: &[Stmt], all: &mut Vec<(Fragment, bool, bool)>) {
    for s in stmts {
        match s {
            Stmt::Roles { consumers, .. } => multiplications(consumers, all),
            Stmt::For { body, .. } | Stmt::Tiles { body, .. } => multiplications(body, all),
            Stmt::Staggered(s) => s.lists().iter().for_each(|list| multiplications(list, all)),
            Stmt::Group(Group::Mma { sum, depth_rows, .. }) => all.push((*sum, false, *depth_rows)),
            Stmt::Group(Group::MmaLeft { sum, .. }) => all.push((*sum, true, true)),
            _ => {}
        }
    }
}

/// `copy_tensor(to, map, indices, barrier)` of maps with so many dimensions.
fn copy_tensor(dims: usize, out: &mut String) {
    let list = |f: &dyn Fn(usize) -> String| (0..dims).map(f).collect::<Vec<_>>().join(", ");
    let _ = write!(
        out,
        "__device__ __forceinline__ void copy_tensor(u16* to, const Map* map, {}, u64* b) {{
  asm volatile(\"cp.async.bulk.tensor.{dims}d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {{{}}}], [%2];\"
    :: \"r\"(shared_address(to)), \"l\"(map), \"r\"(shared_address(b)), {} : \"memory\");
}}
",
        list(&|i| format!("int i{i}")),
        list(&|i| format!("%{}", i + 3)),
        list(&|i| format!("\"r\"(i{i})")),
    );
}

/// `copy_window(to, map, channel, indices, offsets, barrier)` of windows that slide along so many dimensions.
fn copy_window(axes: usize, out: &mut String) {
    let list = |n: usize, f: &dyn Fn(usize) -> String| (0..n).map(f).collect::<Vec<_>>().join(", ");
    let dims = axes + 2;
    let _ = write!(
        out,
        "__device__ __forceinline__ void copy_window(u16* to, const Map* map, {}, {}, u64* b) {{
  asm volatile(\"cp.async.bulk.tensor.{dims}d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {{{}}}], [%2], {{{}}};\"
    :: \"r\"(shared_address(to)), \"l\"(map), \"r\"(shared_address(b)), {}, {} : \"memory\");
}}
",
        list(dims, &|i| format!("int i{i}")),
        list(axes, &|i| format!("u16 o{i}")),
        list(dims, &|i| format!("%{}", i + 3)),
        list(axes, &|i| format!("%{}", i + 3 + dims)),
        list(dims, &|i| format!("\"r\"(i{i})")),
        list(axes, &|i| format!("\"h\"(o{i})")),
    );
}

/// `mma_group_n(sums, left, right)`: 64 rows by `n` columns. The last operands add to the sums, take both operands as they are, the left one with
/// neighbours along the depth or (`_left`) in registers, and the right one so, too, or (`_rows`) with neighbours along the columns.
fn multiply(p: &Program, shape: &Shape, out: &mut String) {
    let ty = p.atom().map_or("f16", |atom| atom.short());
    let Shape { n, left, depth_rows } = *shape;
    let sums = n / 2;
    let list =
        |first: u32, n: u32| (first..first + n).map(|i| format!("%{i}")).collect::<Vec<_>>().join(", ");
    let transposed = u32::from(depth_rows);
    let (parameter, operand, more, given, order) = match left {
        true => {
            let given = "\"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3])";
            ("const u32 (&a)[4]", format!("{{{}}}", list(sums, 4)), 4, given, format!("{transposed}"))
        }
        false => ("u64 a", format!("%{sums}"), 1, "\"l\"(a)", format!("0, {transposed}")),
    };
    let held: Vec<String> = (0..sums).map(|i| format!("\"+f\"(s[{}][{}])", i / 4, i % 4)).collect();
    let _ = write!(
        out,
        "__device__ __forceinline__ void {}(float (&s)[{}][4], {parameter}, u64 b) {{
  asm volatile(\"wgmma.mma_async.sync.aligned.m{GROUP_ROWS}n{n}k{DEPTH}.f32.{ty}.{ty} {{{}}}, {operand}, %{}, 1, 1, 1, {order};\"
    : {}
    : {given}, \"l\"(b) : \"memory\");
}}
",
        shape.name(),
        n / 8,
        list(0, sums),
        sums + more,
        held.join(", "),
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
    let _ = writeln!(out, "  extern __shared__ __align__({STAGE_ALIGN}) u16 dynamic[];");
    let mut at = 0;
    for (i, t) in p.group.tiles.iter().enumerate() {
        let _ = writeln!(out, "  u16* const s{i} = dynamic + {};", at / 2);
        at += t.bytes();
    }
    for (i, b) in p.group.barriers.iter().enumerate() {
        let _ = writeln!(out, "  u64* const barrier{i} = (u64*)(dynamic + {});", at / 2);
        at += 8 * u64::from(b.stages);
    }
    if !p.group.accumulators.is_empty() {
        let _ = writeln!(out, "  u32* const tensor_address = (u32*)(dynamic + {});", at / 2);
    }
}

/// Maps among the kernel's parameters, each with what is behind it.
pub fn parameters(p: &Program) -> String {
    (0..p.maps().len()).map(|i| format!(", const __grid_constant__ Map a{i}")).collect()
}

/// The type of maps.
pub fn declare_map(p: &Program) -> &'static str {
    if p.maps().is_empty() { "" } else { "struct __align__(64) Map { u64 words[16]; };\n" }
}

impl Body<'_> {
    /// Barriers are ready before the roles part. The producer is the warp behind the consumers.
    pub(super) fn roles(&mut self, [producer, multiplier, consumers]: [&[Stmt]; 3]) -> Result<()> {
        let p = self.p;
        self.open("if (thread == 0) {");
        for (i, b) in p.group.barriers.iter().enumerate() {
            for stage in 0..b.stages {
                self.line(&format!("barrier_init(barrier{i} + {stage}, {});", b.arrivals));
            }
        }
        self.line("barrier_init_fence();");
        self.close();
        self.allocate();
        self.line("__syncthreads();");
        self.allocated();
        let warps = p.warps.0 * p.warps.1;
        let registers = p.group.registers;
        if let Some(of) = registers {
            self.open(&format!("if (warp_row >= {warps}) {{"));
            self.line(&format!("fewer_registers<{}>();", of.producer));
        }
        self.open(&format!("if (thread == {}) {{", warps * p.arch.lanes()));
        (0..p.maps().len()).for_each(|i| self.line(&format!("prefetch_map(&a{i});")));
        self.is_producer = true;
        self.block(producer)?;
        self.is_producer = false;
        self.close();
        if !multiplier.is_empty() {
            self.open(&format!("if (thread == {}) {{", (warps + 1) * p.arch.lanes()));
            self.block(multiplier)?;
            self.close();
        }
        match registers {
            // A path from the one to the other would have the registers of both.
            Some(of) => {
                self.close();
                self.open("else {");
                self.line(&format!("more_registers<{}>();", of.consumers));
            }
            None if multiplier.is_empty() => self.open(&format!("if (warp_row < {warps}) {{")),
            None => self.open(&format!("if (thread < {}) {{", warps * p.arch.lanes())),
        }
        if p.teams() == 1 && multiplier.is_empty() {
            self.line(&format!("const int warp_group = thread / {GROUP};"));
        }
        self.block(consumers)?;
        self.close();
        self.free();
        Ok(())
    }

    /// A barrier of this iteration's stage, and the number of its phase.
    pub(super) fn barrier(&self, b: Barrier, c: Counter) -> (String, String) {
        let stages = self.p.group.barriers[b.0 as usize].stages;
        let n = self.number(c);
        (format!("barrier{} + {n} % {stages}", b.0), format!("{n} / {stages}"))
    }

    pub(super) fn group(&mut self, g: &Group) {
        match g {
            Group::WaitFull(b, c) => {
                // What was computed before a wait is not left for later.
                for f in self.set.clone() {
                    self.line(&format!("mma_set(f{});", f.0));
                }
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
            Group::Arrive(b, c, 0) => {
                let (b, _) = self.barrier(*b, *c);
                self.line(&format!("if (lane == 0) barrier_arrive({b});"));
            }
            Group::Arrive(b, c, behind) => {
                let (stages, n, c, b) =
                    (self.p.group.barriers[b.0 as usize].stages, self.number(*c), c.0, b.0);
                self.line(&format!(
                    "if (lane == 0 && c{c} >= {behind}) barrier_arrive(barrier{b} + ({n} - {behind}) % {stages});"
                ));
            }
            Group::ArriveLast(b, c) => {
                let (stages, c, b) = (self.p.group.barriers[b.0 as usize].stages, c.0, b.0);
                let last = format!("(before{c} + steps{c} - 1) % {stages}");
                self.line(&format!("if (lane == 0 && steps{c} > 0) barrier_arrive(barrier{b} + {last});"));
            }
            Group::WaitTurn(b, c) => {
                let (stages, c, b) = (self.p.group.barriers[b.0 as usize].stages, c.0, b.0);
                let before = format!("(c{c} - 1)");
                self.line(&format!(
                    "if (c{c} > 0) barrier_wait(barrier{b} + {before} % {stages}, {before} / {stages} & 1);"
                ));
            }
            Group::Copy { from, row, col, to, block, barrier, counter } => {
                self.copy_tensor(*from, (row, col), (*to, *block), *barrier, *counter);
            }
            Group::Fence => {
                for f in std::mem::take(&mut self.set) {
                    self.line(&format!("mma_set(f{});", f.0));
                }
                self.line("mma_fence();");
            }
            Group::Mma { sum, left, row, right, depth_rows, counter } => {
                self.mma_group(*sum, (*left, *row), (*right, *depth_rows), *counter);
            }
            Group::MmaLeft { sum, left, right, counter } => self.mma_left(*sum, *left, *right, *counter),
            Group::Commit => {
                self.line("mma_commit();");
                self.under_way.push(BTreeSet::new());
            }
            Group::Tensor(tensor) => self.tensor(tensor),
            Group::WaitMma(n) => {
                self.line(&format!("mma_wait<{n}>();"));
                // The compiler does not know that sums are no one's before: it would use them earlier.
                for f in self.done(*n as usize) {
                    self.line(&format!("mma_done(f{});", f.0));
                }
            }
        }
    }

    /// The sums that are done when all but the last so many groups are: all, where the list began none.
    fn done(&mut self, but: usize) -> BTreeSet<Fragment> {
        let committed = self.under_way.len() - 1;
        if committed == 0 && but == 0 {
            let sums = (0..).zip(&self.p.fragments).filter(|(_, f)| f.role == Role::Sum);
            return sums.map(|(f, _)| Fragment(f)).collect();
        }
        let done: BTreeSet<Fragment> =
            self.under_way.drain(..committed.saturating_sub(but)).flatten().collect();
        let under_way = |f: &Fragment| self.under_way.iter().any(|group| group.contains(f));
        done.into_iter().filter(|f| !under_way(f)).collect()
    }

    /// A loop whose iterations overlap: halves of its first and last one stand before and behind it.
    pub(super) fn staggered(&mut self, s: &Staggered) -> Result<()> {
        let (c, behind, step) = (s.counter.0, s.behind.0, s.step);
        let end = self.end_of_loop(s.counter, s.extent, s.below);
        self.line(&format!("const int n{c}_steps = {end} / {step} + ({end} % {step} > 0);"));
        self.open(&format!("if (n{c}_steps > 0) {{"));
        self.open("{");
        self.line(&format!("const int c{c} = 0;"));
        self.block(&s.first)?;
        self.close();
        self.line("#pragma unroll 1");
        self.open(&format!("for (int c{c} = 1; c{c} < n{c}_steps; c{c}++) {{"));
        self.line(&format!("const int c{behind} = c{c} - 1;"));
        self.block(&s.body)?;
        self.close();
        self.line(&format!("const int c{behind} = n{c}_steps - 1;"));
        self.block(&s.last)?;
        self.close();
        Ok(())
    }

    /// A tile's stage of this iteration.
    pub(super) fn group_stage(&self, tile: GroupTile, c: Counter) -> String {
        let t = self.p.group.tiles[tile.0 as usize];
        format!("s{} + {} % {} * {}", tile.0, self.number(c), t.stages, t.stage_bytes() / 2)
    }

    fn copy_tensor(
        &mut self,
        from: Map,
        (row, col): (&Index, &Index),
        (to, block): (GroupTile, u32),
        barrier: Barrier,
        counter: Counter,
    ) {
        let p = self.p;
        let (t, view) = (p.group.tiles[to.0 as usize], p.view(p.maps()[from.0 as usize].view));
        let mut stage = self.group_stage(to, counter);
        if block > 0 {
            let _ = write!(stage, " + {}", block * t.block_bytes() / 2);
        }
        let (barrier, _) = self.barrier(barrier, counter);
        if view.window.is_some() {
            self.open("{");
            self.line(&format!("const int row = {}, col = {};", index(row), index(col)));
            self.copy_window(from, p.maps()[from.0 as usize].view, &stage, &barrier);
            self.close();
            return;
        }
        let mut indices = match view.heads {
            None => vec![index(col), index(row)],
            // Boxes have all matrices of a row.
            Some(heads) => vec![index(col), "0".to_owned(), format!("({}) / {}", index(row), heads.count)],
        };
        // Along a dimension where the view repeats the map has one index.
        let batch = view.batch.iter().enumerate().rev();
        indices.extend(batch.map(|(d, &stride)| format!("({} ? n{d} : 0)", size(stride))));
        self.line(&format!("copy_tensor({stage}, &a{}, {}, {barrier});", from.0, indices.join(", ")));
    }

    fn mma_group(
        &mut self,
        sum: Fragment,
        (left, row): (GroupTile, u32),
        (right, depth_rows): (GroupTile, bool),
        counter: Counter,
    ) {
        let shape = Shape { n: self.p.fragment(sum).cols, left: false, depth_rows };
        let first = format!("({row} + warp_group * {GROUP_ROWS}) * {ROW}");
        self.matrices((left, first), (right, depth_rows), counter);
        self.line(&format!("{}(f{}, a, b);", shape.name(), sum.0));
        self.close();
        self.begins(sum);
    }

    /// Opens the loop over the depth of a stage, with the descriptors of both operands, the left one from an element on.
    pub(super) fn matrices(
        &mut self,
        (left, first): (GroupTile, String),
        (right, depth_rows): (GroupTile, bool),
        counter: Counter,
    ) {
        let tile = self.p.group.tiles[right.0 as usize];
        // From 64 columns to the next 64. Along the depth a swizzle has all that an instruction reads, so there is no such step.
        let (block_bytes, along) = (tile.block_bytes(), CHUNK_BYTES);
        self.unrolled("k", if depth_rows { tile.rows } else { ROW } / DEPTH);
        let mut operand = |name: &str, tile: GroupTile, first: String, leading: u32| {
            let stage = self.group_stage(tile, counter);
            self.line(&format!("const u64 {name} = matrix_rows({stage}{first}, {leading});"));
        };
        operand("a", left, format!(" + {first} + k * {DEPTH}"), along);
        match depth_rows {
            true => operand("b", right, format!(" + k * {}", DEPTH * ROW), block_bytes),
            false => operand("b", right, format!(" + k * {DEPTH}"), along),
        }
    }

    fn mma_left(&mut self, sum: Fragment, left: Fragment, right: GroupTile, counter: Counter) {
        let (n, tile) = (self.p.fragment(sum).cols, self.p.group.tiles[right.0 as usize]);
        let (shape, stage) = (Shape { n, left: true, depth_rows: true }, self.group_stage(right, counter));
        self.unrolled("k", tile.rows / DEPTH);
        let (step, leading) = (DEPTH * ROW, tile.block_bytes());
        self.line(&format!("const u64 b = matrix_rows({stage} + k * {step}, {leading});"));
        self.line(&format!("{}(f{}, f{}[k], b);", shape.name(), sum.0, left.0));
        self.close();
        self.begins(sum);
    }

    /// A multiplication of the open group has these sums.
    fn begins(&mut self, sum: Fragment) {
        if let Some(open) = self.under_way.last_mut() {
            open.insert(sum);
        }
    }
}
